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
    /// Its stamp; none where a later change may not show.
    stamp: Option<Stamp>,
    /// The number of its databases; none where it cannot be opened.
    databases: Option<u64>,
}

impl DatabaseLook {
    /// Looks again. Of an image that this look has not seen, what is kept from the last run counts.
    ///
    /// # Errors
    /// Those of the state folder, and of `go_on`, which is asked before each image is opened.
    pub fn again<S: Substrate>(
        &self,
        state: &State<'_, S>,
        selection: &Selection<'_>,
        go_on: &dyn Fn() -> Result<(), StateError>,
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
            go_on()?;
            let databases = number(state, &listed)?;
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
    state.kept_guest(number, |head: &GuestHead| {
        seen = SeenImage { stamp: head.stamp, databases: Some(head.databases) };
        false
    })?;
    Ok(seen)
}

/// Returns the number of the databases of an image; none where it cannot be opened.
fn number<S: Substrate>(state: &State<'_, S>, listed: &ListedFile) -> Result<Option<u64>, StateError> {
    match databases_of(state.substrate(), listed, CACHE_BYTES_MAX) {
        Ok(number) => Ok(Some(number)),
        Err(IdentifyError::Stopped(error)) => Err(error),
        Err(_) => Ok(None),
    }
}
