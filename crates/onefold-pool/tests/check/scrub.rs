//! Scrub of an open pool: damaged data is found and its files are named.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{BlockDevice, BlockNo, Clock, Timestamp};
use onefold_pool::check::{ScrubOptions, repair};
use onefold_pool::format::header::BlockKind;
use onefold_pool::format::map_node::entries_range;
use onefold_pool::{Durability, Environment, FileKind, Ino, NoProgress, OpenOptions, Pool, PoolError, Progress};
use onefold_testing::device::MemoryDevice;
use parking_lot::Mutex;

use super::common::*;
use super::structures::Structures;

fn first_data_block(device: &MemoryDevice) -> BlockNo {
    let (_, leaf) = &blocks_of_kind(&device.image(), BlockKind::MapNode(0))[0];
    BlockNo(u64::from_le_bytes(leaf[entries_range(5, 1)].try_into().unwrap()))
}

#[test]
fn sound_data_is_read_once_and_found_sound() {
    let device = sample();
    let pool = open(&device);
    let report = pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap();
    assert!(report.is_clean() && !report.stopped, "{report:#?}");
    assert_eq!(report.data_blocks_hashed, 517);
}

#[test]
fn damaged_data_is_told_with_all_its_files_even_if_it_was_read_before() {
    let device = sample();
    let pool = open(&device);
    let images = pool.lookup(Ino::ROOT, b"images").unwrap().ino;
    let golden = pool.lookup(images, b"golden.raw").unwrap().ino;
    let block = first_data_block(&device);
    for at in 0..20 {
        pool.read(golden, at * 4096, &mut [0; 4096]).unwrap();
    }
    flip(&device, block, 9);
    let report = pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap();
    assert_eq!(report.problems_total, 1, "{report:#?}");
    let problem = &report.problems[0];
    assert_eq!((problem.structure, problem.block), ("data", Some(block)));
    assert_eq!(problem.files, ["/images/golden.raw", "/images/clone.raw"]);
    pool.close().unwrap();
}

#[test]
fn a_scrub_leaves_nothing_pinned() {
    let device = new_pool(8192);
    let pool = open(&device);
    let ino = make(&pool, Ino::ROOT, b"file", FileKind::Regular);
    for round in 0..20 {
        // Most of the pool each time: if space stayed pinned, it would run out.
        pool.write(ino, 0, &noise(round, 6 << 20), Durability::Now).unwrap();
        assert!(pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap().is_clean());
    }
    pool.close().unwrap();
    assert_clean(&device);
}

struct ImmediateStop;

impl Progress for ImmediateStop {
    fn update(&self, _: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// A device that records when data is read, by the pool's clock.
struct TimedDevice {
    inner: Arc<MemoryDevice>,
    clock: Arc<ManualClock>,
    /// Microseconds by the clock, and bytes read until then.
    reads: Mutex<Vec<(u64, u64)>>,
}

fn microseconds(time: Timestamp) -> u64 {
    u64::try_from(time.seconds).unwrap() * 1_000_000 + u64::from(time.nanoseconds / 1000)
}

impl BlockDevice for TimedDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        let mut reads = self.reads.lock();
        let bytes = reads.last().map_or(0, |last| last.1) + into.len() as u64;
        reads.push((microseconds(self.clock.now()), bytes));
        self.inner.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.inner.write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.inner.discard(first, count)
    }
}

#[test]
fn a_scrub_reads_no_faster_than_its_rate_at_any_moment_and_not_much_slower() {
    for rate in [100_000_u64, 1 << 20, 64 << 20] {
        let clock = Arc::new(ManualClock::starting_at(1000));
        let device = Arc::new(TimedDevice { inner: sample(), clock: clock.clone(), reads: Mutex::new(Vec::new()) });
        let environment = Environment { clock: clock.clone(), random: Arc::new(SeededRandom::new(1)) };
        let options = OpenOptions { background: false, memory_bytes: MEMORY, ..OpenOptions::default() };
        let pool = Pool::open(device.clone(), options, environment).unwrap();
        // Metadata is read once; later reads are of data.
        assert!(pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap().is_clean());
        device.reads.lock().clear();
        let started = microseconds(clock.now());
        let report = pool.scrub(&ScrubOptions { bytes_per_second: Some(rate) }, &NoProgress).unwrap();
        let reads = device.reads.lock().clone();
        for (at, bytes) in &reads {
            let due = (at - started) * rate / 1_000_000;
            // One page of the fingerprint store describes 170 blocks.
            assert!(*bytes <= due + 170 * 4096, "{bytes} bytes after {} us at {rate} a second", at - started);
        }
        let total = reads.last().unwrap().1;
        assert_eq!(total, report.data_blocks_hashed * 4096);
        let took = microseconds(clock.now()) - started;
        let due = total * 1_000_000 / rate;
        assert!((due..due + due / 10 + 100_000).contains(&took), "{took} us for {total} bytes at {rate} a second");
    }
}

