//! Leases, and the locks of other processes on bytes.

use std::io;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// `F_SETSIG`: chooses the signal that announces the end of a lease.
const SET_SIGNAL: libc::c_int = 10;

/// Takes a write lease. It holds while no other process opens the file.
pub(crate) fn take_lease(file: impl AsFd) -> Result<(), Errno> {
    // The default signal would end the process; this one does nothing. The program polls the lease instead.
    fcntl(file.as_fd(), SET_SIGNAL, libc::SIGURG)?;
    fcntl(file.as_fd(), libc::F_SETLEASE, libc::F_WRLCK).map(drop)
}

/// Returns whether a file has a write lease that no process waits for.
pub(crate) fn has_lease(file: impl AsFd) -> bool {
    fcntl(file.as_fd(), libc::F_GETLEASE, 0) == Ok(libc::F_WRLCK)
}

/// Ends a lease.
pub(crate) fn end_lease(file: impl AsFd) -> Result<(), Errno> {
    fcntl(file.as_fd(), libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

/// Returns whether another open file description holds a lock on a byte of a file, for reading or writing
/// (`F_OFD_GETLK`).
pub(crate) fn is_byte_locked(file: impl AsFd, offset: u64) -> Result<bool, Errno> {
    let start = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    // The call sets no lock, so the file need not be open for writing.
    let mut lock = write_lock(start, 1)?;
    // SAFETY: the command reads and writes one `flock`, which is what `lock` is, during the call.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK),
    }
}

/// Takes a write lock on all bytes of a file for this open file description (`F_OFD_SETLK`), without waiting.
pub(crate) fn lock_whole(file: impl AsFd) -> Result<(), Errno> {
    // A length of 0 reaches to the end, however far a file grows.
    let lock = write_lock(0, 0)?;
    // SAFETY: the command reads one `flock`, which is what `lock` is, during the call.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// Describes a write lock, which conflicts with every other lock.
fn write_lock(start: libc::off_t, length: libc::off_t) -> Result<libc::flock, Errno> {
    let (kind, whence) = (libc::c_short::try_from(libc::F_WRLCK), libc::c_short::try_from(libc::SEEK_SET));
    let (Ok(l_type), Ok(l_whence)) = (kind, whence) else { return Err(Errno::INVAL) };
    Ok(libc::flock { l_type, l_whence, l_start: start, l_len: length, l_pid: 0 })
}

/// `fcntl` with a number as its argument.
fn fcntl(file: BorrowedFd<'_>, command: libc::c_int, argument: libc::c_int) -> Result<libc::c_int, Errno> {
    // SAFETY: the commands above take a number, and change no memory.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        answer => Ok(answer),
    }
}
