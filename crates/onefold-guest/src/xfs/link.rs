//! Symbolic links.
//!
//! From "XFS Filesystem Structure", chapter "Symbolic Links". A short target is in the inode, a longer one in separate
//! blocks. In version 5 each run of these blocks has a header, whose checksum covers the run:
//!
//! | bytes  | field                                   |
//! |--------|-----------------------------------------|
//! | 0..4   | magic `XSLM`                            |
//! | 4..12  | first byte in the target, bytes of it   |
//! | 12..16 | checksum                                |
//! | 16..48 | UUID, owner, place                      |
//! | 48..56 | log sequence number                     |

use std::ops::ControlFlow;

use super::Xfs;
use super::inode::{ForkForm, Inode};
use super::seal::{OwnerField, Seal, StructureBytes};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::FileKind;

/// `XSLM`
const MAGIC: u32 = 0x5853_4c4d;
const HEADER_BYTES: usize = 56;
const SEAL: Seal = Seal { checksum: 12, uuid: 16, place: Some(40), owner: OwnerField::Long(32) };
/// Maximum length of a target in XFS.
const TARGET_BYTES_MAX: usize = 1024;
const STRUCTURE: &str = "target of a symbolic link";

impl Xfs<'_> {
    /// Returns the target of a symbolic link.
    pub(super) fn target(&self, inode: &Inode<'_>) -> Result<Vec<u8>, GuestError> {
        let damage = |problem| GuestError::from(self.reader.damage(inode.place, STRUCTURE, problem));
        if inode.kind != FileKind::SymbolicLink {
            return Err(damage("the file is no symbolic link"));
        }
        let length = usize::try_from(inode.size_bytes).ok().filter(|length| (1..=TARGET_BYTES_MAX).contains(length));
        let length = length.ok_or_else(|| damage("its length is impossible"))?;
        let target = if inode.data.form == ForkForm::Inline {
            inode.data.bytes.part(0, length).map(|part| part.0.to_vec())
        } else {
            Some(self.remote_target(inode, length)?)
        };
        match target {
            Some(target) if target.len() == length && !target.contains(&0) => Ok(target),
            _ => Err(damage("a part of it is missing")),
        }
    }

    fn remote_target(&self, inode: &Inode<'_>, length: usize) -> Result<Vec<u8>, GuestError> {
        let superblock = &self.superblock;
        let mut target: Vec<u8> = Vec::with_capacity(length);
        // The number of blocks that would be needed if each had a header.
        let mut blocks_left = length.div_ceil(superblock.block_bytes - HEADER_BYTES);
        self.each_mapping(&inode.data, 0, &mut |mapping| {
            let count = blocks_left.min(mapping.count as usize);
            let rest = length - target.len();
            if count == 0 || rest == 0 {
                return Ok(ControlFlow::Break(()));
            }
            blocks_left -= count;
            let place = superblock.place_of_run(mapping.block, mapping.count).unwrap_or(u64::MAX);
            let run = self.reader.bytes(place, count * superblock.block_bytes, STRUCTURE)?;
            let found = StructureBytes { bytes: Bytes(&run), place, structure: STRUCTURE };
            target.extend_from_slice(self.part_of_target(found, inode.number.0, target.len(), rest)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(target)
    }

    /// Returns the part of a target in a run of blocks, from byte `at` of the target; `rest` bytes are missing.
    fn part_of_target<'b>(
        &self,
        found: StructureBytes<'b>,
        owner: u64,
        at: usize,
        rest: usize,
    ) -> Result<&'b [u8], GuestError> {
        let damage = |problem| GuestError::from(self.damage_of(found, problem));
        if !self.superblock.features.is_v5() {
            return Ok(found.bytes.0.get(..rest).unwrap_or(found.bytes.0));
        }
        if found.bytes.be32(0) != Some(MAGIC) {
            return Err(damage("it is something else"));
        }
        self.check_seal(found, &SEAL, owner)?;
        let length = found.bytes.be32(8).map_or(0, |length| length as usize).min(rest);
        if found.bytes.be32(4).map(|first| first as usize) != Some(at) || length == 0 {
            return Err(damage("it has another part of the target"));
        }
        found.bytes.part(HEADER_BYTES, length).map(|part| part.0).ok_or_else(|| damage("it is too long"))
    }
}
