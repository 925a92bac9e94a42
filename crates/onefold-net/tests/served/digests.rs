//! Digests of disks beside `raw`.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use onefold_net::ServerOptions;
use sha2::{Digest, Sha256, Sha512};

use crate::fixture::{Fixture, get, header, server_options};

const RAW: &str = "/v1/images/lab%2Fweb/raw";

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asks until the server has the digest. Returns its answer, and how often it asked for patience.
fn digest(address: std::net::SocketAddr, kind: &str) -> (String, String, usize) {
    let (began, mut waits) = (Instant::now(), 0);
    loop {
        let (head, body) = get(address, &format!("{RAW}.{kind}"), "");
        if head.starts_with("http/1.1 200") {
            return (head, String::from_utf8(body).unwrap(), waits);
        }
        assert!(head.starts_with("http/1.1 503"), "{head}");
        let seconds: u64 = header(&head, "retry-after").parse().unwrap();
        assert!((1..=60).contains(&seconds) && began.elapsed() < Duration::from_secs(30), "{head}");
        waits += 1;
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the only entry of a folder.
fn only_entry(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).unwrap();
    let entry = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "{folder:?}");
    entry
}

#[test]
fn the_digests_of_a_disk_are_computed_at_the_first_request_and_kept() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let digests = folder.path().join("digests");
    let options = ServerOptions { digests: Some(digests.clone()), ..server_options() };
    let expected = [
        format!("{}  raw\n", hexadecimal(&Sha256::digest(&fixture.disk.0))),
        format!("{}  raw\n", hexadecimal(&Sha512::digest(&fixture.disk.0))),
    ];
    let server = fixture.serve_with(&options);
    let (head, sha256, waits) = digest(server.address, "sha256");
    assert!(waits > 0, "nobody computes digests before they are asked for");
    let (_, sha512, waits) = digest(server.address, "sha512");
    assert_eq!((&sha256, &sha512, waits), (&expected[0], &expected[1], 0), "one pass is enough for both");
    let tag = header(&head, "etag").to_owned();
    let (head, body) = get(server.address, &format!("{RAW}.sha256"), &format!("If-None-Match: {tag}\r\n"));
    assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
    let (head, _) = get(server.address, "/v1/images/none/raw.sha256", "");
    assert!(head.starts_with("http/1.1 404"), "{head}");
    drop(server);
    let server = fixture.serve_with(&options);
    assert_eq!(digest(server.address, "sha256").2, 0, "they are kept over a start");
    drop(server);
    // A file that is damaged, one of an image that is gone, and one of the user.
    let of_archive = only_entry(&digests);
    let kept = only_entry(&of_archive);
    fs::write(&kept, "00  raw\n").unwrap();
    let (gone, foreign) = (of_archive.join("ab".repeat(32)), of_archive.join("SHA256SUMS"));
    fs::write(&gone, expected.concat()).unwrap();
    fs::write(&foreign, "mine\n").unwrap();
    let server = fixture.serve_with(&options);
    let (_, sha256, waits) = digest(server.address, "sha256");
    assert!(waits > 0 && sha256 == expected[0], "{sha256}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), expected.concat());
    assert!(!gone.exists() && foreign.exists());
}

#[test]
fn servers_of_two_archives_keep_their_digests_in_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions { digests: Some(folder.path().to_owned()), ..server_options() };
    let fixtures = [Fixture::new(4 << 20), Fixture::new(5 << 20)];
    for is_kept in [false, true] {
        for fixture in &fixtures {
            let server = fixture.serve_with(&options);
            assert_eq!(digest(server.address, "sha256").2 == 0, is_kept);
        }
    }
}
