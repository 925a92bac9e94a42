//! How many requests and bytes an installation and a small read of an image take.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{Clock, Random};
use onefold_disk::Disk;
use parking_lot::{Condvar, Mutex};

use super::headers::ImageHeaders;
use super::*;
use crate::ImageName;
use crate::archive::Archive;
use crate::capture::{CaptureOptions, Scope, Source, capture};
use crate::compress::LEVEL;
use crate::disk::ArchivedDisk;
use crate::format::descriptor::UnitKind;
use crate::store::hooked::{Call, HookedStore, io_error};
use crate::store::{ByteRange, MemoryStore, Store};
use crate::testing::MemoryDisk;

const UNIT_BYTES: u32 = 32 << 10;
/// Requests of a first installation for each GiB stored, and those that do not depend on the length of an image.
const REQUESTS_PER_GIB: u64 = 240;
const OTHER_REQUESTS: u64 = 12;

/// A store in memory that counts reads, and fails those of packs that return more than some bytes.
struct CountingStore {
    store: Arc<dyn Store>,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    reads: AtomicU64,
    bytes: AtomicU64,
    pack_read_bytes_max: AtomicU64,
}

impl CountingStore {
    fn new() -> CountingStore {
        let counts = Counts { reads: 0.into(), bytes: 0.into(), pack_read_bytes_max: u64::MAX.into() };
        let counts = Arc::new(counts);
        let noted = Arc::clone(&counts);
        let store = HookedStore::new(Arc::new(MemoryStore::default()), |_, _| Ok(()));
        let store = store.and_after(move |call, name, bytes| {
            let Call::Get(range) = call else { return Ok(()) };
            noted.reads.fetch_add(1, Ordering::Relaxed);
            noted.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            let is_from = matches!(range, ByteRange::From { .. }) && name.starts_with("packs/");
            match is_from && bytes as u64 > noted.pack_read_bytes_max.load(Ordering::Relaxed) {
                true => Err(io_error("read", name, "a bad sector")),
                false => Ok(()),
            }
        });
        CountingStore { store: Arc::new(store), counts }
    }

    fn start_over(&self) {
        self.counts.reads.store(0, Ordering::Relaxed);
        self.counts.bytes.store(0, Ordering::Relaxed);
    }

    fn reads(&self) -> u64 {
        self.counts.reads.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }
}

/// Returns a store with an image of this disk.
fn captured(disk: &MemoryDisk, random: &SeededRandom) -> CountingStore {
    let counting = CountingStore::new();
    let units = UnitKind::Fixed { unit_bytes: UNIT_BYTES };
    let archive = Archive::create(Arc::clone(&counting.store), units, random).unwrap();
    capture_disk(&archive, disk, random);
    counting
}

/// Captures a disk as the next version of the image.
pub(super) fn capture_disk(archive: &Archive, disk: &MemoryDisk, random: &SeededRandom) {
    let clock = ManualClock::starting_at(3);
    let folder = tempfile::tempdir().unwrap();
    let options = CaptureOptions {
        name: ImageName::new("web").unwrap(),
        began: clock.now(),
        scope: Scope::Allocated,
        exact: false,
        threads: 2,
        memory_bytes: 0,
        level: LEVEL,
        folder: folder.path(),
    };
    let mut writer = archive.writer(&clock, random, "host").unwrap();
    let source = Source { disk, has_changed: &|| Ok(false) };
    capture(archive, &mut writer, source, &options, &|_| ControlFlow::Continue(())).unwrap();
}

fn open(counting: &CountingStore) -> (Archive, Manifest) {
    let archive = Archive::open(Arc::clone(&counting.store)).unwrap();
    let manifest = archive.manifest(&archive.images()[0]).unwrap();
    counting.start_over();
    (archive, manifest)
}

/// Installs the image to a new file and compares it with the disk.
fn install_and_compare(archive: &Archive, manifest: &Manifest, disk: &MemoryDisk) {
    install_within(256 << 20, archive, manifest, disk);
}

/// As [`install_and_compare`], with this much memory.
fn install_within(memory_bytes: u64, archive: &Archive, manifest: &Manifest, disk: &MemoryDisk) {
    let file = tempfile::tempfile().unwrap();
    let target = FileTarget::blank(file, manifest.size_bytes).unwrap();
    let options = InstallOptions {
        free: FreeSectorPolicy::Leave,
        verify: false,
        threads: 2,
        memory_bytes,
        fresh: false,
        fit: false,
        start_bytes: 0,
    };
    install(archive, manifest, &target, &options, &|_| ControlFlow::Continue(())).unwrap();
    let mut installed = vec![0; disk.bytes.len()];
    Target::read(&target, 0, &mut installed).unwrap();
    assert!(installed == disk.bytes);
}

/// Noise does not compress, so an image of three packs has 96 MiB.
#[test]
fn an_installation_makes_few_requests_and_reads_each_byte_about_once() {
    let random = SeededRandom::new(1);
    let disk = MemoryDisk::noise(96 << 20, &random);
    let store = captured(&disk, &random);
    let (archive, manifest) = open(&store);
    let stored_bytes = manifest.totals.stored_bytes;
    assert!(stored_bytes > 96 << 20);
    install_and_compare(&archive, &manifest, &disk);
    println!("{} requests, {} bytes of {stored_bytes}", store.reads(), store.bytes());
    let requests_max = OTHER_REQUESTS + REQUESTS_PER_GIB * stored_bytes / (1 << 30);
    assert!(store.reads() <= requests_max, "{} requests, {requests_max} are allowed", store.reads());
    assert!(store.bytes() < stored_bytes + (4 << 20), "{} bytes", store.bytes());
}

