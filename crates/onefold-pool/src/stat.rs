//! Numbers that add up.

use crate::format::map_node::FAN_OUT;

/// Nodes on the way to a block that are not full yet, of the file's map and of the names tree.
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
    /// Why nothing is accepted any more, if so: the first failure.
    pub stopped: Option<String>,
    /// What the pool manages of its device.
    pub device_bytes: u64,
    /// Inodes in use, of all kinds.
    pub inode_count: u64,
    /// Lengths of all regular files, rounded up to blocks.
    pub apparent_bytes: u64,
    /// Of these: holes, zero blocks, and space reserved by `fallocate` but not written.
    pub zero_bytes: u64,
    /// Stored blocks that one leaf of a file map names.
    pub unique_bytes: u64,
    /// Stored blocks that several leaves name. (Blocks of a clone whose map is still shared count as unique: one leaf.)
    pub shared_bytes: u64,
    /// Not stored because an equal block was there.
    pub saved_by_blocks_bytes: u64,
    /// Not stored because clones share their file maps.
    pub saved_by_clones_bytes: u64,
    /// Structures whose size was fixed at creation: superblocks, journal, bitmaps, fingerprint stores.
    pub metadata_fixed_bytes: u64,
    /// File maps and names.
    pub metadata_dynamic_bytes: u64,
    /// Freed in this transaction or waiting for reclaim's commit.
    pub freeing_bytes: u64,
    /// Free.
    pub free_bytes: u64,
    /// Of the free bytes: promised to `fallocate`d ranges.
    pub reserved_bytes: u64,
    /// Removed files that nobody has open and whose blocks are still to be reclaimed.
    pub reclaim_pending: u64,
    /// The in-memory filter.
    pub filter: FilterStat,
    /// What the daemon did since the pool was opened.
    pub activity: ActivityStat,
}

/// State of the fingerprint filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterStat {
    /// Memory it takes, in bytes.
    pub memory_bytes: u64,
    /// Blocks that it can find.
    pub entry_count: u64,
    /// Stored blocks that it has no room for.
    pub refused_count: u64,
    /// Block groups not yet read into it after a mount; 0 when complete.
    pub groups_pending: u64,
    /// Paper's n and k as they are.
    pub index_bits: u8,
    /// See `index_bits`.
    pub tag_bits: u8,
}

/// Counters since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityStat {
    /// Blocks accepted by writes.
    pub blocks_accepted: u64,
    /// Of these: all zero.
    pub blocks_zero: u64,
    /// Of these: shared with a stored block.
    pub blocks_shared: u64,
    /// Of these: written to the device.
    pub blocks_written: u64,
    /// Look-ups that read a store page and found nothing there.
    pub lookups_for_nothing: u64,
    /// Store pages and other metadata blocks read from the device.
    pub metadata_blocks_read: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Checkpoints done.
    pub checkpoints: u64,
    /// Transactions replayed when the pool was opened.
    pub replayed: u64,
    /// What they took of the journal, in bytes.
    pub replayed_bytes: u64,
}

/// Space of one file, in bytes: `apparent = zero + unique + shared`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStat {
    /// Length rounded up to blocks.
    pub apparent_bytes: u64,
    /// Holes, zero blocks and reserved space.
    pub zero_bytes: u64,
    /// Blocks that only this file uses, counted once: what deleting the file frees.
    pub unique_bytes: u64,
    /// Blocks that other files use too, or this file more than once.
    pub shared_bytes: u64,
    /// Distinct blocks among unique and shared.
    pub distinct_bytes: u64,
    /// The file shares more blocks than are told apart: unique, shared and distinct are right to about one in a
    /// hundred.
    pub is_estimated: bool,
}

/// As `statfs` wants it, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    /// All blocks that could hold data.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Free ones that are not reserved.
    pub blocks_available: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that could still be made.
    pub inodes_free: u64,
}

impl FsStat {
    /// Returns how many blocks of data files can still get: the available blocks, less what maps the data. A single new
    /// file gets all of them.
    #[must_use]
    pub fn blocks_for_data(&self) -> u64 {
        let nodes = self.blocks_available.div_ceil(FAN_OUT + 1) + self.blocks_available.div_ceil(FAN_OUT * FAN_OUT);
        self.blocks_available.saturating_sub(nodes + PATH_NODES_MAX)
    }
}
