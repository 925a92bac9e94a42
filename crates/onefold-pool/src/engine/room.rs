//! Room under the pool: how many blocks may be accepted before the backing store is asked for its room again.
//!
//! A sparse pool file or a thin volume can run out of room while the pool has free blocks. A write that was answered
//! before it is stored is then lost. So the room must be known before a write is accepted:
//! - *A store that vouches* that each block has its place ([`BlockDevice::has_room_for_all_blocks`]) needs no room. Its
//!   answer counts for at most a second: to find it, the file system may have to read the map of the whole pool file.
//! - *Ample room*, 1 GiB and more, gives credit: 16 MiB may be accepted without another question, for at most a second.
//!   Other users of the store may take all of the room meanwhile.
//! - *Little room* gives no credit: the backing store is asked for each write.
//! - *A write that finds no room* ends all credit. For the next second, nothing is accepted.
//! - *A store that has run out of room without being able to report it* (a thin volume) never gets credit again.
//!
//! Late writes ([`super::late_writes`]) reach the device only at a commit, when no write is left that could return the
//! error. They need more than room: the backing store must vouch for all blocks. Its answer ends with every event that
//! may take a block's place away: a discard, a growth of the pool, a write that finds no room.
//!
//! Whether a block was written before does not count. A store that never writes in place itself takes room for it
//! again, and so does a file system for a block that a copy of the pool file shares (`cp --reflink`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::{BlockDevice, BlockNo, Clock, ReadOp, WriteOp};

use crate::options::Provisioning;
use crate::sync::Mutex;

/// Room that the backing store must have beyond all accepted writes, in blocks.
const SPARE_BLOCKS: u64 = 16_384;

/// Below this room, the backing store is asked for each write, in blocks: 1 GiB.
const AMPLE_BLOCKS: u64 = 262_144;

/// Number of blocks of the credit that ample room gives.
const CREDIT_BLOCKS: u64 = 4096;

/// Maximum life of a credit.
const CREDIT_TIME: Duration = Duration::from_secs(1);

/// How long the backing store's answer on all of its blocks counts.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// How long nothing is accepted after a write without room.
const FULL_TIME: Duration = Duration::from_secs(1);

/// The knowledge of the room under the pool.
pub(crate) struct BackingRoom {
    clock: Arc<dyn Clock>,
    /// Never held while another lock is taken.
    state: Mutex<RoomState>,
}

#[derive(Debug, Default)]
struct RoomState {
    credit: Option<Credit>,
    /// When a write last found no room.
    failed_at: Option<Duration>,
    /// Whether the backing store can run out of room without reporting how much it has.
    is_thin: bool,
    answer: Option<RoomAnswer>,
    /// Number of events so far that made earlier answers invalid.
    changes: u64,
    /// Number of discards in progress.
    discards: u64,
}

/// The backing store's last answer to whether each block has its place.
#[derive(Clone, Copy, Debug)]
struct RoomAnswer {
    has_room: bool,
    given_at: Duration,
}

/// Blocks that can be accepted without asking for the room.
#[derive(Clone, Copy, Debug)]
struct Credit {
    blocks: u64,
    given_at: Duration,
}

/// How many blocks may be set aside for accepted writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// Any number, as far as room is concerned.
    Any,
    /// This number in total, including the blocks that are already set aside.
    InAll(u64),
    /// None: writes are stored before they are answered.
    Nothing,
}

impl BackingRoom {
    pub(crate) fn new(clock: Arc<dyn Clock>, provisioning: Provisioning) -> BackingRoom {
        let is_thin = provisioning == Provisioning::Thin;
        BackingRoom { clock, state: Mutex::new(RoomState { is_thin, ..RoomState::default() }) }
    }

