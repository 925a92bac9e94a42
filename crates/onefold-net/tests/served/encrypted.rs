//! EncryptedServer connections: certificates of all kinds, pins, and servers that lie.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onefold_image::archive::ArchiveError;
use onefold_image::store::{Refusal, StoreError};
use onefold_net::{Fingerprint, NetError, RemoteArchive, RemoteOptions, ServerIdentity, ServerOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use crate::fixture::{Fixture, RunningServer, get, install_over_noise, options, raw_request, server_options};

/// Long enough for every answer of a server of this machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server with a certificate that it made itself, in `folder`.
struct EncryptedServer {
    fixture: Fixture,
    folder: TempDir,
    identity: ServerIdentity,
    server: RunningServer,
}

impl EncryptedServer {
    fn new() -> EncryptedServer {
        let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let identity = ServerIdentity::kept(folder.path(), &names).unwrap();
        let server = fixture.serve_with(&ServerOptions { identity: Some(identity.clone()), ..server_options() });
        EncryptedServer { fixture, folder, identity, server }
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }
}

fn pinned(pin: Fingerprint) -> RemoteOptions {
    RemoteOptions { pin: Some(pin), ..options(PATIENCE) }
}

fn trusting(ca: &Path) -> RemoteOptions {
    RemoteOptions { ca: Some(ca.to_owned()), ..options(PATIENCE) }
}

fn open(address: SocketAddr, options: RemoteOptions) -> Result<RemoteArchive, ArchiveError> {
    RemoteArchive::open(&format!("https://{address}"), options).unwrap()
}

/// Returns why a server is refused, and fails if the client waited for another answer.
fn refusal(opened: Result<RemoteArchive, ArchiveError>) -> (Refusal, String) {
    match opened {
        Err(ArchiveError::Store(StoreError::Refused { why, source, .. })) => (why, source.to_string()),
        other => panic!("{other:?}"),
    }
}

fn other_fingerprint() -> Fingerprint {
    "ab".repeat(32).parse().unwrap()
}

#[test]
fn an_image_is_installed_from_a_server_with_a_pinned_certificate() {
    let served = EncryptedServer::new();
    // Neither authority nor name of the certificate are known to the client.
    let remote = open(served.server.address, pinned(served.identity.fingerprint())).unwrap();
    let installed = install_over_noise(remote, &served.folder.path().join("disk"), &|_| ()).unwrap();
    assert!(installed == served.fixture.disk.0);
}

#[test]
fn another_certificate_than_the_pinned_one_is_refused_at_once() {
    let served = EncryptedServer::new();
    let began = Instant::now();
    let (why, _) = refusal(open(served.server.address, pinned(other_fingerprint())));
    assert_eq!(why, Refusal::Pin);
    assert!(began.elapsed() < PATIENCE, "no other attempt is made");
    let with_both = RemoteOptions { ca: Some(served.certificate()), ..pinned(other_fingerprint()) };
    assert_eq!(refusal(open(served.server.address, with_both)).0, Refusal::Pin, "an authority outweighs no pin");
}

#[test]
fn a_certificate_without_a_pin_needs_an_authority_that_the_client_trusts() {
    let served = EncryptedServer::new();
    assert_eq!(refusal(open(served.server.address, options(PATIENCE))).0, Refusal::ImageServerCertificate);
    assert_eq!(open(served.server.address, trusting(&served.certificate())).unwrap().records().len(), 1);
    let other = tempfile::tempdir().unwrap();
    ServerIdentity::kept(other.path(), &["127.0.0.1".to_owned()]).unwrap();
    let other = other.path().join("certificate.pem");
    assert_eq!(refusal(open(served.server.address, trusting(&other))).0, Refusal::ImageServerCertificate);
}

/// Writes a certificate that an authority has signed, with its key, into a folder. Returns the files of the authority,
/// the certificate and the key.
fn signed(folder: &Path, name: &str, last_year: i32) -> [PathBuf; 3] {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
    parameters.not_after = date_time_ymd(last_year, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.signed_by(&key, &authority).unwrap();
    let [ca, chain, private] = ["ca.pem", "chain.pem", "key.pem"].map(|file| folder.join(file));
    fs::write(&ca, authority.pem()).unwrap();
    fs::write(&chain, certificate.pem() + &authority.pem()).unwrap();
    fs::write(&private, key.serialize_pem()).unwrap();
    fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    [ca, chain, private]
}

#[test]
fn the_operators_certificate_is_verified_by_authority_name_and_date_or_by_its_pin() {
    let fixture = Fixture::new(2 << 20);
    for (name, last_year, is_valid) in [("127.0.0.1", 2400, true), ("127.0.0.1", 2000, false), ("other", 2400, false)] {
        let folder = tempfile::tempdir().unwrap();
        let [ca, chain, key] = signed(folder.path(), name, last_year);
        let identity = ServerIdentity::read(&chain, &key).unwrap();
        let server = fixture.serve_with(&ServerOptions { identity: Some(identity.clone()), ..server_options() });
        let by_authority = open(server.address, trusting(&ca));
        match is_valid {
            true => assert_eq!(by_authority.unwrap().records().len(), 1),
            false => assert_eq!(refusal(by_authority).0, Refusal::ImageServerCertificate, "{name} {last_year}"),
        }
        let by_pin = open(server.address, pinned(identity.fingerprint()));
        assert_eq!(by_pin.unwrap().records().len(), 1, "{name} {last_year}");
    }
}

#[test]
fn each_side_is_told_when_only_the_other_one_encrypts() {
    let served = EncryptedServer::new();
    let (head, body) = get(served.server.address, "/v1/archive", "");
    assert!(head.starts_with("http/1.1 400"), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("https://"));
    let plain = RemoteArchive::open(&format!("http://{}", served.server.address), options(PATIENCE)).unwrap();
    let (why, text) = refusal(plain);
    assert!(why == Refusal::ImageServer && text.contains("https://"), "{why:?} {text}");
    let server = served.fixture.serve("127.0.0.1:0");
    for options in [pinned(other_fingerprint()), options(PATIENCE)] {
        assert_eq!(refusal(open(server.address, options)).0, Refusal::NoTls);
    }
    let refused = RemoteArchive::open(&format!("http://{}", server.address), pinned(other_fingerprint()));
    assert!(matches!(refused, Err(NetError::Endpoint { .. })), "{refused:?}");
}

#[test]
fn bytes_that_begin_no_handshake_get_no_answer_and_do_no_harm() {
    let served = EncryptedServer::new();
    for bytes in ["\0\0\0\0", "\u{16}\u{3}\u{1}", "\u{16}\u{3}\u{1}\0\u{5}hello", "get / HTTP/1.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(served.server.address).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP") && answer.len() < 64, "{bytes:?}: {answer:?}");
    }
    let (head, _) = raw_request(served.server.address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(head.starts_with("http/1.1 400"), "{head}");
    assert!(open(served.server.address, pinned(served.identity.fingerprint())).is_ok());
}

/// More than may be in a handshake at once.
#[test]
fn connections_that_send_nothing_keep_nobody_else_waiting() {
    let served = EncryptedServer::new();
    let idle: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(served.server.address).unwrap()).collect();
    let began = Instant::now();
    assert!(open(served.server.address, pinned(served.identity.fingerprint())).is_ok());
    assert!(began.elapsed() < PATIENCE);
    drop(idle);
}

