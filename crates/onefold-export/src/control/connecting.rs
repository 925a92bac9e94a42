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
/// [`Errno::AGAIN`] if a process listens there and its queue of clients is full; whatever else the operating system
/// refuses with.
pub(super) fn connect_at_once(path: &Path) -> Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// Connects as [`connect_at_once`] does, but waits for `patience` until there is room in the queue of clients.
///
/// # Errors
/// As [`connect_at_once`].
pub(super) fn connect_within(path: &Path, patience: Duration) -> Result<UnixStream> {
    let started = Instant::now();
    loop {
        match connect_at_once(path) {
            Err(Errno::AGAIN) if started.elapsed() < patience => thread::sleep(QUEUE_POLL),
            connected => return connected,
        }
    }
}

/// Tells whether a failure to connect means that no daemon of a pool is at that path: nothing is there, nobody listens,
/// this process may not connect, or what is there is no control socket.
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
