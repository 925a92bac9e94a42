//! An image that comes by multicast where that arrives, and over HTTP otherwise.
//!
//! | part       | is                                                                                     |
//! |------------|----------------------------------------------------------------------------------------|
//! | `listener` | the receiving thread: opens packets, passes them to the state machine, sends requests   |
//! | `arrivals` | chunks between the receiving thread and the threads of an installation                  |
//! | `link`     | sockets of the session, and its packets                                                 |
//! | `join`     | how a machine joins, and the keys that it has then                                      |

mod arrivals;
mod join;
mod link;
mod listener;

use std::fmt;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use onefold_image::archive::ArchiveError;
use onefold_image::multicast::{HttpReason, ReceivedChunk};
use onefold_image::remote::{Chunks, RemoteImages, Transport};
use onefold_image::{Arrivals, ImageVersion, LackingPart, UnitName};
use parking_lot::Mutex;

use super::transport::RemoteTransport;
use crate::multicast::MulticastKey;

use arrivals::{ArrivalQueue, Content};
use listener::{JoinedImage, Listener};

/// Receives a line about the way on which an image comes.
pub type NoteHook = Arc<dyn Fn(&str) + Send + Sync>;

/// How an image is received by multicast.
#[derive(Clone)]
pub struct GroupOptions {
    /// The key that the server has, too, where connections are plain. Over TLS there is none: the reply to a join has
    /// the keys.
    pub key: Option<MulticastKey>,
    /// Memory for chunks that come, in bytes.
    pub memory_bytes: usize,
    /// Called when multicast begins, does not arrive, or returns.
    pub on_note: NoteHook,
}

impl fmt::Debug for GroupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupOptions").field("memory_bytes", &self.memory_bytes).finish_non_exhaustive()
    }
}

/// The way that packets of a session take to this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupWay {
    /// Name of the interface on which the group was joined.
    pub interface: String,
    /// Address and UDP port from which the server sends, and to which requests go.
    pub source: SocketAddrV4,
    /// Address and UDP port of the group.
    pub group: SocketAddrV4,
    /// How many routers packets may cross, plus one, as the server says.
    pub ttl: u8,
    /// Whether the group was joined for the source, rather than for any source.
    pub is_source_specific: bool,
}

/// Counts of chunks by the way on which they came, and of packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupReport {
    /// Chunks that came by multicast.
    pub chunks: u64,
    /// Chunks that were fetched over HTTP as a whole.
    pub http_chunks: u64,
    /// Chunks of which the target or seeds have most: their other units were fetched over HTTP, if there were any.
    pub spared_chunks: u64,
    /// Packets of the server that arrived.
    pub received_packets: u64,
    /// Packets that the server sent while this machine listened, by their numbers.
    pub sent_packets: u64,
    /// Packets that were dropped: not the server's, changed, or not new.
    pub refused_packets: u64,
    /// Chunks that were dropped for want of memory, and came again.
    pub dropped_chunks: u64,
    /// Requests to the server.
    pub requests: u64,
    /// Lacking symbols that were requested; those of a chunk that was requested twice count twice.
    pub requested_symbols: u64,
    /// Bytes of symbols that this machine had already.
    pub repeated_bytes: u64,
    /// Whether multicast arrives now, or did until the end.
    pub is_arriving: bool,
    /// Why the rest comes over HTTP, if multicast arrived too little.
    pub http_reason: Option<HttpReason>,
    /// Where multicast comes from, once the group was joined.
    pub way: Option<GroupWay>,
}

