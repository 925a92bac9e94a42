//! Statistics whose numbers add up.

use onefold_block::block::BLOCK_BYTES_U64;

use super::Pool;
use crate::error::Result;
use crate::format::state::Field;
use crate::stat::{FilterStat, FsStat, PoolStat};

impl Pool {
    /// Returns the numbers for `statfs`.
    pub fn fs_stat(&self) -> FsStat {
        let meta = self.settled().meta();
        let free = meta.blocks_free().saturating_sub(meta.groups.blocks_kept());
        let reserved = meta.state(Field::ReservedBlocks) + crate::meta::allocate::EMERGENCY_BLOCKS;
        let inodes = meta.state(Field::Inodes);
        FsStat {
            blocks: meta.geometry.allocatable_blocks(),
            blocks_fixed: meta.geometry.total_blocks.saturating_sub(meta.geometry.allocatable_blocks()),
            blocks_free: free,
            blocks_available: free.saturating_sub(reserved),
            inodes,
            // An inode takes about a sixteenth of a names tree page.
            inodes_free: free.saturating_sub(reserved).saturating_mul(16),
        }
    }

    /// Returns how much of the metadata are summaries of the block groups, in bytes.
    #[doc(hidden)]
    pub fn summary_bytes(&self) -> u64 {
        self.settled().meta().groups.blocks_kept() * BLOCK_BYTES_U64
    }

    /// Returns the pool's numbers.
    ///
    /// # Errors
    /// None today.
    pub fn stat(&self) -> Result<PoolStat> {
        let groups_pending = self.settled().groups_pending();
        self.engine.find_orphans();
        let scrubbed_seconds = self.scrubbed_seconds();
        let superblock = self.engine.superblock.lock().clone();
        let meta = self.settled().meta();
        let blocks = |field| meta.state(field);
        let logical = blocks(Field::LogicalBlocks);
        // Blocks that wait for reclaim are still stored and referred to, although no file has them any more. They count
        // as being freed, as far as the totals can separate them from blocks that files share.
        let references = blocks(Field::References).min(logical);
        let data = blocks(Field::DataBlocks).min(references);
        let shared = blocks(Field::SharedBlocks).min(data);
        let bytes = |count: u64| count.saturating_mul(BLOCK_BYTES_U64);
        let fixed = superblock.geometry.total_blocks - superblock.geometry.allocatable_blocks();
        let busy = meta.groups.busy.count();
        let awaiting_reclaim = blocks(Field::DataBlocks) - data;
        let filter = meta.filter.read();
        Ok(PoolStat {
            label: superblock.label.clone(),
            uuid: superblock.uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
            stopped: meta.stopped.clone(),
            device_bytes: bytes(superblock.geometry.total_blocks),
            inode_count: blocks(Field::Inodes),
            apparent_bytes: bytes(blocks(Field::ApparentBlocks)),
            zero_bytes: bytes(blocks(Field::ApparentBlocks).saturating_sub(logical)),
            unique_bytes: bytes(data - shared),
            shared_bytes: bytes(shared),
            saved_by_blocks_bytes: bytes(references - data),
            saved_by_clones_bytes: bytes(logical - references),
            metadata_fixed_bytes: bytes(fixed),
            metadata_dynamic_bytes: bytes(blocks(Field::MetadataBlocks) + meta.groups.blocks_kept()),
            freeing_bytes: bytes(meta.groups.blocks_waiting() + awaiting_reclaim),
            free_bytes: bytes(meta.blocks_free().saturating_sub(busy)),
            reserved_bytes: bytes(blocks(Field::ReservedBlocks)),
            reclaim_pending: blocks(Field::ReclaimPending) + meta.orphans.waiting_count(),
            scrubbed_seconds,
            filter: FilterStat {
                memory_bytes: filter.memory_bytes(),
                entry_count: filter.entry_count(),
                refused_count: filter.refused_count(),
                groups_pending,
                index_bits: filter.index_bits(),
                tag_bits: filter.tag_bits(),
            },
            activity: self.engine.activity.stat(),
        })
    }
}
