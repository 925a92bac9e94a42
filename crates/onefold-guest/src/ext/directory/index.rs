//! Looks up a name by a directory's tree of hashes.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Hash Tree Directories". Numbers are
//! little-endian. Places are relative to the first entry of the tree in a block (`entries::index_at`).
//!
//! | byte | field |
//! |------|-------|
//! | -8 (root) | four zero bytes; kind of hash; length of this; levels; flags |
//! | 0 | room for entries, 2 bytes |
//! | 2 | number of entries, 2 bytes |
//! | 4 | block of the directory for hashes below the next entry's |
//! | 8 ... | entries: hash from which on it counts (its lowest bit: names with equal hash are in front, too), block |
//!
//! The tree only accelerates a look-up. If it is damaged or of an unknown kind, all blocks are searched.

use std::ops::ControlFlow;

use super::Progress;
use super::entries::index_at;
use super::hash::{HashKind, NameHash};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::ext::inode::{Inode, flags};
use crate::ext::tables::Tables;
use crate::filesystem::FileNumber;

/// Maximum number of levels; more than a tree of `large_dir` has.
const LEVELS_MAX: u8 = 3;
/// Maximum number of leaves that are searched for one hash. An intact tree has few names with the same hash: the
/// probability for a pair is 2^-31.
const LEAVES_MAX: usize = 16;
/// Number of bytes for the root's own fields before its entries.
const ROOT_FACTS_BYTES: usize = 8;

/// Result of a look-up in a tree.
pub(super) enum Answer {
    Found(FileNumber),
    Missing,
    /// The tree cannot be used.
    Unknown,
}

/// A step of a path through the tree: the block, and the place of the entry that was followed.
struct Step {
    block: Vec<u8>,
    at: usize,
    index: usize,
}

