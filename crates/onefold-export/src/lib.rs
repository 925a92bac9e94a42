//! The doors of Onefold: a pool as a mounted file system, and the control socket of that mount.
//!
//! [`mount`] brings a pool to a mount point and gives a [`Mounted`], whose `serve_until_unmounted` runs until the
//! kernel lets go of the mount and then closes the pool. Nothing here knows a command line, and nothing here decides
//! about data: each request becomes one call of [`onefold_pool::Pool`].

mod backing_device;
pub mod control;
mod fuse;
pub mod log;
mod mount;
mod mount_holders;
mod mount_table;
mod options;
mod unmount;
pub mod volume;

pub use log::{Log, StderrLog};
pub use mount::{MountError, Mounted, ServeError, mark_as_io_flusher, mount};
pub use mount_holders::{HolderProcess, MountHolder, holders_elsewhere};
pub use options::{Access, AccessTimes, CONTROL_XATTR, KernelOption, MountOptions, StBlocks};
pub use unmount::{StopError, Stopper, UnmountError};
