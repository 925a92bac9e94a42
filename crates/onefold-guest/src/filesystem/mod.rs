//! What every reader of a file system offers, and the words that all of them use.
//!
//! Readers are read-only and speak in bytes of their volume;
//! [`VolumeReader::each_on_disk`](crate::volume::VolumeReader) turns these into bytes of the disk before they leave the
//! crate. A map is a hint for sharing and the truth for capture: see [`State`] and [`AllocationClass`].

mod allocation;
mod facts;
mod file;

use std::ops::ControlFlow;

pub use allocation::{Allocation, AllocationClass, TableKind};
pub use facts::{Doubt, FileSystemFacts, FileSystemKind, State};
pub use file::{
    DirectoryEntry, ExtendedAttribute, Extent, ExtentKind, FileKind, FileNumber, FileStat, Timestamp, VerityDigest,
};

use crate::budget::Budget;
use crate::error::{DamageLog, GuestError};

/// Bytes of a directory that are searched for one name where no index leads to it: about three million names.
pub(crate) const SEARCHED_BYTES_MAX: u64 = 256 << 20;
/// What is not read: a directory that has more of them.
pub(crate) const TOO_LONG_TO_SEARCH: &str = "a directory of more than 256 MiB without a sound index";

/// A file system that is open for reading. Damaged parts are noted in [`FileSystem::damage`] and skipped; a call fails
/// only where the very thing that it is asked for is damaged, or the disk fails.
pub trait FileSystem: Send + Sync {
    /// Returns what the file system is and how full it is.
    fn facts(&self) -> &FileSystemFacts;

    /// Returns whether its maps are certain.
    fn state(&self) -> &State;

    /// Returns the damage met so far.
    fn damage(&self) -> &DamageLog;

    /// Returns the number of the root directory.
    fn root(&self) -> FileNumber;

    /// Returns what is known of a file.
    ///
    /// # Errors
    /// When there is no such file, or its record is damaged.
    fn stat(&self, file: FileNumber) -> Result<FileStat, GuestError>;

    /// Calls `visit` with each entry of a directory, without `.` and `..`, until it breaks. Each file of a damaged part
    /// is left out.
    ///
    /// # Errors
    /// When `directory` is none, or cannot be read at all.
    fn each_entry(
        &self,
        directory: FileNumber,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), GuestError>;

    /// Returns the file of a name in a directory, by the rules of this file system for equal names. Readers use an
    /// index of the directory where there is one.
    ///
    /// # Errors
    /// When `directory` is none, or cannot be read.
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

    /// Returns what a file that no directory lists belongs to, and what to append to that one's path: `:stream` for an
    /// alternate stream of NTFS, `/$MFT` for a file of the file system's own. `None` for every other file.
    ///
    /// # Errors
    /// When the file is none, or its record is damaged.
    fn belongs_to(&self, file: FileNumber) -> Result<Option<(FileNumber, Vec<u8>)>, GuestError> {
        let _ = file;
        Ok(None)
    }

    /// Returns the target of a symbolic link, at most 4096 bytes long.
    ///
    /// # Errors
    /// When the file is none, or its content is damaged.
    fn read_link(&self, file: FileNumber) -> Result<Vec<u8>, GuestError>;

    /// Returns the extended attributes of a file, with their full names (`security.capability`).
    ///
    /// # Errors
    /// When they are damaged.
    fn attributes(&self, file: FileNumber) -> Result<Vec<ExtendedAttribute>, GuestError>;

    /// Returns the digest of a file's content that the file system itself keeps (fs-verity); `None` if it keeps
    /// none. Nothing of the content is read.
    ///
    /// # Errors
    /// When the record of it is damaged.
    fn verity(&self, file: FileNumber) -> Result<Option<VerityDigest>, GuestError> {
        let _ = file;
        Ok(None)
    }

    /// Calls `visit` with each extent of a file's content in the order of the file, until it breaks. Holes are left
    /// out. Extents past the end of the file are included; the file's length tells them apart.
    ///
    /// # Errors
    /// When the map is damaged: extents before the damage have been visited.
    fn each_extent(&self, file: FileNumber, visit: &mut dyn FnMut(Extent) -> ControlFlow<()>)
    -> Result<(), GuestError>;

    /// Fills `into` with content from byte `offset` of a file; returns how many bytes there were before its end. Holes
    /// and unwritten extents read as zeros.
    ///
    /// # Errors
    /// When the content is encoded, or its map damaged: no byte is made up.
    fn read(&self, file: FileNumber, offset: u64, into: &mut [u8]) -> Result<usize, GuestError>;

    /// Returns the byte of the volume at which its first block begins; the others follow at multiples of the bytes of a
    /// block. It is 0 but for the clusters of a FAT.
    fn blocks_start(&self) -> u64 {
        0
    }

    /// Calls `visit` with every file in use, in the order of the file system's own tables, until it breaks. Names are
    /// joined by the caller.
    ///
    /// # Errors
    /// Those of the disk.
    fn each_file(&self, visit: &mut dyn FnMut(FileNumber, &FileStat) -> ControlFlow<()>) -> Result<(), GuestError>;

    /// Returns the allocation map of the volume, merged and complete: runs in order that cover all of its bytes. A
    /// block that is in doubt is in no free run.
    ///
    /// # Errors
    /// Those of the disk.
    fn allocation(&self) -> Result<Vec<Allocation>, GuestError>;

    /// Returns the allocation map as [`FileSystem::allocation`] does, and draws the memory for it from a budget. What
    /// does not fit into that counts as allocated, which is noted in the budget. Readers whose maps may be large have
    /// their own way.
    ///
    /// # Errors
    /// Those of the disk.
    fn allocation_within(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        let _ = budget;
        self.allocation()
    }
}
