//! Readers of file data: which ranges of files are in use, and which blocks were read lately.
//!
//! Reads and writes of files (`data`) use both. The engine below them asks only when it gives a block another place
//! (`engine::full_counts`): who may still read the block, and what is cached of the new place.

pub(crate) mod cache;
pub(crate) mod range_lock;

use cache::DataCache;
use range_lock::RangeLocks;

/// The readers of a pool.
pub(crate) struct Readers {
    pub(crate) range_locks: RangeLocks,
    pub(crate) cache: DataCache,
}

impl Readers {
    /// Returns those of a pool that nobody reads; the cache takes at most `cache_bytes` bytes.
    pub(crate) fn new(cache_bytes: u64) -> Readers {
        Readers { range_locks: RangeLocks::default(), cache: DataCache::new(cache_bytes) }
    }
}
