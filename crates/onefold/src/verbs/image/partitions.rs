//! Has the kernel read the partition table of a disk again, so that the partitions of an installed image appear.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Returns when the kernel has read the table.
///
/// # Errors
/// When the target has no partitions for the kernel, or one of them is in use.
#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
pub(super) fn read_again(disk: &impl AsFd) -> io::Result<()> {
    const BLKRRPART: libc::c_ulong = 0x125f;
    // SAFETY: BLKRRPART takes no argument, so it touches no memory of this process; the descriptor is open.
    let outcome = unsafe { libc::ioctl(disk.as_fd().as_raw_fd(), BLKRRPART) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_has_no_table_to_read() {
        assert!(super::read_again(&tempfile::tempfile().unwrap()).is_err());
    }
}
