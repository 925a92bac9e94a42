//! Write-behind: writes of whole blocks are accepted at once and take effect a little later, in the order of their
//! acceptance, many small ones together.
//!
//! A writer sends its next request when the last one is answered. Were each answered only after hashing, the device and
//! the metadata are done with it, writer and pool would wait for each other all the time, and of two cores one would
//! idle. So the door hands the request's own buffer over, the writer goes on, and workers do the rest. While a worker
//! is busy, small writes gather behind it; the next worker decides them together and stores their new blocks side by
//! side, with one request to the device.
//!
//! **What it changes for users: nothing.**
//! - *Reading back.* The range of the file stays locked from acceptance on. A read of it waits; so does every read of a
//!   file whose end an accepted write moves, and every other verb that could tell that a write has not happened yet
//!   ([`Data::settle_writes`]).
//! - *Order.* Writes take effect in the order in which they were accepted, and every other change waits for those that
//!   were accepted before it began. So what is committed is, as ever, the state after some change, with none missing
//!   that was made before it.
//! - *Durability.* `fsync` waits for all that was accepted before it. Until then a crash loses what it would have lost
//!   anyhow: what is not committed.
//! - *Space.* Blocks are set aside at acceptance, as if all were new. Where that would take some of the last blocks, or
//!   of the last room under a sparse pool, the write is done before it is answered, and can be refused
//!   ([`crate::engine::room`]).
//! - *Failures.* A device that fails stops the pool, and every `fsync` says so. What fails otherwise (a damaged
//!   structure, a host whose file system filled up in the same moment) is a loss, which each open file and folder
//!   reports ([`losses`]).
//!
//! **Why nobody waits for ever.** A write is numbered after it has its range, and takes its turn by number. It waits
//! for its range while it has no number, and for lower numbers when it has its range: every wait is for a lower number.
//! What it attaches to ([`super::decide`]) is a block whose writer has begun and waits for nobody before it has
//! written.

mod line;
mod losses;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BLOCK_BYTES_U64};

use super::Data;
use super::edges::WriteRequest;
use super::write::Store;
use crate::attr::{Durability, Ino};
use crate::engine::late_writes::LATE_BLOCKS_MAX;
use crate::engine::room::Allowance;
use crate::error::Result;
use crate::format::inode::Inode;
use crate::format::map_node::{FAN_OUT, LEVELS_MAX};
use crate::format::state::Field;
use crate::meta::allocate::EMERGENCY_BLOCKS;
use crate::meta::{Op, OpResult, Privilege};
use crate::readers::range_lock::Access;
use crate::waits::about_to_wait;
pub(crate) use line::Line;
use line::{Accepted, BATCH_BLOCKS, Entrance};
pub(crate) use losses::Losses;
pub use losses::LossesSeen;

/// Who begins with a write that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// A worker, which is woken for it.
    ByWorker,
    /// The caller, by [`crate::Pool::begin_accepted`], or a worker after [`crate::Pool::hand_over_accepted`]. One of
    /// them must be called before the caller does or waits for anything else: other threads may wait for the write
    /// without being able to begin with it.
    ByCaller,
}

/// Blocks that stay free beyond all that was accepted.
const SPARE_BLOCKS: u64 = 256;
/// Threads that carry out accepted writes.
const WRITERS_MIN: usize = 2;
const WRITERS_MAX: usize = 4;

/// Returns how many threads carry accepted writes out: one for each core, as far as one device can use them.
pub(super) fn writers() -> usize {
    std::thread::available_parallelism().map_or(WRITERS_MIN, std::num::NonZero::get).clamp(WRITERS_MIN, WRITERS_MAX)
}

/// Starts the threads that carry out accepted writes.
///
/// # Errors
/// When the operating system has no thread to give.
pub(crate) fn start_writers(data: &Arc<Data>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let start = |number| {
        let data = Arc::clone(data);
        std::thread::Builder::new().name(format!("writer-{number}")).spawn(move || while data.work_behind() {})
    };
    (0..writers()).map(start).collect()
}

/// Returns the blocks that a write of `count` blocks takes at most: its data, and the nodes of the file's map that may
/// have to be made or copied.
const fn blocks_needed(count: u64) -> u64 {
    count + (count / FAN_OUT + 2) + 2 * LEVELS_MAX as u64
}

