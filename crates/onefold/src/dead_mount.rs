//! Mounts whose daemon has died: `kill -9`, out of memory, a bug. The kernel keeps such a mount and answers everything in
//! it with an error, until somebody takes it away.
//!
//! A killed daemon may even be unable to end: a thread of it waits in the kernel for its own file system, which nobody
//! serves any more, and as long as it waits the connection stays open and whoever looks at the mount waits as well. Seen
//! after SIGTERM and SIGKILL in short sequence, under programs that write through shared mappings. Such a daemon is known
//! by its lock on the pool's file, without a question to the mount; taking the mount away by force ends the wait.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{major, minor};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mounts::{self, Mount};

/// Tells whether nobody answers behind a mount any more. The kernel may still know attributes of the mount point, but
/// it always asks the daemon for the numbers of the file system.
pub(crate) fn is_dead(mount: &Mount) -> bool {
    was_killed(mount) || matches!(rustix::fs::statvfs(&mount.mountpoint), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Tells whether the daemon of a mount was killed and has not ended yet. Asks nothing of the mount.
pub(crate) fn was_killed(mount: &Mount) -> bool {
    let holders = fs::metadata(&mount.source).and_then(|pool| {
        let file = format!("{:02x}:{:02x}:{}", major(pool.dev()), minor(pool.dev()), pool.ino());
        Ok(lock_holders(&fs::read_to_string("/proc/locks")?, &file))
    });
    let is_ending =
        |process: &u32| fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| is_zombie(&stat));
    holders.is_ok_and(|holders| holders.iter().any(is_ending))
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

/// Takes a dead mount away. Files in it that are still open stay as they are: nothing can be done with them but closing.
///
/// # Errors
/// The operating system's, when this user may not.
pub(crate) fn clear(mount: &Mount) -> io::Result<()> {
    let mountpoint = mount.mountpoint.as_path();
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(mountpoint, flags).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => clear_as_user(mountpoint).map_err(|_| error),
        cleared => cleared,
    }
}

/// Takes all dead mounts of the pool at `pool`, a canonical path, away; returns them. Nobody else can get
/// the pool's lock meanwhile: a mount that appears is none of this pool.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "1: FLOCK  ADVISORY  WRITE 471 fe:00:10207265 0 EOF\n\
        2: POSIX  ADVISORY  WRITE 472 fe:00:10207265 0 EOF\n\
        2: -> FLOCK  ADVISORY  WRITE 473 fe:00:10207265 0 EOF\n\
        3: FLOCK  ADVISORY  READ 474 fe:00:7 0 EOF\n\
        broken\n";

    #[test]
    fn who_holds_the_lock_is_found_and_who_waits_for_it_is_not() {
        assert_eq!(lock_holders(LOCKS, "fe:00:10207265"), [471]);
        assert_eq!(lock_holders(LOCKS, "fe:00:7"), [474]);
        assert_eq!(lock_holders(LOCKS, "fe:00:8"), [0_u32; 0]);
    }

    #[test]
    fn a_name_with_parentheses_hides_no_state() {
        assert!(is_zombie("471 (one) Z fold) Z 418 418 0"));
        assert!(!is_zombie("471 (one) Z fold) S 418 418 0"));
        assert!(!is_zombie(""));
    }
}
