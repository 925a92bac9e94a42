//! Ends a mount: politely while no process uses it, or forcibly when the daemon must stop.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::Show;
use onefold_block::shown::ShownOutput;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::door::{DoorHandle, EndError};
use crate::fuse::{Invalidate, OpenFiles};
use crate::mount_holders::{HOLDERS_POLL, VisibleMounts};
use crate::mount_table::{DeviceNumber, device_at};

/// How long a daemon that must stop waits for the kernel to hand over cached changes.
const HAND_OVER_MAX: Duration = Duration::from_secs(5);

/// How long the kernel may take to end the file system after its mount is removed.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long an unmount waits for the last writes of ended programs: enough for as much as the kernel lets a mount hold
/// back, on a slow disk.
const LAST_WRITES_MAX: Duration = Duration::from_secs(60);
/// Longer than a thread takes to receive one request.
const RECEIVE_POLL: Duration = Duration::from_millis(10);

/// Ends a mount from another thread.
pub(crate) struct MountHandle {
    mount: Arc<LiveMount>,
}

/// A mount, with everything needed to end it.
pub(crate) struct LiveMount {
    pub(crate) point: MountPoint,
    pub(crate) open_files: Arc<OpenFiles>,
    pub(crate) invalidator: Arc<dyn Invalidate>,
    /// The kernel has released the mount: a later mount with the same path or number is another one.
    pub(crate) has_ended: AtomicBool,
}

/// The path and device of a mounted pool.
#[derive(Debug)]
pub(crate) struct MountPoint {
    pub(crate) path: PathBuf,
    pub(crate) device: DeviceNumber,
}

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Only if no process uses the mount.
    Polite,
    /// In any case. Processes with open files get errors from now on.
    Forced,
}

impl MountHandle {
    pub(crate) fn new(mount: Arc<LiveMount>) -> MountHandle {
        MountHandle { mount }
    }
}

impl DoorHandle for MountHandle {
    fn name(&self) -> String {
        format!("the mount at {}", self.mount.point.path.shown())
    }

    /// Unmounts if no process uses the mount and it is mounted nowhere else. The kernel hands over all cached changes
    /// before it releases the mount.
    fn try_end(&self, patience: Duration) -> Result<(), EndError> {
        self.mount.unmount_unless_held(patience)
    }

    /// Makes the kernel hand over its caches, for at most five seconds: a program that goes on writing fills them as
    /// fast as they are emptied. A thread that still waits in the kernel then ends with the connection.
    fn hand_over(&self) {
        let (done, finished) = mpsc::channel();
        let mount = Arc::clone(&self.mount);
        let handing = thread::Builder::new().name("hand-over".to_owned()).spawn(move || {
            mount.hand_over_caches();
            // After the timeout, nothing receives this any more.
            let _ = done.send(());
        });
        if handing.is_ok() {
            let _ = finished.recv_timeout(HAND_OVER_MAX);
        }
    }

    /// Ends the connection and detaches the mount. Detaching alone would not be enough: a mount in use would live on,
    /// unseen, until the last file is closed.
    fn end(&self) -> Result<(), EndError> {
        self.mount.unmount(Manner::Forced)?;
        self.mount.abort_where_held()
    }
}

impl LiveMount {
    /// Records that the kernel has released the mount.
    pub(crate) fn note_end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Removes a mount whose requests cannot be answered any more.
    pub(crate) fn abandon(&self) -> Result<(), EndError> {
        self.unmount(Manner::Forced)
    }

    /// Unmounts if no process uses the mount and it is mounted nowhere else. Waits up to `patience` for mount
    /// namespaces of other processes to release it. A second mount in the own namespace does not go away by itself.
    fn unmount_unless_held(&self, patience: Duration) -> Result<(), EndError> {
        let started = Instant::now();
        loop {
            let visible = self.visible_mounts()?;
            // The device's number certainly means this mount only while the connection lives.
            if self.has_ended.load(Ordering::Relaxed) || !self.invalidator.is_connected() {
                return Ok(());
            }
            let Some(path) = visible.first_mount_of(self.point.device, &self.point.path) else { break };
            match visible.left_by_unmount(&path, self.point.device).into_iter().next() {
                Some(holder) if holder.process.is_none() || started.elapsed() >= patience => {
                    return Err(EndError::Held(holder));
                }
                Some(_) => thread::sleep(HOLDERS_POLL),
                None => {
                    self.wait_for_last_writes(&path)?;
                    MountPoint { path, device: self.point.device }.unmount(Manner::Polite)?;
                    break;
                }
            }
        }
        self.wait_for_end()
    }

    fn visible_mounts(&self) -> Result<VisibleMounts, EndError> {
        VisibleMounts::read().map_err(|source| EndError::Refused { path: self.point.path.clone(), source })
    }

    /// Waits until the kernel has ended the file system after the removal of its mount.
    fn wait_for_end(&self) -> Result<(), EndError> {
        let started = Instant::now();
        while self.invalidator.is_connected() {
            if started.elapsed() >= END_WAIT_MAX {
                let left = self.visible_mounts()?.left_by_unmount(&self.point.path, self.point.device);
                return Err(EndError::StillHeld(left.into_iter().next()));
            }
            thread::sleep(HOLDERS_POLL / 10);
        }
        Ok(())
    }

