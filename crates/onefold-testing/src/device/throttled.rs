//! A device with limited speed, to measure how the layers above behave on slow disks.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use onefold_block::BlockNo;
use onefold_block::{BlockDevice, ReadOp, WriteOp};

/// Wraps a device and limits the bytes per second of reads and writes together.
///
/// It reads the system's clock and sleeps, so it is for benchmarks, not for tests.
#[derive(Debug)]
pub struct ThrottledDevice<D> {
    inner: D,
    bytes_per_second: u64,
    /// When all transfers admitted so far would be complete.
    busy_until: Mutex<Instant>,
}

impl<D: BlockDevice> ThrottledDevice<D> {
    /// Returns a device that moves at most `bytes_per_second`; 0 counts as 1.
    #[must_use]
    pub fn new(inner: D, bytes_per_second: u64) -> ThrottledDevice<D> {
        ThrottledDevice { inner, bytes_per_second: bytes_per_second.max(1), busy_until: Mutex::new(Instant::now()) }
    }

    /// Waits until another `bytes` bytes would have been transferred.
    fn wait(&self, bytes: usize) {
        let now = Instant::now();
        let until = {
            let mut busy_until = self.busy_until.lock();
            *busy_until = (*busy_until).max(now) + transfer_time(bytes, self.bytes_per_second);
            *busy_until
        };
        thread::sleep(until.duration_since(now));
    }
}

fn transfer_time(bytes: usize, bytes_per_second: u64) -> Duration {
    let nanoseconds = bytes as u128 * 1_000_000_000 / u128::from(bytes_per_second);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

impl<D: BlockDevice> BlockDevice for ThrottledDevice<D> {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.wait(into.len());
        self.inner.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.wait(from.len());
        self.inner.write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn room_blocks(&self) -> Option<u64> {
        self.inner.room_blocks()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.inner.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.inner.discard(first, count)
    }

    fn read_batch(&self, batch: &mut [ReadOp<'_>]) -> io::Result<()> {
        self.wait(batch.iter().map(|op| op.into.len()).sum());
        self.inner.read_batch(batch)
    }

    fn write_batch(&self, batch: &[WriteOp<'_>]) -> io::Result<()> {
        self.wait(batch.iter().map(|op| op.from.len()).sum());
        self.inner.write_batch(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use onefold_block::BLOCK_BYTES;

    #[test]
    fn time_is_bytes_over_rate() {
        assert_eq!(transfer_time(100_000_000, 50_000_000), Duration::from_secs(2));
        assert_eq!(transfer_time(0, 1), Duration::ZERO);
        assert_eq!(transfer_time(usize::MAX, 1), Duration::from_nanos(u64::MAX), "no overflow");
    }

    #[test]
    fn transfers_take_no_less_than_their_share_and_arrive() {
        let device = ThrottledDevice::new(MemoryDevice::new(8), 1_000_000);
        let start = Instant::now();
        device.write(BlockNo(1), &[4; 5 * BLOCK_BYTES]).unwrap();
        let mut block = [0; BLOCK_BYTES];
        device.read_batch(&mut [ReadOp { first: BlockNo(5), into: &mut block }]).unwrap();
        assert_eq!(block, [4; BLOCK_BYTES]);
        assert!(start.elapsed() >= Duration::from_micros(24_576));
    }
}
