//! Blocks of entries.
//!
//! | version 5 | version 4 | field                                                        |
//! |-----------|-----------|--------------------------------------------------------------|
//! | 0..4      | 0..4      | magic: another one where the block is the whole directory    |
//! | 4..8      |           | checksum                                                     |
//! | 8..48     |           | place, log sequence number, UUID, owner                      |
//! | 48..64    | 4..16     | longest free parts; four zero bytes in version 5             |
//!
//! Entries and free parts fill the rest, each a multiple of 8 bytes. An entry: inode number (8), length of the name
//! (1), name, kind of file (1, with that feature); its last two bytes are its place in the block. A free part: `ffff`
//! (2), its length (2); its last two bytes are its place.
//!
//! A block that is the whole directory ends with an index: the hash and the place of each name (8 bytes), then their
//! number (4) and that of unused ones (4).

use std::ops::ControlFlow;

use super::{DirectoryBlock, EntryVisit, RawEntry, STRUCTURE};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::xfs::Xfs;
use crate::xfs::inode::Inode;
use crate::xfs::seal::{OwnerField, Seal, StructureBytes};

/// Magic numbers of versions 4 and 5: `XD2D` and `XDD3`, and of whole directories `XD2B` and `XDB3`.
const ENTRIES_MAGIC: [u32; 2] = [0x5844_3244, 0x5844_4433];
const WHOLE_MAGIC: [u32; 2] = [0x5844_3242, 0x5844_4233];
const SEAL: Seal = Seal { checksum: 4, uuid: 24, place: Some(8), owner: OwnerField::Long(40) };
const HEADER_BYTES: [usize; 2] = [16, 64];
const FREE_TAG: u16 = 0xffff;

/// An intact block of entries.
pub(super) struct EntryBlock<'b> {
    /// Its bytes, and their place.
    pub(super) found: StructureBytes<'b>,
    /// The byte after its last entry.
    pub(super) end: usize,
    /// The start of its own index, and the number of names in it, if the block is the whole directory.
    pub(super) index: Option<(usize, usize)>,
}

/// An entry or a free part.
pub(super) enum Part<'b> {
    Entry(RawEntry<'b>),
    Free,
}

impl Xfs<'_> {
    /// Visits the entries of block `number` of a directory.
    pub(super) fn entries_of_block(
        &self,
        inode: &Inode<'_>,
        number: u64,
        visit: &mut EntryVisit<'_>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let Some(block) = self.directory_block(&inode.data, number)? else { return Ok(ControlFlow::Continue(())) };
        let block = self.entry_block(&block, inode.number.0)?;
        let mut at = HEADER_BYTES[usize::from(self.superblock.features.is_v5())];
        while at < block.end {
            let (part, length) = self.part(&block, at)?;
            if let Part::Entry(raw) = part {
                let entry = self.new_entry(raw, block.found.place).map_err(GuestError::from);
                if let Some(entry) = self.damage.skip(entry)?.flatten()
                    && visit(entry).is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
            at += length;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Checks that a block holds entries of the directory `owner`.
    pub(super) fn entry_block<'b>(&self, block: &'b DirectoryBlock, owner: u64) -> Result<EntryBlock<'b>, GuestError> {
        let found = StructureBytes { bytes: Bytes(&block.bytes), place: block.place, structure: STRUCTURE };
        let damage = |problem| GuestError::from(self.damage_of(found, problem));
        let version = usize::from(self.superblock.features.is_v5());
        let magic = found.bytes.be32(0);
        let is_whole = magic == Some(WHOLE_MAGIC[version]);
        if !is_whole && magic != Some(ENTRIES_MAGIC[version]) {
            return Err(damage("a block of entries is something else"));
        }
        self.check_seal(found, &SEAL, owner)?;
        if !is_whole {
            return Ok(EntryBlock { found, end: found.bytes.len(), index: None });
        }
        let index = || {
            let tail = found.bytes.len().checked_sub(8)?;
            let count = found.bytes.be32(tail)? as usize;
            let start = tail.checked_sub(count.checked_mul(8)?)?;
            (start >= HEADER_BYTES[version]).then_some((start, count))
        };
        let (start, count) = index().ok_or_else(|| damage("the index at the end of a block is too long"))?;
        Ok(EntryBlock { found, end: start, index: Some((start, count)) })
    }

    /// Returns the part at byte `at` of a block, and its length, which is not 0.
    pub(super) fn part<'b>(&self, block: &EntryBlock<'b>, at: usize) -> Result<(Part<'b>, usize), GuestError> {
        let bytes = block.found.bytes;
        let decode = || {
            if bytes.be16(at)? == FREE_TAG {
                return Some((Part::Free, usize::from(bytes.be16(at + 2)?)));
            }
            let name_bytes = usize::from(bytes.u8(at + 8)?);
            let name = bytes.part(at + 9, name_bytes)?.0;
            let has_kind = self.superblock.features.has_file_types();
            let kind = if has_kind { Some(bytes.u8(at + 9 + name_bytes)?) } else { None };
            let length = (9 + name_bytes + usize::from(has_kind) + 2).next_multiple_of(8);
            Some((Part::Entry(RawEntry { name, inode: bytes.be64(at)?, kind }), length))
        };
        let sound = decode().filter(|(_, length)| {
            let end = at + length;
            *length >= 8
                && length % 8 == 0
                && end <= block.end
                && bytes.be16(end - 2).map(usize::from) == Some(at & 0xffff)
        });
        sound.ok_or_else(|| self.damage_of(block.found, "its entries do not fit together").into())
    }
}
