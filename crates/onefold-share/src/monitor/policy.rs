//! The policy of a monitor: when blocks are hashed, and how much is kept in memory.

use std::time::Duration;

use super::notes::RUN_BYTES;

/// The policy of a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorPolicy {
    /// When blocks are hashed.
    pub hashing: HashPolicy,
    /// Memory for notes that are not logged yet, in bytes. If it does not suffice, the contents of blocks are
    /// forgotten, and a later scan reads the whole image.
    pub memory_bytes: usize,
    /// Maximum time that a note waits to be logged, as long as a thread does the work.
    pub flush_after: Duration,
    /// Interval at which a worker looks for work.
    pub interval: Duration,
}

/// When blocks are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashPolicy {
    /// During the write, by the writer. A block that is written in part stays unknown until a scan reads it.
    InBand,
    /// Later, by a worker or a tick, which reads the blocks; those that were written in part as well.
    Deferred,
    /// During the write, up to this rate; the rest is hashed later, at the same rate.
    Adaptive {
        /// The rate, in bytes a second.
        bytes_per_second: u64,
    },
}

impl Default for MonitorPolicy {
    /// Returns a policy with 16 MiB of memory, immediate hashing of up to 200 MB a second, and a log at least every ten
    /// minutes.
    fn default() -> MonitorPolicy {
        MonitorPolicy {
            hashing: HashPolicy::Adaptive { bytes_per_second: 200_000_000 },
            memory_bytes: 16 << 20,
            flush_after: Duration::from_secs(600),
            interval: Duration::from_secs(1),
        }
    }
}

/// Number of runs that make about 1 MiB of log.
const LOG_RUNS: usize = 1 << 16;

impl MonitorPolicy {
    /// Returns the maximum number of runs that are kept.
    pub(super) fn runs_max(&self) -> usize {
        (self.memory_bytes / RUN_BYTES).max(4)
    }

    /// Returns the number of runs from which on a log is written.
    pub(super) fn log_runs(&self) -> usize {
        // Notes that come during the writing need room, too.
        LOG_RUNS.min(self.runs_max() / 2)
    }
}

/// Budget of bytes that may be hashed under a policy.
#[derive(Debug)]
pub(super) struct Budget {
    hashing: HashPolicy,
    /// The bytes left of a second's budget, and the time for which that holds.
    left: u64,
    at: Duration,
}

impl Budget {
    pub(super) fn new(hashing: HashPolicy, now: Duration) -> Budget {
        let left = if let HashPolicy::Adaptive { bytes_per_second } = hashing { bytes_per_second } else { 0 };
        Budget { hashing, left, at: now }
    }

    /// Returns whether data that is being written is hashed at once.
    pub(super) fn takes_in_band(&mut self, bytes: u64, now: Duration) -> bool {
        match self.hashing {
            HashPolicy::InBand => true,
            HashPolicy::Deferred => false,
            HashPolicy::Adaptive { .. } => self.takes(bytes, now),
        }
    }

    /// Returns whether data that was written before is read and hashed now.
    pub(super) fn takes_deferred(&mut self, bytes: u64, now: Duration) -> bool {
        match self.hashing {
            HashPolicy::InBand | HashPolicy::Deferred => true,
            HashPolicy::Adaptive { .. } => self.takes(bytes, now),
        }
    }

    /// Returns whether blocks that were written in part are to be read.
    pub(super) fn reads_parts(&self) -> bool {
        self.hashing != HashPolicy::InBand
    }

    fn takes(&mut self, bytes: u64, now: Duration) -> bool {
        let HashPolicy::Adaptive { bytes_per_second } = self.hashing else { return true };
        let passed = now.saturating_sub(self.at);
        self.at = now;
        // After a second, all of the budget is there again.
        let passed_ns = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX).min(1_000_000_000);
        let gained = u128::from(bytes_per_second) * u128::from(passed_ns) / 1_000_000_000;
        self.left = self.left.saturating_add(u64::try_from(gained).unwrap_or(u64::MAX)).min(bytes_per_second);
        // A request for more than a second's budget has its turn when the whole budget is there.
        if self.left < bytes.min(bytes_per_second) {
            return false;
        }
        self.left = self.left.saturating_sub(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    #[test]
    fn what_is_beyond_the_rate_is_left_for_later() {
        let ms = Duration::from_millis;
        let mut budget = Budget::new(HashPolicy::Adaptive { bytes_per_second: 100 * MB }, ms(0));
        let mut taken = 0;
        // 400 MB a second, for ten seconds.
        for now in 0..10_000 {
            taken += if budget.takes_in_band(400_000, ms(now)) { 400_000 } else { 0 };
        }
        // Plus the budget of a second that was there at the beginning.
        assert!((1090 * MB..=1100 * MB).contains(&taken), "{taken}");
        assert!(!budget.takes_deferred(MB, ms(10_001)) && budget.takes_deferred(100 * MB, ms(60_000)));
        assert!(!budget.takes_in_band(MB, ms(60_000)), "what was not used for long is not saved up");
        assert!(budget.takes_in_band(1000 * MB, ms(61_000)), "one that is too large for any second is taken, too");
    }

    #[test]
    fn the_other_policies_look_at_no_rate() {
        for (hashing, in_band) in [(HashPolicy::InBand, true), (HashPolicy::Deferred, false)] {
            let mut budget = Budget::new(hashing, Duration::ZERO);
            assert_eq!(budget.takes_in_band(u64::MAX, Duration::ZERO), in_band);
            assert!(budget.takes_deferred(u64::MAX, Duration::ZERO));
            assert_eq!(budget.reads_parts(), !in_band);
        }
    }
}
