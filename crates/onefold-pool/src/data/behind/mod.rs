//! Write-behind: accepts writes of whole blocks at once and carries them out a little later, in order of acceptance,
//! many small ones together.
//!
//! A writer sends its next request after the answer to the last one. If each answer waited for hashing, device and
//! metadata, writer and pool would continually wait for each other, and one of two cores would idle. So the door hands
//! over the request's own buffer, the writer continues, and workers do the rest. While a worker is busy, small writes
//! gather behind it. The next worker decides them together and stores their new blocks side by side, with one request
//! to the device.
//!
//! **What it changes for users: nothing.**
//! - *Reading back.* The range of the file stays locked from acceptance on, so a read of it waits. So does every read
//!   of a file whose end an accepted write moves, and every other verb that could notice that a write has not happened
//!   yet ([`Data::settle_writes`]).
//! - *Order.* Writes take effect in order of acceptance, and every other change waits for the writes that were accepted
//!   before it began. So a commit contains, as without write-behind, the state after some change, and all changes made
//!   before it.
//! - *Durability.* `fsync` waits for all writes that were accepted before it. Until then, a crash loses uncommitted
//!   writes, as it would without write-behind.
//! - *Space.* Acceptance sets blocks aside as if all were new. If that would take some of the last blocks, or of the
//!   last room under a sparse pool, the write is carried out before its answer, and can be refused
//!   ([`crate::engine::room`]).
//! - *Failures.* A failing device stops the pool, and every `fsync` reports that. Any other failure (a damaged
//!   structure, a host whose file system filled up at that moment) is a loss, which each open file and folder reports
//!   ([`losses`]).
//!
//! **Why no thread waits for ever.** A write is numbered after it has its range, and takes its turn by number. It waits
//! for its range while it has no number, and for lower numbers once it has its range. So every wait is for a lower
//! number. If a block of the write attaches to another write's block ([`super::decide`]), that write has begun, and
//! waits for no other write before its blocks are on the device.

mod losses;
mod queue;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BLOCK_BYTES_U64};

use super::Data;
use super::edges::WriteRequest;
use super::write::StoreRequest;
use crate::attr::{Durability, Ino};
use crate::engine::late_writes::LATE_BLOCKS_MAX;
use crate::engine::room::Allowance;
use crate::error::Result;
use crate::format::inode::Inode;
use crate::format::map_node::{FAN_OUT, LEVELS_MAX};
use crate::format::state::Field;
use crate::meta::allocate::EMERGENCY_BLOCKS;
use crate::meta::{Op, OpResult, Privilege};
use crate::readers::range_lock::LockMode;
use crate::waits::about_to_wait;
pub(crate) use losses::Losses;
pub use losses::SeenLosses;
pub(crate) use queue::WriteQueue;
use queue::{AcceptedWrite, Admission, BATCH_BLOCKS};

/// Which thread begins an accepted write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStart {
    /// A worker, which is woken for it.
    ByWorker,
    /// The caller, by [`crate::Pool::begin_accepted`], or a worker after [`crate::Pool::hand_over_accepted`]. The
    /// caller must call one of them before it does or waits for anything else: other threads may wait for the write
    /// without being able to begin it.
    ByCaller,
}

/// A write whose bytes come in a buffer of their own, which the pool keeps until the write has taken effect.
#[derive(Debug)]
pub struct OwnedWrite {
    /// The file.
    pub ino: Ino,
    /// Offset in the file.
    pub offset: u64,
    /// The buffer.
    pub buffer: AlignedBuffer,
    /// Those of its bytes that are written. Bytes that begin at a page save a copy.
    pub range: Range<usize>,
}

impl OwnedWrite {
    /// Returns the bytes that are written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }

    /// Returns whether it is of whole blocks in whole pages, and no larger than a batch: others are not accepted.
    fn is_fit(&self) -> bool {
        let whole = |number: usize| number.is_multiple_of(BLOCK_BYTES);
        !self.range.is_empty()
            && self.range.len() <= BATCH_BLOCKS * BLOCK_BYTES
            && whole(self.range.len())
            && whole(self.range.start)
            && self.offset.is_multiple_of(BLOCK_BYTES_U64)
            && self.offset.checked_add(self.range.len() as u64).is_some_and(|end| end <= crate::FILE_BYTES_MAX)
    }
}

/// Blocks that stay free beyond all accepted writes.
const SPARE_BLOCKS: u64 = 256;
/// Minimum and maximum number of threads that carry out accepted writes.
const WRITERS_MIN: usize = 2;
const WRITERS_MAX: usize = 4;

/// Returns the number of threads that carry out accepted writes: one per core, as far as a single device can use them.
pub(super) fn writers() -> usize {
    std::thread::available_parallelism().map_or(WRITERS_MIN, std::num::NonZero::get).clamp(WRITERS_MIN, WRITERS_MAX)
}