    /// Returns the allowance for a write that takes at most `count` blocks. `vouches` asks the backing store whether it
    /// vouches for all blocks, `ask` for its room in blocks. Must be called without the metadata lock.
    pub(crate) fn allowance(
        &self,
        count: u64,
        vouches: impl FnOnce() -> bool,
        ask: impl FnOnce() -> Option<u64>,
    ) -> Allowance {
        if self.is_vouched_for(vouches) {
            return Allowance::Any;
        }
        let now = self.clock.monotonic();
        {
            let mut state = self.state.lock();
            if state.is_closed(now) {
                return Allowance::Nothing;
            }
            if state.take_credit(count, now) {
                return Allowance::Any;
            }
        }
        let room = ask();
        let mut state = self.state.lock();
        // A write may have failed meanwhile, which is newer than the answer.
        if state.is_closed(now) {
            return Allowance::Nothing;
        }
        match room {
            Some(room) if room < AMPLE_BLOCKS => Allowance::InAll(room.saturating_sub(SPARE_BLOCKS)),
            room => {
                state.credit = Some(Credit { blocks: CREDIT_BLOCKS.saturating_sub(count), given_at: now });
                room.map_or(Allowance::Any, |room| Allowance::InAll(room - SPARE_BLOCKS))
            }
        }
    }

    /// Returns whether the backing store vouches that each block has its place, so that no write fails for lack of
    /// room. `ask` asks it. Must be called without the metadata lock. For a late write the caller already owns the
    /// blocks: a later discard leaves these out.
    pub(crate) fn is_vouched_for(&self, ask: impl FnOnce() -> bool) -> bool {
        let now = self.clock.monotonic();
        let asked_at = {
            let state = self.state.lock();
            if state.is_closed(now) || state.discards > 0 {
                return false;
            }
            if let Some(answer) = state.answer.filter(|answer| now < answer.given_at.saturating_add(ANSWER_TIME)) {
                return answer.has_room;
            }
            state.changes
        };
        let has_room = ask();
        let mut state = self.state.lock();
        // An answer from before a change does not count.
        if state.changes != asked_at {
            return false;
        }
        state.answer = Some(RoomAnswer { has_room, given_at: now });
        has_room
    }

    /// Notes that blocks may have lost their places, or that there are more blocks. The backing store will be asked
    /// again.
    pub(crate) fn note_change(&self) {
        self.state.lock().forget_word();
    }

    /// Runs a discard. During it and after it, no earlier answer counts.
    fn discarding<T>(&self, discard: impl FnOnce() -> T) -> T {
        {
            let mut state = self.state.lock();
            state.discards += 1;
            state.forget_word();
        }
        let outcome = discard();
        let mut state = self.state.lock();
        state.discards -= 1;
        state.forget_word();
        outcome
    }

    /// Notes that a write found no room. `tells_room` is whether the backing store reports how much room it has.
    fn note_full(&self, tells_room: bool) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        state.credit = None;
        state.forget_word();
        state.failed_at = Some(now);
        state.is_thin |= !tells_room;
    }
}

impl RoomState {
    fn is_closed(&self, now: Duration) -> bool {
        self.is_thin || self.failed_at.is_some_and(|failed_at| now < failed_at.saturating_add(FULL_TIME))
    }

    fn forget_word(&mut self) {
        self.answer = None;
        self.changes += 1;
    }

    fn take_credit(&mut self, count: u64, now: Duration) -> bool {
        let left = self.credit.filter(|credit| now < credit.given_at.saturating_add(CREDIT_TIME));
        let taken = left.and_then(|credit| credit.blocks.checked_sub(count));
        if let (Some(credit), Some(blocks)) = (&mut self.credit, taken) {
            credit.blocks = blocks;
        }
        taken.is_some()
    }
}

/// A device that reports each discard, and each write that finds no room, to [`BackingRoom`].
pub(crate) struct RoomWatch {
    device: Arc<dyn BlockDevice>,
    room: Arc<BackingRoom>,
}

impl RoomWatch {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, room: Arc<BackingRoom>) -> RoomWatch {
        RoomWatch { device, room }
    }

    fn note(&self, outcome: io::Result<()>) -> io::Result<()> {
        outcome.inspect_err(|error| {
            if error.kind() == io::ErrorKind::StorageFull {
                self.room.note_full(self.device.room_blocks().is_some());
            }
        })
    }
}

