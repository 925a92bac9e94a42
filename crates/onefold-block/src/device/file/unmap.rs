//! Returning space to the file system or disk.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::DeviceKind;

/// Returns the space of `bytes` bytes at `offset` to the file system or disk, if that takes any.
pub(super) fn unmap(file: &File, kind: DeviceKind, offset: u64, bytes: u64) -> io::Result<()> {
    let outcome = match kind {
        DeviceKind::Regular => {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, punch, offset, bytes).map_err(io::Error::from)
        }
        DeviceKind::BlockDevice => discard_sectors(file, [offset, bytes]),
    };
    match outcome {
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Ok(()),
        outcome => outcome,
    }
}

#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn discard_sectors(file: &File, range: [u64; 2]) -> io::Result<()> {
    const BLKDISCARD: libc::c_ulong = 0x1277;
    // SAFETY: BLKDISCARD reads two 64-bit numbers, offset and length, from the pointer during the call; `range` is
    // exactly those and outlives it. It changes no memory of this process.
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
