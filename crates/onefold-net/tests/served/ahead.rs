//! Chunks that are read before a client requests them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onefold_image::archive::Archive;
use onefold_image::format::manifest::Manifest;
use onefold_image::served::ServedArchive;
use onefold_image::store::{ByteRange, Creation, ListedObject, ObjectName, Store, StoreError};
use onefold_net::{ImageServer, ServerOptions};

use crate::fixture::{Fixture, get, server_options};

/// A store that counts how often an object of a folder is read.
struct CountedStore {
    inner: Arc<dyn Store>,
    folder: &'static str,
    reads: Arc<AtomicUsize>,
}

impl fmt::Debug for CountedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedStore").finish_non_exhaustive()
    }
}

impl Store for CountedStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        let bytes = self.inner.get(name, range);
        self.reads.fetch_add(usize::from(name.as_str().starts_with(self.folder)), Ordering::SeqCst);
        bytes
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.inner.put(name, parts)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        self.inner.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.inner.list(prefix, after)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.inner.delete(name)
    }
}

/// Returns the archive of a fixture, and how often objects of one of its folders were read.
fn counted(fixture: &Fixture, folder: &'static str) -> (Arc<Archive>, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let store = CountedStore { inner: fixture.store(), folder, reads: Arc::clone(&reads) };
    (Arc::new(Archive::open(Arc::new(store)).unwrap()), reads)
}

/// Returns the header by which a client states the manifest of an image.
fn manifest_header(digest: &[u8; 32]) -> String {
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("Onefold-Manifest: {digits}\r\n")
}

#[test]
fn chunks_behind_those_of_a_client_in_order_are_read_before_it_requests_them() {
    let fixture = Fixture::new(12 << 20);
    let record = fixture.archive().images().pop().unwrap();
    let Manifest { chunks, .. } = fixture.archive().manifest(&record).unwrap();
    let options: ServerOptions = server_options();
    let expected = {
        let (archive, reads) = counted(&fixture, "packs/");
        let served = ServedArchive::new(archive, options.memory_bytes / 4);
        let before = [0, 1].map(|position| served.chunk(&chunks[position]).unwrap());
        assert!(before.iter().all(|chunk| chunk.length_bytes > 512 << 10));
        let requested = reads.load(Ordering::SeqCst);
        served.read_ahead(&chunks[2..6]).unwrap();
        assert!(reads.load(Ordering::SeqCst) > requested);
        reads.load(Ordering::SeqCst)
    };
    let (archive, reads) = counted(&fixture, "packs/");
    let server = ImageServer::listen(archive, &options, Box::new(|_| ())).unwrap();
    let (address, is_stopped) = (server.address(), Arc::new(AtomicBool::new(false)));
    let stop = Arc::clone(&is_stopped);
    let running = thread::spawn(move || server.run(&|| stop.load(Ordering::Relaxed)));
    let request = |position: usize, headers: &str| {
        let (head, body) = get(address, &format!("/v1/chunks/{}", chunks[position]), headers);
        head.starts_with("http/1.1 200") && !body.is_empty()
    };
    let began = Instant::now();
    let wait_until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{} reads", reads.load(Ordering::SeqCst));
            thread::sleep(Duration::from_millis(10));
        }
    };
    let image = manifest_header(&record.digest);
    // The first request only has the server learn the order of the chunks.
    wait_until(&|| {
        assert!(request(0, &image) && request(1, &image));
        reads.load(Ordering::SeqCst) >= expected
    });
    fixture.delete_packs();
    for position in 2..6 {
        // Units that were read may be on their way to the memory.
        wait_until(&|| request(position, ""));
    }
    assert!(!request(9, ""), "this one was not read ahead");
    is_stopped.store(true, Ordering::Relaxed);
    running.join().unwrap();
}

/// Regression: each request read the manifest again, although that had failed a moment before.
#[test]
fn a_manifest_that_cannot_be_read_is_not_read_by_each_request() {
    let fixture = Fixture::new(2 << 20);
    let record = fixture.archive().images().pop().unwrap();
    let Manifest { chunks, .. } = fixture.archive().manifest(&record).unwrap();
    for object in fixture.store().list("manifests/", None).unwrap() {
        fixture.store().delete(&object.name).unwrap();
    }
    let (archive, reads) = counted(&fixture, "manifests/");
    let server = ImageServer::listen(archive, &server_options(), Box::new(|_| ())).unwrap();
    let (address, is_stopped) = (server.address(), Arc::new(AtomicBool::new(false)));
    let stop = Arc::clone(&is_stopped);
    let running = thread::spawn(move || server.run(&|| stop.load(Ordering::Relaxed)));
    let began = Instant::now();
    let request = || {
        let (head, _) = get(address, &format!("/v1/chunks/{}", chunks[0]), &manifest_header(&record.digest));
        assert!(head.starts_with("http/1.1 200"), "{head}");
    };
    while reads.load(Ordering::SeqCst) == 0 {
        assert!(began.elapsed() < Duration::from_secs(20));
        request();
    }
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(10));
        request();
    }
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    is_stopped.store(true, Ordering::Relaxed);
    running.join().unwrap();
}
