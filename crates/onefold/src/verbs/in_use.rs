//! Detects whether a machine has an image open: QEMU holds a lock on byte 101 of an image while it may write to it.

use std::os::fd::AsFd;

/// The byte that QEMU locks for the permission to write (`RAW_LOCK_PERM_BASE` and `BLK_PERM_WRITE`,
/// `block/file-posix.c`).
const WRITE_LOCK: u64 = 101;

/// Returns whether QEMU may write to an open file. A file system that cannot report locks counts as one without them.
pub(super) fn has_writer(file: &impl AsFd) -> bool {
    onefold_linux::is_byte_locked(file, WRITE_LOCK).unwrap_or(false)
}
