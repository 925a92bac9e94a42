//! A device that holds up certain writes until it is opened, so that a test sees what other threads do meanwhile.

use std::io;

use parking_lot::{Condvar, Mutex};

use onefold_block::BlockDevice;
use onefold_block::BlockNo;

/// Wraps a device. While it is closed, it holds up writes whose first block begins with a mark. It begins closed.
#[derive(Debug)]
pub struct GatedDevice<D> {
    inner: D,
    mark: &'static [u8],
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl<D: BlockDevice> GatedDevice<D> {
    /// Returns a closed gate for writes that begin with `mark`.
    #[must_use]
    pub fn new(inner: D, mark: &'static [u8]) -> GatedDevice<D> {
        GatedDevice { inner, mark, is_open: Mutex::new(false), opened: Condvar::new() }
    }

    /// Lets all writes pass from now on.
    pub fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }

    /// Returns the wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: BlockDevice> BlockDevice for GatedDevice<D> {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.inner.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        if from.starts_with(self.mark) {
            let mut is_open = self.is_open.lock();
            while !*is_open {
                self.opened.wait(&mut is_open);
            }
        }
        self.inner.write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.inner.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.inner.discard(first, count)
    }
}
