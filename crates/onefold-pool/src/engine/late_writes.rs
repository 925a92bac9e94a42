//! Late writes: new data blocks of small writes that are kept in memory until the next commit needs them on the device.
//!
//! A program that makes small files, one after the other, waits for each write to take effect before it gets the next
//! name. Most of that wait was the device: one request for each file. Nothing needs the block there so soon. No crash
//! can show a block before a transaction that names it is durable, and a commit flushes the device before it writes one
//! ([`super::commit`]). So small writes may take effect with their blocks still here; a commit, or the last block that
//! finds room here, sends them to the device side by side.
//!
//! - *Reading.* All of the engine reads through this device, which knows the content of what it keeps.
//! - *Writing a kept block anew* directly ends the keeping first, and waits where the block is on its way: old content
//!   never follows newer content. (A block is freed and taken again without a commit where nothing ever named it.)
//! - *Failures.* A device that fails under kept blocks stops the pool, as under any other write: the write that kept
//!   them has been answered, and no other is at fault. So does a device that has no room for them. Therefore blocks are
//!   kept only on a device that vouches for the room of each ([`super::room`]); elsewhere a write must know its own
//!   error.
//! - *Syncs.* A caller that makes each write durable would wait for the block at the sync instead, where the device
//!   could have had it earlier. So writes are kept only after some without a sync.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::device::writes_of;
use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo, BufferPool, ReadOp, WriteOp};

use super::BUFFER_BLOCKS;
use crate::error::{PoolError, Result};
use crate::sync::Mutex;

/// Blocks that are kept at most: one request to the device, where they lie side by side.
const KEPT_BLOCKS_MAX: usize = 256;
/// Memory of the kept blocks at most, in bytes.
pub(crate) const KEPT_BYTES_MAX: u64 = KEPT_BLOCKS_MAX as u64 * BLOCK_BYTES_U64;
/// Blocks of one write that may be kept. Larger ones are worth a request of their own.
pub(crate) const LATE_BLOCKS_MAX: usize = 16;
const _: () = assert!(KEPT_BLOCKS_MAX <= BUFFER_BLOCKS, "they have room in one buffer");

type Kept = BTreeMap<BlockNo, Arc<[u8]>>;

/// A device that keeps some writes until [`LateWrites::write_out`].
pub(crate) struct LateWrites {
    device: Arc<dyn BlockDevice>,
    /// Never held while another lock is taken.
    kept: Mutex<Kept>,
    /// Blocks in `kept`: spares the lock where there are none.
    kept_count: AtomicUsize,
    /// Held while kept blocks are on their way, across the device's I/O, and before `kept`.
    writing: Mutex<()>,
    /// Kept blocks did not reach the device. Nothing of them is tried again: the pool stops.
    has_failed: AtomicBool,
    /// Small writes since the device was last synced, as far as they count.
    unsynced: AtomicU32,
    /// Writes are kept from this number of writes without a sync on.
    late_after: u32,
}

