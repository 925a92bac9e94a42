//! Tokens: two users who do not trust each other, and a file of tokens that changes.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::random::{Random, SeededRandom};
use onefold_disk::Disk;
use onefold_image::archive::{ArchiveError, ImageRecord};
use onefold_image::format::manifest::Manifest;
use onefold_image::store::{Refusal, StoreError};
use onefold_image::{ArchivedDisk, UnitName};
use onefold_net::{AccessToken, ImageServer, NetError, RemoteArchive, RemoteOptions, ServerIdentity, ServerOptions};
use tempfile::TempDir;

use crate::fixture::{
    Fixture, Noise, RunningServer, get, header, install_over_noise, options, raw_request, server_options,
};

const PATIENCE: Duration = Duration::from_secs(5);

/// A token of a user.
fn token(user: char) -> String {
    user.to_string().repeat(40)
}

/// Writes a secret file, in place of an older one.
fn write_secret(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
    fs::rename(new, path).unwrap();
}

/// A server on this machine with the image `lab/web`, which user `a` may read, and `db/main`, which user `b` may read.
struct TokenServer {
    fixture: Fixture,
    folder: TempDir,
    server: RunningServer,
}

/// An image as its user knows it.
struct KnownImage {
    record: ImageRecord,
    manifest: Manifest,
    /// Units of the first chunk.
    units: Vec<UnitName>,
}

impl TokenServer {
    fn new() -> TokenServer {
        let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
        let mut other = vec![0; 4 << 20];
        SeededRandom::new(8).fill(&mut other).unwrap();
        fixture.capture_disk("db/main", &Noise(other));
        let path = folder.path().join("tokens");
        write_secret(&path, &format!("lab/* {} the lab\ndb/* {}\n", token('a'), token('b')));
        let server = fixture.serve_with(&ServerOptions { tokens: Some(path), ..server_options() });
        TokenServer { fixture, folder, server }
    }

