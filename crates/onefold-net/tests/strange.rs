//! The store and servers that answer what no server of S3 should.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use onefold_image::store::{ByteRange, ObjectName, Refusal, Store, StoreError};
use onefold_net::{Options, S3Store, Settings};

/// Starts a server that gives the same answer to every request, or none. It ends with the test.
fn server(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let _ = serve(&connection.unwrap(), &answer);
        }
    });
    address
}

fn serve(mut connection: &TcpStream, answer: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut body_bytes = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            body_bytes = length.trim().parse().map_err(|_| ErrorKind::InvalidData)?;
        }
    }
    reader.take(body_bytes).read_to_end(&mut Vec::new())?;
    connection.write_all(answer.as_bytes())
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn store(place: &str, address: SocketAddr) -> S3Store {
    let options = Options { endpoint: Some(format!("http://{address}")), ..Options::default() };
    let variables =
        HashMap::from([("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_SESSION_TOKEN", "t")]);
    let settings = Settings::find(&options, &|name: &str| variables.get(name).map(OsString::from)).unwrap();
    S3Store::open(place.parse().unwrap(), &settings).unwrap()
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// Calls a store in each way. Returns the errors, with the names of the calls.
fn errors(store: &S3Store) -> Vec<(&'static str, StoreError)> {
    let pack = name("packs/00");
    vec![
        ("get", store.get(&pack, ByteRange::Whole).unwrap_err()),
        ("part", store.get(&pack, ByteRange::From { offset: 1, length_bytes: 2 }).unwrap_err()),
        ("put", store.put(&pack, &[b"x"]).unwrap_err()),
        ("create", store.create(&pack, b"x").unwrap_err()),
        ("list", store.list("", None).unwrap_err()),
        ("delete", store.delete(&pack).unwrap_err()),
    ]
}

#[test]
fn no_redirect_is_followed() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let location = format!("Location: http://{}/images/a\r\n", other.local_addr().unwrap());
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"] {
        for headers in [location.as_str(), ""] {
            let store = store("s3://images/a", server(answer(status, headers, "")));
            for (call, error) in errors(&store) {
                let is_elsewhere = matches!(error, StoreError::Refused { why: Refusal::Elsewhere, .. });
                assert!(is_elsewhere, "{status} {call}: {error:?}");
            }
        }
    }
    assert_eq!(other.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a request went elsewhere");
}

#[test]
fn names_say_nothing_about_lost_connections() {
    for place in ["s3://certificates/site", "s3://images/redirect/certificate"] {
        let store = store(place, server(String::new()));
        for (call, error) in errors(&store) {
            assert!(matches!(error, StoreError::Unavailable { .. }), "{place} {call}: {error:?}");
        }
    }
}

#[test]
fn answers_without_sense_are_not_waited_for() {
    // Without ranges, without a tag of the object, and without a list.
    let store = store("s3://images/a", server(answer("200 OK", "", "certificate <")));
    let part = store.get(&name("packs/00"), ByteRange::From { offset: 1, length_bytes: 2 });
    assert!(matches!(part, Err(StoreError::Refused { why: Refusal::Other, .. })), "{part:?}");
    let listed = store.list("", None);
    assert!(matches!(listed, Err(StoreError::Refused { why: Refusal::Other, .. })), "{listed:?}");
    // The object may be there.
    for written in [store.put(&name("packs/00"), &[b"x"]), store.create(&name("packs/00"), b"x").map(drop)] {
        assert!(matches!(written, Err(StoreError::GaveUp { .. })), "{written:?}");
    }
}

/// The library takes any document for a listing, and one without objects for an empty bucket: as if an archive were
/// gone.
#[test]
fn a_page_that_is_no_listing_is_no_empty_one() {
    let pages = [
        "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in</body></html>",
        "<html><body/></html>",
        "<Error><Message>later</Message></Error>",
        "<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>",
        "",
    ];
    for page in pages {
        let store = store("s3://images/a", server(answer("200 OK", "Content-Type: text/html\r\n", page)));
        let listed = store.list("", None);
        assert!(matches!(listed, Err(StoreError::Refused { why: Refusal::Other, .. })), "{page}: {listed:?}");
    }
    let empty = "<?xml version=\"1.0\"?>\n<ListBucketResult><Name>images</Name></ListBucketResult>";
    let store = store("s3://images/a", server(answer("200 OK", "", empty)));
    assert_eq!(store.list("", None).unwrap(), []);
}
