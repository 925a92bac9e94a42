//! Segments: sorted parts of the index from names of units to places in packs.

use crate::ObjectId;

/// Where a unit is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The first eight bytes of the unit's name, as [`crate::UnitName::prefix`] returns them. Units with one prefix have an
    /// entry each; the pack's table or the bytes themselves tell them apart.
    pub prefix: u64,
    /// Place of the pack in [`Segment::packs`].
    pub pack: u32,
    /// Offset of the unit's header in the pack, in bytes.
    pub offset: u32,
    /// Bytes that are stored behind the header.
    pub stored_bytes: u32,
}

/// A part of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The packs that it has entries of.
    pub packs: Vec<ObjectId>,
    /// Its entries, in the order of prefix, pack and offset.
    pub entries: Vec<IndexEntry>,
}
