//! The seam between a mount and the way its requests travel.

use std::io;
use std::sync::Arc;

use onefold_pool::Ino;

/// A connection to the kernel that is set up but not yet served: requests wait. Dropping it unmounts.
pub(crate) trait Transport: Send {
    /// Answers requests until the kernel ends the connection, which an unmount does.
    ///
    /// # Errors
    /// When requests can no longer be received. The kernel may still show the mount then.
    fn serve(self: Box<Self>) -> io::Result<()>;

    /// Returns the way to tell the kernel about changes that did not come through it.
    fn invalidator(&self) -> Arc<dyn Invalidate>;
}

/// Tells the kernel that what it keeps of a file is out of date.
pub(crate) trait Invalidate: Send + Sync {
    /// Makes the kernel forget attributes and cached pages of `ino`. May wait for requests that are being answered, so
    /// no thread that answers requests may call it.
    ///
    /// # Errors
    /// When the kernel refuses. That it knows nothing of the file is no error.
    fn invalidate(&self, ino: Ino) -> io::Result<()>;

    /// Tells whether the kernel still has the file system mounted somewhere.
    fn is_connected(&self) -> bool;

    /// Tells whether the kernel has requests that no thread has received yet.
    fn has_requests(&self) -> bool;
}
