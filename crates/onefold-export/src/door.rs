//! Doors, through which clients reach a pool, and how each of them ends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::Show;

use crate::mount_holders::MountHolder;

/// A transport through which clients reach a pool: a mount, or a server of disks. It is set up, and its clients wait.
/// Dropping it removes it.
pub trait Door: Send {
    /// Returns the handle by which other threads end the door. The handle may outlive it.
    fn handle(&self) -> Arc<dyn DoorHandle>;

    /// Serves clients until the door ends by itself or by its handle, or cannot serve clients any longer. When this
    /// returns, no thread of the door uses the pool any more.
    ///
    /// # Errors
    /// Why the door could not serve clients any longer. The door is gone all the same.
    fn serve(self: Box<Self>) -> io::Result<()>;
}

/// Ends a door from another thread. Every call does nothing once the door has ended.
pub trait DoorHandle: Send + Sync {
    /// Returns the door's name for messages: "the mount at /mnt/images".
    fn name(&self) -> String;

    /// Ends the door unless clients use it. Waits at most `patience` for clients that are about to leave, in addition
    /// to the time that the end itself takes.
    ///
    /// # Errors
    /// The user of the door, or why it cannot be ended. It continues to serve, except after [`EndError::StillHeld`].
    fn try_end(&self, patience: Duration) -> Result<(), EndError>;

    /// Makes clients hand over their cached changes, as far as a bounded time allows. The pool then has all data that
    /// it is about to make durable.
    fn hand_over(&self);

    /// Ends the door in any case. Its clients get errors.
    ///
    /// # Errors
    /// When even that fails.
    fn end(&self) -> Result<(), EndError>;
}

/// Why a door did not end, or its end did not end the use of the pool.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// Files are open, or a process has its working directory in the mount.
    #[error("files of the mount are open, or a process works in it")]
    Busy,
    /// Clients of a door that is no mount use it.
    #[error("clients use {door}")]
    Clients {
        /// The door, as named by [`DoorHandle::name`].
        door: String,
    },
    /// Another mount keeps the pool in use. Nothing was unmounted.
    #[error("{0}")]
    Held(MountHolder),
    /// The mount is removed, but another one that was invisible before keeps the pool in use.
    #[error("the mount point is free, but the pool stays in use: {}", holder_shown(.0.as_ref()))]
    StillHeld(Option<MountHolder>),
    /// The operating system refused.
    #[error("cannot unmount {}", path.shown())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

fn holder_shown(holder: Option<&MountHolder>) -> String {
    let unseen = || "it is mounted in a mount namespace that the daemon may not inspect".to_owned();
    holder.map_or_else(unseen, ToString::to_string)
}
