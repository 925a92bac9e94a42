//! Accepts clients of the control socket, up to a maximum number at a time.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::Shutdown;

use super::connection;
use super::ending::ServiceEnd;
use super::peer::Peer;
use super::served::ServedPool;
use super::socket::{ControlSocket, SocketError};

/// Maximum number of clients at once.
const CLIENTS_MAX: usize = 32;

/// From this number of clients on, only root and the daemon's user are accepted.
const GUESTS_MAX: usize = 16;

/// How long a daemon that ends waits for clients to take the last answer.
const LAST_ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Pause after a failed accept, for example without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers clients until dropped.
pub(crate) struct ControlServer {
    socket: Arc<ControlSocket>,
    ending: Arc<ServiceEnd>,
    acceptor: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Starts accepting clients on `socket`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(socket: ControlSocket, served: ServedPool) -> Result<ControlServer, SocketError> {
        let ending = served.ending.clone();
        let path = socket.path().to_owned();
        let socket = Arc::new(socket);
        let acceptor = thread::Builder::new()
            .name("control".into())
            .spawn({
                let socket = socket.clone();
                move || accept(&socket, &Arc::new(served))
            })
            .map_err(|source| no_thread(path, source))?;
        Ok(ControlServer { socket, ending, acceptor: Some(acceptor) })
    }

    /// Hides the socket from new clients.
    pub(crate) fn retire(&self) {
        self.socket.retire();
    }

    /// Ends, after the clients that wait for an answer have it.
    pub(crate) fn finish(self) {
        self.ending.wait_until_answered(LAST_ANSWER_PATIENCE);
    }
}

fn no_thread(path: PathBuf, source: io::Error) -> SocketError {
    SocketError::Io { action: "start a thread for", path, source }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // Wakes the acceptor, which then sees the socket as closed.
        let _ = rustix::net::shutdown(self.socket.listener(), Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            // A panic in it is already reported on standard error.
            let _ = acceptor.join();
        }
    }
}

fn accept(socket: &ControlSocket, served: &Arc<ServedPool>) {
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        match socket.listener().accept() {
            Ok((stream, _)) => admit(stream, served, &clients),
            // The error of a listening socket after `shutdown`.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Starts a thread for a client, if it may have one.
fn admit(stream: UnixStream, served: &Arc<ServedPool>, clients: &Arc<AtomicUsize>) {
    let Ok(peer) = Peer::of(&stream) else { return };
    let is_keeper = peer.is_keeper(rustix::process::geteuid().as_raw());
    let seat = Seat::take(clients);
    if seat.number >= if is_keeper { CLIENTS_MAX } else { GUESTS_MAX } {
        // The line fits the socket's buffer, so this does not wait for the client. If it fails, the client sees a
        // closed connection instead.
        let _ = connection::refuse(&stream);
        return;
    }
    let served = served.clone();
    // If no thread can be started, the client sees a closed connection.
    let _ = thread::Builder::new().name("control-client".into()).spawn(move || {
        // The client caused a broken connection, and was told of the failure where that was possible.
        let _ = connection::serve(&stream, peer, &served);
        drop(seat);
    });
}

/// A place among the clients.
struct Seat {
    clients: Arc<AtomicUsize>,
    number: usize,
}

impl Seat {
    fn take(clients: &Arc<AtomicUsize>) -> Seat {
        Seat { clients: clients.clone(), number: clients.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }
}
