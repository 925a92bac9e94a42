//! Allocation maps.

/// A run of a volume whose bytes have the same use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// First byte in the volume.
    pub start_bytes: u64,
    /// Length in bytes, not 0.
    pub length_bytes: u64,
    /// The use of these bytes.
    pub class: AllocationClass,
}

impl Allocation {
    /// Returns the byte of the volume after the last one.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.start_bytes + self.length_bytes
    }
}

/// The use of a run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AllocationClass {
    /// Certainly free: neither a mount, nor recovery, nor the file system's own checker reads it, provided that the
    /// checker recovers first.
    Free,
    /// Content of files, and blocks that are allocated with no known use.
    Data,
    /// Metadata of a kind.
    Table(TableKind),
    /// Counted as allocated because its map is damaged or in doubt.
    Doubtful,
    /// Bytes of the volume outside of the file system's blocks: behind its end, or before its first block.
    Outside,
}

/// Kinds of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableKind {
    /// Superblocks and headers of groups.
    Superblock,
    /// Maps of free and used blocks and files.
    Bitmap,
    /// Inodes, MFT records.
    Inodes,
    /// Trees and lists that map files, attributes and free space.
    Tree,
    /// Directories.
    Directory,
    /// The journal.
    Journal,
}
