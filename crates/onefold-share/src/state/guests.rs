//! Kept guests: the statements of guests about their files when their images were last examined. An image that has not
//! changed since is not examined again.
//!
//! No lock is needed: a record holds only for the stamp of its image, and is written as a whole.

use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::files::StampChange;
use super::{State, StateError};
use crate::format::guest::{self, GuestHead, KeptGuest};
use crate::format::{FileNo, FormatError};
use crate::room::left_for_others;

pub(super) const FOLDER: &str = "guests";

/// Minimum space that stays free beside a record, as a multiple of the space that a pass leaves for others. A pass
/// needs some for its own records, and sharing frees space only afterwards.
const ROOM_FACTOR: u64 = 8;

impl<S: Substrate> State<'_, S> {
    /// Returns the record of an image, if its head is `wanted` and its packages and files have at most `bytes_max`
    /// bytes.
    ///
    /// # Errors
    /// `Untrusted` for a record that must not be used. A damaged record is dropped, and an unreadable one is reported:
    /// both count as missing.
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
            Err(error) => return self.refuse(path, FormatError::Io(error)).map(|()| None),
        };
        match guest::read(self.substrate(), file, &self.identity().uuid, wanted, bytes_max) {
            Ok((of, guest)) if of == number => Ok(guest),
            Ok(_) => self.refuse(path, FormatError::Damaged("it is the guest of another file")).map(|()| None),
            Err(why) => self.refuse(path, why).map(|()| None),
        }
    }

    /// Keeps the statements of an image's guest. If the record would take space that others need, the image gets none,
    /// and an old one is dropped: this only makes the next run more expensive.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn keep_guest(&self, number: FileNo, guest: &KeptGuest) -> Result<(), StateError> {
        if !self.leaves_room(guest.bytes()) {
            return self.forget_guest(number);
        }
        let uuid = self.identity().uuid;
        let write = |file| guest::write(self.substrate(), file, uuid, number, guest).map(drop);
        let kept = self.write_scratch(write).and_then(|scratch| self.replace(&scratch, &path(self, number)));
        match kept {
            Err(error) if error.is_lack_of_room() => self.forget_guest(number),
            kept => kept,
        }
    }

    /// Returns whether a record of this many bytes leaves enough space for others. If the file system does not report
    /// its free space, writing fails when it is full.
    pub(super) fn leaves_room(&self, bytes: usize) -> bool {
        let (Ok(room), Ok(left)) = (self.substrate().room(), self.substrate().room_for_records()) else { return true };
        let others = left_for_others(room.total).saturating_mul(ROOM_FACTOR);
        u64::try_from(bytes).is_ok_and(|bytes| left.saturating_sub(bytes) >= others)
    }

    /// Updates the record of an image after its times were set without a change of its content. Drops the record if
    /// there is no space for that.
    ///
    /// # Errors
    /// As [`State::keep_guest`].
    pub(crate) fn restamp_guest(&self, number: FileNo, change: StampChange) -> Result<(), StateError> {
        self.restamp_run(number, change)?;
        let StampChange { before, after } = change;
        let is_same = (before.length, before.modified) == (after.length, after.modified);
        let mut guest = match self.kept_guest(number, |head| is_same && head.stamp == Some(before), usize::MAX) {
            Ok(Some(guest)) => guest,
            // A record of another user is not used, and a run over files reports it.
            Ok(None) | Err(StateError::Untrusted { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        guest.head.stamp = Some(after);
        self.keep_guest(number, &guest)
    }

    /// Drops the record of an image.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn forget_guest(&self, number: FileNo) -> Result<(), StateError> {
        self.remove(&path(self, number))
    }

    /// Returns the numbers of the images with a record.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn kept_guests(&self) -> Result<Vec<FileNo>, StateError> {
        Ok(self.names(FOLDER)?.into_iter().filter_map(|name| name.parse().map(FileNo).ok()).collect())
    }
}

