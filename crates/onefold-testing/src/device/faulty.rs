//! A device that fails on request.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use onefold_block::device::SECTOR_BYTES;
use onefold_block::random::SeededRandom;
use onefold_block::{BLOCK_BYTES, BlockNo};
use onefold_block::{BlockDevice, ReadOp, WriteOp};

/// A kind of call that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `read`, and each operation of a read batch.
    Read,
    /// `write`, and each operation of a write batch.
    Write,
    /// `sync`.
    Sync,
    /// `discard`.
    Discard,
    /// `block_count`.
    Measure,
}

/// Kinds of calls.
const CALLS: usize = 5;

/// The calls that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailingCalls {
    /// The call of this number, counted from 1 over the calls of its kind.
    Nth(u64),
    /// The call of this number and all later ones.
    FromNth(u64),
    /// Each call on its own with this probability in a million, drawn by the device's seed.
    PerMillion(u32),
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// With an I/O error, without effect.
    Io,
    /// With [`io::ErrorKind::StorageFull`], without effect.
    StorageFull,
    /// With an I/O error after some of the sectors were transferred: a short write or read. The rest of a short read's
    /// buffer holds anything. For a call that transfers nothing, the same as [`Fault::Io`].
    Torn,
}

/// Wraps a device and makes selected calls fail. Counts all calls.
#[derive(Debug)]
pub struct FaultyDevice<D> {
    inner: D,
    rules: Mutex<Vec<(Call, FailingCalls, Fault)>>,
    random: SeededRandom,
    counts: [AtomicU64; CALLS],
}

impl<D: BlockDevice> FaultyDevice<D> {
    /// Returns a device without faults so far; `seed` decides all random choices.
    #[must_use]
    pub fn new(inner: D, seed: u64) -> FaultyDevice<D> {
        let counts = Default::default();
        FaultyDevice { inner, rules: Mutex::new(Vec::new()), random: SeededRandom::new(seed), counts }
    }

    /// Makes calls of one kind fail. If several rules apply to a call, the first one given counts.
    pub fn fail(&self, call: Call, when: FailingCalls, fault: Fault) {
        self.rules.lock().push((call, when, fault));
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.rules.lock().clear();
    }

    /// Returns the number of calls of a kind, including failed ones.
    pub fn count(&self, call: Call) -> u64 {
        self.counts[call as usize].load(Ordering::Relaxed)
    }

    /// Returns the wrapped device.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    /// Counts the call and returns its fault, if any.
    fn fault(&self, call: Call) -> Option<Fault> {
        let number = self.counts[call as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let applies = |when: FailingCalls| match when {
            FailingCalls::Nth(nth) => number == nth,
            FailingCalls::FromNth(nth) => number >= nth,
            FailingCalls::PerMillion(rate) => self.random.below(1_000_000) < u64::from(rate),
        };
        let rules = self.rules.lock();
        rules.iter().find(|(kind, when, _)| *kind == call && applies(*when)).map(|(_, _, fault)| *fault)
    }

    fn pass(&self, call: Call) -> io::Result<()> {
        self.fault(call).map_or(Ok(()), |fault| Err(error(fault)))
    }

    /// Returns a random number of whole sectors, in bytes, fewer than `length`.
    fn short(&self, length: usize) -> usize {
        let sectors = self.random.below((length / SECTOR_BYTES) as u64);
        usize::try_from(sectors).expect("below a length") * SECTOR_BYTES
    }

    fn read_torn(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.inner.read(first, into)?;
        let got_bytes = self.short(into.len());
        into[got_bytes..].fill(0xa5);
        Ok(())
    }

    fn write_torn(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        let new_bytes = self.short(from.len());
        let touched = new_bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
        let mut torn = vec![0; touched];
        self.inner.read(first, &mut torn)?;
        torn[..new_bytes].copy_from_slice(&from[..new_bytes]);
        self.inner.write(first, &torn)
    }
}

/// Returns the error that the caller of a faulty call sees.
fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::StorageFull => io::ErrorKind::StorageFull.into(),
        Fault::Io | Fault::Torn => io::Error::from_raw_os_error(libc::EIO),
    }
}

