//! Values of attributes in separate blocks. In version 5, each of these blocks begins with a header:
//!
//! | bytes  | field                                     |
//! |--------|-------------------------------------------|
//! | 0..4   | magic `XARM`                              |
//! | 4..12  | first byte in the value, bytes of it      |
//! | 12..16 | checksum                                  |
//! | 16..48 | UUID, owner, place                        |
//! | 48..56 | log sequence number, always all ones      |

use super::STRUCTURE;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::xfs::Xfs;
use crate::xfs::inode::Fork;
use crate::xfs::seal::{OwnerField, Seal, StructureBytes};

/// `XARM`
const MAGIC: u32 = 0x5841_524d;
const HEADER_BYTES: usize = 56;
const SEAL: Seal = Seal { checksum: 12, uuid: 16, place: Some(40), owner: OwnerField::Long(32) };

impl Xfs<'_> {
    /// Reads a value of `length` bytes, starting at a block of the attribute fork. The caller bounds the length.
    pub(super) fn remote_value(&self, fork: &Fork<'_>, block: u32, length: usize) -> Result<Vec<u8>, GuestError> {
        let mut value: Vec<u8> = Vec::with_capacity(length);
        let mut offset = u64::from(block);
        while value.len() < length {
            let (place, bytes) = self.attribute_bytes(fork, offset)?;
            let found = StructureBytes { bytes: Bytes(&bytes), place, structure: STRUCTURE };
            value.extend_from_slice(self.part_of_value(found, fork.owner, value.len(), length)?);
            offset += 1;
        }
        Ok(value)
    }

    /// Returns the part of a value of `length` bytes in a block, from byte `at` of the value.
    fn part_of_value<'b>(
        &self,
        found: StructureBytes<'b>,
        owner: u64,
        at: usize,
        length: usize,
    ) -> Result<&'b [u8], GuestError> {
        let rest = length - at;
        if !self.superblock.features.is_v5() {
            return Ok(found.bytes.0.get(..rest).unwrap_or(found.bytes.0));
        }
        let damage = |problem| GuestError::from(self.damage_of(found, problem));
        if found.bytes.be32(0) != Some(MAGIC) {
            return Err(damage("a block of a value is something else"));
        }
        self.check_seal(found, &SEAL, owner)?;
        let part_bytes = found.bytes.be32(8).map_or(0, |bytes| bytes as usize);
        if found.bytes.be32(4).map(|first| first as usize) != Some(at) || part_bytes == 0 {
            return Err(damage("a block has another part of a value"));
        }
        let part = found.bytes.part(HEADER_BYTES, part_bytes.min(rest));
        part.map(|part| part.0).ok_or_else(|| damage("a block has too much of a value"))
    }
}
