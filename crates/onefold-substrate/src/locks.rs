//! Whole-file locks that all hosts of a file system see.

use std::io;
use std::path::Path;

use crate::file::HeldLock;
use crate::files::Files;

/// Locks of whole files, one holder for each.
pub trait Locks: Files {
    /// Takes the file's only lock, if nobody on any host has it, and keeps it until the file is dropped. Returns
    /// whether it was taken. The host loses it without being told when the others think it dead.
    ///
    /// # Errors
    /// Those of `flock(2)`.
    fn try_lock(&self, file: &Self::File) -> io::Result<bool>;

    /// Tells whether the file's lock is taken. The file is of no other use to the caller: until it is dropped, it may
    /// keep others from taking the lock, but not from asking this.
    ///
    /// # Errors
    /// As [`Locks::try_lock`].
    fn is_locked(&self, file: &Self::File) -> io::Result<bool> {
        Ok(!self.try_lock(file)?)
    }

    /// Returns which files of a folder somebody has locked, as far as this host can see. No lock is tried for it:
    /// whoever wants one at this moment gets it.
    ///
    /// # Errors
    /// `Unsupported` where that cannot be told; those of [`Names::list`](crate::Names::list).
    fn held_locks(&self, folder: &Path) -> io::Result<Vec<HeldLock>> {
        let _ = folder;
        Err(io::ErrorKind::Unsupported.into())
    }
}
