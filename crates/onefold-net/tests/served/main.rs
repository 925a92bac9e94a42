//! A server of images and its clients, over connections of this machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ahead;
mod collected;
mod digests;
mod encrypted;
mod fixture;
mod http2;
mod multicast;
mod restart;
mod status;
mod tokens;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_disk::Disk;
use onefold_image::ArchivedDisk;
use onefold_image::archive::ArchiveError;
use onefold_image::install::InstallError;
use onefold_image::served::ChunkMethod;
use onefold_image::signature::{KeyFiles, SecretKey};
use onefold_image::store::{MemoryStore, Store, StoreError};
use onefold_net::{NetError, RemoteArchive, RemoteOptions, ServerOptions};

use crate::fixture::{
    DISK_BYTES, Fixture, get, header, install_over_noise, open, options, raw_request, server_options,
};

#[test]
fn an_image_is_installed_over_noise_and_new_images_appear_by_themselves() {
    let fixture = Fixture::new(DISK_BYTES);
    let server = fixture.serve("127.0.0.1:0");
    let folder = tempfile::tempdir().unwrap();
    let remote = open(server.address, Duration::from_secs(5)).unwrap();
    assert_eq!(remote.records().len(), 1);
    let installed = install_over_noise(remote, &folder.path().join("disk"), &|_| ()).unwrap();
    assert!(installed == fixture.disk.0);
    fixture.capture("lab/xen");
    let began = Instant::now();
    let names = || -> Vec<String> {
        let remote = open(server.address, Duration::from_secs(5)).unwrap();
        remote.records().iter().map(|record| record.image.to_string()).collect()
    };
    while names() != ["lab/web@1", "lab/xen@1"] {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", names());
        thread::sleep(Duration::from_millis(50));
    }
}