/// Starts the threads that carry out accepted writes.
///
/// # Errors
/// When the operating system cannot start a thread.
pub(crate) fn start_writers(data: &Arc<Data>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let start = |number| {
        let data = Arc::clone(data);
        std::thread::Builder::new().name(format!("writer-{number}")).spawn(move || while data.work_behind() {})
    };
    (0..writers()).map(start).collect()
}

/// Returns the maximum number of blocks that a write of `count` blocks takes: its data, and the nodes of the file's map
/// that may have to be made or copied.
const fn blocks_needed(count: u64) -> u64 {
    count + (count / FAN_OUT + 2) + 2 * LEVELS_MAX as u64
}

/// The turn of a batch of accepted writes. Dropping it, after any outcome, gives the next batch its turn.
struct WriteTurn<'e> {
    data: &'e Data,
    batch: Vec<AcceptedWrite>,
    /// Blocks that are still set aside for the batch.
    set_aside: u64,
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The state of the unfinished work is unknown.
            let cause = || "a bug: the daemon panicked at an accepted write".to_owned();
            self.data.engine.meta().stopped.get_or_insert_with(cause);
        }
        if self.set_aside > 0 {
            self.data.engine.meta().set_aside -= self.set_aside;
        }
        let behind = &self.data.behind;
        if let Some(first) = self.batch.first() {
            behind.wait_for(first.number);
        }
        let count = self.batch.len();
        for accepted in self.batch.drain(..) {
            drop(self.data.readers.range_locks.resume(accepted.lock));
        }
        behind.advance(count);
    }
}

impl Data {
    /// Waits until all writes accepted before now have taken effect, and helps to carry them out.
    pub(crate) fn settle_writes(&self) {
        self.settle_through(self.behind.accepted());
    }

    /// Waits until all writes to a file that were accepted before now have taken effect, and helps to carry them out.
    pub(crate) fn settle_file(&self, ino: Ino) {
        self.settle_through(self.behind.accepted_for(ino));
    }

    /// Waits until a read of `bytes` bytes at `offset` of a file sees all writes accepted before now, and helps to
    /// carry them out. Does not wait for writes elsewhere in the file, unless they move its end.
    pub(crate) fn settle_for_read(&self, ino: Ino, offset: u64, bytes: usize) {
        let end = offset.saturating_add(bytes as u64).div_ceil(BLOCK_BYTES_U64);
        self.settle_through(self.behind.accepted_before_read(ino, &(offset / BLOCK_BYTES_U64..end)));
    }

    fn settle_through(&self, number: u64) {
        // This is faster than waking a worker.
        while let Some(batch) = self.behind.take_below(number) {
            self.carry_out(batch);
        }
        if self.behind.is_past(number) {
            return;
        }
        about_to_wait();
        let wait = self.settling.begin();
        if self.settling.look(wait, || self.behind.is_past(number).then_some(())).is_none() {
            self.behind.wait_for(number);
            self.settling.slept(wait);
        }
    }

    /// Does a write, now or later: see the module.
    ///
    /// # Errors
    /// See [`Data::write_file`].
    pub(crate) fn write_behind(&self, write: OwnedWrite, begins: WriteStart) -> Result<()> {
        let (ino, offset, is_fit) = (write.ino, write.offset, write.is_fit());
        let count = write.range.len() / BLOCK_BYTES;
        let place = loop {
            match if is_fit { self.behind.enter(write.buffer.block_count()) } else { Admission::Closed } {
                Admission::Open(place) => break place,
                Admission::Full(batch) => self.carry_out(batch),
                Admission::Closed => return self.write_file(ino, offset, write.bytes(), Durability::Later),
            }
        };
        let first = offset / BLOCK_BYTES_U64;
        let blocks = first..first + count as u64;
        let guard = self.readers.range_locks.try_lock(ino, blocks.clone(), LockMode::Exclusive).unwrap_or_else(|| {
            // Most likely, an accepted write to the range has not taken effect yet.
            self.settle_file(ino);
            self.readers.range_locks.lock(ino, blocks, LockMode::Exclusive)
        });
        let Some(bytes_in_file) = self.set_aside(ino, blocks_needed(count as u64))? else {
            drop((guard, place));
            // Not kept late: this write must return its own error.
            return self.store_file(ino, offset, write.bytes(), false);
        };
        // The range is locked, so a truncate that would move the end below that of this write comes after it.
        let moves_end = offset + write.range.len() as u64 > bytes_in_file;
        let now = self.engine.environment.clock.now();
        let lock = guard.suspend();
        // A caller that goes on receiving requests should not wait for the device.
        let is_late = count <= LATE_BLOCKS_MAX && self.engine.keeps_late_writes();
        let is_left = begins == WriteStart::ByCaller && is_late;
        let OwnedWrite { buffer, range, .. } = write;
        place.push(|number| AcceptedWrite { number, ino, first, buffer, range, now, lock, moves_end, is_left });
        Ok(())
    }

