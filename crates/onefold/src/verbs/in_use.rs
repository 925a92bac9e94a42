//! Detects whether a machine has an image open: QEMU holds a lock on byte 101 of an image while it may write to it.
//! Also detects whether this host has it mounted for writing.

use std::os::fd::AsFd;

use onefold_disk::ImageFile;
use onefold_image::{FileUser, writer_of};

/// The byte that QEMU locks for the permission to write (`RAW_LOCK_PERM_BASE` and `BLK_PERM_WRITE`,
/// `block/file-posix.c`).
const WRITE_LOCK: u64 = 101;

/// Returns whether QEMU may write to an open file. A file system that cannot report locks counts as one without them.
pub(super) fn has_writer(file: &impl AsFd) -> bool {
    onefold_linux::is_byte_locked(file, WRITE_LOCK).unwrap_or(false)
}

/// Returns whether a virtual machine or this host may write to an open image: QEMU, a file system that is mounted for
/// writing, or swap space. A host that does not tell this user counts as one that does not write.
pub(super) fn is_in_use(file: &ImageFile) -> bool {
    has_writer(file) || writer_of(file.metadata()).is_some_and(|writer| !matches!(writer, FileUser::Unclear(_)))
}