/// Starts a server that encrypts with this certificate, and answers each request with `answer`, again and again if it
/// is endless. It ends with the test.
fn liar(config: Arc<ServerConfig>, answer: String, is_endless: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let (config, answer) = (Arc::clone(&config), answer.clone());
            thread::spawn(move || {
                let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), connection.unwrap());
                // One request comes at once.
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                while stream.write_all(answer.as_bytes()).is_ok() && is_endless {}
                stream.conn.send_close_notify();
                let _ = stream.flush();
            });
        }
    });
    address
}

/// Returns how a server encrypts that shows the certificate of `shown` and has the key of `key`.
fn config(shown: &Path, key: &Path) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from_pem_file(key.join("key.pem")).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let certificate = CertificateDer::from_pem_file(shown.join("certificate.pem")).unwrap();
    let certified = CertifiedKey::new(vec![certificate], key);
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
}

/// Anybody can show the certificate of a server.
#[test]
fn a_pinned_certificate_without_its_key_is_worth_nothing() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let identity = ServerIdentity::kept(folder.path(), &[]).unwrap();
    ServerIdentity::kept(other.path(), &[]).unwrap();
    let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    let honest = liar(config(folder.path(), folder.path()), answer.to_owned(), false);
    let (why, text) = refusal(open(honest, pinned(identity.fingerprint())));
    assert!(why == Refusal::ImageServer && text.contains("404"), "the answer comes: {text}");
    let thief = liar(config(folder.path(), other.path()), answer.to_owned(), false);
    let (why, text) = refusal(open(thief, pinned(identity.fingerprint())));
    assert!(why == Refusal::ImageServerCertificate && text.contains("BadSignature"), "{why:?} {text}");
}

#[test]
fn no_redirect_of_a_server_is_followed_and_no_endless_answer_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let identity = ServerIdentity::kept(folder.path(), &[]).unwrap();
    let config = config(folder.path(), folder.path());
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let there = other.local_addr().unwrap();
    for (status, scheme) in
        [("301 Moved", "https"), ("302 Found", "http"), ("307 Temporary", "https"), ("308 P", "http")]
    {
        let location = format!("Location: {scheme}://{there}/v1/archive\r\n");
        let answer = format!("HTTP/1.1 {status}\r\n{location}Content-Length: 0\r\n\r\n");
        let (why, text) = refusal(open(liar(Arc::clone(&config), answer, false), pinned(identity.fingerprint())));
        assert!(why == Refusal::ImageServer && text.contains("redirect"), "{status}: {text}");
    }
    assert_eq!(other.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a request went elsewhere");
    let endless = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", "x".repeat(4096));
    let stated = "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_owned();
    for (answer, is_endless) in [(endless, true), (stated, false)] {
        let (why, text) = refusal(open(liar(Arc::clone(&config), answer, is_endless), pinned(identity.fingerprint())));
        assert!(why == Refusal::ImageServer && text.contains("more than 4096 bytes"), "{text}");
    }
}
