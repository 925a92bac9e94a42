//! Permissions of clients.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::message::ControlRequest;

/// The other side of a connection, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    uid: u32,
    /// `None` if it has ended, or is outside this process's PID namespace.
    process: Option<u32>,
}

/// The users who may make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// All users who can reach the socket. An open file proves the rights to that file.
    Everyone,
    /// Root, and the user of the daemon.
    Keepers,
}

impl Peer {
    /// Asks the kernel for the user who connected.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Peer> {
        let credentials = rustix::net::sockopt::socket_peercred(stream)?;
        let process = credentials.pid.as_raw_nonzero().get().cast_unsigned();
        // The kernel reports 0 for a process outside the PID namespace.
        let is_visible = Path::new("/proc").join(process.to_string()).exists();
        Ok(Peer { uid: credentials.uid.as_raw(), process: is_visible.then_some(process) })
    }

    /// Returns the number of the process; `None` if it has ended, or is outside this process's PID namespace.
    pub(super) fn process(self) -> Option<u32> {
        self.process
    }

    /// Returns a process of a user.
    #[cfg(test)]
    pub(super) fn of_user(uid: u32) -> Peer {
        Peer { uid, process: None }
    }

    /// Returns the user.
    pub(super) fn user(self) -> u32 {
        self.uid
    }

    /// Returns whether this is root or the user `daemon_uid`.
    pub(super) fn is_keeper(self, daemon_uid: u32) -> bool {
        self.uid == 0 || self.uid == daemon_uid
    }

    /// Returns whether the daemon of user `daemon_uid` accepts this request from the peer.
    pub(super) fn may(self, request: &ControlRequest, daemon_uid: u32) -> bool {
        match open_to(request) {
            Audience::Everyone => true,
            Audience::Keepers => self.is_keeper(daemon_uid),
        }
    }
}

fn open_to(request: &ControlRequest) -> Audience {
    match request {
        ControlRequest::Stat | ControlRequest::FileStat | ControlRequest::Clone => Audience::Everyone,
        ControlRequest::Grow
        | ControlRequest::Trim
        | ControlRequest::Scrub { .. }
        | ControlRequest::Sync
        | ControlRequest::Umount => Audience::Keepers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: [(ControlRequest, bool); 8] = [
        (ControlRequest::Stat, true),
        (ControlRequest::FileStat, true),
        (ControlRequest::Clone, true),
        (ControlRequest::Grow, false),
        (ControlRequest::Trim, false),
        (ControlRequest::Scrub { bytes_per_second: None }, false),
        (ControlRequest::Sync, false),
        (ControlRequest::Umount, false),
    ];

    #[test]
    fn root_and_the_daemons_user_may_do_everything() {
        for (request, _) in &REQUESTS {
            assert!(Peer::of_user(0).may(request, 1000), "{request:?}");
            assert!(Peer::of_user(1000).may(request, 1000), "{request:?}");
        }
    }

    #[test]
    fn others_may_look_and_clone_what_they_can_open() {
        for (request, open) in &REQUESTS {
            assert_eq!(Peer::of_user(1001).may(request, 1000), *open, "{request:?}");
            assert_eq!(Peer::of_user(1001).may(request, 0), *open, "{request:?}");
        }
    }

    #[test]
    fn the_kernel_tells_who_connected() {
        let (one, _other) = UnixStream::pair().unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(Peer::of(&one).unwrap(), Peer { uid: me, process: Some(std::process::id()) });
    }
}
