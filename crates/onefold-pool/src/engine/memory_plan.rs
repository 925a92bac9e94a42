//! The division of the `memory` setting of an open pool.

use super::Engine;
use super::late_writes::KEPT_BYTES_MAX;
use crate::filter::FilterOptions;
use crate::format::geometry::Geometry;
use crate::options::OpenOptions;

/// Memory of the program and its libraries, threads and small allocations, in bytes.
const PROGRAM_BYTES: u64 = 12 << 20;
/// Maximum memory for buffers of requests in progress, in bytes.
const REQUESTS_BYTES_MAX: u64 = 32 << 20;
const FILTER_BYTES_MIN: u64 = 1 << 20;
/// Share of the metadata's part for tracking busy blocks. With 64 MiB for the whole pool, it suffices for busy blocks
/// in some thousand groups.
const BUSY_SHARE: u64 = 16;
const BUSY_BYTES_MIN: u64 = 256 << 10;
/// Minimum memory of a transaction, in bytes: room for a few operations, whatever the setting.
const COMMIT_BYTES_MIN: u64 = 1 << 20;

/// Minimum size of the buffers of waiting accepted writes, in bytes. More than the workers are busy with lets the
/// writer continue; much more only takes memory. It is at least two buffers of the largest request, which are a little
/// larger than its data.
const BEHIND_BYTES_MIN: u64 = 5 << 19;
const BEHIND_BYTES_MAX: u64 = 8 << 20;

/// The division of the `memory` setting, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryPlan {
    pub(crate) filter: u64,
    pub(crate) metadata: u64,
    pub(crate) data: u64,
    /// Tracking of busy blocks.
    pub(crate) busy: u64,
    /// Content that a commit holds on its way to the journal.
    pub(crate) commit: u64,
    /// Number of blocks, not bytes: the buffers of accepted writes that have not taken effect.
    pub(crate) behind_blocks: usize,
}

impl MemoryPlan {
    /// Divides the memory. The parts that do not depend on the pool come first: the program, buffers of requests in
    /// progress, and late writes. Of the rest, at most half goes to the filter, if the pool needs that much. Of what
    /// remains then, half goes to metadata, of which a sixteenth is for tracking busy blocks, and a quarter goes to
    /// file data. Besides, committed content that is not in place yet may take a quarter of the metadata's part, and a
    /// commit half of that again.
    pub(crate) fn new(memory_bytes: u64, pool_blocks: u64) -> MemoryPlan {
        let requests = (memory_bytes / 4).min(REQUESTS_BYTES_MAX);
        let shared = memory_bytes.saturating_sub(PROGRAM_BYTES + requests + KEPT_BYTES_MAX);
        let filter = (pool_blocks * 5).clamp(FILTER_BYTES_MIN, (shared / 2).max(FILTER_BYTES_MIN));
        let rest = shared.saturating_sub(filter);
        let behind = (memory_bytes / 32).clamp(BEHIND_BYTES_MIN, BEHIND_BYTES_MAX) / onefold_block::BLOCK_BYTES_U64;
        let behind_blocks = usize::try_from(behind).expect("a few thousand");
        let commit = (rest / 16).max(COMMIT_BYTES_MIN);
        let metadata = rest / 2;
        let busy = (metadata / BUSY_SHARE).max(BUSY_BYTES_MIN);
        MemoryPlan { filter, metadata: metadata.saturating_sub(busy), data: rest / 4, busy, commit, behind_blocks }
    }
}

/// Returns the options of the filter for a pool of this layout.
pub(crate) fn filter_options(options: &OpenOptions, geometry: &Geometry) -> FilterOptions {
    let planned = MemoryPlan::new(options.memory_bytes, geometry.total_blocks).filter;
    FilterOptions {
        blocks_max: geometry.total_blocks,
        pages: geometry.store_page_count(),
        memory_bytes_max: planned.min(options.test_limits.filter_bytes_max),
        index_bits: options.filter_index_bits,
        tag_bits: options.filter_tag_bits,
    }
}

impl Engine {
    /// Returns the options of the filter for a pool of this layout.
    pub(crate) fn filter_options(&self, geometry: &Geometry) -> FilterOptions {
        filter_options(&self.options, geometry)
    }
}
