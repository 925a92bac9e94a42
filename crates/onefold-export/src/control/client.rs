//! The command line's side of the control socket.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onefold_block::Show;
use onefold_pool::{FileStat, PoolStat};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, getxattr, open, statx};
use rustix::io::Errno;

use super::connecting::{connect_within, is_nobody};
use super::message::{ControlAnswer, ControlReply, ControlRequest, FailureKind, LINE_BYTES_MAX, ScrubReport};
use super::peer::Peer;
use super::wire::{LineReader, WireError, send_line};
use crate::mount_table::{DeviceNumber, MountTable};
use crate::options::CONTROL_XATTR;
use crate::place::{PoolPlace, RunDirectory};

/// Maximum wait for room in a daemon's queue of clients: a daemon accepts each at once.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(1);
/// Maximum time for the daemon to answer a request without work of its own: as long as accepted writes may take on a
/// slow disk.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);
/// The same for a daemon of another user than root and this process's: that user may keep it silent on purpose, and a
/// command of root's that looks at all mounts must not stand still.
const FOREIGN_ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No pool is mounted at that path.
    #[error("{} is not the mount point of a pool", path.shown())]
    NotAMount {
        /// The given path.
        path: PathBuf,
    },
    /// The daemon of the mount cannot be reached.
    #[error("cannot reach the daemon at {}", path.shown())]
    Unreachable {
        /// The socket, or the mount point if the socket's name could not be read.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The socket that the mount names does not belong to the mount's own daemon.
    #[error("the mount belongs to user {mount_user}, and the control socket that it names to user {socket_user}")]
    NotTheDaemon {
        /// User of the mount, as the kernel reports it.
        mount_user: u32,
        /// User of the process that listens at the socket, as the kernel reports it.
        socket_user: u32,
    },
    /// Another user listens at the socket in a user's run directory.
    #[error("the control socket {} should be of user {user}, and user {socket_user} listens there", path.shown())]
    NotOfItsUser {
        /// The socket.
        path: PathBuf,
        /// The user of the run directory.
        user: u32,
        /// User of the process that listens at the socket, as the kernel reports it.
        socket_user: u32,
    },
    /// A process listens at the control socket and does not answer in time.
    #[error("the daemon does not answer: nothing came within {} s", waited.as_secs())]
    Silent {
        /// How long this process waited.
        waited: Duration,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection to the daemon broke")]
    Broken(#[source] WireError),
    /// This version does not know the daemon's answer.
    #[error("the daemon's answer is not understood here")]
    UnknownAnswer,
    /// The kernel's cached changes of a file do not reach the daemon.
    #[error("cannot write back the cached data of the file")]
    HandOver(#[source] io::Error),
    /// The daemon refused.
    #[error("{message}")]
    Refused {
        /// The kind of failure.
        kind: FailureKind,
        /// The daemon's message.
        message: String,
    },
}

/// Hands all changes of `file` over to the daemon, also those of shared mappings, before the file is cloned.
///
/// On all kernels, only `fsync` and `fdatasync` wait for that: before Linux 6.16, `sync_file_range` returns while
/// writes are in progress. So the changes become durable as well.
///
/// # Errors
/// [`ControlError::HandOver`] with the error of the operating system.
pub fn hand_over(file: &File) -> Result<(), ControlError> {
    file.sync_data().map_err(ControlError::HandOver)
}

/// Called with the number of blocks done and of blocks in all.
pub type OnProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// A connection to the daemon of a pool.
pub struct ControlClient {
    stream: UnixStream,
    lines: LineReader,
    /// The daemon, as the kernel reports it.
    daemon: Peer,
}

impl ControlClient {
    /// Connects to the daemon that serves `mountpoint`.
    ///
    /// The mount names the socket, and any user can mount a file system that names another user's socket. `umount` by
    /// root would then unmount another pool. So the socket must belong to the user of the mount; the kernel reports
    /// both users.
    ///
    /// # Errors
    /// [`ControlError::NotAMount`] if `mountpoint` is not one; [`ControlError::Unreachable`] if no process listens;
    /// [`ControlError::Silent`] if the daemon accepts no client; [`ControlError::NotTheDaemon`] if the mount names the
    /// socket of another user.
    pub fn connect(mountpoint: &Path) -> Result<ControlClient, ControlError> {
        let NamedSocket { path: socket, mount_user } = socket_of(mountpoint)?;
        let unreachable = |source| ControlError::Unreachable { path: socket.clone(), source };
        let stream = connect_within(&socket, QUEUE_WAIT_MAX).map_err(|errno| not_connected(&socket, errno))?;
        let daemon = Peer::of(&stream).map_err(unreachable)?;
        let socket_user = daemon.user();
        if socket_user != mount_user {
            return Err(ControlError::NotTheDaemon { mount_user, socket_user });
        }
        Ok(ControlClient::over(stream, daemon))
    }

    /// Returns a client of the `daemon` at the other end of `stream`.
    fn over(stream: UnixStream, daemon: Peer) -> ControlClient {
        ControlClient { stream, lines: LineReader::new(LINE_BYTES_MAX), daemon }
    }

    /// Returns the number of the daemon's process; `None` if it is outside this process's PID namespace.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.daemon.process()
    }

    /// Connects to the daemon that serves the pool at `place`; `None` if no daemon has a socket in one of
    /// `directories`. Whether the pool is mounted does not matter. A directory is trusted only if nobody but its user
    /// and root can change its content, and a socket only if the directory's user listens at it.
    ///
    /// A file that is no socket, a socket that this process may not use, and one left behind by a dead daemon count as
    /// missing. So does any failure in a directory that belongs neither to root nor to the user of this process, as its
    /// user could cause the failure. Takes at most a second for each directory.
    ///
    /// # Errors
    /// [`ControlError::NotOfItsUser`]; [`ControlError::Silent`] if a process listens but accepts no client;
    /// [`ControlError::Unreachable`] for other failures of the operating system.
    pub fn find(place: &PoolPlace, directories: &[RunDirectory]) -> Result<Option<ControlClient>, ControlError> {
        let user = rustix::process::geteuid().as_raw();
        for directory in directories.iter().filter(|directory| directory.is_trusted().unwrap_or(false)) {
            match ControlClient::find_in(directory, place) {
                Ok(None) => {}
                Err(_) if ![0, user].contains(&directory.user) => {}
                found => return found,
            }
        }
        Ok(None)
    }

    /// Connects to the daemon that serves the pool at `place`; `None` if no daemon has a socket in `directory`.
    fn find_in(directory: &RunDirectory, place: &PoolPlace) -> Result<Option<ControlClient>, ControlError> {
        let path = directory.socket(&place.socket_name());
        let stream = match connect_within(&path, QUEUE_WAIT_MAX) {
            Ok(stream) => stream,
            Err(errno) if is_nobody(errno) => return Ok(None),
            Err(errno) => return Err(not_connected(&path, errno)),
        };
        let daemon = match Peer::of(&stream) {
            Ok(daemon) => daemon,
            Err(source) => return Err(ControlError::Unreachable { path, source }),
        };
        let socket_user = daemon.user();
        if socket_user != directory.user {
            return Err(ControlError::NotOfItsUser { path, user: directory.user, socket_user });
        }
        Ok(Some(ControlClient::over(stream, daemon)))
    }

    /// Sends `request` with its open files and waits for the answer, however long that takes.
    ///
    /// # Errors
    /// [`ControlError::Refused`] with the daemon's reason, or a broken connection.
    pub fn request(
        &mut self,
        request: &ControlRequest,
        files: &[BorrowedFd<'_>],
        on_progress: OnProgress<'_>,
    ) -> Result<ControlAnswer, ControlError> {
        self.request_within(request, files, on_progress, None)
    }

    /// Like [`ControlClient::request`], but if `patience` is given, the whole answer must arrive within it, and reports
    /// of progress are no part of it.
    fn request_within(
        &mut self,
        request: &ControlRequest,
        files: &[BorrowedFd<'_>],
        on_progress: OnProgress<'_>,
        patience: Option<Duration>,
    ) -> Result<ControlAnswer, ControlError> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut send_error = match send_line(&self.stream, request, files) {
            Ok(()) => None,
            // A daemon that stopped listening has sent the reason before it closed: that says more than this error.
            Err(error @ WireError::Io(_)) => Some(error),
            Err(error) => return Err(ControlError::Broken(error)),
        };
        loop {
            let line = match deadline {
                None => self.lines.next(&self.stream),
                Some(deadline) => self.lines.next_before(&self.stream, deadline),
            };
            if let (Err(WireError::Io(error)), Some(waited)) = (&line, patience)
                && matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
            {
                return Err(ControlError::Silent { waited });
            }
            let reply = line.and_then(|line| line.decode());
            match reply.map_err(|error| ControlError::Broken(send_error.take().unwrap_or(error)))? {
                // The request has no work of its own. A hostile daemon could report progress for ever.
                ControlReply::Progress { .. } if deadline.is_some() => return Err(ControlError::UnknownAnswer),
                ControlReply::Progress { done, total } => on_progress(done, total),
                ControlReply::Done { answer } => return Ok(answer),
                ControlReply::Failed { kind, message } => return Err(ControlError::Refused { kind, message }),
            }
        }
    }

    /// Returns the pool's numbers. Waits for at most a minute, and for at most five seconds if the daemon belongs
    /// neither to root nor to the user of this process; after a timeout the connection is unusable.
    ///
    /// # Errors
    /// See [`ControlClient::request`]; [`ControlError::Silent`].
    pub fn stat(&mut self) -> Result<PoolStat, ControlError> {
        match self.request_within(&ControlRequest::Stat, &[], &mut |_, _| (), Some(self.answer_wait_max()))? {
            ControlAnswer::Stat { stat } => Ok(*stat),
            _ => Err(ControlError::UnknownAnswer),
        }
    }

    /// Returns how long the daemon may take to answer a request without work of its own.
    fn answer_wait_max(&self) -> Duration {
        let is_trusted = [0, rustix::process::geteuid().as_raw()].contains(&self.daemon.user());
        if is_trusted { ANSWER_WAIT_MAX } else { FOREIGN_ANSWER_WAIT_MAX }
    }

    /// Returns the numbers of `file`, a file of the mount that is open for reading.
    ///
    /// # Errors
    /// See [`ControlClient::request`].
    pub fn file_stat(&mut self, file: &File, on_progress: OnProgress<'_>) -> Result<FileStat, ControlError> {
        match self.request(&ControlRequest::FileStat, &[file.as_fd()], on_progress)? {
            ControlAnswer::FileStat { stat } => Ok(stat),
            _ => Err(ControlError::UnknownAnswer),
        }
    }

    /// Makes `target` (empty, open for writing) a clone of all of `source` (open for reading), both files of the mount.
    /// Clones the content that the daemon knows: [`hand_over`] first makes that complete.
    ///
    /// # Errors
    /// See [`ControlClient::request`].
    pub fn clone_file(&mut self, source: &File, target: &File) -> Result<(), ControlError> {
        self.expect_nothing(&ControlRequest::Clone, &[source.as_fd(), target.as_fd()])?;
        // Makes the kernel fetch the new length, so that an appending write starts at the new end.
        target.metadata().map(drop).map_err(ControlError::HandOver)
    }

    /// Extends the pool to the present size of its device. Returns the new size in bytes.
    ///
    /// # Errors
    /// See [`ControlClient::request`].
    pub fn grow(&mut self) -> Result<u64, ControlError> {
        match self.request(&ControlRequest::Grow, &[], &mut |_, _| ())? {
            ControlAnswer::Bytes { bytes } => Ok(bytes),
            _ => Err(ControlError::UnknownAnswer),
        }
    }

    /// Makes the pool discard its free blocks on the device. Returns the number of discarded bytes.
    ///
    /// # Errors
    /// See [`ControlClient::request`].
    pub fn trim(&mut self, on_progress: OnProgress<'_>) -> Result<u64, ControlError> {
        match self.request(&ControlRequest::Trim, &[], on_progress)? {
            ControlAnswer::Bytes { bytes } => Ok(bytes),
            _ => Err(ControlError::UnknownAnswer),
        }
    }

    /// Makes the pool read and verify all its data, at most `bytes_per_second` if given.
    ///
    /// # Errors
    /// See [`ControlClient::request`]. Damage that is found is not an error; the report lists it.
    pub fn scrub(
        &mut self,
        bytes_per_second: Option<u64>,
        on_progress: OnProgress<'_>,
    ) -> Result<ScrubReport, ControlError> {
        match self.request(&ControlRequest::Scrub { bytes_per_second }, &[], on_progress)? {
            ControlAnswer::Scrub { report } => Ok(report),
            _ => Err(ControlError::UnknownAnswer),
        }
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// See [`ControlClient::request`].
    pub fn sync(&mut self) -> Result<(), ControlError> {
        self.expect_nothing(&ControlRequest::Sync, &[])
    }

    /// Ends all doors of the daemon, including its mount. Returns when everything is on disk and the pool is closed.
    ///
    /// # Errors
    /// [`FailureKind::Busy`] while files are open or clients use a door; [`FailureKind::Held`] while another mount
    /// keeps the pool in use; otherwise see [`ControlClient::request`].
    pub fn umount(&mut self) -> Result<(), ControlError> {
        self.expect_nothing(&ControlRequest::Umount, &[])
    }

    fn expect_nothing(&mut self, request: &ControlRequest, files: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        match self.request(request, files, &mut |_, _| ())? {
            ControlAnswer::Nothing => Ok(()),
            _ => Err(ControlError::UnknownAnswer),
        }
    }
}

/// Returns the error for a failed connection to the socket at `path`.
fn not_connected(path: &Path, errno: Errno) -> ControlError {
    match errno {
        Errno::AGAIN => ControlError::Silent { waited: QUEUE_WAIT_MAX },
        errno => ControlError::Unreachable { path: path.to_owned(), source: errno.into() },
    }
}

/// The control socket that a mount names, and the mount's user as the kernel reports it.
struct NamedSocket {
    path: PathBuf,
    mount_user: u32,
}

/// Returns the control socket of the pool mounted at `mountpoint`.
fn socket_of(mountpoint: &Path) -> Result<NamedSocket, ControlError> {
    let failed = |errno| match errno {
        Errno::NODATA | Errno::NOTSUP | Errno::NOENT | Errno::NOTDIR => {
            ControlError::NotAMount { path: mountpoint.to_owned() }
        }
        errno => ControlError::Unreachable { path: mountpoint.to_owned(), source: errno.into() },
    };
    // Held open, so that the socket's name and the user are those of one mount.
    let root = open(mountpoint, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let mut value = vec![0; 4096];
    let named = format!("/proc/self/fd/{}", root.as_raw_fd());
    let bytes = getxattr(named, CONTROL_XATTR, value.as_mut_slice()).map_err(failed)?;
    value.truncate(bytes);
    // Sends no request to the daemon.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(&root, c"", flags, StatxFlags::TYPE).map_err(failed)?;
    let device = DeviceNumber { major: found.stx_dev_major, minor: found.stx_dev_minor };
    let table =
        MountTable::own().map_err(|source| ControlError::Unreachable { path: mountpoint.to_owned(), source })?;
    // Any user can give a folder of another file system an attribute of that name.
    let mount_user = table.user_of(device).ok_or_else(|| ControlError::NotAMount { path: mountpoint.to_owned() })?;
    Ok(NamedSocket { path: PathBuf::from(OsString::from_vec(value)), mount_user })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::message::ControlReply;
    use super::*;

    fn own_daemon(stream: UnixStream) -> ControlClient {
        ControlClient::over(stream, Peer::of_user(rustix::process::geteuid().as_raw()))
    }

    #[test]
    fn a_daemon_that_reports_progress_instead_of_numbers_is_given_up() {
        let (stream, other) = UnixStream::pair().unwrap();
        let daemon = thread::spawn(move || {
            let progress = ControlReply::Progress { done: 1, total: 2 };
            while send_line(&other, &progress, &[]).is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let asked = own_daemon(stream).stat();
        assert!(matches!(asked, Err(ControlError::UnknownAnswer)), "{asked:?}");
        daemon.join().unwrap();
    }

    #[test]
    fn another_users_daemon_gets_only_some_seconds() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let wait_of = |user| ControlClient::over(stream.try_clone().unwrap(), Peer::of_user(user)).answer_wait_max();
        assert_eq!([wait_of(own), wait_of(0), wait_of(own + 1)].map(|wait| wait.as_secs()), [60, 60, 5]);
    }

    #[test]
    fn a_daemon_that_is_silent_or_goes_on_with_half_a_line_is_given_up() {
        for sent in [&b""[..], b"{\"reply\":"] {
            let (stream, other) = UnixStream::pair().unwrap();
            io::Write::write_all(&mut &other, sent).unwrap();
            let mut client = own_daemon(stream);
            let patience = Duration::from_millis(30);
            let asked = client.request_within(&ControlRequest::Stat, &[], &mut |_, _| (), Some(patience));
            assert!(matches!(asked, Err(ControlError::Silent { waited }) if waited == patience), "{asked:?}");
        }
    }

    #[test]
    fn long_work_has_all_the_time_after_a_quick_request() {
        let (stream, other) = UnixStream::pair().unwrap();
        let mut client = own_daemon(stream);
        let daemon = thread::spawn(move || {
            let done = ControlReply::Done { answer: ControlAnswer::Nothing };
            send_line(&other, &done, &[]).unwrap();
            let mut lines = LineReader::new(LINE_BYTES_MAX);
            for _ in 0..2 {
                lines.next(&other).unwrap();
            }
            thread::sleep(Duration::from_millis(200));
            send_line(&other, &done, &[]).unwrap();
        });
        let patience = Some(Duration::from_millis(100));
        client.request_within(&ControlRequest::Stat, &[], &mut |_, _| (), patience).unwrap();
        client.sync().unwrap();
        daemon.join().unwrap();
    }
}
