//! Numbers of one file, from a walk over its map.
//!
//! A block that only one leaf of one file names is counted when it is met. For other blocks, the walk must remember
//! whether it meets them again, which takes memory. That memory is bounded for all walks together: if a file shares
//! more blocks than fit, they are estimated from a sample ([`super::shared_blocks`]).

use std::sync::atomic::{AtomicUsize, Ordering};

use onefold_block::BlockNo;
use onefold_block::block::BLOCK_BYTES_U64;

use super::Pool;
use super::shared_blocks::SharedBlockSample;
use crate::attr::Ino;
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::format::map_node::{FAN_OUT, MapEntry};
use crate::map::seek::SeekStep;
use crate::meta::{Op, OpResult};
use crate::names::inodes::blocks_spanned;
use crate::progress::Progress;
use crate::stat::FileStat;

/// Blocks of a file that are read under one hold of the metadata lock.
const WALK_BLOCKS: u64 = 512;
/// Share of the `memory` setting that all walks together may take: one part in this many.
const MEMORY_SHARE: u64 = 64;
/// Minimum memory of a walk, however many there are, in bytes.
const BYTES_MIN: usize = 32 << 10;

/// Memory of all walks.
#[derive(Debug)]
pub(crate) struct WalkMemory {
    bytes_left: AtomicUsize,
}

impl WalkMemory {
    /// Returns the memory of all walks in a pool with this `memory` setting.
    pub(crate) fn new(memory_bytes: u64) -> WalkMemory {
        let bytes = usize::try_from(memory_bytes / MEMORY_SHARE).unwrap_or(usize::MAX);
        WalkMemory { bytes_left: AtomicUsize::new(bytes) }
    }

    /// Takes half of the remaining memory, so that concurrent walks all get some.
    fn take(&self) -> WalkShare<'_> {
        let without_half = |left: usize| (left / 2 >= BYTES_MIN).then(|| left - left / 2);
        match self.bytes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, without_half) {
            Ok(before) => WalkShare { of: self, bytes: before / 2, taken: before / 2 },
            Err(_) => WalkShare { of: self, bytes: BYTES_MIN, taken: 0 },
        }
    }
}

/// The memory of one walk, returned when dropped.
struct WalkShare<'m> {
    of: &'m WalkMemory,
    bytes: usize,
    taken: usize,
}

impl Drop for WalkShare<'_> {
    fn drop(&mut self) {
        self.of.bytes_left.fetch_add(self.taken, Ordering::Relaxed);
    }
}

/// A block that a file's map names.
struct NamedBlock {
    block: BlockNo,
    /// Number of leaves that name it, in all files.
    references: u32,
    /// Whether the leaf, or a node above it, also belongs to a clone.
    is_in_shared_node: bool,
}

impl Op<'_> {
    /// Returns the blocks that a file's map names in `count` places from `at` on.
    fn named_blocks(&mut self, inode: &Inode, at: u64, count: u64) -> OpResult<Vec<NamedBlock>> {
        let mut entries = vec![MapEntry::Hole; usize::try_from(count).unwrap_or(0)];
        self.map_read(inode, at, &mut entries)?;
        let blocks = crate::map::blocks_of(&entries);
        self.want_entries(blocks.iter().copied())?;
        let mut named = Vec::with_capacity(blocks.len());
        // All blocks below a leaf are shared with it.
        let (mut leaf, mut is_in_shared_node) = (None, false);
        for (index, entry) in (at..).zip(&entries) {
            let MapEntry::Block(block) = *entry else { continue };
            if leaf.replace(index / FAN_OUT) != Some(index / FAN_OUT) {
                is_in_shared_node = self.map_is_shared(inode, index)?;
            }
            named.push(NamedBlock { block, references: self.entry(block)?.count, is_in_shared_node });
        }
        Ok(named)
    }
}

impl Pool {
    /// Returns a regular file's numbers, from a walk over its map. Memory is bounded: if the file shares very many
    /// blocks, some numbers are estimated, and the result says so.
    ///
    /// # Errors
    /// [`PoolError::IsADirectory`], damage, device errors; [`PoolError::Invalid`] if `progress` stopped it.
    pub fn file_stat(&self, ino: Ino, progress: &dyn Progress) -> Result<FileStat> {
        let total = blocks_spanned(self.attr(ino)?.size_bytes);
        let share = self.walk_memory.take();
        let mut shared = SharedBlockSample::new(share.bytes);
        let (mut own, mut zero) = (0, 0);
        let mut at = 0;
        while at < total {
            // A file of terabytes may be one hole, so holes are not walked block by block.
            let sought = self.settled().view(|op| {
                let inode = op.regular(ino)?;
                op.map_seek(&inode, at, total, true)
            })?;
            let (SeekStep::Found(data) | SeekStep::GoOn(data)) = sought;
            zero += data - at;
            at = data;
            if progress.update(at, total).is_break() {
                return Err(PoolError::Invalid("stopped"));
            }
            if at == total || matches!(sought, SeekStep::GoOn(_)) {
                continue;
            }
            let count = WALK_BLOCKS.min(total - at);
            let named = self.settled().view(|op| {
                let inode = op.regular(ino)?;
                op.named_blocks(&inode, at, count)
            })?;
            zero += count - named.len() as u64;
            for NamedBlock { block, references, is_in_shared_node } in named {
                match (is_in_shared_node, references) {
                    (true, _) => shared.add_of_others(block),
                    (false, 1) => own += 1,
                    (false, references) => shared.add(block, references),
                }
            }
            at += count;
        }
        let found = shared.count();
        let mapped = total - zero;
        let unique = own + found.only_here;
        let bytes = |count: u64| count * BLOCK_BYTES_U64;
        Ok(FileStat {
            apparent_bytes: bytes(total),
            zero_bytes: bytes(zero),
            unique_bytes: bytes(unique),
            shared_bytes: bytes(mapped - unique),
            distinct_bytes: bytes(own + found.distinct),
            is_estimated: found.is_estimated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_at_once_share_a_bounded_memory_and_none_goes_without() {
        let memory = WalkMemory::new(64 << 20);
        let all = 1 << 20;
        let shares: Vec<WalkShare<'_>> = (0..20).map(|_| memory.take()).collect();
        assert_eq!((shares[0].bytes, shares[1].bytes), (all / 2, all / 4));
        assert!(shares.iter().all(|share| share.bytes >= BYTES_MIN));
        assert!(shares.iter().map(|share| share.taken).sum::<usize>() <= all);
        drop(shares);
        assert_eq!(memory.take().bytes, all / 2);
    }
}
