//! The few calls of a file system that a folder of objects needs.

use std::fmt;
use std::io;

use crate::store::ByteRange;

/// What is in a folder under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A regular file of so many bytes.
    File(u64),
    /// A folder.
    Folder,
    /// Something else, which is no object: a symbolic link above all.
    Other,
}

/// Files beneath one folder. Paths are relative to it, `""` is the folder itself, and no symbolic link is followed.
///
/// A change of names is durable when its folder is synced, a file's bytes when the file is.
pub(super) trait Files: Send + Sync + fmt::Debug {
    /// A file that is open for writing.
    type File;

    /// Makes a file that does not exist, readable and writable by its owner only.
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

    /// Gives a file a second name in its folder, if nothing has it.
    ///
    /// # Errors
    /// Those of `link(2)`.
    fn link(&self, folder: &str, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file another name in its folder, instead of what has it.
    ///
    /// # Errors
    /// Those of `rename(2)`.
    fn rename(&self, folder: &str, from: &str, to: &str) -> io::Result<()>;

    /// Removes the name of a file.
    ///
    /// # Errors
    /// Those of `unlink(2)`.
    fn unlink(&self, folder: &str, name: &str) -> io::Result<()>;

    /// Makes a folder that only its owner may use.
    ///
    /// # Errors
    /// Those of `mkdir(2)`.
    fn make_folder(&self, folder: &str, name: &str) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// Those of `fsync(2)`.
    fn sync_folder(&self, folder: &str) -> io::Result<()>;

    /// Returns a part of a regular file; `None` if there is something else.
    ///
    /// # Errors
    /// Those of `open(2)` and `read(2)`.
    fn read(&self, path: &str, range: ByteRange) -> io::Result<Option<Vec<u8>>>;

    /// Returns the names in a folder that are UTF-8, without `.` and `..`.
    ///
    /// # Errors
    /// Those of `open(2)` and `getdents(2)`.
    fn names(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Returns what is there.
    ///
    /// # Errors
    /// Those of `stat(2)`.
    fn find(&self, folder: &str, name: &str) -> io::Result<Found>;
}
