//! Hints about the copies that a file system makes on writes into shared blocks.

use std::io;

use crate::files::Files;

/// Hints about copies on write (XFS). By default there are none.
pub trait CopyHints: Files {
    /// Has the file system set aside no more than is written where it copies shared blocks of this file on a write, if
    /// it can be told so and nobody has told it anything else. Returns whether that is new; then the time of the last
    /// change is, too, but not that of the content.
    ///
    /// # Errors
    /// Those of the device; `PermissionDenied`.
    fn keep_copies_small(&self, file: &Self::File) -> io::Result<bool> {
        let _ = file;
        Ok(false)
    }
}