    /// Sets blocks aside for a write to be accepted, and returns the length of the file in bytes. `None` if too few
    /// blocks would be left.
    fn set_aside(&self, ino: Ino, count: u64) -> Result<Option<u64>> {
        self.engine.ensure_writable()?;
        let set_aside_max = match self.engine.allowance(count) {
            Allowance::Any => u64::MAX,
            Allowance::InAll(blocks) => blocks,
            Allowance::Nothing => return Ok(None),
        };
        self.engine.view(|op| {
            let bytes = op.regular(ino)?.attr.size_bytes;
            let promised = op.state(Field::ReservedBlocks) + op.meta.set_aside;
            let has_room = op.meta.set_aside + count <= set_aside_max;
            let is_free = op.blocks_available() >= promised + count + EMERGENCY_BLOCKS + SPARE_BLOCKS;
            if is_free && has_room {
                op.meta.set_aside += count;
            }
            Ok((is_free && has_room).then_some(bytes))
        })
    }

    /// Ends acceptance, and waits until all accepted writes have taken effect.
    pub(crate) fn close_behind(&self) {
        self.behind.close();
        self.settle_writes();
    }

    /// Waits for accepted writes and carries out the next ones. Returns false at the end; a worker calls it until then.
    pub(crate) fn work_behind(&self) -> bool {
        let Some(mut task) = self.behind.take() else { return false };
        // A panic has stopped the pool. The worker continues, so that threads which wait for accepted writes learn of
        // that.
        let _ = catch_unwind(AssertUnwindSafe(|| self.carry_out(task.take_batch())));
        true
    }

    /// Wakes a worker for accepted writes that were left to their callers.
    pub(crate) fn hand_over_accepted(&self) {
        self.behind.hand_over_left();
    }

    /// Carries out accepted writes for which no worker was woken, as a worker would.
    pub(crate) fn begin_accepted(&self) {
        while let Some(batch) = self.behind.take_left() {
            let _ = catch_unwind(AssertUnwindSafe(|| self.carry_out(batch)));
        }
    }

    fn carry_out(&self, batch: Vec<AcceptedWrite>) {
        let set_aside = batch.iter().map(|accepted| blocks_needed(accepted.block_count() as u64)).sum();
        let mut turn = WriteTurn { data: self, batch, set_aside };
        let WriteTurn { batch, set_aside, .. } = &mut turn;
        if self.write_together(batch, set_aside).is_ok() {
            return;
        }
        // One by one, so that one failing write does not take the others of the batch with it. A small journal takes a
        // large write in several transactions.
        let turn = batch.first().map_or(0, |first| first.number);
        for accepted in batch {
            let request = WriteRequest {
                ino: accepted.ino,
                offset: accepted.first * BLOCK_BYTES_U64,
                bytes: &accepted.buffer[accepted.range.clone()],
                now: accepted.now,
                // All writes of the batch take effect in this turn, so none may wait for another of them.
                after: turn,
                // The write was accepted, so it may use the reserve for operations that free space.
                privilege: Privilege::Freeing,
                // The first attempt has failed already.
                may_be_late: false,
            };
            if let Err(error) = self.write_locked(&request, set_aside) {
                self.losses.note(accepted.ino, error);
            }
        }
    }

    /// Stores the blocks of a batch, all in one file, in one operation.
    fn write_together(&self, batch: &[AcceptedWrite], set_aside: &mut u64) -> Result<()> {
        let (Some(oldest), Some(newest)) = (batch.first(), batch.last()) else { return Ok(()) };
        let mut data: Vec<(u64, &[u8])> = Vec::with_capacity(BATCH_BLOCKS);
        for accepted in batch {
            let blocks = accepted.buffer[accepted.range.clone()].chunks_exact(BLOCK_BYTES);
            data.extend((accepted.first..).zip(blocks));
        }
        data.sort_unstable_by_key(|(index, _)| *index);
        let end = data.last().map_or(0, |(index, _)| (index + 1) * BLOCK_BYTES_U64);
        let store = StoreRequest {
            ino: oldest.ino,
            data: &data,
            side_by_side: (batch.len() == 1).then(|| &oldest.buffer[oldest.range.clone()]),
            privilege: Privilege::Freeing,
            after: oldest.number,
            may_be_late: data.len() <= LATE_BLOCKS_MAX,
        };
        self.store_blocks(&store, set_aside, &mut |op: &mut Op<'_>, inode: &mut Inode| -> OpResult<()> {
            if end > inode.attr.size_bytes {
                op.set_length(inode, end);
            }
            inode.attr.modified = newest.now;
            inode.attr.changed = newest.now;
            Ok(())
        })
    }
}
