//! The interface of all readers of file systems, and their common terms.
//!
//! Readers are read-only and use bytes of their volume. [`VolumeReader::each_on_disk`](crate::volume::VolumeReader)
//! converts these to bytes of the disk before they leave the crate. A map is a hint for sharing and the truth for
//! capture: see [`State`] and [`AllocationClass`].

mod allocation;
mod facts;
mod file;

use std::ops::{ControlFlow, Range};

pub use allocation::{Allocation, AllocationClass, AllocationDifferences, TableKind};
pub(crate) use allocation::{common_length, free_ranges};
pub use facts::{Doubt, FileSystemFacts, FileSystemKind, State};
pub use file::{
    DirectoryEntry, ExtendedAttribute, Extent, ExtentKind, FileKind, FileNumber, FileStat, Timestamp, VerityDigest,
};

use crate::budget::Budget;
use crate::error::{DamageLog, GuestError};

/// Maximum bytes of a directory that are searched for one name without an index: about three million names.
pub(crate) const SEARCHED_BYTES_MAX: u64 = 256 << 20;
/// Reason to reject a directory that exceeds this limit.
pub(crate) const TOO_LONG_TO_SEARCH: &str = "a directory of more than 256 MiB without a sound index";

/// A file system that is open for reading. Damaged parts are recorded in [`FileSystem::damage`] and skipped. A call
/// fails only if the requested object itself is damaged, or the disk fails.
pub trait FileSystem: Send + Sync {
    /// Returns the properties and the usage of the file system.
    fn facts(&self) -> &FileSystemFacts;

    /// Returns whether its maps are certain.
    fn state(&self) -> &State;

    /// Adds a reason for uncertainty that lies outside of the file system.
    fn add_doubt(&mut self, doubt: Doubt);

    /// Returns the damage that was found so far.
    fn damage(&self) -> &DamageLog;

    /// Returns the number of the root directory.
    fn root(&self) -> FileNumber;

    /// Returns the metadata of a file.
    ///
    /// # Errors
    /// When the file does not exist, or its record is damaged.
    fn stat(&self, file: FileNumber) -> Result<FileStat, GuestError>;

    /// Calls `visit` with each entry of a directory, without `.` and `..`, until it breaks. Files in damaged parts are
    /// skipped.
    ///
    /// # Errors
    /// When `directory` is not a directory, or cannot be read at all.
    fn each_entry(
        &self,
        directory: FileNumber,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), GuestError>;

    /// Returns the file with a name in a directory, by the rules of this file system for equal names. Readers use the
    /// index of the directory if there is one.
    ///
    /// # Errors
    /// When `directory` is not a directory, or cannot be read.
    fn look_up(&self, directory: FileNumber, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        let mut found = None;
        self.each_entry(directory, &mut |entry| {
            if entry.name == name {
                found = Some(entry.file);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Returns the owner of a file that no directory lists, and the suffix for the owner's path: `:stream` for an
    /// alternate stream of NTFS, `/$MFT` for an internal file of the file system. `None` for every other file.
    ///
    /// # Errors
    /// When the file does not exist, or its record is damaged.
    fn belongs_to(&self, file: FileNumber) -> Result<Option<(FileNumber, Vec<u8>)>, GuestError> {
        let _ = file;
        Ok(None)
    }

    /// Returns the target of a symbolic link, at most 4096 bytes long.
    ///
    /// # Errors
    /// When the file is not a symbolic link, or its content is damaged.
    fn read_link(&self, file: FileNumber) -> Result<Vec<u8>, GuestError>;

    /// Returns the extended attributes of a file, with their full names (`security.capability`).
    ///
    /// # Errors
    /// When they are damaged.
    fn attributes(&self, file: FileNumber) -> Result<Vec<ExtendedAttribute>, GuestError>;

    /// Returns the digest of a file's content that the file system itself stores (fs-verity); `None` if there is none.
    /// Does not read the content.
    ///
    /// # Errors
    /// When its record is damaged.
    fn verity(&self, file: FileNumber) -> Result<Option<VerityDigest>, GuestError> {
        let _ = file;
        Ok(None)
    }

    /// Calls `visit` with each extent of a file's content in the order of the file, until it breaks. Holes are skipped.
    /// Extents past the end of the file are included; the file's length distinguishes them.
    ///
    /// # Errors
    /// When the map is damaged: extents before the damage have been visited.
    fn each_extent(&self, file: FileNumber, visit: &mut dyn FnMut(Extent) -> ControlFlow<()>)
    -> Result<(), GuestError>;

    /// Fills `into` with content from byte `offset` of a file. Returns how many bytes there were before its end. Holes
    /// and unwritten extents read as zeros.
    ///
    /// # Errors
    /// When the content is encoded, or its map is damaged: the content is never guessed.
    fn read(&self, file: FileNumber, offset: u64, into: &mut [u8]) -> Result<usize, GuestError>;

    /// Returns the byte of the volume at which its first block begins. The others follow at multiples of the block
    /// length. It is 0 except for the clusters of a FAT.
    fn blocks_start(&self) -> u64 {
        0
    }

    /// Calls `visit` with every file in use, in the order of the file system's own tables, until it breaks. The caller
    /// adds the names.
    ///
    /// # Errors
    /// Those of the disk.
    fn each_file(&self, visit: &mut dyn FnMut(FileNumber, &FileStat) -> ControlFlow<()>) -> Result<(), GuestError>;

    /// Returns the allocation map of the volume, merged and complete: runs in order that cover all of its bytes. No
    /// free run contains a doubtful block.
    ///
    /// # Errors
    /// Those of the disk.
    fn allocation(&self) -> Result<Vec<Allocation>, GuestError>;

    /// Calls `visit` with ranges of bytes of the volume that are allocated and that neither a mount nor the file
    /// system's own checker reads, so that zeros can stand for them. They are not free: old bytes there could come to
    /// life. There are none if the file system is not certain, or was not cleanly unmounted.
    ///
    /// # Errors
    /// Those of the disk.
    fn each_unread(&self, visit: &mut dyn FnMut(Range<u64>)) -> Result<(), GuestError> {
        let _ = visit;
        Ok(())
    }

    /// Returns the allocation map like [`FileSystem::allocation`], with memory from a budget. Parts that do not fit
    /// count as allocated, which is recorded in the budget. Readers with potentially large maps override this.
    ///
    /// # Errors
    /// Those of the disk.
    fn allocation_within(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        let _ = budget;
        self.allocation()
    }

    /// Returns the ranges of the volume, in order, that the file system's bitmaps call free: those of the groups of
    /// ext, the trees of free space of XFS, `$Bitmap` of NTFS. Reads no inode and no map of a file, so no file
    /// contradicts the bitmaps, and a file may have a block in such a range. There are none of a file system in doubt,
    /// and none by a damaged bitmap. Callers for which a free block must certainly be free use
    /// [`FileSystem::allocation_within`], whose free runs are also what readers without bitmaps return here.
    ///
    /// # Errors
    /// Those of the disk.
    fn free_by_bitmaps(&self, budget: &Budget) -> Result<Vec<Range<u64>>, GuestError> {
        Ok(free_ranges(&self.allocation_within(budget)?))
    }

    /// Returns the differences between the sources of the most recent allocation map; `None` before there is one.
    fn allocation_differences(&self) -> Option<AllocationDifferences> {
        None
    }
}
