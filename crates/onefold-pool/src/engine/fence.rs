//! A device that writes only while no other host can have the pool.

use std::io;
use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo, ReadOp, WriteOp};

use super::heartbeat::Pulse;

/// Passes everything on. A change first waits until this host is sure to hold the pool.
pub(crate) struct FencedDevice {
    device: Arc<dyn BlockDevice>,
    pulse: Arc<Pulse>,
}

impl FencedDevice {
    /// Returns the device for an opening that holds the pool by `pulse`.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, pulse: Arc<Pulse>) -> FencedDevice {
        FencedDevice { device, pulse }
    }

    fn may_change(&self) -> io::Result<()> {
        self.pulse.ensure_held().map_err(io::Error::other)
    }
}

impl BlockDevice for FencedDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.device.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.device.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.may_change()?;
        self.device.write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }

    fn room_blocks(&self) -> Option<u64> {
        self.device.room_blocks()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.device.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.may_change()?;
        self.device.discard(first, count)
    }

    fn read_batch(&self, batch: &mut [ReadOp<'_>]) -> io::Result<()> {
        self.device.read_batch(batch)
    }

    fn write_batch(&self, batch: &[WriteOp<'_>]) -> io::Result<()> {
        self.may_change()?;
        self.device.write_batch(batch)
    }
}
