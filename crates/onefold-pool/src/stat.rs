//! Statistics whose numbers add up.

use crate::format::map_node::FAN_OUT;

/// Maximum number of partly filled nodes on the path to a block, of the file's map and of the names tree.
const PATH_NODES_MAX: u64 = 16;

/// Space of a pool, in bytes unless the name says otherwise.
///
/// `apparent = zero + unique + shared + saved_by_blocks + saved_by_clones` and
/// `device = metadata_fixed + metadata_dynamic + unique + shared + freeing + free`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStat {
    /// Name given at creation.
    pub label: String,
    /// Identity, 32 hexadecimal digits.
    pub uuid: String,
    /// The first failure, if the pool has stopped and accepts no changes.
    pub stopped: Option<String>,
    /// The part of the device that the pool manages.
    pub device_bytes: u64,
    /// Inodes in use, of all kinds.
    pub inode_count: u64,
    /// Lengths of all regular files, rounded up to blocks.
    pub apparent_bytes: u64,
    /// Of these: holes, zero blocks, and space reserved by `fallocate` but not written.
    pub zero_bytes: u64,
    /// Stored blocks that exactly one leaf of a file map names.
    pub unique_bytes: u64,
    /// Stored blocks that several leaves name. (Blocks of a clone whose map is still shared have one leaf, so count as
    /// unique.)
    pub shared_bytes: u64,
    /// Not stored, because an equal block was already stored.
    pub saved_by_blocks_bytes: u64,
    /// Not stored, because clones share their file maps.
    pub saved_by_clones_bytes: u64,
    /// Structures whose size was fixed at creation: superblocks, journal, bitmaps, fingerprint stores.
    pub metadata_fixed_bytes: u64,
    /// File maps and names.
    pub metadata_dynamic_bytes: u64,
    /// Freed in this transaction or waiting for reclaim's commit.
    pub freeing_bytes: u64,
    /// Free.
    pub free_bytes: u64,
    /// Part of the free space that is promised to `fallocate`d ranges.
    pub reserved_bytes: u64,
    /// Removed files that no process has open and whose blocks are not yet reclaimed.
    pub reclaim_pending: u64,
    /// When a scrub last read all data ([`crate::Pool::note_scrub`]), in seconds since 1970.
    pub scrubbed_seconds: Option<i64>,
    /// The in-memory filter.
    pub filter: FilterStat,
    /// Work of the daemon since the pool was opened.
    pub activity: ActivityStat,
}

/// State of the fingerprint filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterStat {
    /// Memory it takes, in bytes.
    pub memory_bytes: u64,
    /// Blocks that it can find.
    pub entry_count: u64,
    /// Stored blocks that did not fit.
    pub refused_count: u64,
    /// Block groups not yet read into it after a mount; 0 when it is complete.
    pub groups_pending: u64,
    /// The present n and k of the paper.
    pub index_bits: u8,
    /// See `index_bits`.
    pub tag_bits: u8,
}

/// Counters since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityStat {
    /// Blocks accepted by writes.
    pub blocks_accepted: u64,
    /// Of these: all-zero blocks.
    pub blocks_zero: u64,
    /// Of these: blocks shared with a stored one.
    pub blocks_shared: u64,
    /// Of these: blocks written to the device.
    pub blocks_written: u64,
    /// Number of store pages that look-ups read without finding the fingerprint.
    pub lookups_for_nothing: u64,
    /// Store pages and other metadata blocks read from the device.
    pub metadata_blocks_read: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Checkpoints done.
    pub checkpoints: u64,
    /// Transactions replayed when the pool was opened.
    pub replayed: u64,
    /// Their length in the journal, in bytes.
    pub replayed_bytes: u64,
}

/// Space of one file, in bytes: `apparent = zero + unique + shared`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStat {
    /// Length rounded up to blocks.
    pub apparent_bytes: u64,
    /// Holes, zero blocks and reserved space.
    pub zero_bytes: u64,
    /// Blocks that only this file uses, counted once: the space that deleting the file frees.
    pub unique_bytes: u64,
    /// Blocks that other files use too, or that this file uses more than once.
    pub shared_bytes: u64,
    /// Distinct blocks among unique and shared.
    pub distinct_bytes: u64,
    /// Whether the file shares more blocks than can be told apart: unique, shared and distinct are then accurate to
    /// about one percent.
    pub is_estimated: bool,
}

/// Numbers for `statfs`, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    /// All blocks that could hold data.
    pub blocks: u64,
    /// Blocks with a fixed use, which hold no data: bitmaps, the fingerprint store, the journal, superblocks.
    pub blocks_fixed: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Free ones that are not reserved.
    pub blocks_available: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that can still be made.
    pub inodes_free: u64,
}

impl FsStat {
    /// Returns the number of blocks of data that files can still get: the available blocks, less those that map the
    /// data. A single new file can get all of them.
    #[must_use]
    pub fn blocks_for_data(&self) -> u64 {
        let nodes = self.blocks_available.div_ceil(FAN_OUT + 1) + self.blocks_available.div_ceil(FAN_OUT * FAN_OUT);
        self.blocks_available.saturating_sub(nodes + PATH_NODES_MAX)
    }
}
