//! Numbers that add up.

use std::collections::HashMap;

use onefold_block::BlockNo;
use onefold_block::block::BLOCK_BYTES_U64;

use super::Pool;
use crate::attr::Ino;
use crate::error::{PoolError, Result};
use crate::format::map_node::MapEntry;
use crate::format::state::Field;
use crate::map::seek::Sought;
use crate::names::inodes::blocks_spanned;
use crate::progress::Progress;
use crate::stat::{FileStat, FilterStat, FsStat, PoolStat};

/// Blocks of a file that are looked at under one hold of the metadata lock.
const WALK_BLOCKS: u64 = 512;
/// Removed files that nobody has open any more are counted as far as this.
const ORPHANS_COUNTED_MAX: u64 = 1000;

impl Pool {
    /// Returns the numbers that `statfs` wants.
    pub fn fs_stat(&self) -> FsStat {
        let meta = self.settled().meta();
        let free = meta.blocks_free();
        let reserved = meta.state(Field::ReservedBlocks) + crate::meta::allocate::EMERGENCY_BLOCKS;
        let inodes = meta.state(Field::Inodes);
        FsStat {
            blocks: meta.geometry.allocatable_blocks(),
            blocks_free: free,
            blocks_available: free.saturating_sub(reserved),
            inodes,
            // An inode takes about a sixteenth of a names tree page.
            inodes_free: free.saturating_sub(reserved).saturating_mul(16),
        }
    }

    /// Returns the pool's numbers.
    ///
    /// # Errors
    /// None today.
    pub fn stat(&self) -> Result<PoolStat> {
        let groups_pending = self.settled().groups_pending();
        // What cannot be read here is not waited for; whoever comes upon the damage tells.
        let orphans = self.engine.view(|op| op.orphan_count(ORPHANS_COUNTED_MAX)).unwrap_or(0);
        let superblock = self.engine.superblock.lock().clone();
        let meta = self.settled().meta();
        let blocks = |field| meta.state(field);
        let logical = blocks(Field::LogicalBlocks);
        // What waits for reclaim is still referred to and stored, though no file has it any more: it counts as being
        // freed, as far as the totals tell it from what files share.
        let references = blocks(Field::References).min(logical);
        let data = blocks(Field::DataBlocks).min(references);
        let shared = blocks(Field::SharedBlocks).min(data);
        let bytes = |count: u64| count.saturating_mul(BLOCK_BYTES_U64);
        let fixed = superblock.geometry.total_blocks - superblock.geometry.allocatable_blocks();
        let busy = meta.groups.busy_count();
        let awaiting_reclaim = blocks(Field::DataBlocks) - data;
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
            metadata_dynamic_bytes: bytes(blocks(Field::MetadataBlocks)),
            freeing_bytes: bytes(busy + awaiting_reclaim),
            free_bytes: bytes(meta.blocks_free().saturating_sub(busy)),
            reserved_bytes: bytes(blocks(Field::ReservedBlocks)),
            reclaim_pending: blocks(Field::ReclaimPending) + orphans,
            filter: FilterStat {
                memory_bytes: meta.filter.memory_bytes(),
                entry_count: meta.filter.entry_count(),
                refused_count: meta.filter.refused_count(),
                groups_pending,
                index_bits: meta.filter.index_bits(),
                tag_bits: meta.filter.tag_bits(),
            },
            activity: self.engine.activity.stat(),
        })
    }

    /// Returns a regular file's numbers, by walking its map.
    ///
    /// # Errors
    /// [`PoolError::IsADirectory`], damage, device errors; [`PoolError::Invalid`] if `progress` stopped it.
    pub fn file_stat(&self, ino: Ino, progress: &dyn Progress) -> Result<FileStat> {
        let total = blocks_spanned(self.attr(ino)?.size_bytes);
        // How often this file names each block that others may name too. A block with one reference, below map nodes
        // with one parent, is the file's own.
        let mut named: HashMap<BlockNo, (u32, u32)> = HashMap::new();
        let (mut own, mut via_clone, mut zero) = (0, std::collections::HashSet::new(), 0);
        let mut at = 0;
        while at < total {
            // A file of terabytes may be one hole: it is not walked block by block.
            let sought = self.settled().view(|op| {
                let inode = op.regular(ino)?;
                op.map_seek(&inode, at, total, true)
            })?;
            let (Sought::Found(data) | Sought::GoOn(data)) = sought;
            zero += data - at;
            at = data;
            if progress.update(at, total).is_break() {
                return Err(PoolError::Invalid("stopped"));
            }
            if at == total || matches!(sought, Sought::GoOn(_)) {
                continue;
            }
            let count = WALK_BLOCKS.min(total - at);
            let seen = self.settled().view(|op| {
                let inode = op.regular(ino)?;
                let mut entries = vec![MapEntry::Hole; usize::try_from(count).unwrap_or(0)];
                op.map_read(&inode, at, &mut entries)?;
                let blocks = crate::map::blocks_of(&entries);
                op.want_entries(blocks.iter().copied())?;
                let mut seen = Vec::with_capacity(blocks.len());
                for (index, entry) in (at..).zip(&entries) {
                    if let MapEntry::Block(block) = entry {
                        seen.push((*block, op.entry(*block)?.count, op.map_is_shared(&inode, index)?));
                    }
                }
                Ok(seen)
            })?;
            zero += count - seen.len() as u64;
            for (block, references, in_shared_node) in seen {
                if in_shared_node {
                    via_clone.insert(block);
                } else if references == 1 {
                    own += 1;
                } else {
                    named.entry(block).or_insert((0, references)).0 += 1;
                }
            }
            at += count;
        }
        let only_here =
            named.iter().filter(|(block, (count, all))| count == all && !via_clone.contains(block)).count() as u64;
        let distinct_shared = named.keys().chain(&via_clone).collect::<std::collections::HashSet<_>>().len() as u64;
        let mapped = total - zero;
        let bytes = |count: u64| count * BLOCK_BYTES_U64;
        Ok(FileStat {
            apparent_bytes: bytes(total),
            zero_bytes: bytes(zero),
            unique_bytes: bytes(own + only_here),
            shared_bytes: bytes(mapped - own - only_here),
            distinct_bytes: bytes(own + distinct_shared),
        })
    }
}
