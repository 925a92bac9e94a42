//! Mounts whose daemon has died: `kill -9`, out of memory, a bug. The kernel keeps such a mount, and returns an error
//! for every request, until the mount is removed.
//!
//! A killed daemon may even be unable to end. One of its threads waits in the kernel for the file system that the
//! daemon itself no longer serves. That wait keeps the connection open, so every program that looks at the mount waits
//! as well. It happened after SIGTERM and SIGKILL in quick succession, under programs that write through shared
//! mappings. Such a daemon is found by its lock on the pool's file, without a request to the mount. A forced unmount
//! ends the wait.

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

use crate::mounts::{self, DeviceNumber, PoolMount};

/// Returns whether no daemon answers behind a mount any more. The kernel may still know attributes of the mount point,
/// but it always asks the daemon for the file system's statistics.
pub(crate) fn is_dead(mount: &PoolMount) -> bool {
    was_killed(mount) || is_unanswered(&rustix::fs::statvfs(&mount.mountpoint))
}

fn is_unanswered<T>(asked: &rustix::io::Result<T>) -> bool {
    matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Returns whether the daemon of a mount was killed and has not ended yet. Sends no request to the mount.
pub(crate) fn was_killed(mount: &PoolMount) -> bool {
    let holders =
        name_in_locks(&mount.source).and_then(|pool| Ok(lock_holders(&fs::read_to_string("/proc/locks")?, &pool)));
    let is_ending =
        |process: &u32| fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| is_zombie(&stat));
    holders.is_ok_and(|holders| holders.iter().any(is_ending))
}

/// Returns the name of a file in `/proc/locks`. It contains the file system's own number, not the one that `stat`
/// shows.
fn name_in_locks(path: &Path) -> io::Result<String> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let shown = rustix::fs::fstat(&file)?;
    let by_stat = DeviceNumber { major: major(shown.st_dev), minor: minor(shown.st_dev) };
    let device = mounts::device_of_file(&file)?.unwrap_or(by_stat);
    Ok(format!("{:02x}:{:02x}:{}", device.major, device.minor, shown.st_ino))
}

/// Returns the processes that hold a whole-file lock on a file, from proc_locks(5). `file` is its name there.
fn lock_holders(locks: &str, file: &str) -> Vec<u32> {
    let holder = |line: &str| {
        let mut fields = line.split_whitespace();
        (fields.nth(1)? == "FLOCK").then_some(())?;
        let process = fields.nth(2)?.parse().ok()?;
        (fields.next()? == file).then_some(process)
    };
    locks.lines().filter_map(holder).collect()
}

/// Returns whether the first thread of a process has ended, from proc_pid_stat(5).
fn is_zombie(stat: &str) -> bool {
    // The program's name is in parentheses, and may itself contain some.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Removes a dead mount; does nothing if it is gone already. Its open files stay as they are: they can only be closed.
///
/// Meanwhile, another process may remove the dead mount and mount anew, or the owner of a directory in the path may
/// rename it. So this holds the root of the mount before it examines it, and unmounts it through the directory that
/// contains it.
///
/// # Errors
/// The error of the operating system, for example if this user may not; an error if something else is mounted over it,
/// or if a daemon serves it.
pub(crate) fn clear(mount: &PoolMount) -> io::Result<()> {
    let Some(place) = MountPlace::open(&mount.mountpoint)? else { return Ok(()) };
    if place.device()? != mount.device {
        let is_covered = mounts::mounted()?.contains(mount);
        return if is_covered { Err(io::Error::other("something else is mounted over it")) } else { Ok(()) };
    }
    // The kernel reuses a device number once its mount is gone. It does not while the root is held.
    if !was_killed(mount) && !is_unanswered(&rustix::fs::fstatvfs(&place.root)) {
        return Err(io::Error::other("a daemon serves it"));
    }
    match place.unmount() {
        // EINVAL: another process has already unmounted it.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno @ Errno::PERM) => clear_as_user(mount).map_err(|_| errno.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// A mount point, and the root of the mount there.
struct MountPlace {
    parent: OwnedFd,
    name: OsString,
    root: OwnedFd,
}

impl MountPlace {
    /// Holds the root of the mount at a path without symbolic links, without a request to that mount. `None` if the
    /// path does not exist.
    fn open(path: &Path) -> io::Result<Option<MountPlace>> {
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
        Ok(Some(MountPlace { parent, name: name.to_owned(), root }))
    }

    fn device(&self) -> rustix::io::Result<DeviceNumber> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        // Requests no fields: the kernel returns the device even to users who may not look into the mount.
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

/// Removes all dead mounts of the pool at `pool`, a canonical path, and returns them. A caller that holds the pool's
/// lock keeps daemons of this pool from mounting meanwhile. [`clear`] leaves other mounts at such a place alone.
///
/// # Errors
/// See [`clear`]; when the table of mounts cannot be read.
pub(crate) fn clear_all_of(pool: &Path) -> io::Result<Vec<PoolMount>> {
    let mut cleared = Vec::new();
    // The latest first: of two mounts at one place, it is on top.
    for mount in mounts::mounted()?.into_iter().rev() {
        if mounts::is_of_pool(&mount, pool) && is_dead(&mount) {
            clear(&mount)?;
            cleared.push(mount);
        }
    }
    Ok(cleared)
}

/// Removes a dead mount as a user other than root, through FUSE's helper. The helper can only detach the mount, which
/// ends no wait of a killed daemon. The kernel's control file system, if mounted, then ends the connection.
fn clear_as_user(mount: &PoolMount) -> io::Result<()> {
    let ended = fs::write(format!("/sys/fs/fuse/connections/{}/abort", mount.device.minor), "1");
    if was_killed(mount) {
        // If the mount were only detached, it would keep the pool's lock, and no user could see where.
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