#[test]
fn a_small_read_of_an_image_reads_little() {
    let random = SeededRandom::new(2);
    let disk = MemoryDisk::noise(96 << 20, &random);
    let store = captured(&disk, &random);
    let (archive, manifest) = open(&store);
    let archived = ArchivedDisk::new(Arc::new(archive), manifest, 64 << 20);
    let mut into = vec![0; 10 << 10];
    archived.read(70 << 20, &mut into).unwrap();
    assert!(into == disk.bytes[70 << 20..(70 << 20) + (10 << 10)]);
    assert!(store.bytes() < 1 << 20 && store.reads() < 12, "{} bytes, {} reads", store.bytes(), store.reads());
}

/// A bad sector, or a proxy that cuts long answers, fails a long read whose units are nearly all intact.
#[test]
fn a_long_read_that_fails_costs_no_unit_that_a_short_one_returns() {
    let random = SeededRandom::new(3);
    let disk = MemoryDisk::noise(5 << 20, &random);
    let store = captured(&disk, &random);
    for bytes_max in [2 << 20, u64::from(UNIT_BYTES) + 100] {
        let (archive, manifest) = open(&store);
        store.counts.pack_read_bytes_max.store(bytes_max, Ordering::Relaxed);
        install_and_compare(&archive, &manifest, &disk);
    }
}

/// Regression: a unit behind a gap was not planned, if unit and gap together did not fit in memory. Here, gaps between
/// old units have as many bytes as these.
#[test]
fn an_image_of_two_captures_takes_few_requests_and_at_most_twice_its_bytes() {
    let random = SeededRandom::new(4);
    let mut disk = MemoryDisk::noise(32 << 20, &random);
    let store = captured(&disk, &random);
    let run_bytes = 4 * UNIT_BYTES as usize;
    disk.bytes.chunks_mut(run_bytes).step_by(2).for_each(|run| random.fill(run).unwrap());
    let (archive, _) = open(&store);
    capture_disk(&archive, &disk, &random);
    let (archive, _) = open(&store);
    let manifest = archive.manifest(archive.images().last().unwrap()).unwrap();
    assert_eq!(manifest.image.version, 2);
    store.start_over();
    // One thread, with groups of 4 MiB: 16 runs of old units, and as many new ones that follow each other.
    install_within(16 << 20, &archive, &manifest, &disk);
    println!("{} requests, {} bytes of {}", store.reads(), store.bytes(), manifest.size_bytes);
    let requests_max = OTHER_REQUESTS + 4 * 8;
    assert!(store.reads() <= requests_max, "{} requests, {requests_max} are allowed", store.reads());
    assert!(store.bytes() < 2 * manifest.size_bytes, "{} bytes", store.bytes());
}

fn chunks_again(manifest: &Manifest, count: usize) -> Manifest {
    let chunks = manifest.chunks.iter().copied().cycle().take(count).collect();
    Manifest { chunks, ..manifest.clone() }
}

/// Regression: one thread read all headers, one request after the other.
#[test]
fn several_threads_read_the_headers_of_an_image() {
    let random = SeededRandom::new(5);
    let store = captured(&MemoryDisk::noise(2 << 20, &random), &random);
    let (archive, manifest) = open(&store);
    let manifest = chunks_again(&manifest, 2000);
    let (threads, has_come) = (Mutex::new(HashSet::new()), Condvar::new());
    // Each waits until another one is at work.
    let meet = |_| {
        let mut threads = threads.lock();
        threads.insert(std::thread::current().id());
        has_come.notify_all();
        has_come.wait_while_for(&mut threads, |threads| threads.len() < 2, Duration::from_secs(10));
        match threads.len() {
            1 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    assert!(ImageHeaders::read(&archive, &manifest, 16 << 20, 4, &meet).is_ok());
}

/// Regression: 256 headers were read before the user could interrupt, and each may take a request.
#[test]
fn the_reading_of_headers_can_be_interrupted_often() {
    let random = SeededRandom::new(6);
    let store = captured(&MemoryDisk::noise(2 << 20, &random), &random);
    let (archive, manifest) = open(&store);
    let manifest = chunks_again(&manifest, 2000);
    let asked = AtomicU64::new(0);
    let interrupt = |_| match asked.fetch_add(1, Ordering::Relaxed) {
        10.. => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let read = ImageHeaders::read(&archive, &manifest, 16 << 20, 4, &interrupt);
    assert!(matches!(read, Err(InstallError::Stopped)));
    assert!(asked.into_inner() < 10 + 2 * 4);
}

/// Regression: only the plain bytes of headers were counted, which may be a third of what they take.
#[test]
fn headers_in_memory_take_no_more_than_they_may() {
    let random = SeededRandom::new(7);
    let disk = MemoryDisk::noise(20 << 20, &random);
    let store = captured(&disk, &random);
    let (archive, manifest) = open(&store);
    let plain_bytes = |name| archive.header(name).unwrap().encode().unwrap().len() as u64;
    let all_bytes: u64 = manifest.chunks.iter().map(plain_bytes).sum();
    let headers = ImageHeaders::read(&archive, &manifest, all_bytes, 2, &|_| ControlFlow::Continue(())).unwrap();
    let kept: u64 = headers.kept.iter().map(|(name, plain)| (size_of_val(name) + plain.len()) as u64 + 64).sum();
    assert!(kept > all_bytes / 2 && kept <= all_bytes, "{kept} of {all_bytes}");
}
