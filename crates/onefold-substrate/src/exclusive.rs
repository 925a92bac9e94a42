//! Exclusive use of a file, for file systems that share in two steps.

use std::io;

use crate::file::At;
use crate::files::Files;
use crate::outcome::ShareError;

/// Exclusive use of a file, and the preparation that sharing in two steps needs (OCFS2). By default nothing is needed.
pub trait Exclusive: Files {
    /// Takes a file for this opening alone, unless another opening on this host exists. Returns whether it was taken.
    /// From then on, a process on this host that opens the file waits until [`Exclusive::leave_exclusive`], until the
    /// file is dropped, or until the system's time limit. Other hosts are not affected.
    ///
    /// # Errors
    /// If the use of the file cannot be determined. `PermissionDenied` if the file cannot be written to.
    fn try_exclusive(&self, file: &Self::File) -> io::Result<bool> {
        let _ = file;
        Ok(true)
    }

    /// Returns whether a process waits to open a taken file, or may have opened it meanwhile: the caller should leave
    /// it soon.
    fn is_exclusive_wanted(&self, file: &Self::File) -> bool {
        let _ = file;
        false
    }

    /// Returns whether another process may have opened a taken file, because its wait has reached the system's time
    /// limit, or nearly. From then on, that process's writes must not be undone.
    fn is_exclusive_lost(&self, file: &Self::File) -> bool {
        let _ = file;
        false
    }

    /// Gives up the exclusive use that [`Exclusive::try_exclusive`] took.
    fn leave_exclusive(&self, file: &Self::File) {
        let _ = file;
    }

    /// Prepares a range as the source of [`Sharing::clone_range`](crate::Sharing::clone_range), on a file system that
    /// cannot safely clone parts of extents. `scratch` is a file that sharing made, of at least one block; only its
    /// first block remains. The range follows the rules of [`Sharing::share`](crate::Sharing::share), except for its
    /// length. A write into the range undoes the preparation.
    ///
    /// # Errors
    /// See [`ShareError`].
    fn prepare_clone(&self, source: At<'_, Self::File>, length: u64, scratch: &Self::File) -> Result<(), ShareError> {
        let _ = (source, length, scratch);
        Ok(())
    }
}
