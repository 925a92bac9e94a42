//! The index of a directory: from the hash of a name to its entry.
//!
//! A small directory has one leaf at the start of the index. A larger one has a tree there, whose leaves are linked.
//!
//! Blocks begin as `hashed` tells. A leaf has, where an inner block has its level, the number of unused entries; its
//! entries are a hash (4) and the place of a name in units of 8 bytes (4).
//!
//! Hostile indexes: the level falls with each step down, and the number of leaves that are followed is bounded.

use super::data::{EntryBlock, Part};
use super::{INDEX_START, STRUCTURE};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::FileNumber;
use crate::xfs::Xfs;
use crate::xfs::hashed::{COUNT_AT, INNER_ENTRIES_AT, INNER_MAGIC, LEVELS_MAX, MAGIC_AT, SEAL};
use crate::xfs::inode::Inode;
use crate::xfs::seal::Found;

/// The magic numbers of the only leaf, and of leaves of a tree, in versions 4 and 5.
const ONLY_LEAF_MAGIC: [u16; 2] = [0xd2f1, 0x3df1];
const LEAF_MAGIC: [u16; 2] = [0xd2ff, 0x3dff];
/// Leaves with the same hash that are followed.
const LEAVES_MAX: u32 = 1000;

/// Returns the hash of a name.
pub(super) fn hash_of(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, byte| u32::from(*byte) ^ hash.rotate_left(7))
}

/// A block of the index.
struct IndexBlock {
    bytes: Vec<u8>,
    place: u64,
    /// Whether it is an inner block, and its level then.
    level: Option<u16>,
    /// Hashes and what they lead to.
    entries: usize,
    count: usize,
}

impl IndexBlock {
    /// Returns the hash at an index, and what it leads to.
    fn entry(&self, index: usize) -> Option<(u32, u32)> {
        let at = self.entries + index * 8;
        Some((Bytes(&self.bytes).be32(at)?, Bytes(&self.bytes).be32(at + 4)?))
    }

    /// Returns the index of the first entry whose hash is at least `hash`.
    fn first_at_least(&self, hash: u32) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle).is_some_and(|(other, _)| other < hash) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

