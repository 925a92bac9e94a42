//! An image that is sent by multicast, over the loopback interface of this machine.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_block::random::{Random, SeededRandom};
use onefold_image::UnitName;
use onefold_image::archive::ImageRecord;
use onefold_image::format::multicast::{JoinReply, RepairCode};
use onefold_image::install::{Content, FileTarget, FreeSectorPolicy, InstallOptions, InstallReport, Target, install};
use onefold_net::{
    AccessToken, Fingerprint, GroupOptions, GroupReport, ImageServer, MulticastKey, MulticastOptions, NetError,
    RemoteArchive, RemoteOptions, SESSIONS_MAX, ServerIdentity, ServerOptions, StatusClient,
};
use parking_lot::Mutex;
use reqwest::{Certificate, Client, Response, StatusCode};

use crate::fixture::{DISK_BYTES, Fixture, Noise, RunningServer, open, options, raw_request, server_options};

const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn key(folder: &Path, digit: char) -> MulticastKey {
    let path = folder.join(format!("key-{digit}"));
    write_secret(&path, &digit.to_string().repeat(64));
    MulticastKey::read(&path).unwrap()
}

fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, format!("{text}\n")).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// Returns how images are sent over loopback, to a group of the test's own.
pub(crate) fn multicast(group: u8, key: Option<MulticastKey>) -> MulticastOptions {
    MulticastOptions {
        group: SocketAddrV4::new(Ipv4Addr::new(239, 192, group, 1), free_ports()),
        ttl: 1,
        rate_bytes_per_second: NonZeroU64::new(60 << 20).unwrap(),
        rate_floor_bytes_per_second: NonZeroU64::new(1 << 20).unwrap(),
        weights: Vec::new(),
        key,
        start: None,
        repairs: RepairCode::RaptorQ,
    }
}

