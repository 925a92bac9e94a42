//! The store over real connections to `tests/s3/server.py`, a server in memory that fails on request.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onefold_image::store::{ByteRange, Creation, ObjectName, Refusal, Store, StoreError};
use onefold_net::{Options, S3Store, Settings};

/// The server, which ends with its standard input.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/s3/server.py");
        let mut child = Command::new("python3")
            .arg(script)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Server { child, address: address.trim().to_owned() }
    }

    fn store(&self, place: &str) -> S3Store {
        self.store_of(place, "testkey", &Options::default())
    }

    fn store_of(&self, place: &str, key: &str, options: &Options) -> S3Store {
        let options = Options { endpoint: Some(self.address.clone()), ..options.clone() };
        let variables =
            HashMap::from([("AWS_ACCESS_KEY_ID", key.to_owned()), ("AWS_SECRET_ACCESS_KEY", "s".to_owned())]);
        let settings = Settings::find(&options, &|name: &str| variables.get(name).map(OsString::from)).unwrap();
        S3Store::open(place.parse().unwrap(), &settings).unwrap()
    }

    /// Sets the faults of the next requests.
    fn fail(&self, faults: &str) {
        let mut connection = TcpStream::connect(self.address.trim_start_matches("http://")).unwrap();
        let length = faults.len();
        write!(connection, "PUT /_faults HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{faults}").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("200"), "{answer}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn names(store: &S3Store, prefix: &str, after: Option<&str>) -> Vec<String> {
    let listed = store.list(prefix, after.map(name).as_ref()).unwrap();
    listed.into_iter().map(|listed| format!("{}:{}", listed.name, listed.length_bytes)).collect()
}

#[test]
fn objects_are_stored_read_in_parts_listed_and_removed() {
    let server = Server::start(&[]);
    let store = server.store("s3://images/site/web");
    let other = server.store("s3://images/site");
    let pack = name("packs/00/11");
    store.put(&pack, &[b"01234", b"", b"56789"]).unwrap();
    let get = |range| store.get(&pack, range).unwrap();
    let from = |offset, length_bytes| ByteRange::From { offset, length_bytes };
    assert_eq!(get(ByteRange::Whole), b"0123456789");
    assert_eq!(get(from(2, 3)), b"234");
    assert_eq!(get(from(8, 100)), b"89");
    assert_eq!((get(from(10, 5)), get(from(3, 0)), get(from(u64::MAX, 9))), (vec![], vec![], vec![]));
    assert_eq!(get(ByteRange::Last { length_bytes: 4 }), b"6789");
    assert_eq!(get(ByteRange::Last { length_bytes: 99 }), b"0123456789");
    assert!(matches!(store.get(&name("packs/00/12"), ByteRange::Whole), Err(StoreError::Missing(_))));
    store.put(&name("packs/00/12"), &[]).unwrap();
    assert_eq!(store.get(&name("packs/00/12"), from(0, 9)).unwrap(), b"");
    store.put(&name("descriptor"), &[b"x"]).unwrap();
    assert_eq!(names(&store, "packs/", None), ["packs/00/11:10", "packs/00/12:0"]);
    assert_eq!(names(&store, "packs/", Some("packs/00/11")), ["packs/00/12:0"]);
    assert_eq!(names(&store, "desc", None), ["descriptor:1"]);
    assert_eq!(names(&store, "", None).len(), 3);
    assert_eq!(names(&other, "", None)[0], "web/descriptor:1");
    store.delete(&pack).unwrap();
    store.delete(&pack).unwrap();
    assert_eq!(names(&store, "packs/", None), ["packs/00/12:0"]);
}

#[test]
fn a_listing_goes_on_after_a_thousand_objects() {
    let server = Server::start(&[]);
    let store = server.store("s3://images");
    for number in 0..1003 {
        store.put(&name(&format!("packs/{number:04}")), &[b"x"]).unwrap();
    }
    let first = names(&store, "packs/", None);
    assert_eq!((first.len(), first[999].as_str()), (1000, "packs/0999:1"));
    assert_eq!(names(&store, "packs/", Some("packs/0999")).len(), 3);
}

#[test]
fn a_creation_has_one_winner() {
    let server = Server::start(&[]);
    let store = Arc::new(server.store("s3://images/a"));
    for round in 0..5 {
        let entry = name(&format!("ledger/{round:016x}"));
        let racing = (0..8_u8).map(|number| {
            let (store, entry) = (Arc::clone(&store), entry.clone());
            thread::spawn(move || (store.create(&entry, &[number]).unwrap(), number))
        });
        let racing: Vec<_> = racing.collect();
        let answers: Vec<(Creation, u8)> = racing.into_iter().map(|racer| racer.join().unwrap()).collect();
        let won: Vec<u8> =
            answers.iter().filter(|(made, _)| *made == Creation::New).map(|(_, number)| *number).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        assert_eq!(store.get(&entry, ByteRange::Whole).unwrap(), won);
    }
}

