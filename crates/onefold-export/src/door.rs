//! What a pool is reached through: doors, and how each of them ends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::Show;

use crate::mount_holders::MountHolder;

/// A transport through which clients reach a pool: a mount, a server of disks. It is set up, and its clients wait.
/// Dropping it takes it away.
pub trait Door: Send {
    /// Returns the handle by which other threads end the door. The handle may outlive it.
    fn handle(&self) -> Arc<dyn DoorHandle>;

    /// Serves clients until the door ends: by itself, by the handle, or because clients can be served no longer. When
    /// this returns, no thread of the door uses the pool any more.
    ///
    /// # Errors
    /// Why clients could be served no longer. The door is gone all the same.
    fn serve(self: Box<Self>) -> io::Result<()>;
}

/// Ends a door from another thread. Every call does nothing once the door has ended.
pub trait DoorHandle: Send + Sync {
    /// Returns what the door is, for people: "the mount at /mnt/images".
    fn name(&self) -> String;

    /// Ends the door unless clients use it. Waits for at most `patience`, beside the time that it takes to end, for
    /// clients that are about to go.
    ///
    /// # Errors
    /// Who uses it, or why it can't be ended. It serves on, but for [`EndError::StillHeld`].
    fn try_end(&self, patience: Duration) -> Result<(), EndError>;

    /// Has clients hand over what they keep of changes, as far as that is done within a bounded time. The pool then
    /// knows all that it is about to make durable.
    fn hand_over(&self);

    /// Ends the door in any case. Its clients get errors.
    ///
    /// # Errors
    /// When not even that works.
    fn end(&self) -> Result<(), EndError>;
}

/// Why a door did not end, or did not end the use of the pool.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// Files are open, or a process has its working directory in the mount.
    #[error("files of the mount are open, or a process works in it")]
    Busy,
    /// Clients of a door that is no mount use it.
    #[error("clients use {door}")]
    Clients {
        /// The door, as [`DoorHandle::name`] has it.
        door: String,
    },
    /// Another mount keeps the pool in use. Nothing was unmounted.
    #[error("{0}")]
    Held(MountHolder),
    /// The mount is taken away, but another one that could not be seen before keeps the pool in use.
    #[error("the mount point is free, but the pool stays in use: {}", holder_shown(.0.as_ref()))]
    StillHeld(Option<MountHolder>),
    /// The operating system refused.
    #[error("cannot unmount {}", path.shown())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The operating system's word.
        #[source]
        source: io::Error,
    },
}

fn holder_shown(holder: Option<&MountHolder>) -> String {
    let unseen = || "a mount namespace that the daemon may not look into has it mounted".to_owned();
    holder.map_or_else(unseen, ToString::to_string)
}
