//! The features of a file system: four words of bits in the superblock.

use crate::error::GuestError;

/// Bits of the version word.
mod version {
    pub(super) const NUMBER: u16 = 0xf;
    pub(super) const DIRECTORIES_2: u16 = 0x2000;
    pub(super) const CASE_INSENSITIVE: u16 = 0x4000;
    pub(super) const MORE: u16 = 0x8000;
}

/// Bits of the second word, of version 4.
mod more {
    pub(super) const LAZY_COUNTERS: u32 = 0x2;
    pub(super) const ATTRIBUTES_2: u32 = 0x8;
    pub(super) const PROJECTS_32: u32 = 0x80;
    pub(super) const FILE_TYPES: u32 = 0x200;
}

/// Bits of the read-only compatible features of version 5.
mod read_only {
    pub(super) const FREE_INODE_TREE: u32 = 0x1;
    pub(super) const OWNER_TREE: u32 = 0x2;
    pub(super) const REFERENCE_COUNTS: u32 = 0x4;
    pub(super) const INODE_TREE_COUNTS: u32 = 0x8;
    pub(super) const KNOWN: u32 = 0xf;
}

/// Bits of the incompatible features of version 5.
mod incompatible {
    pub(super) const FILE_TYPES: u32 = 0x1;
    pub(super) const SPARSE_INODES: u32 = 0x2;
    pub(super) const METADATA_UUID: u32 = 0x4;
    pub(super) const BIG_TIME: u32 = 0x8;
    pub(super) const NEEDS_REPAIR: u32 = 0x10;
    pub(super) const LARGE_EXTENT_COUNTS: u32 = 0x20;
    pub(super) const EXCHANGE_RANGE: u32 = 0x40;
    pub(super) const PARENT_POINTERS: u32 = 0x80;
    pub(super) const METADATA_DIRECTORY: u32 = 0x100;
    pub(super) const ZONED: u32 = 0x200;
    pub(super) const KNOWN: u32 = 0xff;
}

/// The feature words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// Version number and features of old versions.
    pub(super) version: u16,
    /// Further features of version 4.
    pub(super) more: u32,
    /// Features of version 5 that a system must know for writing.
    pub(super) read_only: u32,
    /// Features of version 5 that a system must know for reading.
    pub(super) incompatible: u32,
}

impl Features {
    /// Checks that this reader supports all of them.
    ///
    /// # Errors
    /// [`GuestError::Unsupported`] with the name of the unknown feature.
    pub(super) fn check(self) -> Result<(), GuestError> {
        let refuse = |what| Err(GuestError::Unsupported(what));
        match self.version & version::NUMBER {
            4 if self.version & version::DIRECTORIES_2 == 0 => return refuse("XFS with directories of version 1"),
            4 => return Ok(()),
            5 => {}
            0..=3 => return refuse("XFS before version 4"),
            _ => return refuse("XFS of an unknown version"),
        }
        if self.incompatible & incompatible::ZONED != 0 {
            return refuse("XFS with zones");
        }
        if self.incompatible & incompatible::METADATA_DIRECTORY != 0 {
            return refuse("XFS with a metadata directory");
        }
        if self.incompatible & !incompatible::KNOWN != 0 || self.read_only & !read_only::KNOWN != 0 {
            return refuse("XFS with unknown features");
        }
        Ok(())
    }

    /// Returns whether metadata has checksums.
    pub(super) fn is_v5(self) -> bool {
        self.version & version::NUMBER == 5
    }

    fn has_more(self, bit: u32) -> bool {
        (self.is_v5() || self.version & version::MORE != 0) && self.more & bit != 0
    }

    fn has_read_only(self, bit: u32) -> bool {
        self.is_v5() && self.read_only & bit != 0
    }

    fn has_incompatible(self, bit: u32) -> bool {
        self.is_v5() && self.incompatible & bit != 0
    }

    /// Returns whether directories record the kinds of files.
    pub(super) fn has_file_types(self) -> bool {
        if self.is_v5() { self.has_incompatible(incompatible::FILE_TYPES) } else { self.has_more(more::FILE_TYPES) }
    }

    /// Returns whether chunks of inodes may have holes.
    pub(super) fn has_sparse_inodes(self) -> bool {
        self.has_incompatible(incompatible::SPARSE_INODES)
    }

    /// Returns whether metadata has a separate UUID.
    pub(super) fn has_metadata_uuid(self) -> bool {
        self.has_incompatible(incompatible::METADATA_UUID)
    }

    /// Returns whether inodes may have counters of extents with 64 bits.
    pub(super) fn has_large_extent_counts(self) -> bool {
        self.has_incompatible(incompatible::LARGE_EXTENT_COUNTS)
    }

    /// Returns whether the file system requests its checker.
    pub(super) fn needs_repair(self) -> bool {
        self.has_incompatible(incompatible::NEEDS_REPAIR)
    }

    /// Returns whether names that differ only in the case of ASCII letters are equal.
    pub(super) fn is_case_insensitive(self) -> bool {
        self.version & version::CASE_INSENSITIVE != 0
    }

    /// Returns whether there is a tree of free inodes.
    pub(super) fn has_free_inode_tree(self) -> bool {
        self.has_read_only(read_only::FREE_INODE_TREE)
    }

    /// Returns whether there is a tree of the owners of blocks.
    pub(super) fn has_owner_tree(self) -> bool {
        self.has_read_only(read_only::OWNER_TREE)
    }

    /// Returns whether files may share blocks.
    pub(super) fn has_reference_counts(self) -> bool {
        self.has_read_only(read_only::REFERENCE_COUNTS)
    }

    /// Returns the names of the features in `xfs_info` and `mkfs.xfs`.
    pub(super) fn names(self) -> Vec<String> {
        let all = [
            ("crc", self.is_v5()),
            ("ascii-ci", self.is_case_insensitive()),
            ("lazy-count", self.has_more(more::LAZY_COUNTERS)),
            ("attr2", self.has_more(more::ATTRIBUTES_2)),
            ("projid32bit", self.has_more(more::PROJECTS_32)),
            ("ftype", self.has_file_types()),
            ("finobt", self.has_free_inode_tree()),
            ("rmapbt", self.has_owner_tree()),
            ("reflink", self.has_reference_counts()),
            ("inobtcount", self.has_read_only(read_only::INODE_TREE_COUNTS)),
            ("sparse", self.has_sparse_inodes()),
            ("metauuid", self.has_metadata_uuid()),
            ("bigtime", self.has_incompatible(incompatible::BIG_TIME)),
            ("needsrepair", self.needs_repair()),
            ("nrext64", self.has_large_extent_counts()),
            ("exchange", self.has_incompatible(incompatible::EXCHANGE_RANGE)),
            ("parent", self.has_incompatible(incompatible::PARENT_POINTERS)),
        ];
        all.iter().filter(|(_, has)| *has).map(|(name, _)| (*name).to_owned()).collect()
    }
}
