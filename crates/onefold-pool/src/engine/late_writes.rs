//! Late writes: new data blocks of small writes that stay in memory until the next commit needs them on the device.
//!
//! A program that makes small files, one after the other, waits for each write to take effect before it gets the next
//! name. Most of that wait was for the device: one request for each file. But nothing needs the block there so soon. No
//! crash can show a block before a transaction that names it is durable, and a commit flushes the device before it
//! writes the transaction ([`super::commit`]). So small writes may take effect while their blocks are still in memory.
//! A commit, or a write that finds no room here, sends the blocks to the device side by side.
//!
//! - *Reading.* The whole engine reads through this device, which knows the content of kept blocks.
//! - *Direct rewrites* of a kept block first end the keeping, and wait if the block is on its way: old content never
//!   follows newer content. (A block is freed and taken again without a commit if nothing ever named it.)
//! - *Failures.* A device that fails to write kept blocks stops the pool, as with any other write: the write that kept
//!   them has been answered, and no other write is at fault. A device without room for them also stops the pool.
//!   Therefore blocks are kept only on a device that vouches for the room of each ([`super::room`]). Elsewhere a write
//!   must return its own error.
//! - *Syncs.* A caller that makes each write durable would wait for the block at the sync instead, although the device
//!   could have had it earlier. So writes are kept only after some writes without a sync.

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

/// Maximum number of kept blocks: one request to the device, if they are contiguous.
const KEPT_BLOCKS_MAX: usize = 256;
/// Maximum memory of kept blocks, in bytes.
pub(crate) const KEPT_BYTES_MAX: u64 = KEPT_BLOCKS_MAX as u64 * BLOCK_BYTES_U64;
/// Maximum number of blocks of one write that may be kept. A larger write is worth a request of its own.
pub(crate) const LATE_BLOCKS_MAX: usize = 16;
const _: () = assert!(KEPT_BLOCKS_MAX <= BUFFER_BLOCKS, "they have room in one buffer");

type LateBlocks = BTreeMap<BlockNo, Arc<[u8]>>;

/// A device that keeps some writes until [`LateWrites::write_out`].
pub(crate) struct LateWrites {
    device: Arc<dyn BlockDevice>,
    /// Never held while another lock is taken.
    kept: Mutex<LateBlocks>,
    /// Number of blocks in `kept`. If it is 0, nobody need take the lock.
    kept_count: AtomicUsize,
    /// Held while kept blocks are being written, across the device's I/O. Taken before `kept`.
    writing: Mutex<()>,
    /// Whether kept blocks did not reach the device. No write is retried then, and the pool stops.
    has_failed: AtomicBool,
    /// Number of small writes since the last sync of the device, up to the number that matters.
    unsynced: AtomicU32,
    /// From this number of writes without a sync on, writes are kept.
    late_after: u32,
}

impl LateWrites {
    /// Returns a device that keeps writes after `late_after` small writes without a sync.
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

    /// Returns whether small writes are kept at the moment, judging by their frequency.
    pub(crate) fn are_kept(&self) -> bool {
        self.unsynced.load(Ordering::Relaxed) >= self.late_after
    }

    /// Keeps the content of blocks that nothing names yet and returns true, or returns false if the caller should write
    /// them at once. `buffers` hold a whole batch each.
    ///
    /// # Errors
    /// See [`LateWrites::write_out`], if other blocks had to make room.
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