impl LateWrites {
    /// Returns a device that keeps writes after `late_after` small ones without a sync.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, late_after: u32) -> LateWrites {
        LateWrites {
            device,
            kept: Mutex::default(),
            kept_count: AtomicUsize::new(0),
            writing: Mutex::default(),
            has_failed: AtomicBool::new(false),
            unsynced: AtomicU32::new(0),
            late_after,
        }
    }

    /// Tells whether small writes are kept at the moment, as far as their frequency goes.
    pub(crate) fn are_kept(&self) -> bool {
        self.unsynced.load(Ordering::Relaxed) >= self.late_after
    }

    /// Keeps the content of blocks that nothing names yet, and returns true; or returns false, where they are to be
    /// written at once. `buffers` are those of a whole batch.
    ///
    /// # Errors
    /// As [`LateWrites::write_out`], where others had to make room.
    pub(crate) fn keep(&self, blocks: &[(BlockNo, &[u8])], buffers: &BufferPool) -> Result<bool> {
        if !self.are_kept() {
            self.unsynced.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        if self.kept_count.load(Ordering::Acquire) + blocks.len() > KEPT_BLOCKS_MAX {
            self.write_out(buffers)?;
        }
        let mut kept = self.kept.lock();
        if kept.len() + blocks.len() > KEPT_BLOCKS_MAX {
            return Ok(false);
        }
        kept.extend(blocks.iter().map(|&(block, bytes)| (block, Arc::from(bytes))));
        self.kept_count.store(kept.len(), Ordering::Release);
        Ok(true)
    }

    /// Writes all that is kept to the device. After a failure all of it stays readable, and no call succeeds any more.
    ///
    /// # Errors
    /// [`PoolError::Io`] where the device fails, even for lack of room. The caller stops the pool.
    pub(crate) fn write_out(&self, buffers: &BufferPool) -> Result<()> {
        if self.kept_count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let _writing = self.writing.lock();
        let taken: Vec<(BlockNo, Arc<[u8]>)> =
            self.kept.lock().iter().map(|(block, bytes)| (*block, Arc::clone(bytes))).collect();
        let Some(&(first, _)) = taken.first() else { return Ok(()) };
        let failed = |source| PoolError::Io { action: "write", block: first, source };
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(failed(io::Error::other("an earlier write of these blocks has failed")));
        }
        let mut buffer = buffers.take();
        for (place, (_, bytes)) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(&taken) {
            place.copy_from_slice(bytes);
        }
        let places: Vec<BlockNo> = taken.iter().map(|(block, _)| *block).collect();
        self.device.write_batch(&writes_of(&places, &buffer)).map_err(|source| {
            self.has_failed.store(true, Ordering::Relaxed);
            failed(source)
        })?;
        let mut kept = self.kept.lock();
        for (block, bytes) in &taken {
            // Newer content may have come meanwhile.
            if kept.get(block).is_some_and(|now| Arc::ptr_eq(now, bytes)) {
                kept.remove(block);
            }
        }
        self.kept_count.store(kept.len(), Ordering::Release);
        Ok(())
    }

    /// Ends the keeping of a block that nothing will ever name. Waits where it is on its way to the device, so the
    /// metadata lock must not be held.
    pub(crate) fn forget(&self, block: BlockNo) {
        self.supersede(block, 1);
    }

    /// Returns what is kept of the blocks `first..first + count`.
    fn kept_of(&self, first: BlockNo, count: usize) -> Vec<(BlockNo, Arc<[u8]>)> {
        if self.kept_count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let kept = self.kept.lock();
        kept.range(first..first.plus(count as u64)).map(|(block, bytes)| (*block, Arc::clone(bytes))).collect()
    }

    /// Ends the keeping of the blocks `first..first + count`, whose content is about to change or to go.
    fn supersede(&self, first: BlockNo, count: u64) {
        if self.kept_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let range = first..first.plus(count);
        if self.kept.lock().range(range.clone()).next().is_none() {
            return;
        }
        // What is on its way arrives before.
        let _writing = self.writing.lock();
        let mut kept = self.kept.lock();
        kept.retain(|block, _| !range.contains(block));
        self.kept_count.store(kept.len(), Ordering::Release);
    }
}

/// Puts kept blocks at their places in `into`, which begins with block `first`.
fn lay_over(first: BlockNo, into: &mut [u8], kept: &[(BlockNo, Arc<[u8]>)]) {
    for (block, bytes) in kept {
        let place = usize::try_from(block.0 - first.0).expect("within what is read") * BLOCK_BYTES;
        into[place..place + BLOCK_BYTES].copy_from_slice(bytes);
    }
}

impl BlockDevice for LateWrites {
    fn block_count(&self) -> io::Result<u64> {
        self.device.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.read_batch(&mut [ReadOp { first, into }])
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.supersede(first, (from.len() / BLOCK_BYTES) as u64);
        self.device.write(first, from)
    }

    /// Syncs what was written. What is kept was not: [`LateWrites::write_out`] comes before, where it matters.
    fn sync(&self) -> io::Result<()> {
        self.unsynced.store(0, Ordering::Relaxed);
        self.device.sync()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.supersede(first, count);
        self.device.discard(first, count)
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.device.has_room_for_all_blocks()
    }

    fn room_blocks(&self) -> Option<u64> {
        self.device.room_blocks()
    }