impl GroupReport {
    /// Adds the packets and requests of one reception that came since an earlier look.
    fn add_since(&mut self, now: &GroupReport, earlier: &GroupReport) {
        let add = |sum: &mut u64, now: u64, earlier: u64| *sum = sum.saturating_add(now.saturating_sub(earlier));
        add(&mut self.received_packets, now.received_packets, earlier.received_packets);
        add(&mut self.sent_packets, now.sent_packets, earlier.sent_packets);
        add(&mut self.refused_packets, now.refused_packets, earlier.refused_packets);
        add(&mut self.dropped_chunks, now.dropped_chunks, earlier.dropped_chunks);
        add(&mut self.requests, now.requests, earlier.requests);
        add(&mut self.requested_symbols, now.requested_symbols, earlier.requested_symbols);
        add(&mut self.repeated_bytes, now.repeated_bytes, earlier.repeated_bytes);
    }
}

/// The report of an installation. It grows about twice a second, and is complete once the reception has ended.
pub type SharedGroupReport = Arc<Mutex<GroupReport>>;

/// Requests to a server, and an image that it sends to a group.
#[derive(Debug)]
pub struct GroupTransport {
    http: Arc<RemoteTransport>,
    /// Digest of the image's manifest.
    digest: [u8; 32],
    options: GroupOptions,
    /// Chunks that have come and are about to be read.
    arrivals: Mutex<Option<Arc<ArrivalQueue>>>,
    /// Held by the thread that decodes.
    decoding: Mutex<()>,
    report: SharedGroupReport,
}

impl GroupTransport {
    /// Returns the images of a server, of which the one with this digest is received by multicast.
    pub(super) fn images(
        images: RemoteImages<RemoteTransport>,
        digest: [u8; 32],
        options: GroupOptions,
    ) -> (RemoteImages<GroupTransport>, SharedGroupReport) {
        let (http, descriptor) = images.into_parts();
        let report = SharedGroupReport::default();
        let transport = GroupTransport {
            http: Arc::new(http),
            digest,
            options,
            arrivals: Mutex::default(),
            decoding: Mutex::default(),
            report: Arc::clone(&report),
        };
        (RemoteImages::new(transport, descriptor), report)
    }
}

impl GroupTransport {
    /// Returns the bytes of a chunk that has come. Those that cannot be decoded are fetched over HTTP.
    fn decoded(&self, content: ReceivedChunk, name: &UnitName) -> Option<Result<Vec<u8>, ArchiveError>> {
        // Decoding takes several times the memory of a chunk, so one thread at a time does it.
        let turn = self.decoding.lock();
        let bytes = content.into_bytes();
        drop(turn);
        match bytes {
            Some(bytes) => Some(Ok(bytes)),
            None => self.http.chunks(std::slice::from_ref(name)).next(),
        }
    }
}

impl Transport for GroupTransport {
    fn server(&self) -> &str {
        self.http.server()
    }

    fn units(&self, names: &[UnitName]) -> Result<Vec<u8>, ArchiveError> {
        self.http.units(names)
    }

    fn units_of(&self, chunk: &UnitName, names: &[UnitName]) -> Result<Vec<u8>, ArchiveError> {
        self.http.units_of(chunk, names)
    }

    fn chunks(&self, names: &[UnitName]) -> Chunks<'_> {
        let queue = self.arrivals.lock().clone();
        let Some(queue) = queue else { return self.http.chunks(names) };
        let contents: Vec<Option<Content>> = names.iter().map(|name| queue.take(name)).collect();
        let absent = contents.iter().zip(names).filter(|(content, _)| !matches!(content, Some(Content::Received(..))));
        let absent: Vec<UnitName> = absent.map(|(_, name)| *name).collect();
        let mut fetched = if absent.is_empty() { Box::new(std::iter::empty()) } else { self.http.chunks(&absent) };
        let contents: Vec<_> = contents.into_iter().zip(names.to_vec()).collect();
        Box::new(contents.into_iter().map_while(move |(content, name)| {
            let (chunk, bytes) = match content {
                Some(Content::Received(chunk, content)) => (Some(chunk), self.decoded(content, &name)?),
                Some(Content::OverHttp(chunk)) => {
                    let bytes = fetched.next()?;
                    self.report.lock().http_chunks += u64::from(bytes.is_ok());
                    (Some(chunk), bytes)
                }
                None => (None, fetched.next()?),
            };
            if let (Some(chunk), Ok(_)) = (chunk, &bytes) {
                queue.settle(chunk);
            }
            Some(bytes)
        }))
    }

    fn has_image(&self, image: &ImageVersion) -> Result<bool, ArchiveError> {
        self.http.has_image(image)
    }

    fn waited(&self) -> Duration {
        self.http.waited()
    }

    fn has_come(&self, chunk: &UnitName) -> bool {
        self.arrivals.lock().as_ref().is_some_and(|queue| queue.has_come(chunk))
    }

    fn arrivals(&self, chunks: &[UnitName], is_compared: bool) -> Option<Box<dyn Arrivals + '_>> {
        let queue = Arc::new(ArrivalQueue::new(chunks));
        let image = JoinedImage { digest: self.digest, is_compared };
        let listener = Listener::start(&self.http, image, &self.options, &queue, &self.report)?;
        *self.arrivals.lock() = Some(Arc::clone(&queue));
        Some(Box::new(Reception { transport: self, queue, _listener: listener }))
    }
}