impl Xfs<'_> {
    /// Returns the file of a name by the index.
    pub(super) fn entry_by_index(&self, inode: &Inode<'_>, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        let hash = hash_of(name);
        let Some(first) = self.directory_block(&inode.data, 0)? else {
            return Err(self.reader.damage(inode.place, STRUCTURE, "it has no first block").into());
        };
        let index = self.entry_block(&first, inode.number.0)?.index;
        if let Some((start, count)) = index {
            let index = IndexBlock { bytes: first.bytes, place: first.place, level: None, entries: start, count };
            return Ok(self.entry_in_leaf(inode, &index, hash, name)?.0);
        }
        let start = INDEX_START >> self.superblock.block_log;
        let mut leaf = self.leaf_of(inode, start, hash)?;
        for _ in 0..LEAVES_MAX {
            let (found, goes_on) = self.entry_in_leaf(inode, &leaf, hash, name)?;
            let next = Bytes(&leaf.bytes).be32(0).unwrap_or(0);
            if found.is_some() || !goes_on || next == 0 {
                return Ok(found);
            }
            leaf = self.index_block(inode, u64::from(next))?;
        }
        Err(self.reader.damage(leaf.place, STRUCTURE, "its index has too many equal hashes").into())
    }

    /// Returns the first leaf that may have a hash.
    fn leaf_of(&self, inode: &Inode<'_>, root: u64, hash: u32) -> Result<IndexBlock, GuestError> {
        let mut block = self.index_block(inode, root)?;
        let mut above = LEVELS_MAX + 1;
        while let Some(level) = block.level {
            let damage = |problem| GuestError::from(self.reader.damage(block.place, STRUCTURE, problem));
            if level == 0 || level >= above || (above <= LEVELS_MAX && level + 1 != above) {
                return Err(damage("a block of its index has another level"));
            }
            above = level;
            // Behind the last hash there is no name.
            let index = block.first_at_least(hash).min(block.count.saturating_sub(1));
            let (_, child) = block.entry(index).ok_or_else(|| damage("a block of its index is empty"))?;
            block = self.index_block(inode, u64::from(child))?;
        }
        Ok(block)
    }

    /// Reads the block of an index at a block of the file.
    fn index_block(&self, inode: &Inode<'_>, offset: u64) -> Result<IndexBlock, GuestError> {
        let outside = |place| GuestError::from(self.reader.damage(place, STRUCTURE, "a block of its index is missing"));
        if offset < INDEX_START >> self.superblock.block_log {
            return Err(outside(inode.place));
        }
        let number = offset >> self.superblock.directory_block_log;
        let block = self.directory_block(&inode.data, number)?.ok_or_else(|| outside(inode.place))?;
        let found = Found { bytes: Bytes(&block.bytes), place: block.place, structure: STRUCTURE };
        let version = usize::from(self.superblock.features.is_v5());
        let magic = found.bytes.be16(MAGIC_AT).unwrap_or(0);
        let is_inner = magic == INNER_MAGIC[version];
        if !is_inner && magic != LEAF_MAGIC[version] && magic != ONLY_LEAF_MAGIC[version] {
            return Err(self.damage_of(found, "a block of its index is something else").into());
        }
        self.check_seal(found, &SEAL, inode.number.0)?;
        let (entries, at) = (INNER_ENTRIES_AT[version], COUNT_AT[version]);
        let count = usize::from(found.bytes.be16(at).unwrap_or(0));
        if count > (block.bytes.len() - entries) / 8 {
            return Err(self.damage_of(found, "its index has more entries than fit").into());
        }
        let level = if is_inner { found.bytes.be16(at + 2) } else { None };
        Ok(IndexBlock { bytes: block.bytes, place: block.place, level, entries, count })
    }

    /// Returns the file of a name that a leaf has, and whether the next leaf may have it.
    fn entry_in_leaf(
        &self,
        inode: &Inode<'_>,
        leaf: &IndexBlock,
        hash: u32,
        name: &[u8],
    ) -> Result<(Option<FileNumber>, bool), GuestError> {
        for index in leaf.first_at_least(hash)..leaf.count {
            let Some((other, address)) = leaf.entry(index) else { break };
            if other != hash {
                return Ok((None, false));
            }
            // An unused entry leads nowhere.
            if address != 0
                && let Some(file) = self.entry_at(inode, u64::from(address) * 8, name)?
            {
                return Ok((Some(file), false));
            }
        }
        Ok((None, true))
    }

    /// Returns the file of the entry at a byte of the directory, if it has this name.
    fn entry_at(&self, inode: &Inode<'_>, address: u64, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        let block_bytes = self.directory_block_bytes();
        let missing = || GuestError::from(self.reader.damage(inode.place, STRUCTURE, "its index leads nowhere"));
        let block = self.directory_block(&inode.data, address / block_bytes)?.ok_or_else(missing)?;
        let block: EntryBlock<'_> = self.entry_block(&block, inode.number.0)?;
        let at = usize::try_from(address % block_bytes).unwrap_or(usize::MAX);
        let (Part::Entry(raw), _) = self.part(&block, at)? else { return Err(missing()) };
        if raw.name != name {
            return Ok(None);
        }
        Ok(self.new_entry(raw, block.found.place)?.map(|entry| entry.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_format() {
        // `xfs_db -c "hash NAME"` prints these.
        for (name, hash) in [("a", 0x61_u32), ("hello", 0x8cbb_3669), ("a-longer-name.txt", 0x68d_19d0)] {
            assert_eq!(hash_of(name.as_bytes()), hash, "{name}");
        }
    }
}
