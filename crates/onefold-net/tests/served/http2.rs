//! HTTP/2: as it is used, and as attackers use it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_image::UnitName;
use onefold_net::{ServerIdentity, ServerOptions};
use reqwest::{Certificate, Client, Version};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::fixture::{Fixture, RunningServer, server_options};

/// Types of frames (RFC 9113, section 6).
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// Flags of frames.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// How long an answer of a server of this machine may take.
const PATIENCE: Duration = Duration::from_secs(5);

struct TestServer {
    fixture: Fixture,
    folder: TempDir,
    server: RunningServer,
}

impl TestServer {
    fn new() -> TestServer {
        TestServer::with_memory(server_options().memory_bytes)
    }

    fn with_memory(memory_bytes: usize) -> TestServer {
        let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
        let identity = ServerIdentity::kept(folder.path(), &["127.0.0.1".to_owned()]).unwrap();
        let options = ServerOptions { identity: Some(identity), memory_bytes, ..server_options() };
        let server = fixture.serve_with(&options);
        TestServer { fixture, folder, server }
    }

    fn certificate(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("certificate.pem")).unwrap()
    }

    fn client(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificate = Certificate::from_pem(&self.certificate()).unwrap();
        let builder = Client::builder().tls_certs_only([certificate]).no_proxy().timeout(4 * PATIENCE);
        // Another address than that of the tests' own connections.
        builder.local_address(Some([127, 0, 0, 2].into())).build().unwrap()
    }

    /// Opens a connection on which the test writes frames itself.
    fn connect(&self) -> RawConnection {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&self.certificate()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TcpStream::connect(self.server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream);
        let mut connection = RawConnection { stream, received: Vec::new() };
        connection.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        connection
    }

    /// Fails unless the server still answers others in time.
    fn assert_serves(&self) {
        let began = Instant::now();
        let runtime = runtime();
        let answer = runtime
            .block_on(async { self.client().get(url(self.server.address, "archive")).send().await.unwrap().status() });
        assert!(answer.is_success() && began.elapsed() < PATIENCE, "{answer} {:?}", began.elapsed());
    }
}

struct RawConnection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    received: Vec<u8>,
}

impl RawConnection {
    /// Sends a frame. Returns false if the server has ended the connection.
    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.stream.write_all(&[&head, payload].concat()).is_ok()
    }

    /// Returns the frames that come until nothing comes for half a second, or the connection ends: their types and
    /// payloads. The last value says whether the connection has ended.
    fn frames(&mut self) -> (Vec<(u8, Vec<u8>)>, bool) {
        let began = Instant::now();
        let mut buffer = vec![0; 64 << 10];
        let has_ended = loop {
            assert!(began.elapsed() < 2 * PATIENCE, "the server sends without end");
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) => break !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        };
        let (mut frames, mut at) = (Vec::new(), 0);
        while let Some(head) = self.received.get(at..at + 9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some(payload) = self.received.get(at + 9..at + 9 + length) else { break };
            frames.push((head[3], payload.to_vec()));
            at += 9 + length;
        }
        self.received.drain(..at);
        (frames, has_ended)
    }
}

