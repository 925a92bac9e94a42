//! The kernel's view of partitions: where one begins, and having a table read again, so that the partitions of an
//! installed image appear.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Duration;

use rustix::fs::{FileType, fstat, major, minor};

/// How often the kernel is asked while somebody has a partition open, as the device manager has for moments.
const ATTEMPTS: u32 = 10;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns when the kernel has read the table of a disk, or if the target has no partitions for the kernel.
///
/// # Errors
/// When the kernel keeps the old partitions.
pub(super) fn read_again(disk: &impl AsFd) -> io::Result<()> {
    read_by(|| ask(disk), || thread::sleep(PAUSE))
}

fn read_by(mut ask: impl FnMut() -> io::Result<()>, mut pause: impl FnMut()) -> io::Result<()> {
    for _ in 1..ATTEMPTS {
        match ask() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => pause(),
            asked => return without_table(asked),
        }
    }
    without_table(ask())
}

/// A file, a partition, and most loop devices have no table that the kernel would read.
fn without_table(asked: io::Result<()>) -> io::Result<()> {
    match asked {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY)) => Ok(()),
        asked => asked,
    }
}

#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn ask(disk: &impl AsFd) -> io::Result<()> {
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
    use super::*;

    #[test]
    fn a_file_has_no_table_to_read() {
        let file = tempfile::tempfile().unwrap();
        read_again(&file).unwrap();
        assert_eq!(start_bytes(&file), 0);
    }

    #[test]
    fn only_a_kernel_that_keeps_the_old_partitions_is_an_error() {
        // The number of attempts that fail, how, and whether the table counts as read in the end.
        for (failures, errno, is_read, asked) in [
            (0, libc::EBUSY, true, 1),
            (3, libc::EBUSY, true, 4),
            (u32::MAX, libc::EBUSY, false, ATTEMPTS),
            (u32::MAX, libc::EACCES, false, 1),
            (u32::MAX, libc::EINVAL, true, 1),
            (u32::MAX, libc::ENOTTY, true, 1),
        ] {
            let mut calls = 0;
            let ask = || {
                calls += 1;
                if calls > failures { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
            };
            assert_eq!(read_by(ask, || ()).is_ok(), is_read, "{failures} {errno}");
            assert_eq!(calls, asked, "{failures} {errno}");
        }
    }
}
