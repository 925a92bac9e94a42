//! The calls of a file system that a folder of objects needs.

use std::fmt;
use std::io;

use onefold_block::Timestamp;

use crate::store::ByteRange;

/// Kind of a name's entry in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A regular file.
    File {
        /// Its length in bytes.
        length_bytes: u64,
        /// When its bytes were last changed.
        modified: Timestamp,
    },
    /// A folder.
    Folder,
    /// Something else that is not an object, usually a symbolic link.
    Other,
}

/// Files beneath one folder. Paths are relative to it, `""` is the folder itself, and symbolic links are not followed.
///
/// A change of names becomes durable when its folder is synced, and a file's bytes when the file is synced.
pub(super) trait Files: Send + Sync + fmt::Debug {
    /// A file that is open for writing.
    type File;

    /// Creates a file that must not exist, readable and writable only by its owner.
    ///
    /// # Errors
    /// Those of `open(2)` with `O_EXCL`.
    fn make_file(&self, path: &str) -> io::Result<Self::File>;

    /// Writes all bytes at the end of the file.
    ///
    /// # Errors
    /// Those of `write(2)`.
    fn write(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;

    /// Makes the bytes of a file durable.
    ///
    /// # Errors
    /// Those of `fsync(2)`.
    fn sync_file(&self, file: &mut Self::File) -> io::Result<()>;

    /// Makes the bytes of an existing file durable, also those of another writer. A name that is no regular file has
    /// none.
    ///
    /// # Errors
    /// Those of `open(2)` and `fsync(2)`.
    fn sync_named(&self, path: &str) -> io::Result<()>;

    /// Gives a file a second name in its folder, unless that name exists.
    ///
    /// # Errors
    /// Those of `link(2)`.
    fn link(&self, folder: &str, from: &str, to: &str) -> io::Result<()>;

    /// Renames a file within its folder, and replaces an existing file of the new name.
    ///
    /// # Errors
    /// Those of `rename(2)`.
    fn rename(&self, folder: &str, from: &str, to: &str) -> io::Result<()>;

    /// Removes the name of a file.
    ///
    /// # Errors
    /// Those of `unlink(2)`.
    fn unlink(&self, folder: &str, name: &str) -> io::Result<()>;

    /// Makes a folder that only its owner may access.
    ///
    /// # Errors
    /// Those of `mkdir(2)`.
    fn make_folder(&self, folder: &str, name: &str) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// Those of `fsync(2)`.
    fn sync_folder(&self, folder: &str) -> io::Result<()>;

    /// Returns a part of a regular file; `None` if the name is not a regular file.
    ///
    /// # Errors
    /// Those of `open(2)` and `read(2)`.
    fn read(&self, path: &str, range: ByteRange) -> io::Result<Option<Vec<u8>>>;

    /// Returns the names in a folder that are UTF-8, without `.` and `..`.
    ///
    /// # Errors
    /// Those of `open(2)` and `getdents(2)`.
    fn names(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Returns the kind of a name's entry.
    ///
    /// # Errors
    /// Those of `stat(2)`.
    fn find(&self, folder: &str, name: &str) -> io::Result<EntryKind>;
}
