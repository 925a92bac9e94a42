//! The interface between a mount and the way its requests travel.

use std::io;
use std::sync::Arc;

use onefold_pool::Ino;

/// A connection to the kernel that is set up but not served yet; requests wait. Dropping it unmounts.
pub(crate) trait Transport: Send {
    /// Answers requests until the kernel ends the connection, which an unmount does.
    ///
    /// # Errors
    /// When no more requests can be received. The kernel may still show the mount then.
    fn serve(self: Box<Self>) -> io::Result<()>;

    /// Returns a handle that tells the kernel about changes which did not come through the kernel.
    fn invalidator(&self) -> Arc<dyn Invalidate>;
}

/// Makes the kernel drop outdated cached state of a file.
pub(crate) trait Invalidate: Send + Sync {
    /// Makes the kernel drop attributes and cached pages of `ino`. May wait for requests that are being answered, so no
    /// thread that answers requests may call it.
    ///
    /// # Errors
    /// When the kernel refuses. If the kernel does not know the file, that is no error.
    fn invalidate(&self, ino: Ino) -> io::Result<()>;

    /// Returns whether the kernel still has the file system mounted somewhere.
    fn is_connected(&self) -> bool;

    /// Returns whether the kernel has requests that no thread has received yet.
    fn has_requests(&self) -> bool;
}
