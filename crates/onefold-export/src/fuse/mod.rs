//! The FUSE door: the kernel's requests, each turned into one call of the pool.
//!
//! The layers keep the file system independent of the way that requests travel:
//!
//! - `filesystem` knows the pool and POSIX, but no protocol;
//! - `protocol` knows the bytes of requests and replies, but no pool and no descriptor;
//! - `door` translates between the two;
//! - `held_replies` replies to direct writes once the kernel has dropped the pages that they made stale
//!   (`cached_pages`);
//! - `settled_seeks` looks for data and holes in files that processes may have mapped;
//! - `device`, `mounting` and `session` bring requests here: the descriptor, the mount, the threads;
//! - [`Transport`] is the interface between a mount and these three.

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
mod opening;
mod privileges;
mod protocol;
mod read_buffer;
mod refusal;
mod server;
mod session;
mod settled_seeks;
mod transport;

pub(crate) use filesystem::PoolFilesystem;
pub(crate) use open_files::OpenFiles;
pub(crate) use privileges::drop_from as drop_privileges_from;
pub use refusal::{HelperReason, MountRefusal};
pub(crate) use session::connect;
pub(crate) use transport::{Invalidate, Transport};
