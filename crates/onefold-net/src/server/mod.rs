//! Serves the images of an archive over HTTP. `docs/format/served-images.md` has the addresses.
//!
//! Handlers run on the runtime and never read the archive: threads for blocking work do, a bounded number at once. What
//! an answer takes of the memory is reserved before it is read, and given back when it has been sent.
//!
//! | part         | is                                                              |
//! |--------------|-----------------------------------------------------------------|
//! | `connection` | one client's connection, and when it is given up                |
//! | `handshake`  | the beginning of an encrypted connection                        |
//! | `places`     | how many connections there may be                               |
//! | `network`    | addresses of clients that count as one                           |
//! | `routes`     | which address leads to which answer                             |
//! | `state`      | the archive behind all answers, the memory and threads for them |
//! | `room`       | memory for answers                                              |
//! | `multicast`  | sessions that send an image to many machines at once            |
//! | `machines`   | machines that install images, by their own reports              |
//! | `reports`    | the answers to these reports, and the status                    |
//! | `digests`    | digests of whole disks                                          |
//! | `range`      | conditions and ranges of requests                               |
//! | `answers`    | answers of a connection that has several at once                |
//! | `access`     | which token may read what                                       |
//! | `ahead`      | which chunks are read before a client requests them             |
//! | `tokens`     | the file of tokens                                              |
//! | `chunk_lists` | which chunks an image has, for both                            |
//! | `body`       | bodies of answers                                               |

mod access;
mod ahead;
mod answers;
mod body;
mod chunk_lists;
mod connection;
mod digests;
mod handshake;
mod machines;
mod multicast;
mod network;
mod places;
mod range;
mod reports;
mod room;
mod routes;
mod state;
mod tokens;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onefold_image::archive::Archive;
use onefold_image::served::{ChunkMethod, ServedArchive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{NetError, ServerIdentity};
use ahead::AHEAD_THREADS_MAX;
use connection::{CountedStream, Protocol};
use digests::DiskDigests;
use handshake::Handshakes;
use multicast::Sessions;
use places::{Place, Places};
use state::{READERS_MAX, SHARE, ServerState};
use tokens::TokenFile;

pub use multicast::{MulticastOptions, SESSIONS_MAX};

/// Threads that send and receive.
const THREADS: usize = 2;
/// Maximum number of connections, and of those from one address.
const CONNECTIONS_MAX: usize = 1024;
const CONNECTIONS_OF_CLIENT_MAX: usize = 64;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 256;
/// How often the end of the server is asked for.
const LOOK: Duration = Duration::from_millis(100);
/// How long answers that are under way may take when the server ends.
const ENDING: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, as when there are no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Parameters of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address and port; port 0 lets the system choose one.
    pub address: SocketAddr,
    /// Network interface to which connections must come.
    pub interface: Option<String>,
    /// Memory for recent units, open images and answers, in bytes.
    pub memory_bytes: usize,
    /// The certificate of encrypted connections; `None` for plain ones.
    pub identity: Option<ServerIdentity>,
    /// The file of tokens that give rights to read images; `None` if each client may read all images.
    pub tokens: Option<PathBuf>,
    /// Folder that keeps the digests of disks, with a folder for each archive; `None` if they are computed again after
    /// a start.
    pub digests: Option<PathBuf>,
    /// Fate of installations whose image is removed.
    pub removal: RemovalPolicy,
    /// How images are sent by multicast, over the interface; without it only HTTP is spoken.
    pub multicast: Option<MulticastOptions>,
    /// How chunks are made.
    pub chunks: ChunkMethod,
}

/// Fate of installations whose image is removed from the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalPolicy {
    /// They go on as long as the content is there.
    Finish,
    /// Their machines are told to end.
    End,
}

