//! One connection of a client: its bytes are counted, and a client that does not read is not waited for.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::middleware::map_response;
use axum::response::Response;
use axum::{Extension, Router};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::answers::Answers;

/// How long the head of a request may take, from the end of the answer before.
const HEAD: Duration = Duration::from_secs(30);
/// Maximum length of the head of a request in bytes, and of what is buffered of an answer.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of headers in a request.
const HEADERS_MAX: usize = 64;
/// Maximum number of requests of an HTTP/2 connection that are answered at once. The client learns it at the start.
const STREAMS_MAX: u32 = 16;
/// Maximum length of the headers of a request by HTTP/2 in bytes, with 32 for each of them.
const HEADER_LIST_BYTES_MAX: u32 = 16 << 10;
/// Maximum number of requests by HTTP/2 that are reset before they are looked at, and of those that are wrong.
const RESETS_MAX: usize = 32;
/// A connection over which fewer bytes go within such a time is closed, unless the server is at work for it.
const STALL: Duration = Duration::from_secs(30);
const STALL_BYTES: u64 = 64 << 10;
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Progress of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    client: IpAddr,
    moved_bytes: AtomicU64,
    /// Number of answers that the server is reading the archive for.
    working: AtomicUsize,
}

impl Activity {
    fn new(client: IpAddr) -> Activity {
        // A listener for both families shows IPv4 addresses as IPv6 ones.
        Activity { client: client.to_canonical(), moved_bytes: AtomicU64::new(0), working: AtomicUsize::new(0) }
    }

    /// Returns the address of the client.
    pub(super) fn client(&self) -> IpAddr {
        self.client
    }
}

/// The server is at work for a connection until this is dropped.
pub(super) struct AtWork(Arc<Activity>);

impl AtWork {
    pub(super) fn begin(activity: &Arc<Activity>) -> AtWork {
        activity.working.fetch_add(1, Ordering::Relaxed);
        AtWork(Arc::clone(activity))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection whose bytes are counted.
pub(super) struct CountedStream {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl AsyncRead for CountedStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        self.activity.moved_bytes.fetch_add((into.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, from);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, from);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl CountedStream {
    /// Begins to count the bytes of a connection of a client.
    pub(super) fn new(stream: TcpStream, client: IpAddr) -> CountedStream {
        // Without it, the last packet of an answer waits for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        CountedStream { stream, activity: Arc::new(Activity::new(client)) }
    }

    /// Returns the progress of the connection.
    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Waits for the first byte that the client sends, and leaves it to be read.
    pub(super) async fn first_byte(&self) -> io::Result<u8> {
        let mut first = [0; 1];
        match self.stream.peek(&mut first).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(first[0]),
        }
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.activity.moved_bytes.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        written
    }
}

/// Tells a connection that moves bytes, or for which the server works, from one that does neither.
struct Watch {
    since: Instant,
    moved_bytes: u64,
}

impl Watch {
    /// Returns whether nearly nothing went over the connection for too long.
    fn is_stalled(&mut self, activity: &Activity, now: Instant) -> bool {
        let moved_bytes = activity.moved_bytes.load(Ordering::Relaxed);
        let is_moving = moved_bytes - self.moved_bytes >= STALL_BYTES;
        if is_moving || activity.working.load(Ordering::Relaxed) > 0 {
            *self = Watch { since: now, moved_bytes };
        }
        now - self.since >= STALL
    }
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1: one answer after the other.
    One,
    /// HTTP/2: several answers at once.
    Two,
}

/// Answers the requests of a connection until it ends, stalls by its `activity`, or `stop` says that the server ends.
/// Then the requests that are under way are still answered.
pub(super) async fn serve(
    protocol: Protocol,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    activity: Arc<Activity>,
    router: Router,
    stop: watch::Receiver<bool>,
) {
    let (answers, io) = (Answers::default(), TokioIo::new(stream));
    let watched = answers.clone();
    let watched = move |response: Response| {
        let watched = watched.clone();
        async move { response.map(|body| watched.add(body)) }
    };
    let router = router.layer(Extension(Arc::clone(&activity))).layer(map_response(watched));
    match protocol {
        Protocol::One => {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(BUFFER_BYTES)
                .max_headers(HEADERS_MAX)
                .serve_connection(io, TowerToHyperService::new(router));
            drive(connection, |connection| connection.graceful_shutdown(), &activity, &answers, stop).await;
        }
        Protocol::Two => {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(HEADER_LIST_BYTES_MAX)
                .max_pending_accept_reset_streams(RESETS_MAX)
                .max_local_error_reset_streams(RESETS_MAX)
                .max_send_buf_size(BUFFER_BYTES)
                .serve_connection(io, TowerToHyperService::new(router));
            drive(connection, |connection| connection.graceful_shutdown(), &activity, &answers, stop).await;
        }
    }
}

/// Runs a connection until it ends or stalls. `end` tells it to take no further requests.
async fn drive<C: Future>(
    connection: C,
    end: impl Fn(Pin<&mut C>),
    activity: &Activity,
    answers: &Answers,
    mut stop: watch::Receiver<bool>,
) {
    tokio::pin!(connection);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Watch { since: Instant::now(), moved_bytes: 0 };
    let mut is_ending = false;
    loop {
        tokio::select! {
            // A client that goes away, or speaks another protocol, is no news.
            _ = connection.as_mut() => return,
            changed = stop.changed(), if !is_ending => {
                is_ending = true;
                if changed.is_ok() {
                    end(connection.as_mut());
                }
            }
            _ = look.tick() => {
                let now = Instant::now();
                if watch.is_stalled(activity, now) || answers.has_stalled(STALL, now) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_stalls_when_neither_side_does_anything() {
        let activity = Arc::new(Activity::new([192, 0, 2, 1].into()));
        let began = Instant::now();
        let mut watch = Watch { since: began, moved_bytes: 0 };
        assert!(!watch.is_stalled(&activity, began + STALL / 2));
        activity.moved_bytes.fetch_add(STALL_BYTES, Ordering::Relaxed);
        assert!(!watch.is_stalled(&activity, began + STALL), "bytes went");
        activity.moved_bytes.fetch_add(STALL_BYTES - 1, Ordering::Relaxed);
        assert!(!watch.is_stalled(&activity, began + STALL + STALL / 2));
        let work = AtWork::begin(&activity);
        assert!(!watch.is_stalled(&activity, began + STALL * 3), "the server works");
        drop(work);
        assert!(!watch.is_stalled(&activity, began + STALL * 4 - Duration::from_millis(1)));
        assert!(watch.is_stalled(&activity, began + STALL * 4), "a trickle is not enough");
    }
}
