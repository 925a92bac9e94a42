//! The FUSE door: the kernel's requests, each turned into one call of the pool.
//!
//! Three layers, so that the way requests travel can change without the file system noticing:
//!
//! - `filesystem` knows the pool and POSIX, but no protocol;
//! - `fuser_adapter` and `fuser_transport` know the `fuser` crate, and are the only ones that do;
//! - [`Transport`] is what a mount needs of them.

mod access_marks;
mod attributes;
mod errno;
mod failures;
mod filesystem;
mod flags;
mod fuser_adapter;
mod fuser_transport;
mod open_files;
mod privileges;
mod read_buffer;
mod transport;

pub(crate) use filesystem::PoolFilesystem;
pub(crate) use fuser_transport::connect;
pub(crate) use open_files::OpenFiles;
pub(crate) use transport::{Invalidate, Transport};
