//! A sparse file on a nearly full file system.

use std::io;

use parking_lot::Mutex;

use crate::device::MemoryDevice;
use onefold_block::BlockDevice;
use onefold_block::device::whole_blocks;
use onefold_block::{BLOCK_BYTES, BlockNo};

/// A device in memory with room for a limited number of new blocks. A write to a block that was never written, or was
/// discarded since, takes room. If none is left, it fails with [`io::ErrorKind::StorageFull`]. The blocks of the write
/// before that one are then written, as on a file system.
#[derive(Debug)]
pub struct ThinDevice {
    inner: MemoryDevice,
    room_blocks: Mutex<u64>,
}

impl ThinDevice {
    /// Returns a device with the content of `inner` and room for `room_blocks` more blocks.
    #[must_use]
    pub fn new(inner: MemoryDevice, room_blocks: u64) -> ThinDevice {
        ThinDevice { inner, room_blocks: Mutex::new(room_blocks) }
    }

    /// Sets the number of further blocks that fit.
    pub fn set_room(&self, blocks: u64) {
        *self.room_blocks.lock() = blocks;
    }

    /// Returns the wrapped device.
    pub const fn inner(&self) -> &MemoryDevice {
        &self.inner
    }
}

impl BlockDevice for ThinDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.inner.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        whole_blocks(from.len())?;
        let mut room = self.room_blocks.lock();
        let image = self.inner.image();
        for (number, block) in (first.0..).zip(from.chunks_exact(BLOCK_BYTES)) {
            if image.get(BlockNo(number)).is_none() {
                *room = room.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            }
            self.inner.write(BlockNo(number), block)?;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn room_blocks(&self) -> Option<u64> {
        Some(*self.room_blocks.lock())
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        let mut room = self.room_blocks.lock();
        let image = self.inner.image();
        *room += (first.0..first.0 + count).filter(|number| image.get(BlockNo(*number)).is_some()).count() as u64;
        self.inner.discard(first, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_were_never_written_take_room() {
        let device = ThinDevice::new(MemoryDevice::new(16), 3);
        device.write(BlockNo(4), &[1; 2 * BLOCK_BYTES]).unwrap();
        device.write(BlockNo(4), &[2; 2 * BLOCK_BYTES]).unwrap();
        let full = device.write(BlockNo(5), &[3; 3 * BLOCK_BYTES]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let mut into = [9; 4 * BLOCK_BYTES];
        device.read(BlockNo(4), &mut into).unwrap();
        let first_bytes: Vec<u8> = into.chunks(BLOCK_BYTES).map(|block| block[0]).collect();
        assert_eq!(first_bytes, [2, 3, 3, 0], "a part is written");
        device.discard(BlockNo(4), 8).unwrap();
        device.write(BlockNo(9), &[4; 3 * BLOCK_BYTES]).unwrap();
        assert!(device.write(BlockNo(1), &[4; BLOCK_BYTES]).is_err());
        device.set_room(1);
        device.write(BlockNo(1), &[4; BLOCK_BYTES]).unwrap();
    }
}
