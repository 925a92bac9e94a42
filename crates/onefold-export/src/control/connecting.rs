//! Connecting to a control socket in bounded time, even if another user made the file at its path.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

const QUEUE_POLL: Duration = Duration::from_millis(20);

/// Connects to the socket at `path` without waiting.
///
/// # Errors
/// [`Errno::AGAIN`] if a process listens there but its queue of clients is full; any other error of the operating
/// system.
pub(super) fn connect_at_once(path: &Path) -> Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// Like [`connect_at_once`], but waits up to `patience` for room in the queue of clients.
///
/// # Errors
/// See [`connect_at_once`].
pub(super) fn connect_within(path: &Path, patience: Duration) -> Result<UnixStream> {
    let started = Instant::now();
    loop {
        match connect_at_once(path) {
            Err(Errno::AGAIN) if started.elapsed() < patience => thread::sleep(QUEUE_POLL),
            connected => return connected,
        }
    }
}

/// Returns whether a failed connection means that no daemon of a pool is at that path: the path is missing, no process
/// listens, this process may not connect, or the file is no control socket.
pub(super) fn is_nobody(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT
            | Errno::NOTDIR
            | Errno::CONNREFUSED
            | Errno::ACCESS
            | Errno::PERM
            | Errno::INVAL
            | Errno::NAMETOOLONG
            | Errno::PROTOTYPE
            | Errno::LOOP
    )
}
