//! Whole-file locks that all hosts of a file system see.

use std::io;
use std::path::Path;

use crate::file::HeldLock;
use crate::files::Files;

/// Locks of whole files, one holder for each.
pub trait Locks: Files {
    /// Takes the file's only lock, if no process on any host holds it, and keeps it until the file is dropped. Returns
    /// whether it was taken. If the other hosts consider this host dead, it loses the lock without notice.
    ///
    /// # Errors
    /// Those of `flock(2)`.
    fn try_lock(&self, file: &Self::File) -> io::Result<bool>;

    /// Returns whether the file's lock is taken. The caller cannot use this opening of the file for anything else:
    /// until it is dropped, it may keep others from taking the lock, but not from asking this question.
    ///
    /// # Errors
    /// See [`Locks::try_lock`].
    fn is_locked(&self, file: &Self::File) -> io::Result<bool> {
        Ok(!self.try_lock(file)?)
    }

    /// Returns the locked files of a folder, as far as this host can see. It tries no lock, so it never keeps another
    /// process from taking one.
    ///
    /// # Errors
    /// `Unsupported` if the locks cannot be listed; those of [`Names::list`](crate::Names::list).
    fn held_locks(&self, folder: &Path) -> io::Result<Vec<HeldLock>> {
        let _ = folder;
        Err(io::ErrorKind::Unsupported.into())
    }
}
