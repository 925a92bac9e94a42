//! Finds locks, mostly without taking one: asks the kernel about a byte of an open file, or reads its list of all
//! locks.
//!
//! On a busy machine the list takes long to read: the kernel waits until no processor is setting a lock. The list names
//! a file by its inode number and by the device of its file system. On Btrfs, `stat` reports another device for a file,
//! as each subvolume has a device of its own. The list of mounts has the right one.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use onefold_substrate::HeldLock;
use rustix::fd::AsFd;
use rustix::fs::Dir;

use crate::names::{RootFolder, path_of};
use crate::{mounts, sys};

/// Maximum number of times the list is read while it keeps changing.
const READS: u32 = 8;

/// A file as the list names it: device and inode number.
type LockedFile = (u32, u32, u64);

/// Returns whether another process holds a lock on a byte of an open file (`fcntl(2)`, "Advisory record locking"), for
/// reading or writing. Other processes cannot notice the question.
///
/// # Errors
/// If the file's file system cannot answer.
pub fn is_byte_locked(file: impl AsFd, offset: u64) -> io::Result<bool> {
    Ok(sys::locks::is_byte_locked(file, offset)?)
}

/// Locks a whole file, open for writing, against every other opening of it: with `flock(2)`, and with a write lock on
/// all of its bytes, which conflicts with the locks of QEMU. Both end when the file is closed. Returns `false` if
/// somebody else holds a lock on any byte.
///
/// # Errors
/// If the file's file system has no locks.
pub fn lock_whole(file: impl AsFd) -> io::Result<bool> {
    let flocked = rustix::fs::flock(file.as_fd(), rustix::fs::FlockOperation::NonBlockingLockExclusive);
    match flocked.and_then(|()| sys::locks::lock_whole(file)) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the locked files of a folder.
pub(super) fn held(root: &RootFolder, folder: &Path) -> io::Result<Vec<HeldLock>> {
    let device = mounts::mount_of(root.folder())?.device;
    let locks = locks(|| std::fs::read_to_string("/proc/locks"))?;
    let mut held = Vec::new();
    for entry in Dir::read_from(root.open_folder(folder)?)? {
        let entry = entry?;
        if let Some(process) = locks.get(&(device.0, device.1, entry.ino())) {
            held.push(HeldLock { name: path_of(entry.file_name()), process: *process });
        }
    }
    held.sort();
    Ok(held)
}

/// Reads the list until it is the same twice. The kernel returns it page by page, and skips a lock of a later page if
/// one of an earlier page has gone meanwhile. So the result has every lock that any of the readings showed.
fn locks(mut read: impl FnMut() -> io::Result<String>) -> io::Result<HashMap<LockedFile, Option<u32>>> {
    let (mut locks, mut last) = (HashMap::new(), None);
    for _ in 0..READS {
        let text = read()?;
        locks.extend(parse_locks(&text));
        if last.as_ref() == Some(&text) {
            break;
        }
        last = Some(text);
    }
    Ok(locks)
}

/// Returns the holders of the whole-file locks in the list. Processes that wait for a lock hold none.
fn parse_locks(text: &str) -> HashMap<LockedFile, Option<u32>> {
    text.lines().filter_map(parse_lock).collect()
}

fn parse_lock(line: &str) -> Option<(LockedFile, Option<u32>)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let (process, file) = (fields.nth(2)?, fields.next()?);
    let mut parts = file.split(':');
    let mut device = || u32::from_str_radix(parts.next()?, 16).ok();
    let (major, minor) = (device()?, device()?);
    Some(((major, minor, parts.next()?.parse().ok()?), process.parse().ok().filter(|process| *process != 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_locks_is_understood() {
        let locks = parse_locks(
            "1: FLOCK  ADVISORY  WRITE 4711 fd:0a:5678 0 EOF\n\
             2: POSIX  ADVISORY  WRITE 12 fd:0a:77 0 EOF\n\
             3: FLOCK  ADVISORY  WRITE -1 00:2b:9 0 EOF\n\
             3: -> FLOCK  ADVISORY  WRITE 13 00:2b:10 0 EOF\n\
             4: FLOCK  ADVISORY  WRITE\n\nnonsense\n",
        );
        let expected = [((0xfd, 0x0a, 5678), Some(4711)), ((0, 0x2b, 9), None)];
        assert_eq!(locks, expected.into());
    }

    #[test]
    fn a_record_lock_of_somebody_else_is_seen_and_no_other() {
        use rustix::fs::{FlockOperation, fcntl_lock, flock};

        let path = tempfile::NamedTempFile::new().unwrap();
        let (ours, theirs) = (path.reopen().unwrap(), path.reopen().unwrap());
        // Reading permission is enough.
        let ours_read_only = std::fs::File::open(path.path()).unwrap();
        let seen = || [is_byte_locked(&ours, 101).unwrap(), is_byte_locked(&ours_read_only, 101).unwrap()];
        assert_eq!(seen(), [false, false]);
        flock(&theirs, FlockOperation::LockExclusive).unwrap();
        assert_eq!(seen(), [false, false]);
        fcntl_lock(&theirs, FlockOperation::NonBlockingLockShared).unwrap();
        assert_eq!(seen(), [true, true]);
        fcntl_lock(&theirs, FlockOperation::NonBlockingUnlock).unwrap();
        assert_eq!(seen(), [false, false]);
        assert!(is_byte_locked(&ours, u64::MAX).is_err());
    }

    #[test]
    fn a_whole_file_is_locked_once_and_never_beside_a_record_lock() {
        use rustix::fs::{FlockOperation, fcntl_lock};

        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || path.reopen().unwrap();
        let (first, second) = (open(), open());
        assert!(lock_whole(&first).unwrap());
        assert!(!is_byte_locked(&first, 101).unwrap() && is_byte_locked(&second, 101).unwrap());
        assert!(!lock_whole(&second).unwrap());
        drop(first);
        assert!(lock_whole(&second).unwrap());
        drop(second);
        let other = open();
        fcntl_lock(&other, FlockOperation::NonBlockingLockShared).unwrap();
        assert!(!lock_whole(open()).unwrap());
    }

    #[test]
    fn a_lock_that_a_reading_leaves_out_is_in_the_next() {
        let line = |inode: u64| format!("1: FLOCK  ADVISORY  WRITE 7 fd:0a:{inode} 0 EOF\n");
        let mut readings = [line(1), line(1) + &line(2), line(1) + &line(2), line(3)].into_iter();
        let found = locks(|| Ok(readings.next().unwrap())).unwrap();
        assert_eq!(found, [((0xfd, 0x0a, 1), Some(7)), ((0xfd, 0x0a, 2), Some(7))].into());
        // Reading also ends if the list is never the same twice.
        let mut number = 0;
        let ever_new = || {
            number += 1;
            Ok(line(number))
        };
        assert_eq!(locks(ever_new).unwrap().len(), READS as usize);
        assert!(locks(|| Err(io::ErrorKind::PermissionDenied.into())).is_err());
    }
}
