//! One disk, as seen by the doors that serve disks, whatever it is stored in.
//!
//! A [`Volume`] knows neither protocols nor names: a door (vhost-user-blk, NBD) translates each request into one call.
//! [`PoolVolume`] is a volume in a file of a pool.

mod error;
mod pool;

use std::ops::Range;

use onefold_block::AlignedBuffer;
use onefold_block::device::SECTOR_BYTES as DEVICE_SECTOR_BYTES;
use onefold_pool::Durability;

pub use error::VolumeError;
pub use pool::{PoolVolume, VolumeAccess};

/// The unit in which a volume is addressed, in bytes: every offset and every length is a multiple of it.
pub const SECTOR_BYTES: u64 = DEVICE_SECTOR_BYTES as u64;

/// Result of a call of a volume.
pub type Result<T> = std::result::Result<T, VolumeError>;

/// A disk that a door serves: a sequence of sectors that can be read and written anywhere.
///
/// **Addresses.** Offsets and lengths are in bytes and multiples of [`SECTOR_BYTES`], and no range ends past
/// [`Volume::length_bytes`]. A call that violates this fails as a whole and changes nothing
/// ([`VolumeError::Misaligned`], [`VolumeError::PastEnd`]), so a door may pass on clients' requests unchecked. An empty
/// range within the volume is valid and has no effect.
///
/// **Threads.** All calls are synchronous and may come from many threads at once. A call sees the results of every call
/// that had returned before it began. If calls overlap in time and place, each unit of [`Volume::atomic_bytes`] holds
/// the complete result of one of them.
///
/// **Durability.** A power cut, or the death of the process, may lose a change until a [`Volume::flush`] that was
/// called after the change had returned has itself returned without an error. A change with [`Durability::Now`] (FUA)
/// is durable when it returns; it promises nothing for others. After a power cut, each unit of [`Volume::atomic_bytes`]
/// (at multiples of it from the start of the volume) holds its content either before or after a change that was not
/// durable.
///
/// **Failures.** After an error other than those of addresses, a change may have happened in part, unit by unit. A
/// change that was answered may fail later. From then on, [`Volume::flush`] and every change with [`Durability::Now`]
/// fail with [`VolumeError::Lost`]. So a flush that succeeds proves that nothing is missing, however many flushes
/// failed before it.
///
/// **Length.** A volume does not become shorter while it is open. It may become longer, which [`Volume::measure`]
/// detects.
pub trait Volume: Send + Sync {
    /// Returns the length in bytes, a multiple of [`SECTOR_BYTES`], as it was last measured.
    fn length_bytes(&self) -> u64;

    /// Measures the length again and returns it, in bytes. A tail shorter than a sector does not count.
    ///
    /// # Errors
    /// When it cannot be measured.
    fn measure(&self) -> Result<u64>;

    /// Returns the unit that a power cut leaves whole, in bytes: a power of two, at least [`SECTOR_BYTES`]. Changes of
    /// whole units are cheaper.
    fn atomic_bytes(&self) -> u64;

    /// Returns whether every change is refused.
    fn is_read_only(&self) -> bool;

    /// Reads several ranges, which may overlap; in parallel where that is faster. Returns one result for each, in
    /// order. Each buffer is filled, or holds anything after an error.
    ///
    /// # Errors
    /// For each read: those of addresses, [`VolumeError::Failed`].
    fn read_each(&self, reads: &mut [VolumeRead<'_>]) -> Vec<Result<()>>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Those of addresses; [`VolumeError::ReadOnly`]; [`VolumeError::NoSpace`], after which the same write may succeed
    /// later; with [`Durability::Now`] also those of [`Volume::flush`].
    fn write(&self, offset: u64, data: WriteData, durability: Durability) -> Result<()>;

    /// Makes every change durable that has already returned. Does nothing on a read-only volume.
    ///
    /// # Errors
    /// [`VolumeError::Lost`], as above; [`VolumeError::NoSpace`] if the storage below has no room to make anything
    /// durable: nothing is lost, and a later flush may succeed. [`VolumeError::Failed`].
    fn flush(&self) -> Result<()>;

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// See [`Volume::write`].
    fn zero(&self, range: Range<u64>, space: ZeroSpace, durability: Durability) -> Result<()>;

    /// Gives up the content of a range: afterwards each of its sectors reads as before or as zeros, and stays so. Frees
    /// the space of whole units of [`Volume::atomic_bytes`], and may do nothing at all. Durable with the next flush.
    ///
    /// # Errors
    /// Those of addresses; [`VolumeError::ReadOnly`], [`VolumeError::Failed`].
    fn discard(&self, range: Range<u64>) -> Result<()>;

    /// Returns the extents of a range, in order and without gaps from its start on. Returns at most `extents_max`
    /// extents, so they may end before the range does, and at least one unless the range is empty. Neighbours may be
    /// alike.
    ///
    /// If other calls change the volume meanwhile, each extent shows the state before or after.
    ///
    /// # Errors
    /// Those of addresses; [`VolumeError::Failed`].
    ///
    /// # Panics
    /// When `extents_max` is 0.
    fn extents(&self, range: Range<u64>, extents_max: usize) -> Result<Vec<VolumeExtent>>;

    /// Reads one range: see [`Volume::read_each`].
    ///
    /// # Errors
    /// See [`Volume::read_each`].
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read_each(&mut [VolumeRead { offset, into }]).pop().expect("one result for each read")
    }
}

/// One of several reads that are done together.
#[derive(Debug)]
pub struct VolumeRead<'a> {
    /// Offset in the volume, in bytes.
    pub offset: u64,
    /// The buffer to fill. Whole blocks at a page-aligned address save a copy.
    pub into: &'a mut [u8],
}

