//! Where the data of a file lies: the extents of its map, their age, and extents that are freed only as a whole.

use crate::file::FileHandle;

/// A run of a file's data and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Place on the device, in bytes. `None` if the file system reports none: the place is not chosen yet, or the data
    /// is stored in another form (compressed, within metadata).
    pub place: Option<u64>,
    /// Length in bytes.
    pub length: u64,
    /// Whether others refer to it, as far as the file system knows.
    pub is_shared: bool,
    /// Whether it is only set aside, and reads as zeros.
    pub is_unwritten: bool,
}

impl MappedExtent {
    /// Returns the offset of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// A run of a file's data, with its place and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgedExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Place on the device, in bytes; `None` if it has no place of its own. For data stored in another form, equal
    /// places only show that the data is the same.
    pub place: Option<u64>,
    /// Whether it is only set aside, and reads as zeros.
    pub is_unwritten: bool,
    /// Generation in which its bytes were written. A clone has the age of its source.
    pub generation: u64,
}

impl AgedExtent {
    /// Returns the offset in the file of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// A run of blocks that are freed only when none of them is referred to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WholeExtent {
    /// Place of its first byte on the device, in bytes.
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
    /// The extent that holds it.
    pub extent: WholeExtent,
    /// Offset in the extent, in bytes.
    pub within: u64,
    /// Whether it is only set aside, and reads as zeros.
    pub is_unwritten: bool,
}

impl Slice {
    /// Returns the offset in the file of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// A reference to a part of a whole extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The referring file; `None` if it has no handle any more, so that it cannot be opened.
    pub handle: Option<FileHandle>,
    /// Offset in that file at which the slice begins, in bytes.
    pub offset: u64,
}
