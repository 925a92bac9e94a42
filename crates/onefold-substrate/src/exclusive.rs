//! Exclusive use of a file, for file systems that share in two steps.

use std::io;

use crate::file::At;
use crate::files::Files;
use crate::outcome::ShareError;

/// Exclusive use of a file, and what else sharing in two steps takes (OCFS2). By default nothing is needed.
pub trait Exclusive: Files {
    /// Takes a file for this opening alone, unless anybody else on this host has it open. Returns whether it was taken.
    /// Who opens it on this host from then on waits, until [`Exclusive::leave_exclusive`] or the file is dropped, or
    /// for as long as the system lets him wait. Says nothing of other hosts.
    ///
    /// # Errors
    /// Where it cannot be told. `PermissionDenied` where the file cannot be written to.
    fn try_exclusive(&self, file: &Self::File) -> io::Result<bool> {
        let _ = file;
        Ok(true)
    }

    /// Tells whether somebody waits to open a file that was taken, or may have opened it meanwhile: it should be left
    /// soon.
    fn is_exclusive_wanted(&self, file: &Self::File) -> bool {
        let _ = file;
        false
    }

    /// Tells whether somebody may have opened a file that was taken: he has waited for as long as the system lets him,
    /// or nearly. What he does from then on must not be undone.
    fn is_exclusive_lost(&self, file: &Self::File) -> bool {
        let _ = file;
        false
    }

    /// Gives up what [`Exclusive::try_exclusive`] took.
    fn leave_exclusive(&self, file: &Self::File) {
        let _ = file;
    }

    /// Makes a range ready to be the source of [`Sharing::clone_range`](crate::Sharing::clone_range), where the file
    /// system is not made for clones of parts of extents. `scratch` is a file that sharing made, of one block at least,
    /// and only that block is left of it. Rules for the range as in [`Sharing::share`](crate::Sharing::share), but for
    /// its length; whoever writes to the range undoes this.
    ///
    /// # Errors
    /// As [`ShareError`] says.
    fn prepare_clone(&self, source: At<'_, Self::File>, length: u64, scratch: &Self::File) -> Result<(), ShareError> {
        let _ = (source, length, scratch);
        Ok(())
    }
}
