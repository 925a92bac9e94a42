//! Files and folders: their handles, their metadata, and their locks.

use std::fmt;
use std::io;
use std::path::PathBuf;

use onefold_block::Timestamp;

/// The purpose for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, also as the source of shared blocks.
    Read,
    /// Reading and writing.
    Write,
}

/// A place in a file.
#[derive(Debug)]
pub struct At<'a, F> {
    /// The file.
    pub file: &'a F,
    /// Offset in bytes.
    pub offset: u64,
}

impl<F> Clone for At<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for At<'_, F> {}

/// Identifies a file as long as it exists, whatever its names. No two files, even successive ones, have equal handles.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle(Box<[u8]>);

impl FileHandle {
    /// Maximum length in bytes: the longest handle of Linux (`MAX_HANDLE_SZ`), and its type in front.
    pub const BYTES_MAX: usize = 128 + 4;

    /// Returns the handle of these bytes; `None` if there are too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<FileHandle> {
        (bytes.len() <= FileHandle::BYTES_MAX).then(|| FileHandle(bytes.into()))
    }

    /// Returns the bytes of the handle.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHandle({self})")
    }
}

/// Identity, size, owner and times of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Identity of the file.
    pub handle: FileHandle,
    /// Length in bytes.
    pub length: u64,
    /// Bytes that the file system counts as allocated to it.
    pub allocated: u64,
    /// When its content last changed. Sharing does not change it.
    pub modified: Timestamp,
    /// When its content or metadata last changed.
    pub changed: Timestamp,
    /// User number of its owner.
    pub owner: u32,
    /// Number of its names.
    pub names: u32,
}

/// User number of root.
pub const ROOT: u32 = 0;

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its name.
    pub name: PathBuf,
    /// Its kind.
    pub kind: ListedKind,
}

/// Kind of an entry of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else.
    Other,
}

/// A locked file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldLock {
    /// Its name in its folder.
    pub name: PathBuf,
    /// The process that holds the lock, if it is one of this host.
    pub process: Option<u32>,
}

/// Returns whether opening failed because no regular file has the name: nothing has it, or something of another kind.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, InvalidInput, IsADirectory, NotADirectory, NotFound};
    let kind = error.kind();
    // Symbolic links have no stable error kind yet.
    matches!(kind, NotFound | NotADirectory | IsADirectory | InvalidInput | CrossesDevices)
        || error.raw_os_error() == Some(libc::ELOOP)
}
