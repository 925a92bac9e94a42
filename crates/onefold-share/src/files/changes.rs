//! Which package databases have changed, for a watch that shares files again and again.
//!
//! An image whose times have not changed is not opened. Of another one, a few files and folders are looked up: nothing of
//! a database is read.

use std::collections::BTreeMap;

use onefold_substrate::Substrate;

use super::identify::{IdentifyError, databases_of};
use super::{CACHE_BYTES_MAX, common};
use crate::format::FileNo;
use crate::format::guest::GuestHead;
use crate::format::mark::Stamp;
use crate::pace::Pace;
use crate::scan::{Age, ListedFile, list};
use crate::selection::Selection;
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// What the package databases of images were like at a look.
#[derive(Debug, Default)]
pub struct DatabaseLook {
    seen: BTreeMap<FileNo, SeenImage>,
    /// Images whose databases have changed since the look before, or were not known then.
    pub changed: u64,
}

/// What an image was like.
#[derive(Clone, Copy, Debug)]
struct SeenImage {
    /// Its stamp; none where a later change may not show, and where the image could not be read.
    stamp: Option<Stamp>,
    /// The number of its databases; none where it cannot be opened.
    databases: Option<u64>,
}

impl DatabaseLook {
    /// Looks again. Of an image that this look has not seen, what is kept from the last run counts.
    ///
    /// # Errors
    /// Those of the state folder, and `Interrupted` when the pace wants the work to end: it is asked before each image is
    /// opened, and at each read of one.
    pub fn again<S: Substrate>(
        &self,
        state: &State<'_, S>,
        selection: &Selection<'_>,
        pace: &Pace<'_>,
    ) -> Result<DatabaseLook, StateError> {
        let now = state.now()?;
        let mut marks = Marks::load(state)?;
        let mut next = DatabaseLook::default();
        for listed in list(state, &mut marks, selection)? {
            let stamp = Stamp::of(&listed.stat);
            let before = match self.seen.get(&listed.number) {
                Some(seen) => *seen,
                None => kept(state, listed.number)?,
            };
            if before.stamp == Some(stamp) {
                next.seen.insert(listed.number, before);
                continue;
            }
            if common::is_marked(state.substrate(), &listed.path) {
                continue;
            }
            pace.boundary()?;
            let Some(databases) = databases(state, &listed, pace)? else {
                // What could not be read is looked at in the next round again.
                next.seen.insert(listed.number, SeenImage { stamp: None, ..before });
                continue;
            };
            let is_settled = Age::of(&stamp, now) == Age::Settled;
            next.changed += u64::from(databases.is_some() && databases != before.databases);
            next.seen.insert(listed.number, SeenImage { stamp: is_settled.then_some(stamp), databases });
        }
        Ok(next)
    }
}

/// Returns what is kept of an image.
fn kept<S: Substrate>(state: &State<'_, S>, number: FileNo) -> Result<SeenImage, StateError> {
    let mut seen = SeenImage { stamp: None, databases: None };
    let take = |head: &GuestHead| {
        seen = SeenImage { stamp: head.stamp, databases: Some(head.databases) };
        false
    };
    state.kept_guest(number, take, 0)?;
    Ok(seen)
}

/// Returns the number of the databases of an image, or that it has none that can be found; `None` where the image could
/// not be read, which may pass.
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