/// Returns the header block of a request: indexed method and scheme, literal path and authority (RFC 7541).
fn request(path: &str) -> Vec<u8> {
    let literal = |name: u8, value: &str| [&[name, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    [vec![0x82, 0x87], literal(0x04, path), literal(0x01, "x")].concat()
}

/// Returns the header block of a request of a range.
fn request_of_range(path: &str, range: &str) -> Vec<u8> {
    // The name has number 50, which does not fit into the four bits of its first byte.
    [request(path), vec![0x0f, 50 - 15, u8::try_from(range.len()).unwrap()], range.as_bytes().to_vec()].concat()
}

fn url(address: SocketAddr, path: &str) -> String {
    format!("https://{address}/v1/{path}")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn several_answers_come_over_one_connection() {
    let served = TestServer::new();
    let archive = served.fixture.archive();
    let manifest = archive.manifest(&archive.images()[0]).unwrap();
    let client = served.client();
    runtime().block_on(async {
        let raw = async {
            let answer = client.get(url(served.server.address, "images/lab%2Fweb/raw")).send().await.unwrap();
            assert_eq!((answer.version(), answer.content_length()), (Version::HTTP_2, Some(4 << 20)));
            answer.bytes().await.unwrap()
        };
        let requests = manifest.chunks.iter().map(|chunk| url(served.server.address, &format!("chunks/{chunk}")));
        let chunks = requests.map(|url| async {
            let answer = client.get(url).send().await.unwrap();
            assert_eq!((answer.version(), answer.status().as_u16()), (Version::HTTP_2, 200));
            answer.bytes().await.unwrap().len()
        });
        let (raw, chunks) = futures_util::future::join(raw, futures_util::future::join_all(chunks)).await;
        assert!(raw == served.fixture.disk.0);
        assert!(chunks.len() >= 4 && chunks.iter().sum::<usize>() > 3 << 20, "{chunks:?}");
    });
}

/// The client takes no byte of any answer. Some of them wait for memory, and leave enough for another client.
#[test]
fn a_connection_has_a_bounded_number_of_answers() {
    let served = TestServer::new();
    let mut connection = served.connect();
    // No window for bodies.
    assert!(connection.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for at in 0..40 {
        assert!(connection.send(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &request("/v1/images/lab%2Fweb/raw")));
    }
    let (mut answers, mut refused) = (0, 0);
    let began = Instant::now();
    while (answers == 0 || refused < 40 - 16) && began.elapsed() < PATIENCE {
        let (frames, _) = connection.frames();
        answers += frames.iter().filter(|(kind, _)| *kind == HEADERS).count();
        refused += frames.iter().filter(|(kind, _)| *kind == RST_STREAM).count();
    }
    assert!((1..=16).contains(&answers) && refused == 40 - 16, "{answers} answers, {refused} refused");
    served.assert_serves();
}

/// The client has window for the body up to its last bytes only. The server has given the whole answer to the
/// connection then, and must go on counting the memory of it.
#[test]
fn an_answer_keeps_its_memory_until_the_last_piece_has_been_sent() {
    // One address gets 2 MiB for answers: ranges of an image take 1 MiB each.
    let served = TestServer::with_memory(16 << 20);
    let mut connection = served.connect();
    assert!(connection.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 100]));
    let range = |stream| (stream, request_of_range("/v1/images/lab%2Fweb/raw", "bytes=0-999"));
    for (stream, request) in [1, 3, 5].map(range) {
        assert!(connection.send(HEADERS, END_STREAM | END_HEADERS, stream, &request));
    }
    let (frames, has_ended) = connection.frames();
    assert_eq!(frames.iter().filter(|(kind, _)| *kind == HEADERS).count(), 2, "the third one waits for memory");
    assert!(!has_ended);
    // The client takes the rest of the answers.
    for stream in [1, 3, 5] {
        assert!(connection.send(WINDOW_UPDATE, 0, stream, &1000_u32.to_be_bytes()));
    }
    let (frames, _) = connection.frames();
    assert_eq!(frames.iter().filter(|(kind, _)| *kind == HEADERS).count(), 1);
    served.assert_serves();
}

/// The client takes no answer, so its requests of manifests wait for its share of the memory.
#[test]
fn a_client_without_memory_keeps_no_other_one_from_manifests() {
    let served = TestServer::with_memory(16 << 20);
    let archive = served.fixture.archive();
    let manifest = format!("manifests/{}", UnitName(archive.images()[0].digest));
    let mut connection = served.connect();
    assert!(connection.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for stream in [1, 3] {
        assert!(connection.send(HEADERS, END_STREAM | END_HEADERS, stream, &request("/v1/images/lab%2Fweb/raw")));
    }
    let (frames, _) = connection.frames();
    assert_eq!(frames.iter().filter(|(kind, _)| *kind == HEADERS).count(), 2, "the share is used up");
    for stream in [5, 7, 9] {
        let manifest = request(&format!("/v1/{manifest}"));
        assert!(connection.send(HEADERS, END_STREAM | END_HEADERS, stream, &manifest));
    }
    let (frames, has_ended) = connection.frames();
    assert!(frames.iter().all(|(kind, _)| *kind != HEADERS) && !has_ended, "they wait");
    let began = Instant::now();
    let answer = runtime().block_on(async { served.client().get(url(served.server.address, &manifest)).send().await });
    assert!(answer.unwrap().status().is_success() && began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

/// The rapid reset attack (CVE-2023-44487): requests that cost the server work are reset at once.
#[test]
fn requests_that_are_reset_at_once_do_not_pile_up() {
    let served = TestServer::new();
    let archive = served.fixture.archive();
    let chunk = archive.manifest(&archive.images()[0]).unwrap().chunks[0];
    let mut connection = served.connect();
    assert!(connection.send(SETTINGS, 0, 0, &[]));
    let request = request(&format!("/v1/chunks/{chunk}"));
    for at in 0..20_000 {
        let is_open = connection.send(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &request)
            && connection.send(RST_STREAM, 0, 2 * at + 1, &8_u32.to_be_bytes());
        if !is_open {
            break;
        }
    }
    served.assert_serves();
}

#[test]
fn endless_headers_end_the_connection() {
    let served = TestServer::new();
    for (block, count) in [(vec![0x82; 16], 100_000), (vec![0x82; 16 << 10], 100)] {
        let mut connection = served.connect();
        assert!(connection.send(SETTINGS, 0, 0, &[]));
        let mut is_open = connection.send(HEADERS, END_STREAM, 1, &request("/v1/archive"));
        for _ in 0..count {
            is_open = is_open && connection.send(CONTINUATION, 0, 1, &block);
        }
        let (frames, has_ended) = connection.frames();
        let is_refused = frames.iter().any(|(kind, _)| *kind == GOAWAY);
        assert!(!is_open || has_ended || is_refused, "{frames:?}");
        served.assert_serves();
    }
}