    fn tokens(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    fn known(&self, name: &str) -> KnownImage {
        let archive = self.fixture.archive();
        let record = archive.images().into_iter().find(|record| record.image.name.as_str() == name).unwrap();
        let manifest = archive.manifest(&record).unwrap();
        let units = archive.header(&manifest.chunks[0]).unwrap().units.iter().map(|unit| unit.name).collect();
        KnownImage { record, manifest, units }
    }

    /// Returns status and body of the answer to a user.
    fn get(&self, user: char, path: &str, headers: &str) -> (u16, Vec<u8>) {
        let headers = format!("Authorization: Bearer {}\r\n{headers}", token(user));
        let (head, body) = get(self.server.address, path, &headers);
        (status(&head), body)
    }

    /// The same for a request of units.
    fn post(&self, user: char, names: &[UnitName], headers: &str) -> (u16, Vec<u8>) {
        let names = names.iter().map(|name| name.0).collect::<Vec<_>>().concat();
        let head = format!(
            "POST /v1/units HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             {headers}Content-Length: {}\r\n\r\n",
            token(user),
            names.len()
        );
        let (head, body) = raw_request(self.server.address, [head.as_bytes(), &names].concat());
        (status(&head), body)
    }
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn origin(image: &KnownImage, chunk: Option<UnitName>) -> String {
    let chunk = chunk.map(|chunk| format!("Onefold-Chunk: {chunk}\r\n")).unwrap_or_default();
    format!("Onefold-Manifest: {}\r\n{chunk}", UnitName(image.record.digest))
}

#[test]
fn a_user_reads_the_images_of_the_token_in_every_way() {
    let served = TokenServer::new();
    let own = served.known("lab/web");
    let (status, list) = served.get('a', "/v1/images", "");
    let list = String::from_utf8(list).unwrap();
    assert!(status == 200 && list.contains("lab/web") && !list.contains("db/main"), "{list}");
    assert_eq!(served.get('a', "/v1/archive", "").0, 200);
    assert_eq!(served.get('a', &format!("/v1/manifests/{}", UnitName(own.record.digest)), "").0, 200);
    let (status, raw) = served.get('a', "/v1/images/lab%2Fweb/raw", "");
    assert!(status == 200 && raw == served.fixture.disk.0);
    let chunk = own.manifest.chunks[0];
    assert_eq!(served.get('a', &format!("/v1/chunks/{chunk}"), &origin(&own, None)).0, 200);
    assert_eq!(served.get('a', &format!("/v1/units/{chunk}"), &origin(&own, None)).0, 200);
    assert_eq!(served.get('a', &format!("/v1/units/{}", own.units[0]), &origin(&own, Some(chunk))).0, 200);
    assert_eq!(served.post('a', &own.manifest.chunks, &origin(&own, None)).0, 200);
    assert_eq!(served.post('a', &own.units, &origin(&own, Some(chunk))).0, 200);
}

/// User `a` knows all names of the image of user `b`, as from an earlier right to it.
#[test]
fn what_another_user_may_read_answers_as_if_it_did_not_exist() {
    let served = TokenServer::new();
    let (own, other) = (served.known("lab/web"), served.known("db/main"));
    let none = UnitName([9; 32]);
    let (chunk, own_chunk, unit) = (other.manifest.chunks[0], own.manifest.chunks[0], other.units[0]);
    assert!(!own.units.contains(&unit));
    let missing = served.get('a', &format!("/v1/units/{none}"), "");
    assert_eq!(missing.0, 404);
    let strange_manifest = format!("Onefold-Manifest: {none}\r\n");
    // In the second round, the server knows the chunks of both images.
    for _ in 0..2 {
        for path in [
            format!("/v1/manifests/{}", UnitName(other.record.digest)),
            format!("/v1/manifests/{}/signatures/0123456789abcdef", UnitName(other.record.digest)),
            "/v1/images/db%2Fmain/raw".to_owned(),
            "/v1/images/db%2Fmain@1/raw".to_owned(),
        ] {
            assert_eq!(served.get('a', &path, ""), missing, "{path}");
        }
        let origins = [
            String::new(),
            strange_manifest.clone(),
            origin(&own, None),
            origin(&other, None),
            origin(&own, Some(own_chunk)),
            origin(&own, Some(chunk)),
            origin(&other, Some(chunk)),
            format!("Onefold-Chunk: {chunk}\r\n"),
        ];
        for headers in &origins {
            for path in [format!("/v1/chunks/{chunk}"), format!("/v1/units/{chunk}"), format!("/v1/units/{unit}")] {
                assert_eq!(served.get('a', &path, headers), missing, "{path} {headers}");
            }
            assert_eq!(served.post('a', &[unit], headers), missing, "{headers}");
            assert_eq!(served.post('a', &[own.units[0], unit], headers), missing, "{headers}");
            assert_eq!(served.post('a', &[own_chunk, chunk], headers), missing, "{headers}");
        }
        // A validator that fits gives nothing away, either.
        let (head, _) = get(
            served.server.address,
            &format!("/v1/chunks/{chunk}"),
            &format!("Authorization: Bearer {}\r\nIf-None-Match: *\r\n{}", token('a'), origin(&own, None)),
        );
        assert!(head.starts_with("http/1.1 404"), "{head}");
        assert_eq!(served.get('b', &format!("/v1/chunks/{chunk}"), &origin(&other, None)).0, 200);
        assert_eq!(served.post('b', &other.units, &origin(&other, Some(chunk))).0, 200);
    }
}

#[test]
fn without_a_token_there_is_no_answer_and_no_shared_cache_keeps_one() {
    let served = TokenServer::new();
    let own = served.known("lab/web");
    let chunk = format!("/v1/chunks/{}", own.manifest.chunks[0]);
    for path in ["/v1/archive", "/v1/images", "/v1/images/lab%2Fweb/raw", "/v1/none", &chunk] {
        for headers in ["", "Authorization: Bearer x\r\n", "Authorization: Basic YTpi\r\n"] {
            let (head, body) = get(served.server.address, path, &format!("{headers}{}", origin(&own, None)));
            assert!(head.starts_with("http/1.1 401"), "{path} {headers}: {head}");
            assert_eq!(header(&head, "www-authenticate"), "bearer");
            assert!(!String::from_utf8(body).unwrap().contains("web"));
        }
    }
    let (head, _) =
        raw_request(served.server.address, "POST /v1/units HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
    assert!(head.starts_with("http/1.1 401"), "before the body has come: {head}");
    let headers = format!("Authorization: Bearer {}\r\n{}", token('a'), origin(&own, None));
    let (head, _) = get(served.server.address, &chunk, &headers);
    assert!(header(&head, "cache-control").starts_with("private, max-age"), "{head}");
}

fn with_token(folder: &Path, user: char) -> RemoteOptions {
    let path = folder.join("token");
    write_secret(&path, &format!("{}\n", token(user)));
    RemoteOptions { token: Some(AccessToken::read(&path).unwrap()), ..options(PATIENCE) }
}

#[test]
fn an_image_is_installed_with_a_token_over_encrypted_connections() {
    let served = TokenServer::new();
    let identity = ServerIdentity::kept(&served.folder.path().join("state"), &[]).unwrap();
    let pin = Some(identity.fingerprint());
    let server_options = ServerOptions { identity: Some(identity), tokens: Some(served.tokens()), ..server_options() };
    let server = served.fixture.serve_with(&server_options);
    let open = |options: RemoteOptions| {
        RemoteArchive::open(&format!("https://{}", server.address), RemoteOptions { pin, ..options }).unwrap()
    };
    let remote = open(with_token(served.folder.path(), 'a')).unwrap();
    assert_eq!(remote.records().len(), 1);
    let installed = install_over_noise(remote, &served.folder.path().join("disk"), &|_| ()).unwrap();
    assert!(installed == served.fixture.disk.0);
    for options in [options(PATIENCE), with_token(served.folder.path(), 'c')] {
        let error = open(options).unwrap_err();
        assert!(matches!(error, ArchiveError::Store(StoreError::Refused { why: Refusal::Token, .. })), "{error:?}");
    }
}

#[test]
fn tokens_go_over_no_plain_connection_to_another_machine() {
    let served = TokenServer::new();
    let address: SocketAddr = ([0, 0, 0, 0], 0).into();
    let options = ServerOptions { address, tokens: Some(served.tokens()), ..server_options() };
    let refused = ImageServer::listen(served.fixture.archive(), &options, Box::new(|_| ()));
    assert!(matches!(refused, Err(NetError::PlainTokens)), "{refused:?}");
    let options = || RemoteOptions { allow_http: true, ..with_token(served.folder.path(), 'a') };
    let refused = RemoteArchive::open("http://192.0.2.1:7443", options());
    assert!(matches!(refused, Err(NetError::PlainToken { .. })), "{refused:?}");
    assert!(RemoteArchive::open(&format!("http://{}", served.server.address), options()).unwrap().is_ok());
}

/// Regression: units that were read without their chunk, as for the partition table of an image, did not exist for a
/// client with a token.
#[test]
fn any_range_of_an_image_is_read_with_a_token() {
    let served = TokenServer::new();
    let remote = RemoteArchive::open(
        &format!("http://{}", served.server.address),
        RemoteOptions { allow_http: true, ..with_token(served.folder.path(), 'a') },
    );
    let remote = remote.unwrap().unwrap();
    let record = remote.records().last().unwrap().clone();
    let (manifest, _) = remote.manifest(&record).unwrap();
    let disk = ArchivedDisk::new(Arc::new(remote.into_images()), manifest, 1 << 20);
    let expected = &served.fixture.disk.0;
    for (offset, length) in [(0, 512), (expected.len() - 512, 512), (1 << 20, 2 << 20), (0, expected.len())] {
        let mut found = vec![0; length];
        disk.read(offset as u64, &mut found).unwrap();
        assert!(found == expected[offset..offset + length], "{offset} {length}");
    }
}

#[test]
fn a_token_that_is_withdrawn_is_soon_worth_nothing() {
    let served = TokenServer::new();
    let own = served.known("lab/web");
    let chunk = format!("/v1/chunks/{}", own.manifest.chunks[0]);
    let status = |user: char| served.get(user, &chunk, &origin(&own, None)).0;
    let wait_for = |user: char, expected: u16| {
        let began = Instant::now();
        while status(user) != expected {
            assert!(began.elapsed() < Duration::from_secs(10), "{user}: {}, not {expected}", status(user));
            thread::sleep(Duration::from_millis(20));
        }
    };
    assert_eq!((status('a'), status('c')), (200, 401));
    write_secret(&served.tokens(), &format!("lab/* {}\n", token('c')));
    wait_for('a', 401);
    assert_eq!(status('c'), 200);
    write_secret(&served.tokens(), "no line\n");
    wait_for('c', 503);
    write_secret(&served.tokens(), &format!("* {}\n", token('c')));
    wait_for('c', 200);
    // An installation goes on when its image is removed, with the chunks that it knows.
    let archive = Arc::clone(&served.fixture.archive());
    let random = SeededRandom::new(1);
    archive.remove(&own.record.image, &onefold_block::clock::SystemClock, &random).unwrap();
    thread::sleep(Duration::from_millis(1200));
    assert_eq!(served.get('c', &format!("/v1/manifests/{}", UnitName(own.record.digest)), "").0, 404);
    assert_eq!(status('c'), 200);
}
