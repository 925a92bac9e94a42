//! Mounts whose daemon has died: `kill -9`, out of memory, a bug. The kernel keeps such a mount and answers everything
//! in it with an error, until somebody takes it away.
//!
//! A killed daemon may even be unable to end. One of its threads waits in the kernel for the file system that the
//! daemon itself no longer serves. That wait keeps the connection open, so every program that looks at the mount waits
//! as well. It happened after SIGTERM and SIGKILL in short sequence, under programs that write through shared mappings.
//! Such a daemon is found by its lock on the pool's file, without a question to the mount. A forced unmount ends the
//! wait.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, major, minor};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mounts::{self, DeviceNumber, Mount};

/// Tells whether nobody answers behind a mount any more. The kernel may still know attributes of the mount point, but
/// it always asks the daemon for the numbers of the file system.
pub(crate) fn is_dead(mount: &Mount) -> bool {
    was_killed(mount) || is_unanswered(&rustix::fs::statvfs(&mount.mountpoint))
}

fn is_unanswered<T>(asked: &rustix::io::Result<T>) -> bool {
    matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Tells whether the daemon of a mount was killed and has not ended yet. Asks nothing of the mount.
pub(crate) fn was_killed(mount: &Mount) -> bool {
    let holders =
        name_in_locks(&mount.source).and_then(|pool| Ok(lock_holders(&fs::read_to_string("/proc/locks")?, &pool)));
    let is_ending =
        |process: &u32| fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| is_zombie(&stat));
    holders.is_ok_and(|holders| holders.iter().any(is_ending))
}

/// Returns how `/proc/locks` names a file: by the file system's own number, not by the one that `stat` shows.
fn name_in_locks(path: &Path) -> io::Result<String> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let shown = rustix::fs::fstat(&file)?;
    let by_stat = DeviceNumber { major: major(shown.st_dev), minor: minor(shown.st_dev) };
    let device = mounts::device_of_file(&file)?.unwrap_or(by_stat);
    Ok(format!("{:02x}:{:02x}:{}", device.major, device.minor, shown.st_ino))
}

/// Returns the processes that hold a whole-file lock on a file, by proc_locks(5); `file` is as it stands there.
fn lock_holders(locks: &str, file: &str) -> Vec<u32> {
    let holder = |line: &str| {
        let mut fields = line.split_whitespace();
        (fields.nth(1)? == "FLOCK").then_some(())?;
        let process = fields.nth(2)?.parse().ok()?;
        (fields.next()? == file).then_some(process)
    };
    locks.lines().filter_map(holder).collect()
}

/// Tells by proc_pid_stat(5) whether the first thread of a process has ended.
fn is_zombie(stat: &str) -> bool {
    // The program's name stands in parentheses and may itself hold some.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Takes a dead mount away; does nothing where it is gone already. Files in it that are still open stay as they are:
/// nothing can be done with them but closing.
///
/// Nobody is kept from clearing it and mounting anew meanwhile, nor the owner of a directory on the way from renaming
/// it. So what is at the place is held on to before it is looked at, and unmounted through the directory that holds it.
///
/// # Errors
/// The operating system's, when this user may not; when something else is mounted over it, or a daemon serves it.
pub(crate) fn clear(mount: &Mount) -> io::Result<()> {
    let Some(place) = Place::open(&mount.mountpoint)? else { return Ok(()) };
    if place.device()? != mount.device {
        let is_covered = mounts::mounted()?.contains(mount);
        return if is_covered { Err(io::Error::other("something else is mounted over it")) } else { Ok(()) };
    }
    // The kernel gives a number away again once its mount is gone. While the root is held it does not.
    if !was_killed(mount) && !is_unanswered(&rustix::fs::fstatvfs(&place.root)) {
        return Err(io::Error::other("a daemon serves it"));
    }
    match place.unmount() {
        // EINVAL: somebody was faster.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno @ Errno::PERM) => clear_as_user(mount).map_err(|_| errno.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// A mount point, and what is mounted there.
struct Place {
    parent: OwnedFd,
    name: OsString,
    root: OwnedFd,
}

impl Place {
    /// Holds on to what is mounted at a path without symbolic links, asking nothing of it. Nothing where the path does
    /// not lead anywhere.
    fn open(path: &Path) -> io::Result<Option<Place>> {
        let (Some(parent_path), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(parent_path, flags, Mode::empty())
            .and_then(|parent| Ok((rustix::fs::openat(&parent, name, flags, Mode::empty())?, parent)));
        let (root, parent) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if fs::read_link(path_of(&parent))? != parent_path {
            return Err(io::Error::other("a directory on the way to it was renamed"));
        }
        Ok(Some(Place { parent, name: name.to_owned(), root }))
    }

    fn device(&self) -> rustix::io::Result<DeviceNumber> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        // Asking for nothing: the device is told even to those who may not look into the mount.
        let shown = rustix::fs::statx(&self.root, "", flags, StatxFlags::empty())?;
        Ok(DeviceNumber { major: shown.stx_dev_major, minor: shown.stx_dev_minor })
    }

    fn unmount(&self) -> rustix::io::Result<()> {
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        rustix::mount::unmount(path_of(&self.parent).join(&self.name), flags)
    }
}

fn path_of(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Takes all dead mounts of the pool at `pool`, a canonical path, away; returns them. Who has the pool's lock keeps
/// daemons of this pool from mounting meanwhile; what else is mounted at such a place, [`clear`] leaves alone.
///
/// # Errors
/// As [`clear`]; when the table of mounts can't be read.
pub(crate) fn clear_all_of(pool: &Path) -> io::Result<Vec<Mount>> {
    let mut cleared = Vec::new();
    // The latest first: it lies on top where two are mounted at one place.
    for mount in mounts::mounted()?.into_iter().rev() {
        if mounts::is_of_pool(&mount, pool) && is_dead(&mount) {
            clear(&mount)?;
            cleared.push(mount);
        }
    }
    Ok(cleared)
}

/// What users who are not root do by a helper of FUSE. It can only detach, which ends no wait of a daemon that was
/// killed; the connection is ended through the kernel's control file system, where that is mounted.
fn clear_as_user(mount: &Mount) -> io::Result<()> {
    let ended = fs::write(format!("/sys/fs/fuse/connections/{}/abort", mount.device.minor), "1");
    if was_killed(mount) {
        // Detached it would keep the pool's lock, and nobody could see where.
        ended?;
    }
    let helper = Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(&mount.mountpoint)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if helper.success() { Ok(()) } else { Err(io::Error::other("fusermount3 failed")) }
}