impl BlockDevice for RoomWatch {
    fn block_count(&self) -> io::Result<u64> {
        self.device.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.device.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.note(self.device.write(first, from))
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.room.discarding(|| self.device.discard(first, count))
    }

    fn room_blocks(&self) -> Option<u64> {
        self.device.room_blocks()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.device.has_room_for_all_blocks()
    }

    fn read_batch(&self, batch: &mut [ReadOp<'_>]) -> io::Result<()> {
        self.device.read_batch(batch)
    }

    fn write_batch(&self, batch: &[WriteOp<'_>]) -> io::Result<()> {
        self.note(self.device.write_batch(batch))
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::clock::ManualClock;
    use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice, ThinDevice};

    use super::*;

    struct RoomFixture {
        clock: Arc<ManualClock>,
        room: Arc<BackingRoom>,
    }

    impl RoomFixture {
        fn new(provisioning: Provisioning) -> RoomFixture {
            let clock = Arc::new(ManualClock::starting_at(1000));
            RoomFixture { room: Arc::new(BackingRoom::new(clock.clone(), provisioning)), clock }
        }

        /// Returns the allowance for 100 blocks if the backing store has `room` and does not vouch for its blocks, and
        /// whether the store was asked for the room.
        fn allowance(&self, room: Option<u64>) -> (Allowance, bool) {
            let mut was_asked = false;
            let ask = || {
                was_asked = true;
                room
            };
            (self.room.allowance(100, || false, ask), was_asked)
        }

        fn is_vouched_for(&self, answer: bool) -> bool {
            self.room.is_vouched_for(|| answer)
        }
    }

    /// Found in a review: a dense pool file needed no room, although its blocks were shared with a copy
    /// on a full host. All that was accepted was lost.
    #[test]
    fn room_counts_unless_the_store_vouches_for_all_blocks_and_its_map_is_asked_once_a_second() {
        let fixture = RoomFixture::new(Provisioning::Told);
        let (mut map_questions, mut room_questions) = (0, 0);
        let mut allowance = |vouches| {
            let vouches = || {
                map_questions += 1;
                vouches
            };
            let room = || {
                room_questions += 1;
                Some(SPARE_BLOCKS + 7)
            };
            fixture.room.allowance(100, vouches, room)
        };
        assert!((0..1000).all(|_| allowance(false) == Allowance::InAll(7)));
        assert_eq!(allowance(true), Allowance::InAll(7), "the old answer counts");
        fixture.clock.advance_seconds(1);
        assert!((0..1000).all(|_| allowance(true) == Allowance::Any));
        fixture.clock.advance_seconds(1);
        assert_eq!(allowance(false), Allowance::InAll(7), "nothing outlives the second");
        assert_eq!((map_questions, room_questions), (3, 1002));
    }

    #[test]
    fn ample_room_is_asked_for_once_in_a_second_or_16_mib() {
        let fixture = RoomFixture::new(Provisioning::Told);
        let ample = Some(AMPLE_BLOCKS);
        assert_eq!(fixture.allowance(ample), (Allowance::InAll(AMPLE_BLOCKS - SPARE_BLOCKS), true));
        let credited = (0..).take_while(|_| fixture.allowance(ample) == (Allowance::Any, false)).count() as u64;
        assert_eq!(credited, CREDIT_BLOCKS / 100 - 1, "the next one was asked for");
        assert_eq!(fixture.allowance(ample), (Allowance::Any, false));
        fixture.clock.advance_seconds(1);
        assert_eq!(fixture.allowance(Some(0)), (Allowance::InAll(0), true), "what was known is too old");
        assert_eq!(fixture.allowance(None), (Allowance::Any, true));
    }

    #[test]
    fn little_room_is_asked_for_each_time() {
        let fixture = RoomFixture::new(Provisioning::Told);
        for room in [AMPLE_BLOCKS - 1, SPARE_BLOCKS, 0, 50_000] {
            assert_eq!(fixture.allowance(Some(room)), (Allowance::InAll(room.saturating_sub(SPARE_BLOCKS)), true));
        }
    }

    #[test]
    fn a_write_without_room_ends_the_credit_and_nothing_is_accepted_for_a_second() {
        let fixture = RoomFixture::new(Provisioning::Told);
        let thin = Arc::new(ThinDevice::new(MemoryDevice::new(64), 1));
        let watch = RoomWatch::new(thin, fixture.room.clone());
        assert!(fixture.allowance(Some(AMPLE_BLOCKS)).1);
        assert_eq!(fixture.allowance(None), (Allowance::Any, false));
        watch.write(BlockNo(1), &[1; 4096]).expect("there is room for one");
        assert_eq!(fixture.allowance(None), (Allowance::Any, false));
        let from = [2; 4096];
        watch.write_batch(&[WriteOp { first: BlockNo(2), from: &from }]).expect_err("no room");
        assert_eq!(fixture.allowance(Some(AMPLE_BLOCKS)), (Allowance::Nothing, false));
        fixture.clock.advance_seconds(1);
        assert_eq!(fixture.allowance(Some(20_000)), (Allowance::InAll(20_000 - SPARE_BLOCKS), true));
    }

    #[test]
    fn a_device_that_ran_out_of_room_untold_gets_no_credit_any_more() {
        let fixture = RoomFixture::new(Provisioning::Told);
        let volume = Arc::new(FaultyDevice::new(MemoryDevice::new(64), 1));
        let watch = RoomWatch::new(volume.clone(), fixture.room.clone());
        assert_eq!(fixture.allowance(None), (Allowance::Any, true));
        volume.fail(Call::Write, FailingCalls::Nth(1), Fault::StorageFull);
        watch.write(BlockNo(1), &[1; 4096]).expect_err("no room");
        fixture.clock.advance_seconds(1000);
        assert_eq!(fixture.allowance(None), (Allowance::Nothing, false));
        let fixture = RoomFixture::new(Provisioning::Thin);
        assert_eq!(fixture.allowance(None), (Allowance::Nothing, false));
    }

    #[test]
    fn the_word_of_the_backing_store_ends_with_a_change_or_after_a_second() {
        let fixture = RoomFixture::new(Provisioning::Told);
        assert!(fixture.is_vouched_for(true));
        assert!(fixture.is_vouched_for(false), "not asked again at once");
        fixture.clock.advance_seconds(1);
        assert!(!fixture.is_vouched_for(false) && !fixture.is_vouched_for(true), "its last answer counts");
        for change in [BackingRoom::note_change, |room: &BackingRoom| room.discarding(|| ())] {
            fixture.clock.advance_seconds(1);
            assert!(fixture.is_vouched_for(true));
            change(&fixture.room);
            assert!(!fixture.is_vouched_for(false));
        }
        assert!(!RoomFixture::new(Provisioning::Thin).is_vouched_for(true));
    }

    #[test]
    fn an_answer_from_before_a_change_does_not_count() {
        let fixture = RoomFixture::new(Provisioning::Told);
        let is_vouched_for = fixture.room.is_vouched_for(|| {
            fixture.room.note_change();
            true
        });
        assert!(!is_vouched_for && !fixture.is_vouched_for(false));
        let fixture = RoomFixture::new(Provisioning::Told);
        fixture.room.discarding(|| assert!(!fixture.is_vouched_for(true), "the hole may not be there yet"));
        let is_vouched_for = fixture.room.is_vouched_for(|| {
            fixture.room.discarding(|| ());
            true
        });
        assert!(!is_vouched_for);
        assert!(fixture.is_vouched_for(true), "asked after it");
    }

    #[test]
    fn nobody_is_vouched_for_once_a_write_has_found_no_room() {
        let fixture = RoomFixture::new(Provisioning::Told);
        let thin = Arc::new(ThinDevice::new(MemoryDevice::new(64), 0));
        let watch = RoomWatch::new(thin, fixture.room.clone());
        assert!(fixture.is_vouched_for(true));
        watch.write(BlockNo(1), &[1; 4096]).expect_err("no room");
        assert!(!fixture.is_vouched_for(true));
    }
}
