//! The conclusion of the last complete run over guest files. A run that finds all images as that one has left them
//! would conclude the same.
//!
//! No lock is needed: the record holds only for the stamps of its images, and is written as a whole. It is stored
//! beside the kept guests, and removed with them.

use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::files::StampChange;
use super::guests::FOLDER;
use super::{State, StateError};
use crate::format::files_run::{self, FilesRun};
use crate::format::{FileNo, FormatError};

/// Its name. The names of guests are numbers.
const FILE: &str = "run";

impl<S: Substrate> State<'_, S> {
    /// Returns the conclusion of the last complete run, if its text has at most `bytes_max` bytes.
    ///
    /// # Errors
    /// `Untrusted` for a file that must not be used. A damaged file is dropped, and an unreadable one is reported: both
    /// count as missing.
    pub(crate) fn kept_run(&self, bytes_max: usize) -> Result<Option<FilesRun>, StateError> {
        let path = path(self);
        let file = match self.open_own(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return self.refuse(path, FormatError::Io(error)).map(|()| None),
        };
        match files_run::read(self.substrate(), file, &self.identity().uuid, bytes_max) {
            Ok(run) => Ok(run),
            Err(why) => self.refuse(path, why).map(|()| None),
        }
    }

    /// Keeps the conclusion of a complete run. Keeps nothing if its text is longer than `bytes_max`, or would take
    /// space that others need.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn keep_run(&self, run: &FilesRun, bytes_max: usize) -> Result<(), StateError> {
        let text = run.text().filter(|text| text.len() <= bytes_max && self.leaves_room(text.len()));
        let Some(text) = text else { return self.forget_run() };
        let uuid = self.identity().uuid;
        let kept = self
            .write_scratch(|file| files_run::write(self.substrate(), file, uuid, run, &text))
            .and_then(|scratch| self.replace(&scratch, &path(self)));
        match kept {
            Err(error) if error.is_lack_of_room() => self.forget_run(),
            kept => kept,
        }
    }

    /// Updates the stamp of an image in the record, after its times were set without a change of its content. If the
    /// image had another stamp before than the record says, the record keeps its stamp.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn restamp_run(&self, number: FileNo, change: StampChange) -> Result<(), StateError> {
        let StampChange { before, after } = change;
        if (before.length, before.modified) != (after.length, after.modified) {
            return Ok(());
        }
        let mut run = match self.kept_run(usize::MAX) {
            Ok(Some(run)) => run,
            // A file of another user is not used, and a run over files reports it.
            Ok(None) | Err(StateError::Untrusted { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Ok(place) = run.images.binary_search_by_key(&number, |image| image.number) else { return Ok(()) };
        let Some(image) = run.images.get_mut(place).filter(|image| image.stamp == before) else { return Ok(()) };
        image.stamp = after;
        self.keep_run(&run, usize::MAX)
    }

    /// Drops the conclusion of the last complete run.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn forget_run(&self) -> Result<(), StateError> {
        self.remove(&path(self))
    }
}

fn path<S: Substrate>(state: &State<'_, S>) -> PathBuf {
    state.path(FOLDER, FILE)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use onefold_block::Timestamp;
    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;
    use onefold_substrate::{Files, UserNo};
    use onefold_testing::simulated::{HostNo, SimulatedFileSystem, SimulationOptions};

    use super::*;
    use crate::format::files_run::RunImage;
    use crate::format::stamp::Stamp;

    fn stamp(modified: i64, changed: i64) -> Stamp {
        let time = |seconds| Timestamp { seconds, nanoseconds: 0 };
        Stamp { length: 4096, modified: time(modified), changed: time(changed) }
    }

    fn run() -> FilesRun {
        let image = |number| RunImage { number: FileNo(number), stamp: stamp(1, 1), domain: 0, is_examined: true };
        FilesRun { search: 5, images: vec![image(3), image(8)], ..FilesRun::default() }
    }

    #[test]
    fn a_run_is_kept_until_it_is_damaged_or_forgotten_and_times_that_were_set_are_brought_up_to_date() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let substrate = file_system.observe().substrate;
        let (clock, random, notices) = (ManualClock::starting_at(5), SeededRandom::new(5), Cell::new(0));
        let count = |_| notices.set(notices.get() + 1);
        let state = State::open(&substrate, &clock, &random, &count).unwrap();
        let kept = || state.kept_run(usize::MAX).unwrap();
        state.restamp_guest(FileNo(8), StampChange { before: stamp(1, 1), after: stamp(1, 2) }).unwrap();
        assert_eq!(kept(), None);
        state.keep_run(&run(), usize::MAX).unwrap();
        assert_eq!(kept(), Some(run()));

        let stamps = || kept().unwrap().images.iter().map(|image| image.stamp).collect::<Vec<_>>();
        for (number, before, after, expected) in [
            (8, stamp(1, 1), stamp(1, 2), [stamp(1, 1), stamp(1, 2)]),
            // It had another stamp before.
            (8, stamp(1, 1), stamp(1, 3), [stamp(1, 1), stamp(1, 2)]),
            // The content has changed, too.
            (8, stamp(1, 2), stamp(2, 3), [stamp(1, 1), stamp(1, 2)]),
            (4, stamp(1, 1), stamp(1, 3), [stamp(1, 1), stamp(1, 2)]),
        ] {
            state.restamp_guest(FileNo(number), StampChange { before, after }).unwrap();
            assert_eq!(stamps(), expected, "{number} {before:?}");
        }

        let text = run().text().unwrap().len();
        state.keep_run(&run(), text - 1).unwrap();
        assert_eq!((kept(), notices.get()), (None, 0));
        state.keep_run(&run(), text).unwrap();
        substrate.write_at(&substrate.open(&path(&state), Access::Write).unwrap(), 100, &[1]).unwrap();
        assert_eq!((kept(), notices.get()), (None, 1));
        state.keep_run(&run(), text).unwrap();
        assert_eq!(state.kept_guests().unwrap(), [], "a run is no guest");
        file_system.protect(path(&state), UserNo(7), 0o600).unwrap();
        assert!(matches!(state.kept_run(usize::MAX), Err(StateError::Untrusted { .. })));
        // A pass that sets times does not use the record.
        state.restamp_guest(FileNo(8), StampChange { before: stamp(1, 1), after: stamp(1, 2) }).unwrap();
    }

    #[test]
    fn nothing_is_kept_where_the_file_system_is_full() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let host = file_system.mount(HostNo(0));
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        state.keep_run(&run(), usize::MAX).unwrap();
        file_system.set_full(true);
        let long = FilesRun { packages: vec![("p".repeat(4000), 1); 4], ..run() };
        state.keep_run(&long, usize::MAX).unwrap();
        assert_eq!(state.kept_run(usize::MAX).unwrap(), None);
    }
}
