//! The kernel's view of partitions: where one begins, and having a table read again, so that the partitions of an
//! installed image appear.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{FileType, fstat, major, minor};

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

/// Returns the byte of its disk at which a partition begins; 0 for anything else, and if the kernel does not say.
pub(super) fn start_bytes(target: &impl AsFd) -> u64 {
    let Ok(stat) = fstat(target) else { return 0 };
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return 0;
    }
    let path = format!("/sys/dev/block/{}:{}/start", major(stat.st_rdev), minor(stat.st_rdev));
    let sectors = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    sectors.unwrap_or(0).saturating_mul(512)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_has_no_table_to_read() {
        let file = tempfile::tempfile().unwrap();
        assert!(super::read_again(&file).is_err());
        assert_eq!(super::start_bytes(&file), 0);
    }
}