fn path<S: Substrate>(state: &State<'_, S>, number: FileNo) -> PathBuf {
    state.path(FOLDER, number.to_string())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;
    use onefold_block::{BLOCK_BYTES, Timestamp};
    use onefold_substrate::{Files, UserNo};
    use onefold_testing::simulated::{Host, HostNo, SimulatedFileSystem, SimulationOptions};

    use super::*;
    use crate::format::stamp::Stamp;
    use crate::state::Notice;
    use crate::state::trust::Distrust;

    fn times(modified: i64, changed: i64) -> Stamp {
        let [modified, changed] = [modified, changed].map(|seconds| Timestamp { seconds, nanoseconds: 0 });
        Stamp { length: 4096, modified, changed }
    }

    fn guest_of(stamp: Option<Stamp>) -> KeptGuest {
        KeptGuest { head: GuestHead { stamp, databases: 7, ..GuestHead::default() }, ..KeptGuest::default() }
    }

    #[test]
    fn times_that_were_set_are_brought_up_to_date_and_a_change_of_the_content_is_not() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let substrate = file_system.observe().substrate;
        let (clock, random) = (ManualClock::starting_at(5), SeededRandom::new(5));
        let state = State::open(&substrate, &clock, &random, &|_| {}).unwrap();
        let number = FileNo(3);
        let kept = || state.kept_guest(number, |_| true, usize::MAX).unwrap().map(|guest| guest.head.stamp);
        assert_eq!(kept(), None);
        state.restamp_guest(number, StampChange { before: times(1, 1), after: times(1, 2) }).unwrap();
        assert_eq!(kept(), None);
        state.keep_guest(number, &guest_of(Some(times(1, 1)))).unwrap();
        for (before, after, expected) in [
            (times(1, 1), times(1, 2), times(1, 2)),
            (times(1, 1), times(1, 3), times(1, 2)),
            (times(1, 2), times(2, 3), times(1, 2)),
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

        state.keep_guest(FileNo(4), &guest_of(None)).unwrap();
        let scratch = state.write_scratch(|file| {
            let other = guest::write(&substrate, file, state.identity().uuid, FileNo(4), &guest_of(None));
            other.map(drop)
        });
        state.replace(&scratch.unwrap(), &path).unwrap();
        assert_eq!((state.kept_guest(number, |_| true, usize::MAX).unwrap(), *dropped.borrow()), (None, 1));
        state.keep_guest(number, &guest_of(None)).unwrap();
        substrate.write_at(&substrate.open(&path, Access::Write).unwrap(), 100, &[1]).unwrap();
        assert_eq!((state.kept_guest(number, |_| true, usize::MAX).unwrap(), *dropped.borrow()), (None, 2));
        assert_eq!(state.kept_guests().unwrap(), [FileNo(4)]);

        state.keep_guest(number, &guest_of(None)).unwrap();
        file_system.protect(&path, UserNo(7), 0o600).unwrap();
        let refused = state.kept_guest(number, |_| true, usize::MAX).unwrap_err();
        let expected = Distrust::Owner { owner: UserNo(7), user: UserNo::ROOT };
        assert!(matches!(refused, StateError::Untrusted { why, .. } if why == expected), "{refused}");
    }

    const NUMBER: FileNo = FileNo(5);
    /// Number of blocks of a small file system.
    const TOTAL_BLOCKS: u32 = 512;

    fn ground() -> SimulatedFileSystem {
        let options = SimulationOptions { images: 0, total_blocks: TOTAL_BLOCKS, ..SimulationOptions::default() };
        SimulatedFileSystem::new(&options)
    }

    fn opened<'a>(host: &'a Host<'static>, notices: &'a dyn Fn(Notice)) -> State<'a, impl Substrate> {
        State::open(&host.substrate, &*host.clock, &*host.random, notices).unwrap()
    }

    fn stamp(changed: i64) -> Stamp {
        let time = |seconds| Timestamp { seconds, nanoseconds: 0 };
        Stamp { length: 1 << 30, modified: time(5), changed: time(changed) }
    }

    /// Returns a guest whose record takes about this many blocks.
    fn guest(blocks: usize) -> KeptGuest {
        let packages = vec!["p".repeat(BLOCK_BYTES - 2); blocks];
        KeptGuest {
            head: GuestHead { stamp: Some(stamp(6)), ..GuestHead::default() },
            packages,
            ..KeptGuest::default()
        }
    }

    #[test]
    fn a_record_is_kept_only_where_others_have_room_beside_it() {
        let ground = ground();
        let image = vec![1; (TOTAL_BLOCKS as usize * 3 / 4) * BLOCK_BYTES];
        ground.write_image(HostNo(0), "image", 0, &image).unwrap();
        let host = ground.mount(HostNo(0));
        let state = opened(&host, &|_| {});
        let is_kept = || state.kept_guest(NUMBER, |_| true, usize::MAX).unwrap().is_some();
        state.keep_guest(NUMBER, &guest(2)).unwrap();
        assert!(is_kept());
        // It would fit.
        state.keep_guest(NUMBER, &guest(80)).unwrap();
        assert!(!is_kept());
    }

    #[test]
    fn a_record_that_cannot_be_brought_up_to_date_is_dropped() {
        let ground = ground();
        let host = ground.mount(HostNo(0));
        let state = opened(&host, &|_| {});
        state.keep_guest(NUMBER, &guest(2)).unwrap();
        let change = StampChange { before: stamp(6), after: stamp(7) };
        state.restamp_guest(NUMBER, change).unwrap();
        assert_eq!(state.kept_guest(NUMBER, |_| true, usize::MAX).unwrap().unwrap().head.stamp, Some(stamp(7)));
        ground.set_full(true);
        state.restamp_guest(NUMBER, StampChange { before: stamp(7), after: stamp(8) }).unwrap();
        assert_eq!(state.kept_guest(NUMBER, |_| true, usize::MAX).unwrap(), None);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_reported_and_counts_as_none() {
        let ground = ground();
        let host = ground.mount(HostNo(0));
        let notices = Cell::new(0);
        let count = |_| notices.set(notices.get() + 1);
        let state = opened(&host, &count);
        state.keep_guest(NUMBER, &guest(2)).unwrap();
        ground.set_readable(path(&state, NUMBER), 0, false).unwrap();
        assert_eq!(state.kept_guest(NUMBER, |_| true, usize::MAX).unwrap(), None);
        assert_eq!(notices.get(), 1);
    }
}
