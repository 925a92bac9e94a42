//! Bringing a pool to a mount point, serving it, and closing it when the kernel lets go.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use onefold_block::Show;
use onefold_pool::{Pool, PoolError};

use crate::backing_device;
use crate::control::{ControlServer, ControlSocket, Ending, Served, SocketError};
use crate::fuse::{PoolFilesystem, Transport, connect};
use crate::log::Log;
use crate::mount_table::device_at;
use crate::options::MountOptions;
use crate::unmount::{LiveMount, MountPoint, Stopper};

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

/// What went wrong between a mount and its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The kernel's requests could not be served to the end. The pool was closed in good order all the same.
    #[error("the connection to the kernel failed")]
    Transport(#[source] io::Error),
    /// The pool could not be closed in good order: changes since the last commit may be lost.
    #[error("the pool could not be closed in good order")]
    Close(#[source] PoolError),
    /// The pool was closed in good order, but had lost writes that it had accepted.
    #[error("the pool was closed in good order, but not all that was written is in it")]
    Lost(#[source] PoolError),
}

/// A pool that the kernel shows at a mount point. Requests wait until it is served; dropping it unmounts.
pub struct Mounted {
    pool: Arc<Pool>,
    transport: Box<dyn Transport>,
    stopper: Stopper,
    control: ControlServer,
    ending: Arc<Ending>,
    log: Arc<dyn Log>,
}

/// Mounts `pool` at `mountpoint` and opens its control socket. Requests of the kernel wait until
/// [`Mounted::serve_until_unmounted`] is called. Threads are started: a process that means to fork does so before.
///
/// # Errors
/// See [`MountError`].
pub fn mount(pool: Arc<Pool>, mountpoint: &Path, options: MountOptions) -> Result<Mounted, MountError> {
    mark_as_io_flusher();
    let path = usable(mountpoint)?;
    let uuid = pool.stat().map_err(MountError::Pool)?.uuid;
    let socket = ControlSocket::bind(&options, &uuid).map_err(MountError::Control)?;

    let fuse = |source| MountError::Fuse { path: path.clone(), source };
    let filesystem = PoolFilesystem::new(pool.clone(), &options, socket.path().to_owned());
    let open_files = filesystem.open_files();
    let transport = connect(filesystem, &path, &options).map_err(fuse)?;
    let device = device_at(&path).map_err(fuse)?.ok_or_else(|| fuse(io::ErrorKind::NotFound.into()))?;
    backing_device::raise_limits(device, options.writeback_cache);

    let stopper = Stopper::new(LiveMount {
        point: MountPoint { path, device },
        pool: pool.clone(),
        open_files,
        invalidator: transport.invalidator(),
        has_ended: AtomicBool::new(false),
    });
    let ending = Arc::new(Ending::default());
    let control = ControlServer::start(
        socket,
        Served {
            pool: pool.clone(),
            device,
            stopper: stopper.clone(),
            invalidator: transport.invalidator(),
            ending: ending.clone(),
        },
    )
    .map_err(MountError::Control)?;
    Ok(Mounted { pool, transport, stopper, control, ending, log: options.log })
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

impl Mounted {
    /// Returns a handle by which another thread (of signals, say) can end the mount.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns the path of the control socket.
    #[must_use]
    pub fn control_path(&self) -> &Path {
        self.control.path()
    }

    /// Answers the kernel until the pool is unmounted, by whomever, and then closes the pool. Everything is on disk when
    /// this returns `Ok`; only then are clients told that wait for the end of an unmount.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn serve_until_unmounted(self) -> Result<(), ServeError> {
        let served = self.transport.serve();
        if served.is_err() {
            // The kernel may still show the mount, and nobody answers there.
            if let Err(error) = self.stopper.abandon() {
                self.log.error(&format!("the mount could not be taken away: {error}"));
            }
        }
        self.stopper.note_end();
        let closed = self.pool.close();
        self.ending.reach(match (&served, &closed) {
            (_, Err(error @ PoolError::WritesLost { .. })) => {
                Err(format!("the pool was closed in good order, but not all that was written is in it: {error}"))
            }
            (_, Err(error)) => Err(format!("the pool could not be closed in good order: {error}")),
            (Err(error), Ok(())) => Err(format!("the connection to the kernel failed: {error}")),
            (Ok(()), Ok(())) => Ok(()),
        });
        self.control.finish();
        closed.map_err(|error| match error {
            PoolError::WritesLost { .. } => ServeError::Lost(error),
            error => ServeError::Close(error),
        })?;
        served.map_err(ServeError::Transport)
    }
}
