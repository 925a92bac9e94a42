//! Kept guests: what guests said of their files when their images were examined last. An image that has not changed since
//! is not examined again.
//!
//! Nobody's lock is needed: what is kept of an image holds for its stamp alone, and is written as a whole.

use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::files::StampChange;
use super::{State, StateError};
use crate::format::guest::{self, GuestHead, KeptGuest};
use crate::format::{FileNo, FormatError};

pub(super) const FOLDER: &str = "guests";

impl<S: Substrate> State<'_, S> {
    /// Returns what is kept of an image, if its head is `wanted` and its packages and files have at most `bytes_max`
    /// bytes.
    ///
    /// # Errors
    /// Those of the device. What is of no use is dropped.
    pub(crate) fn kept_guest(
        &self,
        number: FileNo,
        wanted: impl FnOnce(&GuestHead) -> bool,
        bytes_max: usize,
    ) -> Result<Option<KeptGuest>, StateError> {
        let path = path(self, number);
        let file = match self.open_own(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::at(&path)(error)),
        };
        match guest::read(self.substrate(), file, &self.identity().uuid, wanted, bytes_max) {
            Ok((of, guest)) if of == number => Ok(guest),
            Ok(_) => self.refuse(path, FormatError::Damaged("it is the guest of another file")).map(|()| None),
            Err(FormatError::Io(source)) => Err(StateError::at(&path)(source)),
            Err(why) => self.refuse(path, why).map(|()| None),
        }
    }

    /// Keeps what the guest of an image says.
    ///
    /// # Errors
    /// No space; those of the device.
    pub(crate) fn keep_guest(&self, number: FileNo, guest: &KeptGuest) -> Result<(), StateError> {
        let uuid = self.identity().uuid;
        let scratch = self.write_scratch(|file| guest::write(self.substrate(), file, uuid, number, guest).map(drop))?;
        self.replace(&scratch, &path(self, number))
    }

    /// Brings what is kept of an image up to date with times that were set without a change of its content.
    ///
    /// # Errors
    /// As [`State::keep_guest`].
    pub(crate) fn restamp_guest(&self, number: FileNo, change: StampChange) -> Result<(), StateError> {
        let StampChange { before, after } = change;
        let is_same = (before.length, before.modified) == (after.length, after.modified);
        let Some(mut guest) = self.kept_guest(number, |head| is_same && head.stamp == Some(before), usize::MAX)? else {
            return Ok(());
        };
        guest.head.stamp = Some(after);
        self.keep_guest(number, &guest)
    }

    /// Drops what is kept of an image.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn forget_guest(&self, number: FileNo) -> Result<(), StateError> {
        self.remove(&path(self, number))
    }

    /// Returns the numbers of the images of which something is kept.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn kept_guests(&self) -> Result<Vec<FileNo>, StateError> {
        Ok(self.names(FOLDER)?.into_iter().filter_map(|name| name.parse().map(FileNo).ok()).collect())
    }
}

fn path<S: Substrate>(state: &State<'_, S>, number: FileNo) -> PathBuf {
    state.path(FOLDER, number.to_string())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use onefold_block::Timestamp;
    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;
    use onefold_substrate::{Files, UserNo};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    use super::*;
    use crate::format::mark::Stamp;
    use crate::state::Notice;
    use crate::state::trust::Distrust;

    fn stamp(modified: i64, changed: i64) -> Stamp {
        let [modified, changed] = [modified, changed].map(|seconds| Timestamp { seconds, nanoseconds: 0 });
        Stamp { length: 4096, modified, changed }
    }

    fn guest(stamp: Option<Stamp>) -> KeptGuest {
        KeptGuest { head: GuestHead { stamp, databases: 7, ..GuestHead::default() }, ..KeptGuest::default() }
    }

    #[test]
    fn times_that_were_set_are_brought_up_to_date_and_a_change_of_the_content_is_not() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let substrate = file_system.observe().substrate;
        let (clock, random) = (ManualClock::starting_at(5), SeededRandom::new(5));
        let state = State::open(&substrate, &clock, &random, &|_| {}).unwrap();
        let number = FileNo(3);
        let kept = || state.kept_guest(number, |_| true).unwrap().map(|guest| guest.head.stamp);
        assert_eq!(kept(), None);
        state.restamp_guest(number, StampChange { before: stamp(1, 1), after: stamp(1, 2) }).unwrap();
        assert_eq!(kept(), None);
        state.keep_guest(number, &guest(Some(stamp(1, 1)))).unwrap();
        for (before, after, expected) in [
            (stamp(1, 1), stamp(1, 2), stamp(1, 2)),
            (stamp(1, 1), stamp(1, 3), stamp(1, 2)),
            (stamp(1, 2), stamp(2, 3), stamp(1, 2)),
        ] {
            state.restamp_guest(number, StampChange { before, after }).unwrap();
            assert_eq!(kept(), Some(Some(expected)));
        }
        assert_eq!(state.kept_guests().unwrap(), [number]);
        state.forget_guest(number).unwrap();
        assert_eq!((kept(), state.kept_guests().unwrap()), (None, Vec::new()));
    }

    #[test]
    fn what_is_damaged_or_of_another_image_is_dropped_and_what_belongs_to_another_user_is_refused() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let substrate = file_system.observe().substrate;
        let (clock, random, dropped) = (ManualClock::starting_at(5), SeededRandom::new(5), RefCell::new(0));
        let notice = |notice: Notice| *dropped.borrow_mut() += i32::from(matches!(notice, Notice::Dropped { .. }));
        let state = State::open(&substrate, &clock, &random, &notice).unwrap();
        let number = FileNo(3);
        let path = path(&state, number);

        state.keep_guest(FileNo(4), &guest(None)).unwrap();
        let scratch = state.write_scratch(|file| {
            let other = guest::write(&substrate, file, state.identity().uuid, FileNo(4), &guest(None));
            other.map(drop)
        });
        state.replace(&scratch.unwrap(), &path).unwrap();
        assert_eq!((state.kept_guest(number, |_| true).unwrap(), *dropped.borrow()), (None, 1));
        state.keep_guest(number, &guest(None)).unwrap();
        substrate.write_at(&substrate.open(&path, Access::Write).unwrap(), 100, &[1]).unwrap();
        assert_eq!((state.kept_guest(number, |_| true).unwrap(), *dropped.borrow()), (None, 2));
        assert_eq!(state.kept_guests().unwrap(), [FileNo(4)]);

        state.keep_guest(number, &guest(None)).unwrap();
        file_system.protect(&path, UserNo(7), 0o600).unwrap();
        let refused = state.kept_guest(number, |_| true).unwrap_err();
        let expected = Distrust::Owner { owner: UserNo(7), user: UserNo::ROOT };
        assert!(matches!(refused, StateError::Untrusted { why, .. } if why == expected), "{refused}");
    }
}
