//! Whether a machine has an image open: QEMU holds a lock on byte 101 of an image as long as it may write to it.

use std::fs;
use std::os::fd::AsFd;

use rustix::fs::{fstat, major, minor};

use crate::mounts;

/// The byte that QEMU locks for the permission to write (`RAW_LOCK_PERM_BASE` and `BLK_PERM_WRITE`,
/// `block/file-posix.c`).
const WRITE_LOCK: u64 = 101;

/// Returns whether QEMU may write to an open file. The kernel's list of locks names a file by the device of its file
/// system, which is not the one that `stat` shows where each subvolume has one of its own (Btrfs).
pub(super) fn has_writer(file: &impl AsFd) -> bool {
    let Ok(stat) = fstat(file) else { return false };
    let device = mounts::device_of_file(file).ok().flatten();
    let device = device.map_or((major(stat.st_dev), minor(stat.st_dev)), |device| (device.major, device.minor));
    let file = (device.0, device.1, stat.st_ino);
    fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.lines().any(|line| locks_byte(line, file)))
}

/// Returns whether a line of `/proc/locks` is a lock on the byte of a file, by its device and inode:
/// `1: OFDLCK ADVISORY READ -1 08:01:393233 100 101`.
fn locks_byte(line: &str, file: (u32, u32, u64)) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [.., place, start, end] = words.as_slice() else { return false };
    let mut parts = place.split(':');
    let mut number = |base| parts.next().and_then(|part| u64::from_str_radix(part, base).ok());
    let (major, minor, inode) = (number(16), number(16), number(10));
    let is_file = (major, minor, inode) == (Some(file.0.into()), Some(file.1.into()), Some(file.2));
    let start: Option<u64> = start.parse().ok();
    let end = if *end == "EOF" { Some(u64::MAX) } else { end.parse().ok() };
    let holds = start.zip(end).is_some_and(|(start, end)| (start..=end).contains(&WRITE_LOCK));
    is_file && holds && !words.contains(&"FLOCK") && !words.contains(&"->")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_writer_is_told_from_others() {
        let file = (8, 0x1f, 393_233);
        for line in [
            "1: OFDLCK ADVISORY  READ -1 08:1f:393233 100 101",
            "22: POSIX  ADVISORY  WRITE 1234 08:1f:393233 0 EOF",
            "3: OFDLCK ADVISORY  READ -1 08:1f:393233 101 101",
        ] {
            assert!(locks_byte(line, file), "{line}");
        }
        for line in [
            "1: OFDLCK ADVISORY  READ -1 08:1f:393233 100 100",
            "1: OFDLCK ADVISORY  READ -1 08:1f:393234 100 101",
            "1: OFDLCK ADVISORY  READ -1 08:01:393233 100 101",
            "1: FLOCK  ADVISORY  WRITE 1234 08:1f:393233 0 EOF",
            "1: -> POSIX ADVISORY  WRITE 1234 08:1f:393233 0 EOF",
            "",
            "a b c",
        ] {
            assert!(!locks_byte(line, file), "{line}");
        }
    }
}
