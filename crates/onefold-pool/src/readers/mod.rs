//! Readers of file data: the ranges of files in use, and recently read blocks.
//!
//! Reads and writes of files (`data`) use both. The engine below them uses them only when it moves a block
//! (`engine::full_counts`): it checks for readers of the block, and drops cached content of the new place.

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
    /// Returns the readers of an idle pool; the cache takes at most `cache_bytes` bytes.
    pub(crate) fn new(cache_bytes: u64) -> Readers {
        Readers { range_locks: RangeLocks::default(), cache: DataCache::new(cache_bytes) }
    }
}
