//! Packs: compressed units, and the table of their places.

use crate::UnitName;

/// Maximum length of the plain bytes of a unit.
pub const UNIT_BYTES_MAX: u32 = 1 << 20;
/// A pack is ended once it is as long.
pub const PACK_BYTES: u64 = 32 << 20;
/// Maximum length of a pack in bytes.
pub const PACK_BYTES_MAX: u64 = 64 << 20;

/// How the bytes of a unit are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As they are.
    Plain,
    /// One frame of Zstandard.
    Zstd,
}

/// Header in front of a stored unit, 16 bytes: codec, seal (0), dictionary (0), stored and plain length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitHeader {
    /// How it is stored.
    pub codec: Codec,
    /// Bytes that are stored behind this header, at most `plain_bytes`.
    pub stored_bytes: u32,
    /// Length of its plain bytes, from 1 to 1 MiB.
    pub plain_bytes: u32,
}

/// Length of a [`UnitHeader`] in bytes.
pub const UNIT_HEADER_BYTES: u32 = 16;

/// An entry of a pack's table: a unit and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The unit.
    pub name: UnitName,
    /// Offset of its header in the pack, in bytes.
    pub offset: u32,
    /// Bytes that are stored behind the header.
    pub stored_bytes: u32,
    /// Length of its plain bytes.
    pub plain_bytes: u32,
}
