//! The mount of a pool as a door of a daemon.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use onefold_block::Show;
use onefold_pool::{Pool, PoolError};

use crate::backing_device;
use crate::control::{ServedMount, SocketError};
use crate::daemon::{Daemon, DaemonError, DaemonOptions};
use crate::door::{Door, DoorHandle};
use crate::fuse::{PoolFilesystem, Transport, connect};
use crate::log::Log;
use crate::mount_table::device_at;
use crate::options::MountOptions;
use crate::unmount::{LiveMount, MountHandle, MountPoint};

/// Why a pool could not be mounted. Nothing is mounted then, and the pool is as it was, still open.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point can't be used.
    #[error("cannot use {} as a mount point", path.shown())]
    Mountpoint {
        /// What was asked for.
        path: PathBuf,
        /// The operating system's word.
        #[source]
        source: io::Error,
    },
    /// The daemon has a mount already. A second one would not hear of what changes through the first.
    #[error("the daemon has the pool mounted already")]
    Twice,
    /// The kernel refused the mount, or could not agree on how to talk.
    #[error("cannot mount at {}", path.shown())]
    Fuse {
        /// What was asked for.
        path: PathBuf,
        /// The operating system's word.
        #[source]
        source: io::Error,
    },
    /// The control socket can't be made.
    #[error("cannot make the control socket")]
    Control(#[source] SocketError),
    /// The pool can't tell what it is.
    #[error("the pool failed")]
    Pool(#[source] PoolError),
}

impl From<DaemonError> for MountError {
    fn from(error: DaemonError) -> MountError {
        match error {
            DaemonError::Control(error) => MountError::Control(error),
            DaemonError::Pool(error) => MountError::Pool(error),
        }
    }
}

/// Makes a daemon whose only door is a mount at `mountpoint`. Requests of the kernel wait until [`Daemon::serve`] is
/// called. Threads are started: a process that means to fork does so before.
///
/// # Errors
/// See [`MountError`].
pub fn mount(pool: Arc<Pool>, mountpoint: &Path, options: &MountOptions) -> Result<Daemon, MountError> {
    let mut daemon = Daemon::new(
        pool,
        DaemonOptions {
            place: options.place,
            access: options.access,
            control_directory: options.control_directory.clone(),
            log: options.log.clone(),
        },
    )?;
    daemon.mount(mountpoint, options)?;
    Ok(daemon)
}

impl Daemon {
    /// Mounts the pool at `mountpoint`, which makes the mount one of the doors. A daemon has one mount at most. What
    /// `options` say of the control socket does not matter any more.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn mount(&mut self, mountpoint: &Path, options: &MountOptions) -> Result<(), MountError> {
        mark_as_io_flusher();
        if self.is_mounted() {
            return Err(MountError::Twice);
        }
        let path = usable(mountpoint)?;
        let fuse = |source| MountError::Fuse { path: path.clone(), source };
        let filesystem = PoolFilesystem::new(self.pool().clone(), options, self.control_path().to_owned());
        let open_files = filesystem.open_files();
        let transport = connect(filesystem, &path, options).map_err(fuse)?;
        let device = device_at(&path).map_err(fuse)?.ok_or_else(|| fuse(io::ErrorKind::NotFound.into()))?;
        backing_device::raise_limits(device, options.writeback_cache);

        let invalidator = transport.invalidator();
        let mount = Arc::new(LiveMount {
            point: MountPoint { path, device },
            open_files,
            invalidator: invalidator.clone(),
            has_ended: AtomicBool::new(false),
        });
        let door = FuseDoor { transport, mount, log: self.log().clone() };
        self.add_mount(Box::new(door), ServedMount { device, invalidator });
        Ok(())
    }
}

/// Tells the kernel that the calling thread, and those it starts, serve a file system: memory they ask for is never
/// freed by waiting for that file system. [`mount`] does it; a process that starts threads for a pool earlier does it
/// before. Takes root; without the right to, nothing happens.
pub fn mark_as_io_flusher() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

fn usable(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let unusable = |source| MountError::Mountpoint { path: mountpoint.to_owned(), source };
    let path = mountpoint.canonicalize().map_err(unusable)?;
    if !path.metadata().map_err(unusable)?.is_dir() {
        return Err(unusable(io::ErrorKind::NotADirectory.into()));
    }
    Ok(path)
}

/// A pool that the kernel shows at a mount point.
struct FuseDoor {
    transport: Box<dyn Transport>,
    mount: Arc<LiveMount>,
    log: Arc<dyn Log>,
}

impl Door for FuseDoor {
    fn handle(&self) -> Arc<dyn DoorHandle> {
        Arc::new(MountHandle::new(self.mount.clone()))
    }

    /// Answers the kernel until the pool is unmounted, by whomever.
    fn serve(self: Box<Self>) -> io::Result<()> {
        let served = self.transport.serve();
        if served.is_err() {
            // The kernel may still show the mount, and nobody answers there.
            if let Err(error) = self.mount.abandon() {
                self.log.error(&format!("the mount could not be taken away: {error}"));
            }
        }
        self.mount.note_end();
        served
    }
}