/// A line for the log of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLine<'a> {
    /// An answer failed because of the archive, or tokens cannot be used.
    Trouble(&'a str),
    /// A machine began an installation, moved to another way, or ended.
    Machine(&'a str),
}

/// Receives the lines of a server's log.
pub type LogHook = Box<dyn Fn(LogLine<'_>) + Send + Sync>;

/// A server that listens.
#[derive(Debug)]
pub struct ImageServer {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<ServerState>,
    /// `None` if connections are plain.
    handshakes: Option<Handshakes>,
    /// Dropped last: the listener belongs to it.
    runtime: Runtime,
}

impl ImageServer {
    /// Starts to listen. Connections are accepted once [`ImageServer::run`] is called.
    ///
    /// # Errors
    /// When the address or the interface cannot be used, or no thread can be started; when the tokens cannot be used,
    /// or would go over plain connections to other machines; when multicast has no key without TLS, or has one with it;
    /// when chunks cannot be made beforehand.
    pub fn listen(archive: Arc<Archive>, options: &ServerOptions, on_line: LogHook) -> Result<ImageServer, NetError> {
        if options.tokens.is_some() && options.identity.is_none() && !options.address.ip().is_loopback() {
            return Err(NetError::PlainTokens);
        }
        check_keys(options)?;
        let tokens = options.tokens.as_deref().map(TokenFile::open).transpose()?;
        let handshakes = options.identity.as_ref().map(Handshakes::new).transpose()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            // One more looks at the file of tokens, one for removed images, and some read ahead.
            .max_blocking_threads(READERS_MAX + 2 + AHEAD_THREADS_MAX)
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(|error| NetError::Client(error.to_string()))?;
        let cannot = |source| NetError::Listen { address: options.address, source };
        let listener = {
            let _guard = runtime.enter();
            bind(options).map_err(cannot)?
        };
        let address = listener.local_addr().map_err(cannot)?;
        let sessions = match (&options.multicast, &options.interface) {
            (Some(multicast), Some(interface)) => {
                Some(Sessions::new(multicast.clone(), interface, options.memory_bytes)?)
            }
            _ => None,
        };
        let served = ServedArchive::new(archive, options.memory_bytes / SHARE).with_method(options.chunks.clone())?;
        let digests = DiskDigests::new(options.digests.clone(), served.archive().descriptor().archive);
        let state = ServerState::new(served, options, tokens, sessions, digests, on_line);
        Ok(ImageServer { listener, address, state: Arc::new(state), handshakes, runtime })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns from where to where, and how, images are sent by multicast, for people; `None` if they are not.
    #[must_use]
    pub fn multicast(&self) -> Option<String> {
        self.state.sessions().map(|sessions| sessions.text())
    }

    /// Serves until `is_stopped` returns true. Then answers that are under way are finished, for at most ten seconds.
    pub fn run(self, is_stopped: &dyn Fn() -> bool) {
        let ImageServer { listener, state, handshakes, runtime, .. } = self;
        if state.tokens().is_some() {
            runtime.spawn(access::follow_tokens(Arc::clone(&state)));
        }
        runtime.spawn(reports::follow_machines(Arc::clone(&state)));
        runtime.block_on(accept(listener, Arc::clone(&state), handshakes, is_stopped));
        if let Some(sessions) = state.sessions() {
            sessions.stop();
        }
        state.digests().stop();
        // Threads may still wait for a store that does not answer.
        runtime.shutdown_background();
    }
}

/// Fails if the keys of multicast would not protect what is sent.
fn check_keys(options: &ServerOptions) -> Result<(), NetError> {
    let (Some(multicast), Some(interface)) = (&options.multicast, &options.interface) else { return Ok(()) };
    let what = match (&multicast.key, &options.identity, &options.tokens) {
        (None, None, _) => "without TLS, server and clients need a key in a file",
        (Some(_), Some(_), _) => "over TLS the server hands out keys, and a key in a file is for plain connections",
        // A machine that has the key can read each image that is sent.
        (Some(_), None, Some(_)) => "tokens give rights to some images, and a key in a file opens all that are sent",
        (None, Some(_), _) | (Some(_), None, None) => return Ok(()),
    };
    Err(NetError::Multicast { interface: interface.clone(), source: io::Error::other(what) })
}

fn bind(options: &ServerOptions) -> io::Result<TcpListener> {
    let socket = if options.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that is started again need not wait for connections of the one before.
    socket.set_reuseaddr(true)?;
    if let Some(interface) = &options.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(options.address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the server is to end, and then waits for those that are under way.
async fn accept(
    listener: TcpListener,
    state: Arc<ServerState>,
    handshakes: Option<Handshakes>,
    is_stopped: &dyn Fn() -> bool,
) {
    let router = routes::router(state);
    let connections = Places::new(CONNECTIONS_MAX, CONNECTIONS_OF_CLIENT_MAX);
    let (stop, stopped) = watch::channel(false);
    while let Some(accepted) = unless_stopped(listener.accept(), is_stopped).await {
        let Ok((stream, client)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // One that is refused is closed at once, so that its client knows.
        let Some(place) = connections.take(client.ip()) else { continue };
        tokio::spawn(hold(place, (stream, client), handshakes.clone(), router.clone(), stopped.clone()));
    }
    drop(listener);
    let _ = stop.send(true);
    connections.all_free(ENDING).await;
}

/// Serves a connection, which has its place until it ends.
async fn hold(
    place: Place,
    (stream, client): (TcpStream, SocketAddr),
    handshakes: Option<Handshakes>,
    router: axum::Router,
    stopped: watch::Receiver<bool>,
) {
    let stream = CountedStream::new(stream, client.ip());
    let activity = Arc::clone(stream.activity());
    match handshakes {
        None => connection::serve(Protocol::One, stream, activity, router, stopped).await,
        Some(handshakes) => {
            if let Some((protocol, stream)) = handshakes.make(stream, client.ip()).await {
                connection::serve(protocol, stream, activity, router, stopped).await;
            }
        }
    }
    drop(place);
}

/// Waits for `next`; returns `None` once the server is to end.
async fn unless_stopped<T>(next: impl Future<Output = T>, is_stopped: &dyn Fn() -> bool) -> Option<T> {
    tokio::pin!(next);
    loop {
        if is_stopped() {
            return None;
        }
        if let Ok(next) = timeout_at(Instant::now() + LOOK, next.as_mut()).await {
            return Some(next);
        }
    }
}
