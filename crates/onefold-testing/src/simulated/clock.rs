//! The clock of a simulated host.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use onefold_block::Clock;
use onefold_block::clock::Timestamp;

use super::dice::nanoseconds;

/// Start of simulated time, in nanoseconds since 1970: in 2026.
pub(super) const EPOCH_NS: u64 = 1_790_000_000_000_000_000;

/// Returns a moment of simulated time as a timestamp.
pub(super) fn timestamp(ns: u64) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(ns / 1_000_000_000).expect("a u64 of nanoseconds is under 2^35 seconds"),
        nanoseconds: u32::try_from(ns % 1_000_000_000).expect("below 10^9"),
    }
}

/// Returns a timestamp in nanoseconds; 0 for one before 1970.
pub(super) fn nanoseconds_of(time: Timestamp) -> u64 {
    u64::try_from(time.seconds).unwrap_or(0).saturating_mul(1_000_000_000) + u64::from(time.nanoseconds)
}

/// The clock of one incarnation of a host.
///
/// A sleep only notes its end: the host pauses at its next call of the file system, and until then it affects no other
/// host. So the clock needs no access to the scheduler, and may be sent to other threads. But work that sleeps forever
/// without a call never yields.
#[derive(Debug)]
pub struct SimulatedClock {
    /// The time of the simulation, in nanoseconds from its start.
    time: Arc<AtomicU64>,
    skew_ns: Arc<AtomicI64>,
    asleep_until: AtomicU64,
}

impl SimulatedClock {
    pub(super) fn new(time: Arc<AtomicU64>, skew_ns: Arc<AtomicI64>) -> SimulatedClock {
        SimulatedClock { time, skew_ns, asleep_until: AtomicU64::new(0) }
    }

    /// Returns when the sleep of the host ends, if it sleeps.
    pub(super) fn asleep_until(&self) -> Option<u64> {
        let until = self.asleep_until.load(Ordering::Relaxed);
        (until > self.time.load(Ordering::Relaxed)).then_some(until)
    }

    fn local_ns(&self) -> u64 {
        self.time.load(Ordering::Relaxed).max(self.asleep_until.load(Ordering::Relaxed))
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        timestamp((EPOCH_NS + self.local_ns()).saturating_add_signed(self.skew_ns.load(Ordering::Relaxed)))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.local_ns())
    }

    fn sleep(&self, time: Duration) {
        // At most a year, so that the sum of any number of sleeps stays a valid time.
        let time = nanoseconds(time).min(31_536_000_000_000_000);
        self.asleep_until.store(self.local_ns().saturating_add(time), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_sees_its_time_pass_and_the_others_do_not() {
        let time = Arc::new(AtomicU64::new(5_000_000_000));
        let clock = || SimulatedClock::new(Arc::clone(&time), Arc::new(AtomicI64::new(-2_000_000_000)));
        let (sleeper, other) = (clock(), clock());
        assert_eq!(sleeper.now().seconds, 1_790_000_003);
        sleeper.sleep(Duration::from_secs(1));
        sleeper.sleep(Duration::from_secs(1));
        assert_eq!((sleeper.monotonic(), other.monotonic()), (Duration::from_secs(7), Duration::from_secs(5)));
        assert_eq!((sleeper.asleep_until(), other.asleep_until()), (Some(7_000_000_000), None));
        time.store(8_000_000_000, Ordering::Relaxed);
        assert_eq!((sleeper.monotonic(), sleeper.asleep_until()), (Duration::from_secs(8), None));
    }
}