#[test]
fn a_scrub_stops_when_asked_and_refuses_a_rate_of_nothing() {
    let pool = open(&sample());
    assert!(pool.scrub(&ScrubOptions { bytes_per_second: Some(1) }, &ImmediateStop).unwrap().stopped);
    let refused = pool.scrub(&ScrubOptions { bytes_per_second: Some(0) }, &NoProgress);
    assert!(matches!(refused, Err(PoolError::Invalid(_))), "{refused:?}");
}

#[test]
fn a_scrub_goes_on_after_damaged_metadata() {
    let device = sample();
    let data = first_data_block(&device);
    flip(&device, data, 9);
    let pages = blocks_of_kind(&device.image(), BlockKind::StorePage);
    let untouched = pages.iter().map(|(at, _)| *at).find(|at| (at.0 - 4) != data.0 / 170 && at.0 < 8).unwrap();
    flip(&device, untouched, 700);
    let leaves = blocks_of_kind(&device.image(), BlockKind::MapNode(0));
    flip(&device, leaves.last().unwrap().0, 700);
    let pool = open(&device);
    let report = pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap();
    let told: Vec<_> = report.problems.iter().map(|problem| (problem.structure, problem.block.unwrap())).collect();
    assert!(told.contains(&("data", data)), "{report:#?}");
    assert!(told.contains(&("fingerprint store", untouched)), "{report:#?}");
    let map = report.problems.iter().find(|problem| problem.structure == "file map").unwrap();
    assert!(!map.files.is_empty(), "{report:#?}");
    assert_eq!(report.problems_total, report.problems.len() as u64);
}

#[test]
fn a_used_block_that_is_marked_as_free_is_told_before_anybody_wants_it() {
    let device = sample();
    let data = first_data_block(&device);
    reseal(&device, BlockNo(2), |bytes| bytes[16 + data.0 as usize / 8] ^= 1 << (data.0 % 8));
    let report = open(&device).scrub(&ScrubOptions::default(), &NoProgress).unwrap();
    assert_eq!(report.problems_total, 1, "{report:#?}");
    let problem = &report.problems[0];
    assert_eq!((problem.structure, problem.block), ("bitmap", Some(data)));
    assert_eq!(problem.files, ["/images/golden.raw", "/images/clone.raw"]);
}

#[test]
fn all_names_of_a_damaged_file_are_told() {
    let device = sample();
    let pool = open(&device);
    let small = pool.lookup(Ino::ROOT, b"small").unwrap().ino;
    let images = pool.lookup(Ino::ROOT, b"images").unwrap().ino;
    pool.link(small, images, b"also small").unwrap();
    pool.checkpoint().unwrap();
    pool.close().unwrap();
    let structures = Structures::of(&device.image());
    flip(&device, structures.data_of(small)[0], 100);
    for mut files in [
        open(&device).scrub(&ScrubOptions::default(), &NoProgress).unwrap().problems.remove(0).files,
        checked(&device).problems.remove(0).files,
    ] {
        files.sort();
        assert_eq!(files, ["/images/also small", "/small"]);
    }
}

/// What was seen: a file was damaged, and this was detected. It was copied again from a backup, and the copy was
/// damaged too: its blocks were shared with the damaged ones, whose fingerprints were still those of the right content.
#[test]
fn data_that_is_written_again_is_not_shared_with_its_damaged_copy() {
    for by_scrub in [true, false] {
        let device = sample();
        let data = first_data_block(&device);
        flip(&device, data, 9);
        if by_scrub {
            let pool = open(&device);
            assert_eq!(pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap().problems_total, 1);
            pool.close().unwrap();
        } else {
            let seam: Arc<dyn BlockDevice> = device.clone();
            assert_eq!(repair(&seam, &options(), &environment(), &NoProgress).unwrap().problems_left, 1);
        }
        let pool = open(&device);
        while pool.reclaim().unwrap() {}
        let copy = make(&pool, Ino::ROOT, b"from a backup", FileKind::Regular);
        pool.write(copy, 0, &noise(1, 2_100_000), Durability::Now).unwrap();
        let mut bytes = vec![0; 2_100_000];
        pool.read(copy, 0, &mut bytes).unwrap();
        assert!(bytes == noise(1, 2_100_000), "{by_scrub}");
        // After being overwritten, the damaged file is whole again, and nothing is damaged any more.
        let images = pool.lookup(Ino::ROOT, b"images").unwrap().ino;
        for name in [&b"golden.raw"[..], b"clone.raw"] {
            let ino = pool.lookup(images, name).unwrap().ino;
            pool.write(ino, 0, &noise(1, 2_100_000), Durability::Now).unwrap();
        }
        assert!(pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap().is_clean());
        pool.close().unwrap();
        assert_clean(&device);
    }
}