    /// Ends a connection whose mount is no longer visible in this namespace, through the kernel's control file system.
    fn abort_where_held(&self) -> Result<(), EndError> {
        if self.has_ended.load(Ordering::Relaxed) || !self.invalidator.is_connected() {
            return Ok(());
        }
        let path = PathBuf::from(format!("/sys/fs/fuse/connections/{}/abort", self.point.device.minor));
        std::fs::write(&path, "1").map_err(|source| EndError::Refused { path, source })
    }

    fn unmount(&self, manner: Manner) -> Result<(), EndError> {
        if self.has_ended.load(Ordering::Relaxed) { Ok(()) } else { self.point.unmount(manner) }
    }

    /// Makes the kernel hand over cached changes: those of shared mappings and of its writeback cache. Only open files
    /// have such changes, as closing and unmapping wait for them.
    fn hand_over_caches(&self) {
        if self.has_ended.load(Ordering::Relaxed) {
            return;
        }
        // If one of these calls fails, the connection is already broken, and the kernel has nowhere to hand changes
        // over to.
        if self.point.is_mounted().unwrap_or(false)
            && let Ok(root) = File::open(&self.point.path)
        {
            // Starts the writes of all files at once. Whether it waits for them depends on the kernel.
            let _ = rustix::fs::syncfs(&root);
        }
        for ino in self.open_files.list() {
            // Waits, and writes later changes.
            let _ = self.invalidator.invalidate(ino);
        }
        self.wait_until_received(HAND_OVER_MAX);
    }

    /// Waits for the writes of ended programs, before an unmount at `path`.
    fn wait_for_last_writes(&self, path: &Path) -> Result<(), EndError> {
        if self.open_files.is_empty() {
            return Ok(());
        }
        // This call only asks: the first EXPIRE call never unmounts, only a second one in a row would. If the mount is
        // in use, waiting for its writes might not end.
        match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::EXPIRE) {
            Err(Errno::BUSY) => Err(EndError::Busy),
            // Only root may ask.
            Err(Errno::PERM) => {
                self.wait_until_received(HAND_OVER_MAX);
                Ok(())
            }
            _ => {
                self.wait_until_received(LAST_WRITES_MAX);
                Ok(())
            }
        }
    }

    /// Waits, for at most `time`, until all writes that the kernel has begun are received. Before Linux 6.16, neither
    /// the calls above nor the last unmapping of a file wait for that, and the end of the connection drops unreceived
    /// writes. Received writes are always carried out: the pool is closed only after the last thread has ended.
    fn wait_until_received(&self, time: Duration) {
        let started = Instant::now();
        // Such a write keeps its file from being released.
        while !self.open_files.is_empty() && self.invalidator.has_requests() && started.elapsed() < time {
            thread::sleep(RECEIVE_POLL);
        }
        if !self.open_files.is_empty() {
            // The last one may be on its way to a thread.
            thread::sleep(RECEIVE_POLL);
        }
    }
}

impl MountPoint {
    /// Returns whether the pool is still mounted there, and not another file system.
    fn is_mounted(&self) -> Result<bool, EndError> {
        let refused = |source| EndError::Refused { path: self.path.clone(), source };
        Ok(device_at(&self.path).map_err(refused)? == Some(self.device))
    }

    fn unmount(&self, manner: Manner) -> Result<(), EndError> {
        let refused = |source| EndError::Refused { path: self.path.clone(), source };
        // Another file system that is mounted there by now must not be unmounted.
        if !self.is_mounted()? {
            return Ok(());
        }
        let flags = match manner {
            Manner::Polite => UnmountFlags::NOFOLLOW,
            Manner::Forced => UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH,
        };
        match rustix::mount::unmount(&self.path, flags) {
            // EINVAL: another process has already unmounted it.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(Errno::BUSY) => Err(EndError::Busy),
            Err(Errno::PERM) => self.unmount_by_helper(manner).map_err(refused)?,
            Err(errno) => Err(refused(errno.into())),
        }
    }

    /// Unmounts for a user without the right to, through the set-user-id helper that made the mount.
    fn unmount_by_helper(&self, manner: Manner) -> io::Result<Result<(), EndError>> {
        let mut command = Command::new("fusermount3");
        command.arg("-u").args((manner == Manner::Forced).then_some("-z")).arg("--").arg(&self.path);
        let output = command.stdin(Stdio::null()).output()?;
        if manner == Manner::Forced {
            // The helper can only detach; the kernel's control file system ends the connection.
            let abort = format!("/sys/fs/fuse/connections/{}/abort", self.device.minor);
            std::fs::write(abort, "1")?;
        }
        match output.status.success() {
            true => Ok(Ok(())),
            false if String::from_utf8_lossy(&output.stderr).contains("busy") => Ok(Err(EndError::Busy)),
            false => Err(io::Error::other(ShownOutput(&output.stderr).to_string())),
        }
    }
}
