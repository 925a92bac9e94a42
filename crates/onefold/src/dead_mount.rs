//! Mounts whose daemon has died: `kill -9`, out of memory, a bug. The kernel keeps such a mount and answers everything in
//! it with an error, until somebody takes it away.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mounts::{self, Mount};

/// Tells whether nobody answers behind a mount any more. The kernel may still know attributes of the mount point, but
/// it always asks the daemon for the numbers of the file system.
pub(crate) fn is_dead(mount: &Mount) -> bool {
    matches!(rustix::fs::statvfs(&mount.mountpoint), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Takes a dead mount away. Files in it that are still open stay as they are: nothing can be done with them but closing.
///
/// # Errors
/// The operating system's, when this user may not.
pub(crate) fn clear(mount: &Mount) -> io::Result<()> {
    let mountpoint = mount.mountpoint.as_path();
    match rustix::mount::unmount(mountpoint, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => clear_as_user(mountpoint).map_err(|_| error),
        cleared => cleared,
    }
}

/// Takes all dead mounts of the pool at `pool`, a canonical path, away; returns them. The caller holds the pool's lock: a
/// mount that appears meanwhile is none of this pool.
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

/// What users who are not root do by a helper of FUSE.
fn clear_as_user(mountpoint: &Path) -> io::Result<()> {
    let helper = Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(mountpoint)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if helper.success() { Ok(()) } else { Err(io::Error::other("fusermount3 failed")) }
}
