//! Counts of the pool's work since it was opened, kept without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::stat::ActivityStat;

/// The counted events.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Counter {
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
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        self.counts[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self, counter: Counter) -> u64 {
        self.counts[counter as usize].load(Ordering::Relaxed)
    }

    /// Returns all counters.
    pub(crate) fn stat(&self) -> ActivityStat {
        ActivityStat {
            blocks_accepted: self.get(Counter::BlocksAccepted),
            blocks_zero: self.get(Counter::BlocksZero),
            blocks_shared: self.get(Counter::BlocksShared),
            blocks_written: self.get(Counter::BlocksWritten),
            lookups_for_nothing: self.get(Counter::LookupsForNothing),
            metadata_blocks_read: self.get(Counter::MetadataBlocksRead),
            commits: self.get(Counter::Commits),
            checkpoints: self.get(Counter::Checkpoints),
            replayed: self.get(Counter::Replayed),
            replayed_bytes: self.get(Counter::ReplayedBytes),
        }
    }
}
