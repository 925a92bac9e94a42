//! Serves the images of an archive over HTTP. `docs/format/served-images.md` has the addresses.
//!
//! Handlers run on the runtime and never read the archive: threads for blocking work do, a bounded number at once. What
//! an answer takes of the memory is reserved before it is read, and given back when it has been sent.
//!
//! | part         | is                                                              |
//! |--------------|-----------------------------------------------------------------|
//! | `connection` | one client's connection, and when it is given up                |
//! | `routes`     | which address leads to which answer                             |
//! | `state`      | the archive behind all answers, the memory and threads for them |
//! | `range`      | conditions and ranges of requests                               |
//! | `body`       | bodies of answers                                               |

mod body;
mod connection;
mod range;
mod routes;
mod state;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use onefold_image::archive::Archive;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::NetError;
use state::{READERS_MAX, ServerState};

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
}

/// Receives a line about an answer that failed because of the archive.
pub type ErrorHook = Box<dyn Fn(&str) + Send + Sync>;

/// A server that listens.
#[derive(Debug)]
pub struct ImageServer {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<ServerState>,
    /// Dropped last: the listener belongs to it.
    runtime: Runtime,
}

impl ImageServer {
    /// Starts to listen. Connections are accepted once [`ImageServer::run`] is called.
    ///
    /// # Errors
    /// When the address or the interface cannot be used, or no thread can be started.
    pub fn listen(
        archive: Arc<Archive>,
        options: &ServerOptions,
        on_error: ErrorHook,
    ) -> Result<ImageServer, NetError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(READERS_MAX)
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
        let state = Arc::new(ServerState::new(archive, options.memory_bytes, on_error));
        Ok(ImageServer { listener, address, state, runtime })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `is_stopped` returns true. Then answers that are under way are finished, for at most ten seconds.
    pub fn run(self, is_stopped: &dyn Fn() -> bool) {
        let ImageServer { listener, state, runtime, .. } = self;
        runtime.block_on(accept(listener, state, is_stopped));
        // Threads may still wait for a store that does not answer.
        runtime.shutdown_background();
    }
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
async fn accept(listener: TcpListener, state: Arc<ServerState>, is_stopped: &dyn Fn() -> bool) {
    let router = routes::router(state);
    let clients = Arc::new(Clients::default());
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stop, stopped) = watch::channel(false);
    while let Some(accepted) = unless_stopped(listener.accept(), is_stopped).await {
        let Ok((stream, client)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // One that is refused is closed at once, so that its client knows.
        let Some(place) = Place::take(&connections, &clients, client.ip()) else { continue };
        tokio::spawn(hold(place, stream, router.clone(), stopped.clone()));
    }
    drop(listener);
    let _ = stop.send(true);
    let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
    let _ = timeout(ENDING, connections.acquire_many(all)).await;
}

async fn hold(place: Place, stream: TcpStream, router: axum::Router, stopped: watch::Receiver<bool>) {
    connection::serve(stream, router, stopped).await;
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

/// Number of connections from each address.
#[derive(Debug, Default)]
struct Clients(Mutex<HashMap<IpAddr, usize>>);

/// The place of one connection among all.
struct Place {
    clients: Arc<Clients>,
    client: IpAddr,
    _connection: OwnedSemaphorePermit,
}

impl Place {
    /// Returns a place for a client; `None` if it has too many, or all are taken.
    fn take(connections: &Arc<Semaphore>, clients: &Arc<Clients>, client: IpAddr) -> Option<Place> {
        let connection = Arc::clone(connections).try_acquire_owned().ok()?;
        let mut counts = clients.0.lock();
        let count = counts.entry(client).or_insert(0);
        if *count >= CONNECTIONS_OF_CLIENT_MAX {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Place { clients: Arc::clone(clients), client, _connection: connection })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.clients.0.lock();
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_client_has_a_bounded_number_of_connections_and_gives_them_back() {
        let (connections, clients) = (Arc::new(Semaphore::new(CONNECTIONS_OF_CLIENT_MAX + 1)), Arc::default());
        let take = |last: u8| Place::take(&connections, &clients, Ipv4Addr::new(192, 0, 2, last).into());
        let mut places: Vec<Place> = (0..CONNECTIONS_OF_CLIENT_MAX).map(|_| take(1).unwrap()).collect();
        assert!(take(1).is_none(), "one client");
        let other = take(2).unwrap();
        assert!(take(2).is_none(), "all");
        drop(places.pop());
        assert!(take(1).is_some());
        drop((places, other));
        assert!(clients.0.lock().is_empty());
    }
}
