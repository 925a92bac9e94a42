//! Detects which package databases have changed, for a watch that shares files repeatedly.
//!
//! An image whose times have not changed is not opened. In any other image, a few files and folders are looked up; the
//! databases themselves are not read.

use std::collections::BTreeMap;
use std::time::Duration;

use onefold_substrate::Substrate;

use super::common;
use super::finding::CACHE_BYTES_MAX;
use super::identify::{IdentifyError, databases_of};
use crate::format::FileNo;
use crate::format::guest::GuestHead;
use crate::format::mark::Stamp;
use crate::pace::Pace;
use crate::scan::{Age, ListedFile, is_stable, list};
use crate::selection::Selection;
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// State of the package databases of all images at one look.
#[derive(Debug, Default)]
pub struct DatabaseLook {
    seen: BTreeMap<FileNo, SeenImage>,
    /// Number of images that are new, or whose databases have changed since the previous look.
    pub changed: u64,
}

/// State of one image at a look.
#[derive(Clone, Copy, Debug)]
struct SeenImage {
    /// Stamp of the image; `None` if a later change might not show in it, or if the image could not be read.
    stamp: Option<Stamp>,
    /// Number that stands for its databases; `None` if the image cannot be opened.
    databases: Option<u64>,
}

impl DatabaseLook {
    /// Looks again. An image that this look has not seen counts as changed: a record shows that the image was examined,
    /// but not that it was shared with the others. The record only spares opening the image. An image whose content
    /// changed less than `stable_for` ago is left to a later look.
    ///
    /// # Errors
    /// Errors of the state folder, and `Interrupted` when the pace wants the work to end. The pace is asked before each
    /// image is opened, and at each read of one.
    pub fn again<S: Substrate>(
        &self,
        state: &State<'_, S>,
        selection: &Selection<'_>,
        stable_for: Duration,
        pace: &Pace<'_>,
    ) -> Result<DatabaseLook, StateError> {
        let now = state.now()?;
        let mut marks = Marks::load(state)?;
        let mut next = DatabaseLook::default();
        for listed in list(state, &mut marks, selection)? {
            let stamp = Stamp::of(&listed.stat);
            let before = self.seen.get(&listed.number).copied();
            if let Some(before) = before.filter(|before| before.stamp == Some(stamp)) {
                next.seen.insert(listed.number, before);
                continue;
            }
            if common::is_marked(state.substrate(), &listed.path) {
                continue;
            }
            if !is_stable(&listed.stat, now, stable_for) {
                next.seen.extend(before.map(|before| (listed.number, before)));
                continue;
            }
            pace.boundary()?;
            let kept = if before.is_none() { kept(state, listed.number)? } else { None };
            let seen = match kept.filter(|kept| kept.stamp == Some(stamp)) {
                Some(kept) => kept,
                None => {
                    let Some(databases) = databases(state, &listed, pace)? else {
                        // The next round looks again at an image that could not be read.
                        next.seen.extend(before.map(|before| (listed.number, SeenImage { stamp: None, ..before })));
                        continue;
                    };
                    let is_settled = Age::of(&stamp, now) == Age::Settled;
                    SeenImage { stamp: is_settled.then_some(stamp), databases }
                }
            };
            let before = before.and_then(|before| before.databases);
            next.changed += u64::from(seen.databases.is_some() && seen.databases != before);
            next.seen.insert(listed.number, seen);
        }
        Ok(next)
    }

    /// Returns this look with the state of some images taken from `before`. These images have not been shared since, so
    /// a later look finds them changed again.
    pub(crate) fn without(mut self, images: &[FileNo], before: &DatabaseLook) -> DatabaseLook {
        for image in images {
            match before.seen.get(image) {
                Some(seen) => _ = self.seen.insert(*image, *seen),
                None => _ = self.seen.remove(image),
            }
        }
        self
    }
}

/// Returns the state kept of an image.
fn kept<S: Substrate>(state: &State<'_, S>, number: FileNo) -> Result<Option<SeenImage>, StateError> {
    let mut seen = None;
    let take = |head: &GuestHead| {
        seen = Some(SeenImage { stamp: head.stamp, databases: Some(head.databases) });
        false
    };
    state.kept_guest(number, take, 0)?;
    Ok(seen)
}

/// Returns the number that stands for the databases of an image, or for having none that can be found. Returns `None`
/// if the image could not be read, which may pass.
fn databases<S: Substrate>(
    state: &State<'_, S>,
    listed: &ListedFile,
    pace: &Pace<'_>,
) -> Result<Option<Option<u64>>, StateError> {
    match databases_of(state.substrate(), listed, pace.reading(), CACHE_BYTES_MAX) {
        Ok(number) => Ok(Some(Some(number))),
        Err(IdentifyError::Stopped(error)) => Err(error),
        Err(IdentifyError::File(_) | IdentifyError::Unread) => Ok(None),
        Err(_) => Ok(Some(None)),
    }
}
