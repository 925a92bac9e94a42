//! The doors of Onefold, through which clients reach a pool, and the daemon that serves it.
//!
//! A [`Daemon`] has one pool, a control socket and any number of doors: a mount ([`Daemon::mount`]), and other
//! implementations of [`Door`]. It serves until the last door has ended, and then closes the pool. [`mount()`] makes a
//! daemon with a mount alone. Doors that serve disks use a [`volume::Volume`]. This crate knows no command line and
//! decides nothing about data: each request becomes one call of [`onefold_pool::Pool`].

mod backing_device;
mod below;
pub mod control;
mod daemon;
mod discarding;
mod door;
mod fuse;
mod last_answer;
pub mod log;
mod mount;
mod mount_holders;
mod mount_table;
mod options;
mod place;
mod stopper;
mod unmount;
pub mod volume;

pub use below::FileBelow;
pub use daemon::{Daemon, DaemonError, DaemonOptions, ServeError};
pub use discarding::DiscardPolicy;
pub use door::{Door, DoorHandle, EndError};
pub use fuse::{HelperReason, MountRefusal};
pub use log::{FailureLog, StderrLog};
pub use mount::{MountError, mark_as_io_flusher, mount};
pub use mount_holders::{HolderProcess, MountHolder, holder_after_unmount, holders_elsewhere};
pub use options::{AccessTimes, CONTROL_XATTR, KernelOption, MountAccess, MountOptions, StBlocks};
pub use place::{PoolPlace, RunDirectory};
pub use stopper::{StopError, Stopper};
