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
use crate::fuse::{MountRefusal, PoolFilesystem, Transport, connect};
use crate::log::FailureLog;
use crate::mount_table::device_at;
use crate::options::MountOptions;
use crate::unmount::{LiveMount, MountHandle, MountPoint};

/// Why a pool could not be mounted. Nothing is mounted then, and the pool is unchanged and still open.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("cannot use {} as a mount point", path.shown())]
    Mountpoint {
        /// The given path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The daemon already has a mount. A second one would not notice changes through the first.
    #[error("the daemon has the pool mounted already")]
    Twice,
    /// The kernel refused the mount, or could not agree on a protocol.
    #[error("cannot mount at {}", path.shown())]
    Fuse {
        /// The given path.
        path: PathBuf,
        /// The refusal.
        #[source]
        source: MountRefusal,
    },
    /// The control socket cannot be made.
    #[error("cannot make the control socket")]
    Control(#[source] SocketError),
    /// The pool cannot report its identity.
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
/// called. This starts threads: a process that forks must do so before.
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
    /// Mounts the pool at `mountpoint`, and adds the mount to the doors. A daemon has at most one mount. Settings for
    /// the control socket in `options` have no effect here.
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
        let device = device_at(&path)
            .and_then(|device| device.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(|error| fuse(error.into()))?;
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

/// Declares to the kernel that the calling thread, and threads that it starts, serve a file system: the kernel then
/// never frees memory for them by waiting for that file system. [`mount`] calls this; a process that starts threads for
/// a pool earlier must call it first. Requires root; has no effect without the right.
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

/// A mounted pool.
struct FuseDoor {
    transport: Box<dyn Transport>,
    mount: Arc<LiveMount>,
    log: Arc<dyn FailureLog>,
}

impl Door for FuseDoor {
    fn handle(&self) -> Arc<dyn DoorHandle> {
        Arc::new(MountHandle::new(self.mount.clone()))
    }

    /// Answers the kernel until the pool is unmounted, for whatever reason.
    fn serve(self: Box<Self>) -> io::Result<()> {
        let served = self.transport.serve();
        if served.is_err() {
            // The kernel may still show the mount, although no process answers there.
            if let Err(error) = self.mount.abandon() {
                self.log.error(&format!("the mount could not be removed: {error}"));
            }
        }
        self.mount.note_end();
        served
    }
}
