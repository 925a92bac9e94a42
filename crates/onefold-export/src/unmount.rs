//! Ending a mount: politely while nobody uses it, firmly when the daemon must go.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use onefold_block::Show;
use onefold_block::shown::ShownOutput;
use onefold_pool::{Pool, PoolError};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::fuse::{Invalidate, OpenFiles};
use crate::mount_table::{DeviceNumber, device_at};

/// How long a daemon that must go waits for the kernel to hand over what it has cached.
const HAND_OVER_MAX: Duration = Duration::from_secs(5);

/// Why an unmount did not happen.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Files are open, or a process has its working directory in the mount.
    #[error("files of the mount are open, or a process works in it")]
    Busy,
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

/// Ends a mount from another thread. Cheap to clone.
#[derive(Clone)]
pub struct Stopper {
    mount: Arc<LiveMount>,
}

/// A mount, and what it takes to end it.
pub(crate) struct LiveMount {
    pub(crate) point: MountPoint,
    pub(crate) pool: Arc<Pool>,
    pub(crate) open_files: Arc<OpenFiles>,
    pub(crate) invalidator: Arc<dyn Invalidate>,
    /// The kernel has let go: whatever is mounted there now, under whatever number, is something else.
    pub(crate) has_ended: AtomicBool,
}

/// Where a pool is mounted, and as what.
#[derive(Debug)]
pub(crate) struct MountPoint {
    pub(crate) path: PathBuf,
    pub(crate) device: DeviceNumber,
}

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Only if nobody uses the mount.
    Polite,
    /// In any case. Whoever has files open gets errors from now on.
    Forced,
}

impl Stopper {
    pub(crate) fn new(mount: LiveMount) -> Stopper {
        Stopper { mount: Arc::new(mount) }
    }

    /// Unmounts if nobody uses the mount. The kernel hands over all it has cached before it lets go, so this needs the
    /// mount to be served. Does nothing if the pool is not mounted any more.
    ///
    /// # Errors
    /// [`UnmountError::Busy`] if somebody uses it.
    pub fn try_unmount(&self) -> Result<(), UnmountError> {
        self.mount.unmount(Manner::Polite)
    }

    /// Ends the mount in any case, for a daemon that was told to stop. A mount that is in use is not simply detached,
    /// for then it would live on unseen until the last file is closed:
    ///
    /// 1. What the kernel has cached is handed over, as far as that is done within five seconds, and
    /// 2. made durable: whoever is cut off loses nothing that was written before.
    /// 3. The connection is ended and the mount detached; whoever has files open gets errors.
    ///
    /// # Errors
    /// When not even that works, or the pool can't make everything durable (the mount ends all the same).
    pub fn stop(&self) -> Result<(), StopError> {
        match self.try_unmount() {
            Err(UnmountError::Busy) => {}
            Ok(()) => return Ok(()),
            Err(error) => return Err(StopError::Unmount(error)),
        }
        self.hand_over_caches_for(HAND_OVER_MAX);
        let synced = self.mount.pool.sync();
        self.mount.unmount(Manner::Forced).map_err(StopError::Unmount)?;
        synced.map_err(StopError::Sync)
    }

    /// Hands the kernel's caches over, for `time` at most: a program that goes on writing fills them as fast as they are
    /// emptied. The thread that is left waiting in the kernel then ends with the connection.
    fn hand_over_caches_for(&self, time: Duration) {
        let (done, finished) = mpsc::channel();
        let mount = Arc::clone(&self.mount);
        let handing = thread::Builder::new().name("hand-over".to_owned()).spawn(move || {
            mount.hand_over_caches();
            // Nobody listens any more after `time`.
            let _ = done.send(());
        });
        if handing.is_ok() {
            let _ = finished.recv_timeout(time);
        }
    }

    /// Notes that the kernel has let go of the mount.
    pub(crate) fn note_end(&self) {
        self.mount.has_ended.store(true, Ordering::Relaxed);
    }

    /// Takes a mount away whose requests can't be answered any more.
    pub(crate) fn abandon(&self) -> Result<(), UnmountError> {
        self.mount.unmount(Manner::Forced)
    }
}

/// Why a stop was not clean.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The mount could not be ended.
    #[error("cannot end the mount")]
    Unmount(#[source] UnmountError),
    /// The mount is ended, but not everything is durable.
    #[error("cannot make the pool durable")]
    Sync(#[source] PoolError),
}

impl LiveMount {
    fn unmount(&self, manner: Manner) -> Result<(), UnmountError> {
        if self.has_ended.load(Ordering::Relaxed) { Ok(()) } else { self.point.unmount(manner) }
    }

    /// Makes the kernel hand over what it has cached of changes: of shared mappings, and of its writeback cache. Only
    /// files that are open have such changes: closing and unmapping wait for them.
    fn hand_over_caches(&self) {
        // Where one of these fails the kernel has nothing to hand over to: the connection is broken already.
        if let Ok(root) = File::open(&self.point.path) {
            // Starts with all files at once, but does not wait for FUSE.
            let _ = rustix::fs::syncfs(&root);
        }
        for ino in self.open_files.list() {
            // Waits, and writes what was changed meanwhile.
            let _ = self.invalidator.invalidate(ino);
        }
    }
}

impl MountPoint {
    fn unmount(&self, manner: Manner) -> Result<(), UnmountError> {
        let refused = |source| UnmountError::Refused { path: self.path.clone(), source };
        // Whatever else is mounted there by now is not ours to unmount.
        if device_at(&self.path).map_err(refused)? != Some(self.device) {
            return Ok(());
        }
        let flags = match manner {
            Manner::Polite => UnmountFlags::NOFOLLOW,
            Manner::Forced => UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH,
        };
        match rustix::mount::unmount(&self.path, flags) {
            // EINVAL: somebody was faster.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(Errno::BUSY) => Err(UnmountError::Busy),
            Err(Errno::PERM) => self.unmount_by_helper(manner).map_err(refused)?,
            Err(errno) => Err(refused(errno.into())),
        }
    }

    /// Unmounts as a user without the right to, through the set-user-id helper that mounted.
    fn unmount_by_helper(&self, manner: Manner) -> io::Result<Result<(), UnmountError>> {
        let mut command = Command::new("fusermount3");
        command.arg("-u").args((manner == Manner::Forced).then_some("-z")).arg("--").arg(&self.path);
        let output = command.stdin(Stdio::null()).output()?;
        if manner == Manner::Forced {
            // The helper can only detach; the connection is ended through the kernel's control file system.
            let abort = format!("/sys/fs/fuse/connections/{}/abort", self.device.minor);
            std::fs::write(abort, "1")?;
        }
        match output.status.success() {
            true => Ok(Ok(())),
            false if String::from_utf8_lossy(&output.stderr).contains("busy") => Ok(Err(UnmountError::Busy)),
            false => Err(io::Error::other(ShownOutput(&output.stderr).to_string())),
        }
    }
}
