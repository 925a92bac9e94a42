//! Counts of the pool's work since it was opened, kept without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::stat::ActivityStat;

/// The counted events.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum ActivityCounter {
    BlocksAccepted,
    BlocksZero,
    BlocksShared,
    BlocksWritten,
    LookupsForNothing,
    MetadataBlocksRead,
    Commits,
    Checkpoints,
    Replayed,
    ReplayedBytes,
}

const COUNTERS: usize = 10;

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    counts: [AtomicU64; COUNTERS],
}

impl Activity {
    /// Adds to a counter.
    pub(crate) fn add(&self, counter: ActivityCounter, count: u64) {
        self.counts[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self, counter: ActivityCounter) -> u64 {
        self.counts[counter as usize].load(Ordering::Relaxed)
    }

    /// Returns all counters.
    pub(crate) fn stat(&self) -> ActivityStat {
        ActivityStat {
            blocks_accepted: self.get(ActivityCounter::BlocksAccepted),
            blocks_zero: self.get(ActivityCounter::BlocksZero),
            blocks_shared: self.get(ActivityCounter::BlocksShared),
            blocks_written: self.get(ActivityCounter::BlocksWritten),
            lookups_for_nothing: self.get(ActivityCounter::LookupsForNothing),
            metadata_blocks_read: self.get(ActivityCounter::MetadataBlocksRead),
            commits: self.get(ActivityCounter::Commits),
            checkpoints: self.get(ActivityCounter::Checkpoints),
            replayed: self.get(ActivityCounter::Replayed),
            replayed_bytes: self.get(ActivityCounter::ReplayedBytes),
        }
    }
}
