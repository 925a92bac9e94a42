//! The block device seam: a flat array of blocks, and its real implementation.

mod file;
mod join;
mod range;

use std::io;

pub use file::{DeviceError, FileDevice, FileRoom, OpenMode};
pub use join::{BlockRun, reads_of, runs, writes_of};
pub use range::{RangeError, check_on_device, whole_blocks};

use crate::BlockNo;

/// The unit that a disk writes whole or not at all, in bytes.
pub const SECTOR_BYTES: usize = 512;

/// One read of a batch: consecutive blocks from `first` into `into`.
#[derive(Debug)]
pub struct ReadOp<'a> {
    /// The first block to read.
    pub first: BlockNo,
    /// The buffer to fill; a whole number of blocks, not empty.
    pub into: &'a mut [u8],
}

/// One write of a batch: the blocks of `from` to consecutive places from `first`.
#[derive(Clone, Copy, Debug)]
pub struct WriteOp<'a> {
    /// The first block to write.
    pub first: BlockNo,
    /// The blocks' bytes; a whole number of blocks, not empty.
    pub from: &'a [u8],
}

/// A flat array of blocks.
///
/// **Durability.** Until a later `sync` has returned, a write may be lost, torn at a sector (512 bytes) or reordered
/// with other writes. Calls may come from many threads. A read that overlaps a write in progress may see the old or the
/// new content of each sector.
///
/// **Buffers.** The real device uses O_DIRECT: buffers should be aligned to [`crate::BLOCK_BYTES`], as
/// [`crate::AlignedBuffer`] is; others are copied.
///
/// **Errors.** No call succeeds in part: short reads and writes are continued, or are errors. A full sparse backing
/// file is [`io::ErrorKind::StorageFull`], and no other condition is. After a failed `sync` the device's content is
/// unknown: callers must not retry it and rely on the result.
pub trait BlockDevice: Send + Sync {
    /// Returns the number of blocks; a tail shorter than a block does not count. The number may grow while the device
    /// is open.
    ///
    /// # Errors
    /// When the device cannot be measured.
    fn block_count(&self) -> io::Result<u64>;

    /// Fills all of `into` (a whole number of blocks) or fails. Past the end is an error.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `from` (a whole number of blocks) or fails. Past the end is an error.
    ///
    /// # Errors
    /// Whatever the device reports; [`io::ErrorKind::StorageFull`] when a sparse backing file cannot grow.
    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()>;

    /// Returns only when every earlier completed write would survive loss of power.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn sync(&self) -> io::Result<()>;

    /// Tells the device that the content of `count` blocks from `first` is no longer needed. They may then read as
    /// anything. A device without the ability does nothing.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()>;

    /// Returns how many blocks can take a new place now; `None` if that is unknown, as on a thin volume. An estimate:
    /// others may take the room. Blocks need none of it if [`BlockDevice::has_room_for_all_blocks`].
    fn room_blocks(&self) -> Option<u64> {
        None
    }

    /// Tells whether the device can vouch that each of its blocks has a place of its own: no write finds it full. False
    /// where that is unknown. A discard, or growth of the device, may change the answer.
    fn has_room_for_all_blocks(&self) -> bool {
        false
    }

    /// Reads a batch in any order, with as many operations in flight as suit the device. Fails if any of them fails,
    /// once none is in flight any more; the buffers then hold anything.
    ///
    /// # Errors
    /// See [`BlockDevice::read`].
    fn read_batch(&self, batch: &mut [ReadOp<'_>]) -> io::Result<()> {
        for op in batch {
            self.read(op.first, op.into)?;
        }
        Ok(())
    }

    /// Writes a batch in any order, with as many operations in flight as suit the device. No two operations may share a
    /// block. Fails if any of them fails, once none is in flight any more; the others may have been written.
    ///
    /// # Errors
    /// See [`BlockDevice::write`].
    fn write_batch(&self, batch: &[WriteOp<'_>]) -> io::Result<()> {
        for op in batch {
            self.write(op.first, op.from)?;
        }
        Ok(())
    }
}
