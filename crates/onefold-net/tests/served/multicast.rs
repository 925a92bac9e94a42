//! An image that is sent by multicast, over the loopback interface of this machine.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_image::UnitName;
use onefold_image::install::{FileTarget, FreeSectorPolicy, InstallOptions, Target, install};
use onefold_net::{
    GroupOptions, GroupReport, ImageServer, MulticastKey, MulticastOptions, NetError, SESSIONS_MAX, ServerOptions,
};
use parking_lot::Mutex;

use crate::fixture::{DISK_BYTES, Fixture, RunningServer, open, raw_request, server_options};

fn key(folder: &Path, digit: char) -> MulticastKey {
    let path = folder.join(format!("key-{digit}"));
    std::fs::write(&path, format!("{}\n", digit.to_string().repeat(64))).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    MulticastKey::read(&path).unwrap()
}

/// Serves by multicast over loopback, to a group of the test's own, which is returned, too.
fn serve(fixture: &Fixture, group: u8, key: MulticastKey) -> (RunningServer, SocketAddrV4) {
    // Ports that are free, in a row.
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let multicast = MulticastOptions {
        group: SocketAddrV4::new(Ipv4Addr::new(239, 192, group, 1), port.min(u16::MAX - u16::from(SESSIONS_MAX))),
        ttl: 1,
        rate_bytes_per_second: NonZeroU64::new(60 << 20).unwrap(),
        key,
    };
    let group = multicast.group;
    let server = fixture.serve_with(&ServerOptions {
        interface: Some("lo".to_owned()),
        multicast: Some(multicast),
        ..server_options()
    });
    (server, group)
}

/// Installs the image to a new file. Returns its bytes, what came on which way, and what was said about it.
fn install_to(path: &Path, server: &RunningServer, key: MulticastKey) -> (Vec<u8>, GroupReport, Vec<String>) {
    let remote = open(server.address, Duration::from_secs(5)).unwrap();
    let record = remote.records().last().unwrap().clone();
    let (manifest, _) = remote.manifest(&record).unwrap();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let said = Arc::clone(&notes);
    let on_note = Arc::new(move |text: &str| said.lock().push(text.to_owned()));
    let (images, report) = remote.into_group_images(&record, GroupOptions { key, memory_bytes: 16 << 20, on_note });
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let target = FileTarget::blank(file, manifest.size_bytes).unwrap();
    let options = InstallOptions {
        free: FreeSectorPolicy::Leave,
        verify: true,
        threads: 2,
        memory_bytes: 32 << 20,
        fresh: false,
        fit: false,
        start_bytes: 0,
    };
    install(&images, &manifest, &target, &options, &|_| ControlFlow::Continue(())).unwrap();
    let mut installed = vec![0; usize::try_from(manifest.size_bytes).unwrap()];
    target.read(0, &mut installed).unwrap();
    drop(images);
    let report = *report.lock();
    let notes = notes.lock().clone();
    (installed, report, notes)
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
    let remote = open(server.address, Duration::from_secs(5)).unwrap();
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
fn a_server_with_tokens_does_not_send_by_multicast() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let multicast = MulticastOptions {
        group: SocketAddrV4::new(Ipv4Addr::new(239, 192, 104, 1), 7443),
        ttl: 1,
        rate_bytes_per_second: NonZeroU64::new(60 << 20).unwrap(),
        key: key(folder.path(), 'a'),
    };
    let options = ServerOptions {
        interface: Some("lo".to_owned()),
        tokens: Some(folder.path().join("tokens")),
        multicast: Some(multicast),
        ..server_options()
    };
    let refusal = ImageServer::listen(fixture.archive(), &options, Box::new(|_| ())).err();
    assert!(matches!(refusal, Some(NetError::Multicast { .. })), "{refusal:?}");
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
