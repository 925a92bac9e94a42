//! Files and folders: what stands for one, what is known of it, and who has locked it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use onefold_block::Timestamp;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, as a source of shared blocks too.
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

/// What stands for a file as long as it exists, whatever its names: none of another file, even a later one, is equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle(Box<[u8]>);

impl FileHandle {
    /// The longest handle that Linux gives (`MAX_HANDLE_SZ`), and its type before it, in bytes.
    pub const BYTES_MAX: usize = 128 + 4;

    /// Returns the handle of these bytes, if they are not too many.
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

/// What a file is and when it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// The file itself.
    pub handle: FileHandle,
    /// Length in bytes.
    pub length: u64,
    /// Bytes that the file system counts for it.
    pub allocated: u64,
    /// When its content changed last. Sharing does not change it.
    pub modified: Timestamp,
    /// When anything about it changed last.
    pub changed: Timestamp,
    /// User number of its owner.
    pub owner: u32,
    /// How many names it has.
    pub names: u32,
}

/// User number of root.
pub const ROOT: u32 = 0;

/// Something in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: PathBuf,
    /// What it is.
    pub kind: ListedKind,
}

/// What something in a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else.
    Other,
}

/// A file that somebody has locked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldLock {
    /// Its name in its folder.
    pub name: PathBuf,
    /// The process that has it, where it is one of this host's.
    pub process: Option<u32>,
}

/// Returns whether a file could not be opened because there is none of its name: nothing, or something that is no
/// regular file.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, InvalidInput, IsADirectory, NotADirectory, NotFound};
    let kind = error.kind();
    // A symbolic link has no kind of its own yet.
    matches!(kind, NotFound | NotADirectory | IsADirectory | InvalidInput | CrossesDevices)
        || error.raw_os_error() == Some(libc::ELOOP)
}
