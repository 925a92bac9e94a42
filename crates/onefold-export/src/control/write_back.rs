//! Handing cached changes of a file to its file system, without making them durable.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Waits until the kernel has handed all cached changes of `file` (of shared mappings, say) to the file system. Unlike
/// `fsync` it asks for no commit.
///
/// # Errors
/// Whatever writing them says.
#[expect(unsafe_code, reason = "no safe wrapper of sync_file_range")]
pub(super) fn write_back(file: &File) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the call touches no memory of this process.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
