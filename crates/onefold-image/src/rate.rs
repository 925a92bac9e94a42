//! Limits on bytes per second, for work with data of disks.

use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

use onefold_block::Clock;
use onefold_disk::{Disk, DiskError, FilePlacement};
use parking_lot::Mutex;

use crate::install::Target;

/// Time whose share of the rate may be taken at once after a pause. Covers sleeps that last too long.
const BURST: Duration = Duration::from_millis(100);
/// Maximum length of one sleep. A request to stop is noticed after it.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Maximum number of zeros that a target is asked for at once while it must write them.
const ZEROS_AT_ONCE: u64 = 1 << 20;

/// A limit that all threads of some work share. In any period they move the bytes of the period and of 0.1 s, and one
/// request for each thread.
pub struct Rate<'c> {
    clock: &'c dyn Clock,
    bytes_per_second: NonZeroU64,
    is_stopped: &'c (dyn Fn() -> bool + Sync),
    /// The time at which everything that was moved is paid for.
    paid_at: Mutex<Duration>,
}

impl<'c> Rate<'c> {
    /// Returns a limit. Nothing waits any longer once `is_stopped` returns true.
    #[must_use]
    pub fn new(
        clock: &'c dyn Clock,
        bytes_per_second: NonZeroU64,
        is_stopped: &'c (dyn Fn() -> bool + Sync),
    ) -> Rate<'c> {
        Rate { clock, bytes_per_second, is_stopped, paid_at: Mutex::new(Duration::ZERO) }
    }

    /// Returns when so many bytes may be moved: after all earlier ones are paid for.
    fn wait(&self, bytes: usize) {
        let cost = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        let cost = Duration::from_nanos(u64::try_from(cost).unwrap_or(u64::MAX));
        let start = {
            let mut paid_at = self.paid_at.lock();
            let start = (*paid_at).max(self.clock.monotonic().saturating_sub(BURST));
            *paid_at = start.saturating_add(cost);
            start
        };
        loop {
            let left = start.saturating_sub(self.clock.monotonic());
            if left.is_zero() || (self.is_stopped)() {
                return;
            }
            self.clock.sleep(left.min(SLEEP_MAX));
        }
    }
}

impl std::fmt::Debug for Rate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rate").field("bytes_per_second", &self.bytes_per_second).finish_non_exhaustive()
    }
}

/// A disk that is read at a rate.
pub struct RatedDisk<'d> {
    disk: &'d dyn Disk,
    rate: &'d Rate<'d>,
}

impl<'d> RatedDisk<'d> {
    /// Returns `disk`, read at `rate`.
    #[must_use]
    pub fn new(disk: &'d dyn Disk, rate: &'d Rate<'d>) -> RatedDisk<'d> {
        RatedDisk { disk, rate }
    }
}

impl std::fmt::Debug for RatedDisk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RatedDisk").field("rate", self.rate).finish_non_exhaustive()
    }
}

impl Disk for RatedDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        self.disk.in_file(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.rate.wait(into.len());
        self.disk.read(offset, into)
    }
}

/// A target that is written and read back at a rate. Zeros that the target makes without writing are not counted.
pub struct RatedTarget<'t> {
    target: &'t dyn Target,
    rate: &'t Rate<'t>,
}

impl<'t> RatedTarget<'t> {
    /// Returns `target`, written and read at `rate`.
    #[must_use]
    pub fn new(target: &'t dyn Target, rate: &'t Rate<'t>) -> RatedTarget<'t> {
        RatedTarget { target, rate }
    }
}

impl std::fmt::Debug for RatedTarget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RatedTarget").field("rate", self.rate).finish_non_exhaustive()
    }
}

impl Target for RatedTarget<'_> {
    fn length_bytes(&self) -> u64 {
        self.target.length_bytes()
    }

    fn is_blank(&self) -> bool {
        self.target.is_blank()
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.rate.wait(from.len());
        self.target.write(offset, from)
    }

    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        let (mut done, mut written, mut writes) = (0, 0, true);
        while done < length_bytes {
            let left = length_bytes - done;
            // A target that must write zeros gets few at once, so that it keeps to the rate.
            let length = if writes { left.min(ZEROS_AT_ONCE) } else { left };
            let cost = self.target.zero(offset + done, length)?;
            self.rate.wait(usize::try_from(cost).unwrap_or(usize::MAX));
            writes = cost > length / 2;
            done += length;
            written += cost;
        }
        Ok(written)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.target.discard(offset, length_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.target.sync()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.rate.wait(into.len());
        self.target.read(offset, into)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use onefold_block::Timestamp;

    use super::*;

    /// A clock that only sleeping moves.
    #[derive(Default)]
    struct SleptClock(AtomicU64);

    impl Clock for SleptClock {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_nanos(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, time: Duration) {
            self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
        }
    }

    #[test]
    fn bytes_take_their_time() {
        let clock = SleptClock::default();
        let rate = Rate::new(&clock, NonZeroU64::new(1000).unwrap(), &|| false);
        for _ in 0..11 {
            rate.wait(500);
        }
        let taken = clock.monotonic();
        assert_eq!(taken, Duration::from_secs(5), "the last request is paid for by the next one");
        clock.sleep(Duration::from_secs(60));
        let before = clock.monotonic();
        rate.wait(500);
        rate.wait(500);
        assert_eq!(clock.monotonic() - before, Duration::from_millis(400), "only the burst is saved up");
    }

    /// A target that makes zeros by writing, or without.
    struct Zeros {
        writes: bool,
    }

    impl Target for Zeros {
        fn length_bytes(&self) -> u64 {
            u64::MAX
        }

        fn is_blank(&self) -> bool {
            false
        }

        fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn zero(&self, _: u64, length_bytes: u64) -> io::Result<u64> {
            Ok(if self.writes { length_bytes } else { 0 })
        }

        fn discard(&self, _: u64, _: u64) -> io::Result<u64> {
            Ok(0)
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }

        fn read(&self, _: u64, into: &mut [u8]) -> io::Result<()> {
            into.fill(0);
            Ok(())
        }
    }

    #[test]
    fn zeros_that_are_written_take_their_time() {
        let length_bytes = 100 * ZEROS_AT_ONCE;
        for (writes, seconds) in [(true, 99), (false, 0)] {
            let clock = SleptClock::default();
            let rate = Rate::new(&clock, NonZeroU64::new(ZEROS_AT_ONCE).unwrap(), &|| false);
            let target = Zeros { writes };
            let written = RatedTarget::new(&target, &rate).zero(0, length_bytes).unwrap();
            assert_eq!((written, clock.monotonic().as_secs()), (if writes { length_bytes } else { 0 }, seconds));
        }
    }

    #[test]
    fn stopped_work_waits_for_no_bytes() {
        let clock = SleptClock::default();
        let is_stopped = AtomicBool::new(false);
        let stop = || is_stopped.load(Ordering::Relaxed);
        let rate = Rate::new(&clock, NonZeroU64::new(1).unwrap(), &stop);
        rate.wait(1_000_000);
        is_stopped.store(true, Ordering::Relaxed);
        rate.wait(1);
        assert_eq!(clock.monotonic(), Duration::ZERO);
    }
}