/// The bytes of a write, in a buffer that nothing else changes. Guest memory is copied first, as the guest can change
/// it at any moment. Data that begins at a page boundary saves a further copy.
#[derive(Debug)]
pub struct WriteData {
    buffer: AlignedBuffer,
    range: Range<usize>,
}

impl WriteData {
    /// Takes bytes `range` of a buffer.
    ///
    /// # Panics
    /// When the range does not lie within the buffer.
    #[must_use]
    pub fn new(buffer: AlignedBuffer, range: Range<usize>) -> WriteData {
        assert!(range.start <= range.end && range.end <= buffer.len(), "{range:?} of {} bytes", buffer.len());
        WriteData { buffer, range }
    }

    /// Copies `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> WriteData {
        WriteData { buffer: AlignedBuffer::copy_of(bytes), range: 0..bytes.len() }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

/// Treatment of the space of a range that is zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroSpace {
    /// It may be freed: a later write then needs space again.
    MayBeFreed,
    /// It is kept, or reserved if the range has none: a later write of the range finds space.
    Kept,
}

/// Content of a part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentContent {
    /// Any bytes.
    Data,
    /// Zeros, which take no space.
    Zeros,
}

/// A part of a volume with one kind of content. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeExtent {
    /// Its range, in bytes.
    pub range: Range<u64>,
    /// Its content.
    pub content: ExtentContent,
}

/// Checks a range of a volume of `length_bytes` bytes.
///
/// # Errors
/// [`VolumeError::Misaligned`], [`VolumeError::PastEnd`].
fn check_range(offset: u64, bytes: u64, length_bytes: u64) -> Result<Range<u64>> {
    if !offset.is_multiple_of(SECTOR_BYTES) || !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(VolumeError::Misaligned { offset, bytes });
    }
    match offset.checked_add(bytes) {
        Some(end) if end <= length_bytes => Ok(offset..end),
        _ => Err(VolumeError::PastEnd { offset, bytes, length_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_sectors_within_the_volume() {
        const LENGTH: u64 = 1 << 20;
        for (offset, bytes) in [(0, 0), (0, 512), (512, 1024), (LENGTH - 512, 512), (LENGTH, 0), (0, LENGTH)] {
            assert_eq!(check_range(offset, bytes, LENGTH).expect("valid"), offset..offset + bytes);
        }
        for (offset, bytes) in [(1, 512), (0, 511), (256, 256), (4095, 0), (u64::MAX, 1)] {
            let checked = check_range(offset, bytes, LENGTH);
            assert!(matches!(checked, Err(VolumeError::Misaligned { .. })), "{offset} {bytes}: {checked:?}");
        }
        for (offset, bytes) in [(LENGTH, 512), (LENGTH - 512, 1024), (LENGTH + 512, 0), (u64::MAX - 511, 512)] {
            let checked = check_range(offset, bytes, LENGTH);
            assert!(matches!(checked, Err(VolumeError::PastEnd { .. })), "{offset} {bytes}: {checked:?}");
        }
    }

    #[test]
    fn data_are_the_part_of_the_buffer_that_was_named() {
        let mut buffer = AlignedBuffer::zeroed(2);
        buffer[512..1024].fill(7);
        assert_eq!(WriteData::new(buffer, 512..1024).bytes(), [7; 512]);
        assert_eq!(WriteData::copy_of(&[3; 700]).bytes(), [3; 700]);
    }
}