#[test]
fn a_conflict_is_no_object() {
    let server = Server::start(&[]);
    let store = server.store("s3://images/a");
    let entry = name("ledger/0000000000000000");
    let conflict = r#"[{"method": "PUT", "status": 409, "code": "ConditionalRequestConflict"}]"#;
    server.fail(conflict);
    assert!(matches!(store.create(&entry, b"one"), Err(StoreError::Unavailable { .. })));
    assert_eq!(store.create(&entry, b"one").unwrap(), Creation::New);
    server.fail(conflict);
    assert_eq!(store.create(&entry, b"two").unwrap(), Creation::Exists);
    assert_eq!(store.get(&entry, ByteRange::Whole).unwrap(), b"one");
}

#[test]
fn answers_that_ask_to_wait_and_cut_connections_are_told_from_refusals() {
    let server = Server::start(&[]);
    let store = server.store("s3://images/a");
    let pack = name("packs/00");
    for fault in [
        r#"[{"status": 429, "code": "TooManyRequests"}]"#,
        r#"[{"status": 503, "code": "SlowDown"}]"#,
        r#"[{"status": 500, "code": "InternalError"}]"#,
        r#"[{"status": 400, "code": "RequestTimeout"}]"#,
        "[{}]",
        r#"[{"effect": true}]"#,
    ] {
        server.fail(fault);
        let put = store.put(&pack, &[b"x"]);
        assert!(matches!(put, Err(StoreError::Unavailable { .. })), "{fault}: {put:?}");
        server.fail(fault);
        let listed = store.list("", None);
        assert!(matches!(listed, Err(StoreError::Unavailable { .. })), "{fault}: {listed:?}");
    }
    store.put(&pack, &[b"x"]).unwrap();
    for (status, code, expected) in [
        (403, "RequestTimeTooSkewed", Refusal::Clock),
        (403, "SignatureDoesNotMatch", Refusal::Credentials),
        (400, "ExpiredToken", Refusal::Expired),
        (403, "AccessDenied", Refusal::Denied),
        (403, "Unheard", Refusal::Denied),
        (404, "NoSuchBucket", Refusal::NoBucket),
        (301, "PermanentRedirect", Refusal::Elsewhere),
        (501, "NotImplemented", Refusal::Condition),
        (400, "Unheard", Refusal::Other),
    ] {
        for _ in 0..2 {
            server.fail(&format!(r#"[{{"status": {status}, "code": "{code}"}}]"#));
            let read = store.get(&pack, ByteRange::Whole);
            assert!(matches!(&read, Err(StoreError::Refused { why, .. }) if *why == expected), "{code}: {read:?}");
            server.fail(&format!(r#"[{{"status": {status}, "code": "{code}"}}]"#));
            let made = store.create(&name("ledger/00"), b"x");
            assert!(matches!(&made, Err(StoreError::Refused { why, .. }) if *why == expected), "{code}: {made:?}");
        }
    }
    let error = server.store("s3://nothing/a").list("", None).unwrap_err();
    assert!(error.to_string().contains("no such bucket"), "{error}");
    let error = server.store_of("s3://images/a", "stranger", &Options::default()).list("", None).unwrap_err();
    assert!(matches!(error, StoreError::Refused { why: Refusal::Credentials, .. }), "{error}");
}

#[test]
fn slow_answers_are_waited_for_and_a_server_that_is_gone_is_unavailable() {
    let server = Server::start(&[]);
    let store = server.store("s3://images/a");
    server.fail(r#"[{"delay": 1.5}]"#);
    let began = Instant::now();
    store.put(&name("packs/00"), &[b"x"]).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(1500));
    drop(server);
    let read = store.get(&name("packs/00"), ByteRange::Whole);
    assert!(matches!(read, Err(StoreError::Unavailable { .. })), "{read:?}");
}

#[test]
fn one_writer_needs_no_conditions() {
    for fault in ["--ignore-conditions", "--no-conditions"] {
        let server = Server::start(&[fault]);
        let entry = name("ledger/0000000000000000");
        let store = server.store_of("s3://images/a", "testkey", &Options { one_writer: true, ..Options::default() });
        assert_eq!(store.create(&entry, b"one").unwrap(), Creation::New, "{fault}");
        assert_eq!(store.create(&entry, b"two").unwrap(), Creation::Exists, "{fault}");
        assert_eq!(store.get(&entry, ByteRange::Whole).unwrap(), b"one");
    }
}

#[test]
fn a_server_without_conditions_is_refused_by_an_archive() {
    use onefold_block::random::SystemRandom;
    use onefold_image::archive::{Archive, ArchiveError};
    use onefold_image::format::descriptor::UnitKind;
    let create = |server: &Server| {
        let store = Arc::new(server.store("s3://images/a"));
        Archive::create(store, UnitKind::Files { unit_bytes: 128 << 10 }, &SystemRandom)
    };
    let error = create(&Server::start(&["--ignore-conditions"])).unwrap_err();
    assert!(matches!(error, ArchiveError::Unfit { .. }), "{error}");
    let error = create(&Server::start(&["--no-conditions"])).unwrap_err();
    assert!(matches!(error, ArchiveError::Store(StoreError::Refused { why: Refusal::Condition, .. })), "{error}");
    create(&Server::start(&[])).unwrap();
}
