//! Hints about the copies that a file system makes on writes into shared blocks.

use std::io;

use crate::files::Files;

/// Hints about copies on write (XFS). By default there are none.
pub trait CopyHints: Files {
    /// Makes the file system set aside only what is written when a write into this file copies shared blocks. Does
    /// nothing if the file system has no such hint, or if the file already has one. Returns whether the hint is new: it
    /// then changes the file's change time, but not its modification time.
    ///
    /// # Errors
    /// Those of the device; `PermissionDenied`.
    fn keep_copies_small(&self, file: &Self::File) -> io::Result<bool> {
        let _ = file;
        Ok(false)
    }
}