/// The first server ends in the middle, without a word, and another one takes its place after a while.
#[test]
fn a_client_goes_on_within_five_seconds_of_a_server_that_is_back() {
    let fixture = Fixture::new(DISK_BYTES);
    let first = fixture.serve("127.0.0.1:0");
    let address = first.address;
    // Passes bytes on until it is cut, as a server does that is killed.
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let client_address = proxy.local_addr().unwrap();
    let (is_cut, passed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (cut, count) = (Arc::clone(&is_cut), Arc::clone(&passed));
    thread::spawn(move || pass_on(&proxy, address, &cut, &count));
    let folder = tempfile::tempdir().unwrap();
    let back = Arc::new(parking_lot::Mutex::new(None));
    let (cut, is_back) = (Arc::clone(&is_cut), Arc::clone(&back));
    let has_cut = AtomicBool::new(false);
    let on_progress = move |done_bytes: u64| {
        if done_bytes > 4 << 20 && !has_cut.swap(true, Ordering::Relaxed) {
            cut.store(true, Ordering::Relaxed);
            let (cut, is_back) = (Arc::clone(&cut), Arc::clone(&is_back));
            thread::spawn(move || {
                thread::sleep(Duration::from_secs(2));
                cut.store(false, Ordering::Relaxed);
                *is_back.lock() = Some((Instant::now(), 0));
            });
        }
    };
    let remote = open(client_address, Duration::from_secs(60)).unwrap();
    let before = Instant::now();
    let installed = install_over_noise(remote, &folder.path().join("disk"), &on_progress).unwrap();
    assert!(installed == fixture.disk.0);
    let (returned, _) = back.lock().expect("the connection was cut");
    // All of the rest, too, takes a moment only.
    assert!(returned.elapsed() < Duration::from_secs(5) + (returned - before), "{:?}", returned.elapsed());
    assert!(passed.load(Ordering::Relaxed) > DISK_BYTES - (2 << 20));
}

/// Passes connections on to `address`. While `cut` says so, those that exist end, and new ones are closed at once.
fn pass_on(proxy: &TcpListener, address: SocketAddr, cut: &Arc<AtomicBool>, count: &Arc<AtomicUsize>) {
    for client in proxy.incoming() {
        let (Ok(client), Ok(server)) = (client, TcpStream::connect(address)) else { continue };
        if cut.load(Ordering::Relaxed) {
            continue;
        }
        for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
            let (cut, count) = (Arc::clone(cut), Arc::clone(count));
            thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(length @ 1..) = from.read(&mut buffer) {
                    count.fetch_add(length, Ordering::Relaxed);
                    if cut.load(Ordering::Relaxed) || to.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
    }
}

#[test]
fn an_image_is_installed_however_the_server_makes_its_chunks() {
    let fixture = Fixture::new(DISK_BYTES);
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<MemoryStore> = Arc::default();
    for (number, chunks) in [ChunkMethod::Prebuilt(store.clone()), ChunkMethod::Recompress, ChunkMethod::HeadersAtServe]
        .into_iter()
        .enumerate()
    {
        let server = fixture.serve_with(&ServerOptions { chunks, ..server_options() });
        let remote = open(server.address, Duration::from_secs(5)).unwrap();
        let installed = install_over_noise(remote, &folder.path().join(number.to_string()), &|_| ()).unwrap();
        assert!(installed == fixture.disk.0, "way {number}");
    }
    assert!(!store.list("", None).unwrap().is_empty());
}

#[test]
fn an_image_that_is_removed_while_it_is_installed_is_not_taken_for_damage() {
    for is_removed in [true, false] {
        let fixture = Fixture::new(DISK_BYTES);
        let record = fixture.archive().images().pop().unwrap();
        let server = fixture.serve("127.0.0.1:0");
        let folder = tempfile::tempdir().unwrap();
        let has_deleted = AtomicBool::new(false);
        let on_progress = |done_bytes: u64| {
            if done_bytes > 4 << 20 && !has_deleted.swap(true, Ordering::Relaxed) {
                if is_removed {
                    fixture.archive().remove(&record.image, &SystemClock, &SystemRandom).unwrap();
                }
                fixture.delete_packs();
            }
        };
        let remote = open(server.address, Duration::from_secs(5)).unwrap();
        let installed = install_over_noise(remote, &folder.path().join("disk"), &on_progress);
        match installed.unwrap_err() {
            InstallError::Archive(ArchiveError::Removed { image }) => {
                assert!(is_removed && image == record.image);
            }
            error => assert!(!is_removed, "{error:?}"),
        }
    }
}

#[test]
fn a_server_that_is_gone_is_waited_for_as_long_as_patience_lasts() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let began = Instant::now();
    let error = open(nobody, Duration::from_millis(900)).unwrap_err();
    assert!(matches!(error, ArchiveError::Store(StoreError::GaveUp { .. })), "{error:?}");
    assert!(began.elapsed() >= Duration::from_millis(900));
}

#[test]
fn a_server_that_has_never_answered_is_waited_for_for_a_shorter_time() {
    // Nothing listens there once the listener is dropped.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (began, hour) = (Instant::now(), Duration::from_secs(3600));
    let short = RemoteOptions { first_patience: Duration::from_millis(300), ..options(hour) };
    let error = RemoteArchive::open(&format!("http://{address}"), short).unwrap().err();
    assert!(matches!(error, Some(ArchiveError::Store(StoreError::GaveUp { .. }))), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn plain_connections_to_other_machines_must_be_allowed() {
    let refused = RemoteArchive::open("http://192.0.2.1:7443", options(Duration::ZERO));
    assert!(matches!(refused, Err(NetError::PlainHttp { .. })));
}

#[test]
fn any_client_reads_ranges_of_an_image() {
    let fixture = Fixture::new(4 << 20);
    let server = fixture.serve("127.0.0.1:0");
    let raw = "/v1/images/lab%2Fweb/raw";
    let (head, body) = get(server.address, raw, "");
    assert!(head.starts_with("http/1.1 200") && body == fixture.disk.0, "{head}");
    let tag = header(&head, "etag").to_owned();
    assert_eq!(header(&head, "content-length"), (4 << 20).to_string());
    let (head, body) = get(server.address, &format!("{raw}?x=y"), "Range: bytes=511-1000000\r\n");
    assert!(head.starts_with("http/1.1 206") && body == fixture.disk.0[511..=1_000_000], "{head}");
    assert_eq!(header(&head, "content-range"), "bytes 511-1000000/4194304");
    let (head, body) = get(server.address, raw, &format!("Range: bytes=-5\r\nIf-Range: {tag}\r\n"));
    assert!(head.starts_with("http/1.1 206") && body == fixture.disk.0[(4 << 20) - 5..], "{head}");
    let (head, body) = get(server.address, raw, "Range: bytes=0-1,5-6\r\n");
    assert!(head.starts_with("http/1.1 200") && body.len() == 4 << 20, "several ranges get all: {head}");
    let (head, _) = get(server.address, raw, "Range: bytes=4194304-\r\n");
    assert!(head.starts_with("http/1.1 416"), "{head}");
    assert_eq!(header(&head, "content-range"), "bytes */4194304");
    let (head, body) = get(server.address, raw, &format!("If-None-Match: {tag}\r\n"));
    assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
    let (head, body) =
        raw_request(server.address, format!("HEAD {raw} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
    assert_eq!(header(&head, "content-length"), (4 << 20).to_string());
}

#[test]
fn chunks_have_a_lasting_validator() {
    let fixture = Fixture::new(4 << 20);
    let server = fixture.serve("127.0.0.1:0");
    let archive = fixture.archive();
    let manifest = archive.manifest(&archive.images()[0]).unwrap();
    let path = format!("/v1/chunks/{}", manifest.chunks[1]);
    let (head, body) = get(server.address, &path, "");
    assert!(head.starts_with("http/1.1 200") && header(&head, "cache-control").contains("immutable"), "{head}");
    assert!(body.len() > 512 << 10);
    let tag = header(&head, "etag").to_owned();
    let (head, _) = get(server.address, &path, &format!("If-None-Match: {tag}\r\n"));
    assert!(head.starts_with("http/1.1 304"), "{head}");
}

#[test]
fn strange_requests_get_an_error_and_the_server_goes_on() {
    let fixture = Fixture::new(4 << 20);
    let server = fixture.serve("127.0.0.1:0");
    let unit = "00".repeat(32);
    for path in [
        "/",
        "/v1/chunks/00",
        &format!("/v1/chunks/{unit}"),
        &format!("/v1/units/{unit}"),
        &format!("/v1/manifests/{unit}"),
        &format!("/v1/manifests/{unit}/signatures/../../archive"),
        "/v1/images/..%2F..%2Fetc%2Fpasswd/raw",
        "/v1/images/lab%2Fweb@0/raw",
        "/v1/images/lab%2Fweb@+1/raw",
        "/v1/images/lab%2Fweb@2/raw",
        "/v1/images/%FF/raw",
    ] {
        let (head, _) = get(server.address, path, "");
        assert!(head.starts_with("http/1.1 404") || head.starts_with("http/1.1 400"), "{path}: {head}");
    }
    let post = |length: usize, body: &str| {
        let request = format!(
            "POST /v1/units HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        raw_request(server.address, request).0
    };
    assert!(post(5, "12345").starts_with("http/1.1 400"));
    assert!(post(0, "").starts_with("http/1.1 400"));
    assert!(post(1 << 20, &"x".repeat(1 << 20)).starts_with("http/1.1 413"));
    let smuggled = "POST /v1/units HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456";
    assert!(raw_request(server.address, smuggled).0.starts_with("http/1.1 400"));
    let long = format!("X: {}\r\n", "y".repeat(300 << 10));
    let (head, _) = get(server.address, "/v1/archive", &long);
    assert!(head.is_empty() || head.starts_with("http/1.1 431"), "{head}");
    assert!(get(server.address, "/v1/archive", "").0.starts_with("http/1.1 200"));
}

#[test]
fn signatures_are_verified_by_the_client() {
    let fixture = Fixture::new(2 << 20);
    let archive = fixture.archive();
    let record = archive.images()[0].clone();
    let KeyFiles { public, secret_text } = SecretKey::create(None).unwrap();
    let secret = SecretKey::open(&secret_text, None).unwrap();
    let stranger = SecretKey::create(None).unwrap().public;
    let server = fixture.serve("127.0.0.1:0");
    let signers = || {
        let remote = open(server.address, Duration::from_secs(5)).unwrap();
        let (_, object) = remote.manifest(&record).unwrap();
        remote.signers(&record, &object, [&stranger, &public].into_iter()).unwrap()
    };
    assert_eq!(signers(), []);
    let signature = secret.sign(&archive.signed_bytes(&record).unwrap(), "comment").unwrap();
    archive.add_signature(&record, &public, &signature, &SystemClock).unwrap();
    assert_eq!(signers(), [public.id()]);
}

#[test]
fn a_served_image_is_a_disk() {
    let fixture = Fixture::new(4 << 20);
    let server = fixture.serve("127.0.0.1:0");
    let remote = open(server.address, Duration::from_secs(5)).unwrap();
    let (manifest, _) = remote.manifest(&remote.records()[0]).unwrap();
    let disk = ArchivedDisk::new(Arc::new(remote.into_images()), manifest, 1 << 20);
    let mut part = vec![0; 300_000];
    disk.read(3_000_001, &mut part).unwrap();
    assert!(part == fixture.disk.0[3_000_001..3_300_001]);
}
