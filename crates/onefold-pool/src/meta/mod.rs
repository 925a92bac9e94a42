//! The pool's metadata in memory, changed one operation at a time.
//!
//! All decisions are made behind one lock. It protects the metadata cache, the running transaction, the block groups'
//! allocation, changes of the fingerprint filter, and the blocks in flight. An operation ([`Op`]) works on these
//! without any device I/O. If it needs a block that is not in memory, it reports that and is rolled back; the engine
//! reads the block with the lock released and runs the operation again. So an operation takes effect completely or not
//! at all, whatever stops it, and no reader or writer waits for a disk behind this lock.

pub(crate) mod allocate;
mod allocate_metadata;
pub(crate) mod busy;
pub(crate) mod cache;
pub(crate) mod entries;
pub(crate) mod free_again;
pub(crate) mod free_runs;
pub(crate) mod free_words;
pub(crate) mod full_backing;
pub(crate) mod group_run;
pub(crate) mod groups;
pub(crate) mod hash;
pub(crate) mod in_flight;
pub(crate) mod indexing;
pub(crate) mod op;
pub(crate) mod orphans;
pub(crate) mod ranges;
pub(crate) mod recent;
pub(crate) mod running;
mod search;
pub(crate) mod shared_filter;
pub(crate) mod stock;

use std::sync::Arc;

use crate::format::geometry::Geometry;
use crate::format::state::Field;
use crate::options::{Allocation, AllocationSeam, TestLimits};

pub(crate) use op::{Op, OpError, OpResult, Privilege};

/// All metadata in memory.
pub(crate) struct Meta {
    /// Layout; changes only when the pool grows.
    pub(crate) geometry: Geometry,
    /// Tag of the pool's metadata blocks.
    pub(crate) pool_tag: u32,
    /// Metadata blocks.
    pub(crate) cache: cache::Cache,
    /// The changes that the next commit will make durable.
    pub(crate) running: running::RunningTransaction,
    /// Allocation state of the block groups.
    pub(crate) groups: groups::Groups,
    /// Finds candidates by fingerprint.
    pub(crate) filter: Arc<shared_filter::SharedFilter>,
    /// The store pages that are in the filter; the others still have to be read into it.
    pub(crate) indexing: indexing::IndexingState,
    /// Data blocks whose writes are in progress.
    pub(crate) in_flight: in_flight::InFlightTable,
    /// Holds of doors on inodes; an unlinked inode lives as long as it has one.
    pub(crate) orphans: orphans::Orphans,
    /// Number of blocks kept for accepted writes that have not reserved any yet ([`crate::data::behind`]).
    pub(crate) set_aside: u64,
    /// Limits by which tests make rare events happen.
    pub(crate) limits: TestLimits,
    /// The first failure, after which no change is accepted.
    pub(crate) stopped: Option<String>,
    /// Refuses allocations, in tests.
    pub(crate) allocations: Option<Arc<dyn AllocationSeam>>,
}

impl Meta {
    /// Reads a number of the pool state.
    ///
    /// # Panics
    /// Never: the state block is pinned in the cache when the pool is opened.
    pub(crate) fn state(&self, field: Field) -> u64 {
        field.get(self.cache.peek(crate::format::geometry::STATE).expect("the state block stays in the cache"))
    }

    /// Returns whether an allocation is permitted by the seam for tests.
    pub(crate) fn permits(&self, what: Allocation) -> bool {
        self.allocations.as_ref().is_none_or(|seam| seam.permits(what))
    }

    /// Returns the number of blocks that hold data, map nodes or tree pages.
    pub(crate) fn blocks_used(&self) -> u64 {
        self.state(Field::DataBlocks) + self.state(Field::MetadataBlocks)
    }

    /// Returns the number of blocks that are free in the bitmaps, including groups not yet initialised.
    pub(crate) fn blocks_free(&self) -> u64 {
        self.geometry.allocatable_blocks().saturating_sub(self.blocks_used())
    }
}
