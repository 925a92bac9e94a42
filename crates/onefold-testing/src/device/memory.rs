//! A device in memory.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::device::{MemoryImage, SharedBlock};
use onefold_block::BlockDevice;
use onefold_block::device::{check_on_device, whole_blocks};
use onefold_block::{BLOCK_BYTES, BlockNo};

/// A device whose blocks are in memory. Only written blocks take memory, so a device of many terabytes is cheap.
///
/// Discarded blocks read as zero. `sync` does nothing.
#[derive(Debug)]
pub struct MemoryDevice {
    image: RwLock<MemoryImage>,
}

impl MemoryDevice {
    /// Returns a device of `block_count` zero blocks.
    #[must_use]
    pub fn new(block_count: u64) -> MemoryDevice {
        MemoryDevice::from(MemoryImage::new(block_count))
    }

    /// Returns the device's present content; later writes do not change it. Costs almost nothing.
    #[must_use]
    pub fn image(&self) -> MemoryImage {
        self.image.read().clone()
    }

    /// Changes the number of blocks, as growing a partition or truncating a file does.
    pub fn resize(&self, block_count: u64) {
        self.image.write().resize(block_count);
    }

    /// Sets consecutive blocks without copying them. The caller has checked that they lie on the device.
    pub(super) fn set(&self, first: BlockNo, blocks: &[SharedBlock]) {
        let mut image = self.image.write();
        for (number, block) in (first.0..).zip(blocks) {
            image.set(BlockNo(number), Arc::clone(block));
        }
    }
}

impl From<MemoryImage> for MemoryDevice {
    fn from(image: MemoryImage) -> MemoryDevice {
        MemoryDevice { image: RwLock::new(image) }
    }
}

impl BlockDevice for MemoryDevice {
    fn block_count(&self) -> io::Result<u64> {
        Ok(self.image.read().block_count())
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        let count = whole_blocks(into.len())?;
        let image = self.image.read();
        check_on_device(first, count, image.block_count())?;
        for (number, into) in (first.0..).zip(into.chunks_exact_mut(BLOCK_BYTES)) {
            match image.get(BlockNo(number)) {
                Some(content) => into.copy_from_slice(&content[..]),
                None => into.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        let count = whole_blocks(from.len())?;
        let mut image = self.image.write();
        check_on_device(first, count, image.block_count())?;
        for (number, from) in (first.0..).zip(from.as_chunks().0) {
            image.set(BlockNo(number), Arc::new(*from));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn has_room_for_all_blocks(&self) -> bool {
        true
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        let mut image = self.image.write();
        check_on_device(first, count, image.block_count())?;
        for number in first.0..first.0 + count {
            image.clear(BlockNo(number));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_the_rest_is_zero() {
        let device = MemoryDevice::new(1 << 40);
        let end = BlockNo((1 << 40) - 2);
        device.write(end, &[[1; BLOCK_BYTES], [2; BLOCK_BYTES]].concat()).unwrap();
        let mut into = vec![9; 3 * BLOCK_BYTES];
        device.read(BlockNo(end.0 - 1), &mut into).unwrap();
        assert_eq!(into, [[0; BLOCK_BYTES], [1; BLOCK_BYTES], [2; BLOCK_BYTES]].concat());
        device.discard(end, 1).unwrap();
        device.read(end, &mut into[..BLOCK_BYTES]).unwrap();
        assert_eq!(into[0], 0);
    }

    #[test]
    fn transfers_past_the_end_or_of_part_of_a_block_fail_and_change_nothing() {
        let device = MemoryDevice::new(4);
        let kind = |result: io::Result<()>| result.map_err(|error| error.kind());
        assert_eq!(kind(device.write(BlockNo(3), &[1; 2 * BLOCK_BYTES])), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind(device.read(BlockNo(u64::MAX), &mut [0; BLOCK_BYTES])), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind(device.write(BlockNo(0), &[1; 100])), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind(device.discard(BlockNo(4), 1)), Err(io::ErrorKind::InvalidInput));
        assert!(device.image().blocks().is_empty());
    }

    #[test]
    fn an_image_taken_earlier_does_not_follow_the_device() {
        let device = MemoryDevice::new(4);
        device.write(BlockNo(1), &[1; BLOCK_BYTES]).unwrap();
        let before = device.image();
        device.write(BlockNo(1), &[2; BLOCK_BYTES]).unwrap();
        assert_eq!(before.get(BlockNo(1)).unwrap()[0], 1);
        assert_eq!(MemoryDevice::from(before.clone()).image(), before);
        device.resize(6);
        device.write(BlockNo(5), &[3; BLOCK_BYTES]).unwrap();
        assert_eq!(device.block_count().unwrap(), 6);
    }
}