/// The reception of an image, until it is dropped.
struct Reception<'t> {
    transport: &'t GroupTransport,
    queue: Arc<ArrivalQueue>,
    _listener: Listener,
}

impl Arrivals for Reception<'_> {
    fn next(&self, patience: Duration) -> Option<Vec<usize>> {
        self.queue.next(patience)
    }

    fn compared(&self, index: usize, part: LackingPart) {
        self.queue.note_compared(index, part);
    }

    fn finish(&self, indices: &[usize]) {
        self.queue.finish(indices);
    }
}

impl Drop for Reception<'_> {
    fn drop(&mut self) {
        *self.transport.arrivals.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::remote::transport::RemoteOptions;

    /// Returns the image of a server that listens here.
    fn transport(listener: &TcpListener) -> GroupTransport {
        let options = RemoteOptions {
            ca: None,
            pin: None,
            token: None,
            allow_http: true,
            patience: Duration::from_secs(5),
            first_patience: Duration::from_secs(5),
            on_wait: Box::new(|_, _| ()),
        };
        let address = format!("http://{}", listener.local_addr().unwrap());
        GroupTransport {
            http: Arc::new(RemoteTransport::new(&address, options).unwrap()),
            digest: [0; 32],
            options: GroupOptions { key: None, memory_bytes: 0, on_note: Arc::new(|_: &str| ()) },
            arrivals: Mutex::default(),
            decoding: Mutex::default(),
            report: SharedGroupReport::default(),
        }
    }

    /// Regression: chunks that the target turned out to have counted as fetched, too.
    #[test]
    fn only_chunks_that_came_over_http_count_as_such() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let transport = transport(&listener);
        let names = [1, 2, 3].map(|byte| UnitName([byte; 32]));
        let queue = Arc::new(ArrivalQueue::new(&names));
        *transport.arrivals.lock() = Some(Arc::clone(&queue));
        queue.push(Content::Received(0, vec![7].into()));
        queue.push(Content::OverHttp(1));
        queue.push(Content::OverHttp(2));
        assert_eq!(queue.next(Duration::ZERO), Some(vec![0]));
        assert_eq!(queue.next(Duration::ZERO), Some(vec![1, 2]));
        let contents = |names: &[UnitName]| -> Vec<Vec<u8>> { transport.chunks(names).map(Result::unwrap).collect() };
        assert_eq!(contents(&names[..1]), [[7]]);
        assert_eq!(transport.report.lock().http_chunks, 0);
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                connection.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n8").unwrap();
        });
        assert_eq!(contents(&names[1..2]), [b"8"]);
        server.join().unwrap();
        // The target has the third one.
        queue.finish(&[1, 2]);
        assert_eq!(queue.next(Duration::ZERO), None);
        assert_eq!(transport.report.lock().http_chunks, 1);
    }
}
