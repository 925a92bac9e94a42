//! The clock seam.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: seconds since 1970-01-01 (may be negative) and nanoseconds below 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Returns the nanoseconds since 1970-01-01.
    #[must_use]
    pub fn as_nanoseconds(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}

/// Tells the time. The core never asks the operating system itself.
pub trait Clock: Send + Sync {
    /// Returns the current time. Two calls may return the same value, and it may go backwards if the machine's clock
    /// does.
    fn now(&self) -> Timestamp;

    /// Returns the time since a moment that is fixed while the machine runs. It never goes backwards, and continues
    /// while the machine is suspended.
    fn monotonic(&self) -> Duration;

    /// Returns after `time` has passed on this clock.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp {
                seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                nanoseconds: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Timestamp { seconds: -seconds, nanoseconds: 0 },
                    nanoseconds => Timestamp { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
                }
            }
        }
    }

    fn monotonic(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
    }
}

/// A clock for tests: each reading advances it by one microsecond, so that times are distinct and reproducible.
#[derive(Debug, Default)]
pub struct ManualClock {
    microseconds: AtomicU64,
}

impl ManualClock {
    /// Returns a clock that starts `seconds` after 1970-01-01.
    #[must_use]
    pub fn starting_at(seconds: u32) -> ManualClock {
        ManualClock { microseconds: AtomicU64::new(u64::from(seconds) * 1_000_000) }
    }

    /// Advances the clock.
    pub fn advance_seconds(&self, seconds: u32) {
        self.microseconds.fetch_add(u64::from(seconds) * 1_000_000, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let microseconds = self.microseconds.fetch_add(1, Ordering::Relaxed);
        Timestamp {
            seconds: i64::try_from(microseconds / 1_000_000).expect("a u64 of microseconds is under 2^44 seconds"),
            nanoseconds: u32::try_from(microseconds % 1_000_000 * 1000).expect("below 10^9"),
        }
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.microseconds.fetch_add(1, Ordering::Relaxed))
    }

    fn sleep(&self, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_never_goes_backwards() {
        for clock in [&SystemClock as &dyn Clock, &ManualClock::starting_at(5)] {
            let before = clock.monotonic();
            clock.sleep(Duration::from_millis(2));
            assert!(clock.monotonic() >= before + Duration::from_millis(2));
        }
    }
}
