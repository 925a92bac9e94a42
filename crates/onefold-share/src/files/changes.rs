//! Detects which package databases have changed, for a watch that shares files repeatedly.
//!
//! An image whose times have not changed is not opened. In any other image, a few files and folders are looked up; the
//! databases themselves are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onefold_block::Timestamp;
use onefold_substrate::Substrate;

use super::common;
use super::finding::CACHE_BYTES_MAX;
use super::identify::{IdentifyError, databases_of};
use super::retry::RetryPause;
use crate::format::FileNo;
use crate::format::guest::GuestHead;
use crate::format::stamp::Stamp;
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
    /// What was found since the look to which this state belongs, by looks that were cut off or not used.
    found: BTreeMap<FileNo, SeenImage>,
    /// Images in whose search a look was cut off, since the last look that was not.
    cut_off: BTreeSet<FileNo>,
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

/// Callback that searches an image for its databases.
type SearchImage<'a> = dyn FnMut(&ListedFile) -> Result<DatabaseSearch, StateError> + 'a;

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
    /// much, is tried again after pauses that grow, whether the new look is used or not.
    ///
    /// A look that is cut off keeps what it found, for the next one. The image in whose search it was cut off is left
    /// out until a look has reached its end: otherwise an image whose search takes longer than a window of a watch
    /// would end all looks.
    ///
    /// # Errors
    /// Errors of the state folder, and `Interrupted` when the pace wants the work to end. The pace is asked before each
    /// image is opened, and at each read of one.
    pub fn again<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        selection: &Selection<'_>,
        stable_for: Duration,
        pace: &Pace<'_>,
    ) -> Result<DatabaseLook, StateError> {
        self.again_by(state, selection, stable_for, pace, &mut |listed| databases(state, listed, pace))
    }

    /// Looks again. `search` is called for the databases of an image.
    fn again_by<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        selection: &Selection<'_>,
        stable_for: Duration,
        pace: &Pace<'_>,
        search: &mut SearchImage<'_>,
    ) -> Result<DatabaseLook, StateError> {
        let now = state.now()?;
        let mut marks = Marks::load(state)?;
        let mut listed = list(state, &mut marks, selection)?;
        let numbers: BTreeSet<FileNo> = listed.iter().map(|listed| listed.number).collect();
        self.paused.retain(|number, _| numbers.contains(number));
        self.cut_off.retain(|number| numbers.contains(number));
        self.found.retain(|number, _| numbers.contains(number));
        // Slow ones come last, so that they cut off the least.
        listed.sort_by_key(|listed| self.paused.contains_key(&listed.number));
        let mut next = DatabaseLook::default();
        for listed in &listed {
            let before = self.seen.get(&listed.number).copied();
            if before.is_none_or(|before| before.stamp != Some(Stamp::of(&listed.stat))) {
                if common::is_marked(state.substrate(), &listed.path) {
                    continue;
                }
                if !self.waits(state, listed) && is_stable(&listed.stat, now, stable_for) {
                    pace.boundary()?;
                    let seen = self.look_at(state, listed, now, search)?;
                    let databases = before.and_then(|before| before.databases);
                    let found = seen.and_then(|seen| seen.databases);
                    next.changed += u64::from(found.is_some() && found != databases);
                    let seen = seen.or(before.map(|before| SeenImage { stamp: None, ..before }));
                    next.seen.extend(seen.map(|seen| (listed.number, seen)));
                    continue;
                }
            }
            next.seen.extend(before.map(|before| (listed.number, before)));
        }
        self.cut_off.clear();
        next.paused.clone_from(&self.paused);
        Ok(next)
    }

    /// Returns whether an image is left to a later look.
    fn waits<S: Substrate>(&self, state: &State<'_, S>, listed: &ListedFile) -> bool {
        let pause = self.paused.get(&listed.number);
        self.cut_off.contains(&listed.number) || pause.is_some_and(|pause| !pause.is_over(state.clock().monotonic()))
    }

    /// Returns the state of an image that was new or changed at `now`, the time of the look; `None` if it could not be
    /// read.
    fn look_at<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        listed: &ListedFile,
        now: Timestamp,
        search: &mut SearchImage<'_>,
    ) -> Result<Option<SeenImage>, StateError> {
        let (number, stamp) = (listed.number, Stamp::of(&listed.stat));
        let known = self.found.get(&number).copied();
        let known = match known.filter(|known| known.stamp == Some(stamp)) {
            None if !self.seen.contains_key(&number) => kept(state, number)?,
            known => known,
        };
        if let Some(known) = known.filter(|known| known.stamp == Some(stamp)) {
            return Ok(Some(known));
        }
        let outcome = search(listed);
        if let Err(StateError::Interrupted) = outcome {
            self.cut_off.insert(number);
        }
        match outcome {
            Ok(DatabaseSearch::Found(_) | DatabaseSearch::Unusable) => drop(self.paused.remove(&number)),
            Ok(DatabaseSearch::Unread | DatabaseSearch::Exhausted) | Err(StateError::Interrupted) => {
                // The search may have taken longer than the pause.
                let pause = RetryPause::after(self.paused.get(&number).copied(), state.clock().monotonic());
                self.paused.insert(number, pause);
            }
            Err(_) => {}
        }
        let databases = match outcome? {
            DatabaseSearch::Found(number) => Some(number),
            DatabaseSearch::Unusable | DatabaseSearch::Exhausted => None,
            DatabaseSearch::Unread => return Ok(None),
        };
        let is_settled = Age::of(&stamp, now) == Age::Settled;
        let seen = SeenImage { stamp: is_settled.then_some(stamp), databases };
        if is_settled {
            self.found.insert(number, seen);
        }
        Ok(Some(seen))
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
    use onefold_substrate::{Access, Files};
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
                let next = look.borrow_mut().again_by(&state, &selection, Duration::ZERO, &pace, &mut search).unwrap();
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
            found.set(DatabaseSearch::Found(2));
            assert_eq!(again(60), (0, 0), "it waits");
            assert_eq!(again(16 * 60), (1, 1), "it is new");
            assert_eq!(again(60), (0, 1), "its databases have not changed");
        }
    }

    /// Regressions: a look that the end of a window cut off began anew in the next window, with the same hostile
    /// images. A pause counted from the beginning of its look, and was over before the search was.
    #[test]
    fn a_look_that_is_cut_off_keeps_what_it_found_and_leaves_out_the_image_that_it_ended_at() {
        let options = SimulationOptions { images: 0, ..SimulationOptions::default() };
        let file_system = SimulatedFileSystem::new(&options);
        let host = file_system.mount(HostNo(0));
        for name in ["a-good", "b-hostile", "c-slow", "d-good"] {
            let file = host.substrate.create(Path::new(name)).unwrap();
            host.substrate.write_at(&file, 0, &[1; BLOCK_BYTES]).unwrap();
        }
        file_system.pass(Duration::from_secs(60));
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let searched = RefCell::new(Vec::new());
        let mut search = |listed: &ListedFile| {
            let name = listed.path.to_str().unwrap();
            searched.borrow_mut().push(name.to_owned());
            match name {
                "b-hostile" => {
                    file_system.pass(Duration::from_secs(7 * 60));
                    Ok(DatabaseSearch::Exhausted)
                }
                "c-slow" => Err(StateError::Interrupted),
                _ => Ok(DatabaseSearch::Found(1)),
            }
        };
        let mut look = DatabaseLook::default();
        let mut again = || {
            let next = look.again_by(&state, &Selection::all(), Duration::ZERO, &Pace::unlimited(), &mut search);
            let changed = next.map(|next| {
                look = next;
                look.changed
            });
            (changed.ok(), std::mem::take(&mut *searched.borrow_mut()))
        };
        assert_eq!(again(), (None, ["a-good", "b-hostile", "c-slow"].map(str::to_owned).to_vec()));
        assert_eq!(again(), (Some(2), vec!["d-good".to_owned()]));
        assert_eq!(again(), (Some(0), vec![]), "the slow one waits");
        let hostile = host.substrate.open(Path::new("b-hostile"), Access::Write).unwrap();
        host.substrate.write_at(&hostile, 0, &[2]).unwrap();
        file_system.pass(Duration::from_secs(50));
        assert_eq!(again(), (Some(0), vec![]), "the pause began after the search");
        file_system.pass(Duration::from_secs(20));
        assert_eq!(again(), (None, ["b-hostile", "c-slow"].map(str::to_owned).to_vec()));
        // However long it is until the next window, the look reaches its end.
        file_system.pass(Duration::from_secs(7 * 24 * 3600));
        assert_eq!(again(), (Some(0), vec![]));
    }
}
