//! Where the data of a file lies: extents of its map, their age, and extents whose room comes free as a whole only.

use crate::file::FileHandle;

/// A run of a file's data and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Place on the device, in bytes; none where the file system has not told: not yet chosen, or stored in another way
    /// (compressed, within metadata).
    pub place: Option<u64>,
    /// Length in bytes.
    pub length: u64,
    /// Whether others refer to it, for all that the file system knows.
    pub is_shared: bool,
    /// Whether it is set aside and reads as zeros.
    pub is_unwritten: bool,
}

impl MappedExtent {
    /// Offset of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// A run of a file's data, where it lies and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgedExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Place on the device, in bytes; none where it has no place of its own. Of what is stored in another way it tells
    /// only that it is the same.
    pub place: Option<u64>,
    /// Whether it is set aside and reads as zeros.
    pub is_unwritten: bool,
    /// In which generation its bytes were written. A clone is as old as what it was cloned from.
    pub generation: u64,
}

impl AgedExtent {
    /// Offset in the file of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// A run of blocks whose room comes free when none of them is referred to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WholeExtent {
    /// Place of its first byte on the device.
    pub place: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A run of a file's data and the whole extent in which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// In which extent.
    pub extent: WholeExtent,
    /// Offset in the extent, in bytes.
    pub within: u64,
    /// Whether it is set aside and reads as zeros.
    pub is_unwritten: bool,
}

impl Slice {
    /// Offset in the file of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// Somebody who refers to a part of a whole extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which file; none where it has no handle any more, and stands for nothing that could be opened.
    pub handle: Option<FileHandle>,
    /// Where in it the slice begins, in bytes.
    pub offset: u64,
}