    /// Writes all kept blocks to the device. After a failure, all of them stay readable, and no call succeeds any more.
    ///
    /// # Errors
    /// [`PoolError::Io`] if the device fails, including for lack of room. The caller stops the pool.
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
            // Newer content may have replaced it meanwhile.
            if kept.get(block).is_some_and(|now| Arc::ptr_eq(now, bytes)) {
                kept.remove(block);
            }
        }
        self.kept_count.store(kept.len(), Ordering::Release);
        Ok(())
    }

    /// Drops a kept block that nothing will ever name. Waits if the block is on its way to the device, so the caller
    /// must not hold the metadata lock.
    pub(crate) fn forget(&self, block: BlockNo) {
        self.supersede(block, 1);
    }

    /// Returns those of the blocks `first..first + count` that are kept.
    fn kept_of(&self, first: BlockNo, count: usize) -> Vec<(BlockNo, Arc<[u8]>)> {
        if self.kept_count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let kept = self.kept.lock();
        kept.range(first..first.plus(count as u64)).map(|(block, bytes)| (*block, Arc::clone(bytes))).collect()
    }

    /// Drops kept content of the blocks `first..first + count`, which is about to change or disappear.
    fn supersede(&self, first: BlockNo, count: u64) {
        if self.kept_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let range = first..first.plus(count);
        if self.kept.lock().range(range.clone()).next().is_none() {
            return;
        }
        // Blocks that are on their way reach the device first.
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

    /// Syncs written blocks, not kept ones: where that matters, the caller calls [`LateWrites::write_out`] first.
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
        // Looked up before the device is read: otherwise a block that is written out meanwhile might be missed in both.
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
    use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice};

    use super::*;

    struct LateWritesFixture {
        device: Arc<FaultyDevice<MemoryDevice>>,
        late: LateWrites,
        buffers: BufferPool,
    }

    impl LateWritesFixture {
        fn new(late_after: u32) -> LateWritesFixture {
            let device = Arc::new(FaultyDevice::new(MemoryDevice::new(4096), 1));
            let late = LateWrites::new(device.clone(), late_after);
            LateWritesFixture { device, late, buffers: BufferPool::new(BUFFER_BLOCKS, 1 << 20) }
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
        let fixture = LateWritesFixture::new(0);
        fixture.late.write(BlockNo(10), &[1; 3 * BLOCK_BYTES]).expect("writes");
        assert!(fixture.keep(12, 3) && fixture.keep(11, 2) && fixture.keep(13, 4));
        assert_eq!((bytes_at(&fixture.late, 10), bytes_at(&*fixture.device, 10)), ([1, 2, 3], [1, 1, 1]));
        let reads = fixture.device.count(Call::Read);
        assert_eq!(bytes_at(&fixture.late, 11), [2, 3, 4]);
        assert_eq!(fixture.device.count(Call::Read), reads, "all of it is kept");
        let writes = fixture.device.count(Call::Write);
        fixture.write_out().expect("writes");
        assert_eq!((bytes_at(&*fixture.device, 11), fixture.device.count(Call::Write)), ([2, 3, 4], writes + 1));
        fixture.write_out().expect("there is nothing");
        assert_eq!(fixture.device.count(Call::Write), writes + 1);
    }

    #[test]
    fn old_content_never_follows_newer_content() {
        let fixture = LateWritesFixture::new(0);
        assert!(fixture.keep(10, 1) && fixture.keep(11, 1) && fixture.keep(12, 1) && fixture.keep(10, 2));
        fixture.late.write(BlockNo(11), &[9; BLOCK_BYTES]).expect("writes");
        fixture.late.discard(BlockNo(12), 1).expect("discards");
        fixture.write_out().expect("writes");
        assert_eq!(bytes_at(&*fixture.device, 10), [2, 9, 0]);
        assert!(fixture.keep(10, 3));
        fixture.late.write_batch(&[WriteOp { first: BlockNo(9), from: &[5; 2 * BLOCK_BYTES] }]).expect("writes");
        fixture.write_out().expect("writes");
        assert_eq!(bytes_at(&*fixture.device, 9), [5, 5, 9]);
    }

    #[test]
    fn some_writes_without_a_sync_come_before_one_that_is_kept() {
        let fixture = LateWritesFixture::new(2);
        assert_eq!([1, 2, 3, 4].map(|block| fixture.keep(block, 1)), [false, false, true, true]);
        fixture.late.sync().expect("syncs");
        assert_eq!([5, 6, 7].map(|block| fixture.keep(block, 1)), [false, false, true]);
        assert_eq!(bytes_at(&fixture.late, 3), [1, 1, 0], "a sync is no end of what is kept");
    }

    #[test]
    fn room_for_more_is_made_by_writing() {
        let fixture = LateWritesFixture::new(0);
        for block in 0..KEPT_BLOCKS_MAX as u64 {
            assert!(fixture.keep(block, 1));
        }
        assert_eq!(fixture.device.count(Call::Write), 0);
        assert!(fixture.keep(1000, 2));
        assert_eq!((fixture.device.count(Call::Write), fixture.late.kept.lock().len()), (1, 1));
    }

    #[test]
    fn a_device_that_fails_under_kept_blocks_is_not_asked_again() {
        for fault in [Fault::Io, Fault::StorageFull] {
            let fixture = LateWritesFixture::new(0);
            for block in 0..KEPT_BLOCKS_MAX as u64 {
                assert!(fixture.keep(block, 1));
            }
            fixture.device.fail(Call::Write, FailingCalls::Nth(1), fault);
            // Even on a device without room: no write is left that could return this error.
            assert!(matches!(fixture.try_keep(1000, 2), Err(PoolError::Io { .. })), "{fault:?}");
            let writes = fixture.device.count(Call::Write);
            for _ in 0..2 {
                assert!(matches!(fixture.write_out(), Err(PoolError::Io { .. })), "{fault:?}");
            }
            assert!(matches!(fixture.try_keep(1000, 2), Err(PoolError::Io { .. })), "{fault:?}");
            assert_eq!((bytes_at(&fixture.late, 0), fixture.device.count(Call::Write)), ([1, 1, 1], writes));
        }
    }
}