    fn read_batch(&self, batch: &mut [ReadOp<'_>]) -> io::Result<()> {
        // Before the device is read: a block that is written out meanwhile may be missed there.
        let kept: Vec<_> = batch.iter().map(|op| self.kept_of(op.first, op.into.len() / BLOCK_BYTES)).collect();
        let is_whole = |(op, kept): (&ReadOp<'_>, &Vec<_>)| kept.len() * BLOCK_BYTES == op.into.len();
        if !batch.iter().zip(&kept).all(is_whole) {
            self.device.read_batch(batch)?;
        }
        for (op, kept) in batch.iter_mut().zip(&kept) {
            lay_over(op.first, op.into, kept);
        }
        Ok(())
    }

    fn write_batch(&self, batch: &[WriteOp<'_>]) -> io::Result<()> {
        for op in batch {
            self.supersede(op.first, (op.from.len() / BLOCK_BYTES) as u64);
        }
        self.device.write_batch(batch)
    }
}

#[cfg(test)]
mod tests {
    use onefold_testing::device::{Call, Fault, FaultyDevice, MemoryDevice, When};

    use super::*;

    struct Trial {
        device: Arc<FaultyDevice<MemoryDevice>>,
        late: LateWrites,
        buffers: BufferPool,
    }

    impl Trial {
        fn new(late_after: u32) -> Trial {
            let device = Arc::new(FaultyDevice::new(MemoryDevice::new(4096), 1));
            let late = LateWrites::new(device.clone(), late_after);
            Trial { device, late, buffers: BufferPool::new(BUFFER_BLOCKS, 1 << 20) }
        }

        fn try_keep(&self, block: u64, byte: u8) -> Result<bool> {
            self.late.keep(&[(BlockNo(block), &[byte; BLOCK_BYTES])], &self.buffers)
        }

        fn keep(&self, block: u64, byte: u8) -> bool {
            self.try_keep(block, byte).expect("keeps, or not")
        }

        fn write_out(&self) -> Result<()> {
            self.late.write_out(&self.buffers)
        }
    }

    /// Returns the first byte of each of three blocks.
    fn bytes_at(device: &dyn BlockDevice, first: u64) -> [u8; 3] {
        let mut bytes = vec![0xee; 3 * BLOCK_BYTES];
        device.read(BlockNo(first), &mut bytes).expect("reads");
        [0, 1, 2].map(|at| bytes[at * BLOCK_BYTES])
    }

    #[test]
    fn what_is_kept_is_read_and_written_later_in_one_request() {
        let trial = Trial::new(0);
        trial.late.write(BlockNo(10), &[1; 3 * BLOCK_BYTES]).expect("writes");
        assert!(trial.keep(12, 3) && trial.keep(11, 2) && trial.keep(13, 4));
        assert_eq!((bytes_at(&trial.late, 10), bytes_at(&*trial.device, 10)), ([1, 2, 3], [1, 1, 1]));
        let reads = trial.device.count(Call::Read);
        assert_eq!(bytes_at(&trial.late, 11), [2, 3, 4]);
        assert_eq!(trial.device.count(Call::Read), reads, "all of it is kept");
        let writes = trial.device.count(Call::Write);
        trial.write_out().expect("writes");
        assert_eq!((bytes_at(&*trial.device, 11), trial.device.count(Call::Write)), ([2, 3, 4], writes + 1));
        trial.write_out().expect("there is nothing");
        assert_eq!(trial.device.count(Call::Write), writes + 1);
    }

    #[test]
    fn old_content_never_follows_newer_content() {
        let trial = Trial::new(0);
        assert!(trial.keep(10, 1) && trial.keep(11, 1) && trial.keep(12, 1) && trial.keep(10, 2));
        trial.late.write(BlockNo(11), &[9; BLOCK_BYTES]).expect("writes");
        trial.late.discard(BlockNo(12), 1).expect("discards");
        trial.write_out().expect("writes");
        assert_eq!(bytes_at(&*trial.device, 10), [2, 9, 0]);
        assert!(trial.keep(10, 3));
        trial.late.write_batch(&[WriteOp { first: BlockNo(9), from: &[5; 2 * BLOCK_BYTES] }]).expect("writes");
        trial.write_out().expect("writes");
        assert_eq!(bytes_at(&*trial.device, 9), [5, 5, 9]);
    }

    #[test]
    fn some_writes_without_a_sync_come_before_one_that_is_kept() {
        let trial = Trial::new(2);
        assert_eq!([1, 2, 3, 4].map(|block| trial.keep(block, 1)), [false, false, true, true]);
        trial.late.sync().expect("syncs");
        assert_eq!([5, 6, 7].map(|block| trial.keep(block, 1)), [false, false, true]);
        assert_eq!(bytes_at(&trial.late, 3), [1, 1, 0], "a sync is no end of what is kept");
    }

    #[test]
    fn room_for_more_is_made_by_writing() {
        let trial = Trial::new(0);
        for block in 0..KEPT_BLOCKS_MAX as u64 {
            assert!(trial.keep(block, 1));
        }
        assert_eq!(trial.device.count(Call::Write), 0);
        assert!(trial.keep(1000, 2));
        assert_eq!((trial.device.count(Call::Write), trial.late.kept.lock().len()), (1, 1));
    }

    #[test]
    fn a_device_that_fails_under_kept_blocks_is_not_asked_again() {
        for fault in [Fault::Io, Fault::StorageFull] {
            let trial = Trial::new(0);
            for block in 0..KEPT_BLOCKS_MAX as u64 {
                assert!(trial.keep(block, 1));
            }
            trial.device.fail(Call::Write, When::Nth(1), fault);
            // Even a device without room: no write is left that could have that as its error.
            assert!(matches!(trial.try_keep(1000, 2), Err(PoolError::Io { .. })), "{fault:?}");
            let writes = trial.device.count(Call::Write);
            for _ in 0..2 {
                assert!(matches!(trial.write_out(), Err(PoolError::Io { .. })), "{fault:?}");
            }
            assert!(matches!(trial.try_keep(1000, 2), Err(PoolError::Io { .. })), "{fault:?}");
            assert_eq!((bytes_at(&trial.late, 0), trial.device.count(Call::Write)), ([1, 1, 1], writes));
        }
    }
}
