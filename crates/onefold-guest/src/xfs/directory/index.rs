//! The index of a directory: maps the hash of a name to its entry.
//!
//! A small directory has one leaf at the start of the index. A larger one has a tree there, whose leaves are linked.
//!
//! Blocks begin with the header in `hashed`. A leaf has the number of unused entries in place of the level of an inner
//! block. Its entries are a hash (4) and the place of a name in units of 8 bytes (4).
//!
//! Hostile indexes: the level decreases with each step down. The numbers of leaves that are followed and of entries
//! that are compared are limited.

use super::data::{EntryBlock, Part};
use super::name::NameQuery;
use super::{DirectoryBlock, INDEX_START, STRUCTURE};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::FileNumber;
use crate::xfs::Xfs;
use crate::xfs::hashed::{COUNT_AT, INNER_ENTRIES_AT, INNER_MAGIC, LEVELS_MAX, MAGIC_AT, SEAL};
use crate::xfs::inode::Inode;
use crate::xfs::seal::StructureBytes;

/// The magic numbers of the only leaf, and of leaves of a tree, in versions 4 and 5.
const ONLY_LEAF_MAGIC: [u16; 2] = [0xd2f1, 0x3df1];
const LEAF_MAGIC: [u16; 2] = [0xd2ff, 0x3dff];
/// Maximum number of leaves that are followed for one hash, and of entries with this hash that are compared. Few names
/// have equal hashes by chance. But the hash has no key and is linear, so a user can choose any number of such names.
/// If there are more, all entries are searched.
const LEAVES_MAX: u32 = 16;
const EQUAL_HASHES_MAX: u32 = 64;

/// A running search.
struct Search<'n> {
    wanted: &'n NameQuery<'n>,
    hash: u32,
    /// Number of entries that were compared.
    compared: u32,
    /// A file whose name differs only in case.
    similar: Option<FileNumber>,
    /// The block of the last entry.
    last: Option<LastBlock>,
}

/// A block of entries that was checked. Entries with the same hash are often in the same block.
struct LastBlock {
    number: u64,
    block: DirectoryBlock,
    /// The byte after its last entry.
    end: usize,
}

/// Result of a look-up in the index.
pub(super) enum Answer {
    Found(FileNumber),
    Missing,
    /// Too many names have its hash.
    Unknown,
}

impl Search<'_> {
    /// Returns the answer after all entries with the hash.
    fn end(&self) -> Answer {
        self.similar.map_or(Answer::Missing, Answer::Found)
    }
}

/// A block of the index.
struct IndexBlock {
    bytes: Vec<u8>,
    place: u64,
    /// The level of an inner block; `None` for a leaf.
    level: Option<u16>,
    /// Start of the hashes and their targets.
    entries: usize,
    count: usize,
}

impl IndexBlock {
    /// Returns the hash at an index, and its target.
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
    /// Looks up a name by the index.
    ///
    /// # Errors
    /// When the index is damaged on the way, and those of the disk.
    pub(super) fn look_up_by_hash(&self, inode: &Inode<'_>, wanted: &NameQuery<'_>) -> Result<Answer, GuestError> {
        let Some(first) = self.directory_block(&inode.data, 0)? else {
            return Err(self.reader.damage(inode.place, STRUCTURE, "it has no first block").into());
        };
        let mut search = Search { wanted, hash: wanted.hash(), compared: 0, similar: None, last: None };
        let index = self.entry_block(&first, inode.number.0)?.index;
        if let Some((start, count)) = index {
            let index = IndexBlock { bytes: first.bytes, place: first.place, level: None, entries: start, count };
            return Ok(self.search_leaf(inode, &index, &mut search)?.unwrap_or_else(|| search.end()));
        }
        let start = INDEX_START >> self.superblock.block_log;
        let mut leaf = self.leaf_of(inode, start, search.hash)?;
        for _ in 0..LEAVES_MAX {
            if let Some(answer) = self.search_leaf(inode, &leaf, &mut search)? {
                return Ok(answer);
            }
            match Bytes(&leaf.bytes).be32(0) {
                None | Some(0) => return Ok(search.end()),
                Some(next) => leaf = self.index_block(inode, u64::from(next))?,
            }
        }
        Ok(Answer::Unknown)
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
            // There is no name behind the last hash.
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
        let found = StructureBytes { bytes: Bytes(&block.bytes), place: block.place, structure: STRUCTURE };
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

    /// Searches a leaf for the name; `None` if the next leaf may contain it.
    fn search_leaf(
        &self,
        inode: &Inode<'_>,
        leaf: &IndexBlock,
        search: &mut Search<'_>,
    ) -> Result<Option<Answer>, GuestError> {
        for index in leaf.first_at_least(search.hash)..leaf.count {
            let Some((other, address)) = leaf.entry(index) else { break };
            if other != search.hash {
                return Ok(Some(search.end()));
            }
            // An unused entry has no target.
            if address == 0 {
                continue;
            }
            search.compared += 1;
            if search.compared > EQUAL_HASHES_MAX {
                return Ok(Some(Answer::Unknown));
            }
            if let Some(file) = self.entry_at(inode, u64::from(address) * 8, search)? {
                return Ok(Some(Answer::Found(file)));
            }
        }
        Ok(None)
    }

    /// Returns the file of the entry at a byte of the directory, if it has exactly this name. If its name differs only
    /// in case, the search records it.
    fn entry_at(
        &self,
        inode: &Inode<'_>,
        address: u64,
        search: &mut Search<'_>,
    ) -> Result<Option<FileNumber>, GuestError> {
        let block_bytes = self.directory_block_bytes();
        let missing = || GuestError::from(self.reader.damage(inode.place, STRUCTURE, "its index leads nowhere"));
        if address >= inode.size_bytes {
            return Err(missing());
        }
        let number = address / block_bytes;
        let last = match search.last.take().filter(|last| last.number == number) {
            Some(last) => last,
            None => {
                let block = self.directory_block(&inode.data, number)?.ok_or_else(missing)?;
                let end = self.entry_block(&block, inode.number.0)?.end;
                LastBlock { number, block, end }
            }
        };
        let LastBlock { block, end, .. } = &*search.last.insert(last);
        let found = StructureBytes { bytes: Bytes(&block.bytes), place: block.place, structure: STRUCTURE };
        let block = EntryBlock { found, end: *end, index: None };
        let at = usize::try_from(address % block_bytes).unwrap_or(usize::MAX);
        let (Part::Entry(raw), _) = self.part(&block, at)? else { return Err(missing()) };
        if !search.wanted.is_met_by(raw.name) {
            return Ok(None);
        }
        let file = self.new_entry(raw, block.found.place)?.map(|entry| entry.file);
        if raw.name == search.wanted.name {
            return Ok(file);
        }
        search.similar = search.similar.or(file);
        Ok(None)
    }
}