/// The turn of a batch of accepted writes; whatever happens to it, those after it get theirs.
struct Turn<'e> {
    data: &'e Data,
    batch: Vec<Accepted>,
    /// Blocks that are still set aside for it.
    set_aside: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nobody knows what it left undone.
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
    /// Waits until all writes that were accepted before now have taken effect, and helps.
    pub(crate) fn settle_writes(&self) {
        self.settle_through(self.behind.accepted());
    }

    /// Waits until a file is as all writes that were accepted before now make it, and helps.
    pub(crate) fn settle_file(&self, ino: Ino) {
        self.settle_through(self.behind.accepted_for(ino));
    }

    /// Waits until a read of `bytes` bytes at `offset` of a file finds what all writes that were accepted before now
    /// leave there, and helps. Writes elsewhere in the file that do not move its end are not waited for.
    pub(crate) fn settle_for_read(&self, ino: Ino, offset: u64, bytes: usize) {
        let end = offset.saturating_add(bytes as u64).div_ceil(BLOCK_BYTES_U64);
        self.settle_through(self.behind.accepted_before_read(ino, &(offset / BLOCK_BYTES_U64..end)));
    }

    fn settle_through(&self, number: u64) {
        // Sooner than a worker that has to be woken first.
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

    /// Writes `buffer[range]` to a file, now or later: see the module.
    ///
    /// # Errors
    /// As [`Data::write_file`].
    pub(crate) fn write_behind(
        &self,
        ino: Ino,
        offset: u64,
        buffer: AlignedBuffer,
        range: Range<usize>,
        begins: Begins,
    ) -> Result<()> {
        let whole = |number: usize| number.is_multiple_of(BLOCK_BYTES);
        let is_fit = !range.is_empty()
            && range.len() <= BATCH_BLOCKS * BLOCK_BYTES
            && whole(range.len())
            && whole(range.start)
            && offset.is_multiple_of(BLOCK_BYTES_U64)
            && offset.checked_add(range.len() as u64).is_some_and(|end| end <= crate::FILE_BYTES_MAX);
        let count = range.len() / BLOCK_BYTES;
        let place = loop {
            match if is_fit { self.behind.enter(buffer.block_count()) } else { Entrance::Closed } {
                Entrance::Open(place) => break place,
                Entrance::Full(batch) => self.carry_out(batch),
                Entrance::Closed => return self.write_file(ino, offset, &buffer[range], Durability::Later),
            }
        };
        let first = offset / BLOCK_BYTES_U64;
        let blocks = first..first + count as u64;
        let guard = self.readers.range_locks.try_lock(ino, blocks.clone(), Access::Exclusive).unwrap_or_else(|| {
            // Most likely written before and not yet in effect.
            self.settle_file(ino);
            self.readers.range_locks.lock(ino, blocks, Access::Exclusive)
        });
        let Some(bytes_in_file) = self.set_aside(ino, blocks_needed(count as u64))? else {
            drop((guard, place));
            // It is to know its own error.
            return self.store_file(ino, offset, &buffer[range], false);
        };
        // The range is locked: a truncate that would bring the end below that of this write comes after it.
        let moves_end = offset + range.len() as u64 > bytes_in_file;
        let now = self.engine.environment.clock.now();
        let lock = guard.suspend();
        // A wait for the device is nothing for a caller that goes on receiving requests.
        let is_late = count <= LATE_BLOCKS_MAX && self.engine.keeps_late_writes();
        let is_left = begins == Begins::ByCaller && is_late;
        place.push(|number| Accepted { number, ino, first, buffer, range, now, lock, moves_end, is_left });
        Ok(())
    }

    /// Sets blocks aside for a write that is to be accepted, and returns the length of the file in bytes; `None` where
    /// the blocks are too near the last ones.
    fn set_aside(&self, ino: Ino, count: u64) -> Result<Option<u64>> {
        self.engine.ensure_writable()?;
        let set_aside_max = match self.engine.room.allowance(count, || self.engine.device.room_blocks()) {
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

    /// Accepts nothing more, and waits until all that was accepted has taken effect.
    pub(crate) fn close_behind(&self) {
        self.behind.close();
        self.settle_writes();
    }

    /// Waits for accepted writes and carries out the next ones. Returns false when it is time to end; a worker calls it
    /// until then.
    pub(crate) fn work_behind(&self) -> bool {
        let Some(mut task) = self.behind.take() else { return false };
        // A panic has stopped the pool. Those who wait for what was accepted are told so, by a worker that goes on.
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

    fn carry_out(&self, batch: Vec<Accepted>) {
        let set_aside = batch.iter().map(|accepted| blocks_needed(accepted.block_count() as u64)).sum();
        let mut turn = Turn { data: self, batch, set_aside };
        let Turn { batch, set_aside, .. } = &mut turn;
        if self.write_together(batch, set_aside).is_ok() {
            return;
        }
        // One by one: the others of a batch are not to suffer from one that can't be done, and a small journal takes a
        // large write in several transactions.
        let turn = batch.first().map_or(0, |first| first.number);
        for accepted in batch {
            let request = WriteRequest {
                ino: accepted.ino,
                offset: accepted.first * BLOCK_BYTES_U64,
                bytes: &accepted.buffer[accepted.range.clone()],
                now: accepted.now,
                // All of the batch take effect before the next turn: none may wait for another of them.
                after: turn,
                // It was accepted: it may take what is kept for operations that free space.
                privilege: Privilege::Freeing,
                // Something was wrong with it already.
                may_be_late: false,
            };
            if let Err(error) = self.write_locked(&request, set_aside) {
                self.losses.note(accepted.ino, error);
            }
        }
    }

    /// Stores the blocks of a batch, which are of one file, in one operation.
    fn write_together(&self, batch: &[Accepted], set_aside: &mut u64) -> Result<()> {
        let (Some(oldest), Some(newest)) = (batch.first(), batch.last()) else { return Ok(()) };
        let mut data: Vec<(u64, &[u8])> = Vec::with_capacity(BATCH_BLOCKS);
        for accepted in batch {
            let blocks = accepted.buffer[accepted.range.clone()].chunks_exact(BLOCK_BYTES);
            data.extend((accepted.first..).zip(blocks));
        }
        data.sort_unstable_by_key(|(index, _)| *index);
        let end = data.last().map_or(0, |(index, _)| (index + 1) * BLOCK_BYTES_U64);
        let store = Store {
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