impl<D: BlockDevice> BlockDevice for FaultyDevice<D> {
    fn block_count(&self) -> io::Result<u64> {
        self.pass(Call::Measure)?;
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        match self.fault(Call::Read) {
            None => self.inner.read(first, into),
            Some(Fault::Torn) => {
                self.read_torn(first, into)?;
                Err(error(Fault::Torn))
            }
            Some(fault) => Err(error(fault)),
        }
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        match self.fault(Call::Write) {
            None => self.inner.write(first, from),
            Some(Fault::Torn) => {
                self.write_torn(first, from)?;
                Err(error(Fault::Torn))
            }
            Some(fault) => Err(error(fault)),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.pass(Call::Sync)?;
        self.inner.sync()
    }

    fn room_blocks(&self) -> Option<u64> {
        self.inner.room_blocks()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.inner.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.pass(Call::Discard)?;
        self.inner.discard(first, count)
    }

    /// Performs the operations after a failed one all the same: they may have been in flight.
    fn read_batch(&self, batch: &mut [ReadOp<'_>]) -> io::Result<()> {
        let results: Vec<_> = batch.iter_mut().map(|op| self.read(op.first, op.into)).collect();
        results.into_iter().collect()
    }

    fn write_batch(&self, batch: &[WriteOp<'_>]) -> io::Result<()> {
        let results: Vec<_> = batch.iter().map(|op| self.write(op.first, op.from)).collect();
        results.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    fn device() -> FaultyDevice<MemoryDevice> {
        FaultyDevice::new(MemoryDevice::new(8), 1)
    }

    /// Writes one block `writes` times and returns the numbers of the writes that failed.
    fn failed_writes(device: &FaultyDevice<MemoryDevice>, writes: u64) -> Vec<u64> {
        (1..=writes).filter(|_| device.write(BlockNo(0), &[1; BLOCK_BYTES]).is_err()).collect()
    }

    #[test]
    fn the_chosen_calls_fail_and_all_are_counted() {
        let device = device();
        assert_eq!(failed_writes(&device, 3), []);
        device.fail(Call::Write, FailingCalls::Nth(5), Fault::Io);
        assert_eq!(failed_writes(&device, 4), [2], "the fifth of all");
        device.fail(Call::Write, FailingCalls::FromNth(10), Fault::Io);
        assert_eq!(failed_writes(&device, 6), [3, 4, 5, 6]);
        device.heal();
        assert_eq!(failed_writes(&device, 2), []);
        assert_eq!([device.count(Call::Write), device.count(Call::Sync)], [15, 0]);
    }

    #[test]
    fn each_kind_of_call_fails_by_itself_with_its_error() {
        let device = device();
        device.fail(Call::Sync, FailingCalls::FromNth(1), Fault::Io);
        device.fail(Call::Write, FailingCalls::FromNth(1), Fault::StorageFull);
        device.fail(Call::Read, FailingCalls::Nth(1), Fault::Torn);
        assert_eq!(device.sync().unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(device.write(BlockNo(0), &[1; BLOCK_BYTES]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(device.read(BlockNo(0), &mut [0; BLOCK_BYTES]).unwrap_err().raw_os_error(), Some(libc::EIO));
        device.read(BlockNo(0), &mut [0; BLOCK_BYTES]).unwrap();
        device.discard(BlockNo(0), 1).unwrap();
        assert!(device.inner().image().blocks().is_empty());
    }

    #[test]
    fn chance_follows_the_seed() {
        let failures = |seed| {
            let device = FaultyDevice::new(MemoryDevice::new(8), seed);
            device.fail(Call::Write, FailingCalls::PerMillion(100_000), Fault::Io);
            failed_writes(&device, 1000)
        };
        assert_eq!(failures(1), failures(1));
        assert_ne!(failures(1), failures(2));
        assert!((50..200).contains(&failures(1).len()));
    }

    #[test]
    fn a_failed_operation_of_a_batch_does_not_keep_the_others_from_the_device() {
        let device = device();
        device.fail(Call::Write, FailingCalls::Nth(2), Fault::Io);
        let from = [7; BLOCK_BYTES];
        let batch = [1, 3, 5].map(|first| WriteOp { first: BlockNo(first), from: &from });
        assert!(device.write_batch(&batch).is_err());
        let written: Vec<BlockNo> = device.inner().image().blocks().iter().map(|(block, _)| *block).collect();
        assert_eq!(written, [BlockNo(1), BlockNo(5)]);
    }

    #[test]
    fn a_short_read_fails_and_fills_whole_sectors() {
        let device = device();
        device.inner().write(BlockNo(2), &[1; 3 * BLOCK_BYTES]).unwrap();
        device.fail(Call::Read, FailingCalls::FromNth(1), Fault::Torn);
        let mut lengths = Vec::new();
        for _ in 0..20 {
            let mut into = [0; 3 * BLOCK_BYTES];
            assert!(device.read(BlockNo(2), &mut into).is_err());
            let got_bytes = into.iter().take_while(|byte| **byte == 1).count();
            assert!(got_bytes.is_multiple_of(SECTOR_BYTES) && !into[got_bytes..].contains(&1));
            lengths.push(got_bytes);
        }
        assert!(lengths.iter().any(|bytes| bytes % BLOCK_BYTES != 0), "{lengths:?}");
    }

    #[test]
    fn a_torn_write_fails_and_leaves_whole_sectors() {
        let device = device();
        device.fail(Call::Write, FailingCalls::FromNth(1), Fault::Torn);
        let mut lengths = Vec::new();
        for tag in 1..=20u8 {
            assert!(device.write(BlockNo(2), &[tag; 3 * BLOCK_BYTES]).is_err());
            let mut content = [0; 3 * BLOCK_BYTES];
            device.inner().read(BlockNo(2), &mut content).unwrap();
            let new_bytes = content.iter().take_while(|byte| **byte == tag).count();
            assert!(new_bytes.is_multiple_of(SECTOR_BYTES) && !content[new_bytes..].contains(&tag));
            lengths.push(new_bytes);
        }
        assert!(lengths.iter().any(|bytes| bytes % BLOCK_BYTES != 0), "{lengths:?}");
    }
}
