//! The descriptor: identity, key and kind of units of an archive.

use crate::{ArchiveId, UnitKey};

/// What an archive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its identity.
    pub archive: ArchiveId,
    /// Key of the names of units.
    pub key: UnitKey,
    /// How units are cut.
    pub units: UnitKind,
    /// Bytes of a region of the disk, at whose end each chunk ends: a multiple of a sector.
    pub region_bytes: u64,
}

/// How an archive cuts disks into units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// Along guests' files, up to so many bytes from a multiple of them; blocks of no file at multiples of 32 KiB of their
    /// volume.
    Files {
        /// Maximum length of a unit in bytes: a power of two from 4 KiB to 1 MiB.
        unit_bytes: u32,
    },
    /// At multiples of so many bytes of the disk, as in the paper, section 2.2.
    Fixed {
        /// Length of a unit in bytes: a power of two from 4 KiB to 1 MiB.
        unit_bytes: u32,
    },
}

/// Bytes of a region unless another size is given.
pub const REGION_BYTES: u64 = 64 << 20;
