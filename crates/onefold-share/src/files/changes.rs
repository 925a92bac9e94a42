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
use super::retry::RetryPause;
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
    /// Images that could not be read, or whose search takes too much, and the pause until they are tried again.
    paused: BTreeMap<FileNo, RetryPause>,
    /// Number of images that are new, or whose databases have changed since the previous look.
    pub changed: u64,
}

/// Result of a search for the databases of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatabaseSearch {
    /// The number that stands for the databases, or for having none.
    Found(u64),
    /// The image cannot be opened.
    Unusable,
    /// The search would take too much.
    Exhausted,
    /// The image could not be read, which may pass.
    Unread,
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
    /// changed less than `stable_for` ago is left to a later look. An unreadable image, or one whose search takes too
    /// much, is tried again after pauses that grow.
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
        self.again_by(state, selection, stable_for, pace, &mut |listed| databases(state, listed, pace))
    }

    /// Looks again. `search` is called for the databases of an image.
    fn again_by<S: Substrate>(
        &self,
        state: &State<'_, S>,
        selection: &Selection<'_>,
        stable_for: Duration,
        pace: &Pace<'_>,
        search: &mut dyn FnMut(&ListedFile) -> Result<DatabaseSearch, StateError>,
    ) -> Result<DatabaseLook, StateError> {
        let (now, monotonic) = (state.now()?, state.clock().monotonic());
        let mut marks = Marks::load(state)?;
        let mut next = DatabaseLook::default();
        for listed in list(state, &mut marks, selection)? {
            let stamp = Stamp::of(&listed.stat);
            let before = self.seen.get(&listed.number).copied();
            let pause = self.paused.get(&listed.number).copied();
            next.paused.extend(pause.map(|pause| (listed.number, pause)));
            if let Some(before) = before.filter(|before| before.stamp == Some(stamp)) {
                next.seen.insert(listed.number, before);
                continue;
            }
            if common::is_marked(state.substrate(), &listed.path) {
                continue;
            }
            let is_paused = pause.is_some_and(|pause| !pause.is_over(monotonic));
            if is_paused || !is_stable(&listed.stat, now, stable_for) {
                next.seen.extend(before.map(|before| (listed.number, before)));
                continue;
            }
            pace.boundary()?;
            let kept = if before.is_none() { kept(state, listed.number)? } else { None };
            let seen = match kept.filter(|kept| kept.stamp == Some(stamp)) {
                Some(kept) => kept,
                None => {
                    let found = search(&listed)?;
                    match found {
                        DatabaseSearch::Unread | DatabaseSearch::Exhausted => {
                            next.paused.insert(listed.number, RetryPause::after(pause, monotonic));
                        }
                        _ => drop(next.paused.remove(&listed.number)),
                    }
                    let databases = match found {
                        DatabaseSearch::Found(number) => Some(number),
                        DatabaseSearch::Unusable | DatabaseSearch::Exhausted => None,
                        DatabaseSearch::Unread => {
                            next.seen.extend(before.map(|before| (listed.number, SeenImage { stamp: None, ..before })));
                            continue;
                        }
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

    /// Has images wait as they do in a later look, whether that look is used or not.
    pub(crate) fn wait_as(&mut self, later: &DatabaseLook) {
        self.paused.clone_from(&later.paused);
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

/// Searches an image for its databases.
fn databases<S: Substrate>(
    state: &State<'_, S>,
    listed: &ListedFile,
    pace: &Pace<'_>,
) -> Result<DatabaseSearch, StateError> {
    match databases_of(state.substrate(), listed, pace.reading(), CACHE_BYTES_MAX) {
        Ok(number) => Ok(DatabaseSearch::Found(number)),
        Err(IdentifyError::Stopped(error)) => Err(error),
        Err(IdentifyError::File(_) | IdentifyError::Unread) => Ok(DatabaseSearch::Unread),
        Err(IdentifyError::Exhausted) => Ok(DatabaseSearch::Exhausted),
        Err(_) => Ok(DatabaseSearch::Unusable),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::path::Path;

    use onefold_block::{BLOCK_BYTES, Clock};
    use onefold_substrate::Files;
    use onefold_testing::simulated::{HostNo, SimulatedFileSystem, SimulationOptions};

    use super::*;

    /// Regressions: an image with a bad block was searched again in each turn of a watch, without end. So was a hostile
    /// one, for gigabytes, whenever its guest wrote a block.
    #[test]
    fn an_image_that_cannot_be_read_is_tried_again_after_pauses_that_grow() {
        for outcome in [DatabaseSearch::Unread, DatabaseSearch::Exhausted] {
            let options = SimulationOptions { images: 0, ..SimulationOptions::default() };
            let file_system = SimulatedFileSystem::new(&options);
            let host = file_system.mount(HostNo(0));
            let [bad, _good] = ["bad", "good"].map(|name| {
                let file = host.substrate.create(Path::new(name)).unwrap();
                host.substrate.write_at(&file, 0, &[1; BLOCK_BYTES]).unwrap();
                file
            });
            let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
            let (tries, found) = (Cell::new(0), Cell::new(outcome));
            let mut search = |listed: &ListedFile| {
                if listed.path == Path::new("good") {
                    return Ok(DatabaseSearch::Found(1));
                }
                tries.set(tries.get() + 1);
                Ok(found.get())
            };
            let look = RefCell::new(DatabaseLook::default());
            // The guest writes in all turns but every third one.
            let turns = Cell::new(0);
            let mut again = |seconds| {
                turns.set(turns.get() + 1);
                if turns.get() % 3 != 0 {
                    host.substrate.write_at(&bad, 0, &[1]).unwrap();
                }
                file_system.pass(Duration::from_secs(seconds));
                let (selection, pace) = (Selection::all(), Pace::unlimited());
                let next = look.borrow().again_by(&state, &selection, Duration::ZERO, &pace, &mut search).unwrap();
                look.replace(next);
                (look.borrow().changed, tries.replace(0))
            };
            assert_eq!(again(1), (1, 1), "the good one is new");
            let mut waited = Vec::new();
            let (began, mut last) = (host.clock.monotonic(), 0);
            for _ in 0..60 {
                if again(20) == (0, 1) {
                    let at = (host.clock.monotonic() - began).as_secs();
                    waited.push((at - last) / 60);
                    last = at;
                }
            }
            assert_eq!(waited, [1, 2, 4, 8], "{outcome:?}");
            let mut without = DatabaseLook::default();
            without.wait_as(&look.borrow());
            assert_eq!((without.paused.len(), without.seen.len()), (1, 0));
            found.set(DatabaseSearch::Found(2));
            assert_eq!(again(60), (0, 0), "it waits");
            assert_eq!(again(16 * 60), (1, 1), "it is new");
            assert_eq!(again(60), (0, 1), "its databases have not changed");
        }
    }
}
