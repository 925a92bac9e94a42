//! The FUSE door: the kernel's requests, each turned into one call of the pool.
//!
//! Layers, so that the way requests travel can change without the file system noticing:
//!
//! - `filesystem` knows the pool and POSIX, but no protocol;
//! - `protocol` knows the bytes of requests and replies, but no pool and no descriptor;
//! - `door` turns the one into the other;
//! - `held_replies` replies to direct writes once the kernel has dropped pages that they made stale (`cached_pages`);
//! - `settled_seeks` looks for data and holes of files that processes may have mapped;
//! - `device`, `mounting` and `session` bring requests here: the descriptor, the mount, the threads;
//! - [`Transport`] is what a mount needs of them.

mod access_marks;
mod attributes;
mod cached_pages;
mod device;
mod door;
mod errno;
mod failures;
mod filesystem;
mod flags;
mod held_replies;
mod lead;
mod mounting;
mod open_files;
mod opened_losses;
mod privileges;
mod protocol;
mod read_buffer;
mod server;
mod session;
mod settled_seeks;
mod transport;

pub(crate) use filesystem::PoolFilesystem;
pub(crate) use open_files::OpenFiles;
pub(crate) use privileges::drop_from as drop_privileges_from;
pub(crate) use session::connect;
pub(crate) use transport::{Invalidate, Transport};