/// Returns the first of some ports in a row that are free.
fn free_ports() -> u16 {
    loop {
        let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let is_free = |place: u8| {
            let port = port.checked_add(u16::from(place));
            port.is_some_and(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        };
        if (1..SESSIONS_MAX).all(is_free) {
            return port;
        }
    }
}

/// Serves by multicast without TLS. Returns the group, too.
fn serve(fixture: &Fixture, group: u8, key: MulticastKey) -> (RunningServer, SocketAddrV4) {
    let multicast = multicast(group, Some(key));
    let group = multicast.group;
    let interface = Some("lo".to_owned());
    let server = fixture.serve_with(&ServerOptions { interface, multicast: Some(multicast), ..server_options() });
    (server, group)
}

/// A server that sends by multicast and hands out the keys over TLS.
struct EncryptedGroup {
    server: RunningServer,
    pin: Fingerprint,
    /// Of its certificate, in PEM form.
    certificate: Vec<u8>,
}

impl EncryptedGroup {
    /// Begins to serve. `folder` has its certificate, and the file of its tokens if there is one.
    fn new(fixture: &Fixture, group: u8, folder: &Path) -> EncryptedGroup {
        EncryptedGroup::with(multicast(group, None), fixture, folder)
    }

    fn with(multicast: MulticastOptions, fixture: &Fixture, folder: &Path) -> EncryptedGroup {
        let state = folder.join("state");
        let identity = ServerIdentity::kept(&state, &["127.0.0.1".to_owned()]).unwrap();
        let pin = identity.fingerprint();
        let tokens = Some(folder.join("tokens")).filter(|path| path.exists());
        let server = fixture.serve_with(&ServerOptions {
            interface: Some("lo".to_owned()),
            multicast: Some(multicast),
            identity: Some(identity),
            tokens,
            ..server_options()
        });
        EncryptedGroup { server, pin, certificate: std::fs::read(state.join("certificate.pem")).unwrap() }
    }

    fn open(&self, options: RemoteOptions) -> RemoteArchive {
        let options = RemoteOptions { pin: Some(self.pin), ..options };
        RemoteArchive::open(&format!("https://{}", self.server.address), options).unwrap().unwrap()
    }

    /// Returns a client of its own address, which is not that of the installations.
    fn stranger(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificate = Certificate::from_pem(&self.certificate).unwrap();
        let builder = Client::builder().tls_certs_only([certificate]).no_proxy().timeout(PATIENCE);
        builder.local_address(Some([127, 0, 0, 2].into())).build().unwrap()
    }

    /// Sends a request to join the session of an image.
    async fn join(&self, client: &Client, digest: [u8; 32], token: Option<&str>, body: &'static [u8]) -> Response {
        let url = format!("https://{}/v1/sessions/{}", self.server.address, UnitName(digest));
        let request = client.post(url).body(body);
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        request.send().await.unwrap()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Installs the image to a new file. Returns its bytes, what came on which way, and what was said about it.
pub(crate) fn install_to(
    path: &Path,
    server: &RunningServer,
    key: MulticastKey,
) -> (Vec<u8>, GroupReport, Vec<String>) {
    install_from(path, open(server.address, PATIENCE).unwrap(), Some(key))
}

/// Likewise, from an open server. There is no key over TLS.
pub(crate) fn install_from(
    path: &Path,
    remote: RemoteArchive,
    key: Option<MulticastKey>,
) -> (Vec<u8>, GroupReport, Vec<String>) {
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let (_, installed, report, notes) = install_on(remote, key, |bytes| FileTarget::blank(file, bytes).unwrap());
    (installed, report, notes)
}

/// Installs the image to a target, of which `target` gets the length. Returns the result, too.
fn install_on(
    remote: RemoteArchive,
    key: Option<MulticastKey>,
    target: impl FnOnce(u64) -> FileTarget,
) -> (InstallReport, Vec<u8>, GroupReport, Vec<String>) {
    let record = remote.records().last().unwrap().clone();
    let (manifest, _) = remote.manifest(&record).unwrap();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let said = Arc::clone(&notes);
    let on_note = Arc::new(move |text: &str| said.lock().push(text.to_owned()));
    let (images, report) = remote.into_group_images(&record, GroupOptions { key, memory_bytes: 16 << 20, on_note });
    let target = target(manifest.size_bytes);
    let options = InstallOptions {
        free: FreeSectorPolicy::Leave,
        verify: true,
        threads: 2,
        memory_bytes: 32 << 20,
        fresh: false,
        fit: false,
        start_bytes: 0,
    };
    let done = install(&images, &manifest, &target, &options, &|_| ControlFlow::Continue(())).unwrap();
    let mut installed = vec![0; usize::try_from(manifest.size_bytes).unwrap()];
    target.read(0, &mut installed).unwrap();
    drop(images);
    let report = report.lock().clone();
    let notes = notes.lock().clone();
    (done, installed, report, notes)
}

#[test]
fn several_machines_get_an_image_by_one_transmission() {
    let (fixture, folder) = (Fixture::new(DISK_BYTES), tempfile::tempdir().unwrap());
    let (server, group) = serve(&fixture, 101, key(folder.path(), 'a'));
    std::thread::scope(|scope| {
        let machines: Vec<_> = (0..3)
            .map(|number| {
                let (path, key) = (folder.path().join(number.to_string()), key(folder.path(), 'a'));
                let server = &server;
                scope.spawn(move || install_to(&path, server, key))
            })
            .collect();
        for machine in machines {
            let (installed, report, notes) = machine.join().unwrap();
            assert!(installed == fixture.disk.0);
            assert!(report.chunks > 10 && report.http_chunks == 0, "{report:?}");
            assert_eq!(report.refused_packets, 0, "{report:?}");
            assert_eq!(report.http_reason, None);
            assert!(notes.len() == 1 && notes[0].contains("listening"), "{notes:?}");
        }
    });
    // Machines that have all tell the server, so it falls silent long before it would take them for dead.
    let listener = UdpSocket::bind(group).unwrap();
    listener.join_multicast_v4(group.ip(), &Ipv4Addr::LOCALHOST).unwrap();
    listener.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
    let packets = (0..30).take_while(|_| listener.recv(&mut [0; 2000]).is_ok()).count();
    assert!(packets < 30, "beacons go on");
}

#[test]
fn a_machine_with_another_key_says_so_and_gets_the_image_over_http() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let (server, _) = serve(&fixture, 102, key(folder.path(), 'a'));
    let (installed, report, notes) = install_to(&folder.path().join("disk"), &server, key(folder.path(), 'b'));
    assert!(installed == fixture.disk.0);
    assert_eq!(report, GroupReport::default());
    assert!(notes.len() == 1 && notes[0].contains("or has another --multicast-key"), "{notes:?}");
}

/// Each machine makes the others request less often, so machines without the key must not count.
#[test]
fn joins_without_the_key_do_not_slow_machines_down() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let (server, _) = serve(&fixture, 103, key(folder.path(), 'a'));
    let remote = open(server.address, PATIENCE).unwrap();
    let digest = UnitName(remote.records().last().unwrap().digest);
    for number in 0..400_u32 {
        let body = number.to_le_bytes().repeat(if number % 2 == 0 { 4 } else { 12 });
        let length = body.len();
        let head = format!("POST /v1/sessions/{digest} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        let request = [format!("{head}Content-Length: {length}\r\n\r\n").as_bytes(), &body].concat();
        let (answer, _) = raw_request(server.address, request);
        let status = if length == 16 { "http/1.1 400" } else { "http/1.1 403" };
        assert!(answer.starts_with(status), "{number}: {answer}");
    }
    let began = Instant::now();
    let (installed, report, notes) = install_to(&folder.path().join("disk"), &server, key(folder.path(), 'a'));
    assert!(installed == fixture.disk.0);
    assert!(report.chunks > 2 && report.http_chunks == 0, "{report:?} {notes:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn machines_get_the_keys_over_tls_and_need_no_file() {
    let (fixture, folder) = (Fixture::new(DISK_BYTES), tempfile::tempdir().unwrap());
    let served = EncryptedGroup::new(&fixture, 105, folder.path());
    std::thread::scope(|scope| {
        let machines: Vec<_> = (0..3)
            .map(|number| {
                let (path, served) = (folder.path().join(number.to_string()), &served);
                scope.spawn(move || {
                    let remote = served.open(options(PATIENCE));
                    assert!(remote.sends_by_multicast());
                    install_from(&path, remote, None)
                })
            })
            .collect();
        for machine in machines {
            let (installed, report, notes) = machine.join().unwrap();
            assert!(installed == fixture.disk.0);
            assert!(report.chunks > 10 && report.http_chunks == 0, "{report:?} {notes:?}");
            assert_eq!(report.refused_packets, 0, "{report:?}");
        }
    });
}

/// The comparison goes ahead of the packets: what the target has does not come.
#[test]
fn a_target_with_half_of_the_image_takes_the_other_half_by_multicast() {
    let (fixture, folder) = (Fixture::new(DISK_BYTES), tempfile::tempdir().unwrap());
    let served = EncryptedGroup::new(&fixture, 108, folder.path());
    let path = folder.path().join("disk");
    let mut before = fixture.disk.0.clone();
    let random = SeededRandom::new(3);
    random.fill(&mut before[DISK_BYTES / 4..DISK_BYTES * 3 / 4]).unwrap();
    // And one unit of a chunk, which is not worth a whole chunk.
    before[DISK_BYTES * 7 / 8] ^= 1;
    std::fs::write(&path, &before).unwrap();
    let open = |_| FileTarget::open(&path, Content::Overwrite).unwrap();
    let (done, installed, report, notes) = install_on(served.open(options(PATIENCE)), None, open);
    assert!(installed == fixture.disk.0);
    let half = DISK_BYTES as u64 / 2;
    // A unit has 64 KiB. 1 MiB of the image is zeros.
    assert!(done.written_bytes.abs_diff(half - (1 << 20)) <= 4 * (64 << 10), "{done:?}");
    assert!(done.received_bytes < half + half / 4, "{done:?} {report:?}");
    assert!(report.chunks >= 8 && report.spared_chunks >= 8 && report.http_chunks == 0, "{report:?} {notes:?}");
}

#[test]
fn a_token_joins_the_sessions_of_its_images_and_each_join_has_another_key() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let mut other = vec![0; 4 << 20];
    SeededRandom::new(8).fill(&mut other).unwrap();
    let hidden: ImageRecord = fixture.capture_disk("db/main", &Noise(other));
    let (tokens, token) = (folder.path().join("tokens"), "a".repeat(40));
    write_secret(&tokens, &format!("lab/* {token}"));
    write_secret(&folder.path().join("token"), &token);
    let served = EncryptedGroup::new(&fixture, 106, folder.path());
    let with_token =
        RemoteOptions { token: Some(AccessToken::read(&folder.path().join("token")).unwrap()), ..options(PATIENCE) };
    let remote = served.open(with_token);
    let digest = remote.records().last().unwrap().digest;
    let (installed, report, notes) = install_from(&folder.path().join("disk"), remote, None);
    assert!(installed == fixture.disk.0);
    assert!(report.chunks > 2 && report.http_chunks == 0, "{report:?} {notes:?}");
    let client = served.stranger();
    runtime().block_on(async {
        let refused = served.join(&client, digest, None, b"").await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        let foreign = served.join(&client, hidden.digest, Some(&token), b"").await;
        assert_eq!(foreign.status(), StatusCode::NOT_FOUND, "the token gives no right to this image");
        let long = served.join(&client, digest, Some(&token), &[7; 48]).await;
        assert_eq!(long.status(), StatusCode::BAD_REQUEST);
        let mut keys = Vec::new();
        for _ in 0..2 {
            let reply = served.join(&client, digest, Some(&token), b"").await;
            assert_eq!(reply.status(), StatusCode::OK);
            assert_eq!(reply.headers()["cache-control"], "private, no-store");
            let reply = reply.bytes().await.unwrap();
            keys.push(reply[reply.len() - 64..].to_vec());
        }
        assert_eq!(keys[0][..32], keys[1][..32], "the group has one key");
        assert_ne!(keys[0][32..], keys[1][32..], "each machine has another one");
    });
}

#[test]
fn a_server_offers_the_repairs_that_it_was_told_to() {
    let fixture = Fixture::new(4 << 20);
    for (repairs, group) in [(RepairCode::None, 110), (RepairCode::RaptorQ, 111)] {
        let folder = tempfile::tempdir().unwrap();
        let served =
            EncryptedGroup::with(MulticastOptions { repairs, ..multicast(group, None) }, &fixture, folder.path());
        let digest = served.open(options(PATIENCE)).records().last().unwrap().digest;
        let client = served.stranger();
        let reply = runtime().block_on(async { served.join(&client, digest, None, b"").await.bytes().await.unwrap() });
        assert_eq!(JoinReply::decode(&reply).unwrap().repairs, repairs);
    }
}

/// A machine that has finished gives its place back.
#[test]
fn more_machines_of_an_address_come_one_after_another() {
    let (fixture, folder) = (Fixture::new(2 << 20), tempfile::tempdir().unwrap());
    let served = EncryptedGroup::new(&fixture, 109, folder.path());
    for number in 0..18 {
        let path = folder.path().join(format!("disk-{number}"));
        let (installed, report, notes) = install_from(&path, served.open(options(PATIENCE)), None);
        assert!(installed == fixture.disk.0);
        assert!(report.chunks > 0 && report.http_chunks == 0, "{number}: {report:?} {notes:?}");
    }
}

/// Over TLS nothing but the right to the image is needed to join, and each machine makes the others wait longer.
#[test]
fn one_address_has_few_places_in_a_session() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let served = EncryptedGroup::new(&fixture, 107, folder.path());
    let digest = served.open(options(PATIENCE)).records().last().unwrap().digest;
    let client = served.stranger();
    let taken = runtime().block_on(async {
        let mut taken = 0;
        for _ in 0..100 {
            taken += u32::from(served.join(&client, digest, None, b"").await.status() == StatusCode::OK);
        }
        taken
    });
    assert_eq!(taken, 16);
    let began = Instant::now();
    let (installed, report, notes) = install_from(&folder.path().join("disk"), served.open(options(PATIENCE)), None);
    assert!(installed == fixture.disk.0);
    assert!(report.chunks > 2, "{report:?} {notes:?}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn keys_of_multicast_are_in_a_file_without_tls_and_nowhere_with_it() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let identity = ServerIdentity::kept(&folder.path().join("state"), &[]).unwrap();
    let key = key(folder.path(), 'a');
    let tokens = folder.path().join("tokens");
    for (identity, key, tokens) in [
        (None, None, None),
        (Some(identity.clone()), Some(key.clone()), None),
        // A machine that has the key of the file can read each image that is sent.
        (None, Some(key), Some(tokens)),
    ] {
        let multicast = Some(multicast(104, key));
        let interface = Some("lo".to_owned());
        let options = ServerOptions { interface, identity, tokens, multicast, ..server_options() };
        let refusal = ImageServer::listen(fixture.archive(), &options, Box::new(|_| ())).err();
        assert!(matches!(refusal, Some(NetError::Multicast { .. })), "{refusal:?}");
    }
}

/// It was noticed when the first machine joined, which could only go on over HTTP.
#[test]
fn a_port_that_is_taken_is_noticed_when_the_server_starts() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let multicast = multicast(110, Some(key(folder.path(), 'a')));
    let port = multicast.group.port() + u16::from(SESSIONS_MAX) - 1;
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let interface = Some("lo".to_owned());
    let options = ServerOptions { interface, multicast: Some(multicast), ..server_options() };
    let listen = || ImageServer::listen(fixture.archive(), &options, Box::new(|_| ())).err();
    let Some(NetError::Multicast { source, .. }) = listen() else { panic!("the port is taken") };
    assert!(source.to_string().starts_with(&format!("UDP port 127.0.0.1:{port}: ")), "{source}");
    drop(other);
    assert!(listen().is_none());
}

#[test]
fn the_status_has_the_sessions_with_their_rates() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let (server, group) = serve(&fixture, 111, key(folder.path(), 'a'));
    let client = StatusClient::new(&format!("http://{}", server.address), options(PATIENCE)).unwrap();
    assert_eq!(client.read().unwrap().sessions, []);
    install_to(&folder.path().join("disk"), &server, key(folder.path(), 'a'));
    let status = client.read().unwrap();
    let [session] = &status.sessions[..] else { panic!("{status:?}") };
    assert_eq!((session.image.as_str(), session.group.as_str()), ("lab/web@1", group.to_string().as_str()));
    assert_eq!(session.ceiling_bytes_per_second, 60 << 20);
    assert!((1 << 20..=60 << 20).contains(&session.rate_bytes_per_second), "{session:?}");
    assert_eq!((session.excluded_machines, session.is_waiting), (0, false));
}

#[test]
fn a_server_without_multicast_is_asked_once() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let server = fixture.serve("127.0.0.1:0");
    let (installed, report, notes) = install_to(&folder.path().join("disk"), &server, key(folder.path(), 'a'));
    assert!(installed == fixture.disk.0);
    assert_eq!(report, GroupReport::default());
    assert!(notes.len() == 1 && notes[0].contains("does not send this image by multicast"), "{notes:?}");
}