impl Tables<'_> {
    /// Looks up a name by the tree of a directory.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn look_up_by_hash(&self, inode: &Inode, name: &[u8]) -> Result<Answer, GuestError> {
        if !inode.has(flags::INDEX) || inode.has(flags::ENCRYPT) || inode.has(flags::CASEFOLD) {
            return Ok(Answer::Unknown);
        }
        let Some((hash, mut path)) = self.path_to(inode, name)? else { return Ok(Answer::Unknown) };
        for _ in 0..LEAVES_MAX {
            let Some(leaf) = path.last().and_then(Step::child) else { return Ok(Answer::Unknown) };
            match self.search_leaf(inode, leaf, name)? {
                Answer::Missing => {}
                answer => return Ok(answer),
            }
            // Names with equal hashes may continue in the next leaf. Its index entry says so.
            match self.next_leaf(inode, &mut path)? {
                Some(next) if next & !1 == hash => {}
                _ => return Ok(Answer::Missing),
            }
        }
        Ok(Answer::Unknown)
    }

    /// Returns the hash of a name, and the path to the leaf that must contain it.
    fn path_to(&self, inode: &Inode, name: &[u8]) -> Result<Option<(u32, Vec<Step>)>, GuestError> {
        let Some(root) = self.index_block(inode, 0)? else { return Ok(None) };
        let Some((hash, levels)) = self.root_facts(&root, name) else { return Ok(None) };
        let mut path = Vec::new();
        let mut block = root;
        for level in 0..=levels {
            let Some(at) = index_at(Bytes(&block)) else { return Ok(None) };
            let Some(index) = entry_for(&block, at, hash) else { return Ok(None) };
            let step = Step { block, at, index };
            let child = step.child();
            path.push(step);
            if level == levels {
                break;
            }
            let Some(child) = child else { return Ok(None) };
            let Some(next) = self.index_block(inode, child)? else { return Ok(None) };
            block = next;
        }
        Ok(Some((hash, path)))
    }

    fn root_facts(&self, root: &[u8], name: &[u8]) -> Option<(u32, u8)> {
        let facts = Bytes(root).from(index_at(Bytes(root))?.checked_sub(ROOT_FACTS_BYTES)?)?;
        let (kind, levels) = (facts.u8(4)?, facts.u8(6)?);
        let (kind, is_unsigned) = match kind {
            0..=2 => (kind, self.superblock.is_hash_unsigned),
            3..=5 => (kind - 3, true),
            _ => return None,
        };
        let kind = [HashKind::Legacy, HashKind::HalfMd4, HashKind::Tea][usize::from(kind)];
        let hash = NameHash { kind, is_unsigned, seed: self.superblock.hash_seed };
        (levels <= LEVELS_MAX).then(|| (hash.of(name), levels))
    }

    fn search_leaf(&self, inode: &Inode, leaf: u32, name: &[u8]) -> Result<Answer, GuestError> {
        let Some((block, bytes)) = self.block_of_directory(inode, leaf)? else { return Ok(Answer::Unknown) };
        let mut found = Answer::Missing;
        let (names, offset) = (self.names(inode), block * self.superblock.block_bytes);
        let _ = self.each_name_of(&names, Bytes(&bytes), offset, &mut Progress::before(0), &mut |entry| {
            if entry.name != name {
                return ControlFlow::Continue(());
            }
            found = Answer::Found(entry.file);
            ControlFlow::Break(())
        });
        Ok(found)
    }

    /// Moves a path to the next leaf. Returns the hash with which it begins, or `None` after the last one.
    fn next_leaf(&self, inode: &Inode, path: &mut Vec<Step>) -> Result<Option<u32>, GuestError> {
        let levels = path.len();
        while let Some(step) = path.last_mut() {
            step.index += 1;
            if step.index < step.count() {
                break;
            }
            path.pop();
        }
        let Some(hash) = path.last().and_then(Step::hash) else { return Ok(None) };
        while path.len() < levels {
            let Some(child) = path.last().and_then(Step::child) else { return Ok(None) };
            let Some(block) = self.index_block(inode, child)? else { return Ok(None) };
            let Some(at) = index_at(Bytes(&block)) else { return Ok(None) };
            path.push(Step { block, at, index: 0 });
        }
        Ok(Some(hash))
    }

    fn index_block(&self, inode: &Inode, number: u32) -> Result<Option<Vec<u8>>, GuestError> {
        Ok(self.block_of_directory(inode, number)?.map(|(_, bytes)| bytes))
    }

    /// Returns a block of a directory by its index, with its number in the volume.
    fn block_of_directory(&self, inode: &Inode, number: u32) -> Result<Option<(u64, Vec<u8>)>, GuestError> {
        let number = u64::from(number);
        let mut block = None;
        let walked = self.each_run(inode, number, &mut |run| {
            block = number.checked_sub(run.first).filter(|within| *within < run.count).map(|within| run.block + within);
            ControlFlow::Break(())
        });
        if self.damage.skip(walked)?.is_none() {
            return Ok(None);
        }
        let Some(block) = block else { return Ok(None) };
        Ok(self.damage.skip(self.directory_block(inode, block))?.map(|bytes| (block, bytes)))
    }
}

impl Step {
    fn count(&self) -> usize {
        count(&self.block, self.at)
    }

    /// Returns the block of the directory that the entry names.
    fn child(&self) -> Option<u32> {
        // The highest bits are reserved.
        Bytes(&self.block).le32(self.at + self.index * 8 + 4).map(|block| block & 0x0fff_ffff)
    }

    fn hash(&self) -> Option<u32> {
        Bytes(&self.block).le32(self.at + self.index * 8)
    }
}

/// Returns the number of entries of a block in the tree; at most the number that fits into the block.
fn count(block: &[u8], at: usize) -> usize {
    let count = Bytes(block).le16(at + 2).map_or(0, usize::from);
    count.min(block.len().saturating_sub(at) / 8)
}

/// Returns the last entry for a hash. The first one is for all hashes below the second. An entry with the lowest bit
/// set is above its own hash: names with this hash may begin in the previous leaf.
fn entry_for(block: &[u8], at: usize, hash: u32) -> Option<usize> {
    let count = count(block, at);
    let after = (1..count).find(|index| Bytes(block).le32(at + index * 8).is_none_or(|first| first > hash));
    after.unwrap_or(count).checked_sub(1)
}
