//! Self-describing fields of version 5 metadata: a checksum, its file system, its place and its owner. They reveal a
//! block that is old, torn, moved or from another file. Version 4 has none of them.

use super::Xfs;
use crate::bytes::Bytes;
use crate::error::{Damage, GuestError};

/// Places of these fields in a kind of structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seal {
    /// Place of the checksum: four bytes, little-endian, which count as zeros in its computation.
    pub(super) checksum: usize,
    /// Place of the file system's UUID.
    pub(super) uuid: usize,
    /// Place of the structure's own place, in sectors of 512 bytes.
    pub(super) place: Option<usize>,
    /// Place of the owner's number.
    pub(super) owner: OwnerField,
}

/// The number of the group or inode that a structure belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwnerField {
    /// There is none.
    None,
    /// Four bytes.
    Short(usize),
    /// Eight bytes.
    Long(usize),
}

/// A structure that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct StructureBytes<'b> {
    /// Its bytes: all that the checksum covers.
    pub(super) bytes: Bytes<'b>,
    /// Its first byte in the volume.
    pub(super) place: u64,
    /// Its kind, for messages.
    pub(super) structure: &'static str,
}

/// Returns whether the CRC-32C of `bytes` is the one at byte `at` of them.
pub(super) fn has_right_checksum(bytes: Bytes<'_>, at: usize) -> bool {
    let (Some(before), Some(expected), Some(after)) = (bytes.0.get(..at), bytes.le32(at), bytes.0.get(at + 4..)) else {
        return false;
    };
    let sum = crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]);
    crc32c::crc32c_append(sum, after) == expected
}

impl Xfs<'_> {
    /// Returns the damage of a structure.
    pub(super) fn damage_of(&self, found: StructureBytes<'_>, problem: &'static str) -> Damage {
        self.reader.damage(found.place, found.structure, problem)
    }

    /// Checks the self-describing fields of a structure of version 5.
    ///
    /// # Errors
    /// [`GuestError::Damaged`] if a field does not match.
    pub(super) fn check_seal(&self, found: StructureBytes<'_>, seal: &Seal, owner: u64) -> Result<(), GuestError> {
        if !self.superblock.features.is_v5() {
            return Ok(());
        }
        let bytes = found.bytes;
        let problem = if !has_right_checksum(bytes, seal.checksum) {
            "its checksum is wrong"
        } else if bytes.array(seal.uuid) != Some(self.superblock.metadata_uuid) {
            "it belongs to another file system"
        } else if seal.place.is_some_and(|at| bytes.be64(at) != Some(found.place / 512)) {
            "it belongs elsewhere"
        } else if !seal.owner.is(bytes, owner) {
            "it belongs to something else"
        } else {
            return Ok(());
        };
        Err(self.damage_of(found, problem).into())
    }
}

impl OwnerField {
    fn is(self, bytes: Bytes<'_>, owner: u64) -> bool {
        match self {
            OwnerField::None => true,
            OwnerField::Short(at) => bytes.be32(at).map(u64::from) == Some(owner),
            OwnerField::Long(at) => bytes.be64(at) == Some(owner),
        }
    }
}
