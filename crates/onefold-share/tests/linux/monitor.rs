//! A door that tells a write monitor what it writes, on real file systems.

use onefold_block::clock::ManualClock;
use onefold_share::pace::Pace;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onefold_block::BLOCK_BYTES;
use onefold_block::clock::SystemClock;
use onefold_block::random::{SeededRandom, SystemRandom};
use onefold_linux::LinuxSubstrate;
use onefold_share::monitor::{HashPolicy, Monitor, MonitorPolicy};
use onefold_share::pass::{PassOptions, PassReport, pass};
use onefold_share::scan::{ScanOptions, ScanReport, scan};
use onefold_share::state::files::Marks;
use onefold_share::state::{Notice, State, StateError};

use crate::ground::{Ground, K, MIB, XFS, no_child, on, on_each, random_blocks, run, skip, soon};

const QUIET: fn(Notice) = |_| {};

fn state(ground: &Ground) -> State<'_, LinuxSubstrate> {
    State::open(&ground.substrate, &SystemClock, &SystemRandom, &QUIET).unwrap()
}

fn open<'a>(
    state: &State<'a, LinuxSubstrate>,
    files: &mut Marks,
    name: &str,
    policy: MonitorPolicy,
) -> Monitor<LinuxSubstrate> {
    let _no_child = no_child();
    Monitor::open(state, files, Path::new(name), policy, Arc::new(SystemClock)).unwrap()
}

fn scan_all(state: &State<'_, LinuxSubstrate>, files: &mut Marks) -> ScanReport {
    let _no_child = no_child();
    let pace = Pace::unlimited();
    let options = ScanOptions { threads: 1, ..ScanOptions::new(&pace) };
    scan(state, files, &options).unwrap()
}

/// Lends the image of a monitor for a pass.
fn lend_for_pass(
    monitor: &Monitor<LinuxSubstrate>,
    state: &State<'_, LinuxSubstrate>,
    files: &mut Marks,
) -> PassReport {
    let passed = monitor.lend(state, || pass_all(state, files)).unwrap();
    assert_eq!(passed.logs_elsewhere, 0, "{passed:?}");
    passed
}

fn pass_all(state: &State<'_, LinuxSubstrate>, files: &mut Marks) -> PassReport {
    let _no_child = no_child();
    let (pace, clock) = (Pace::unlimited(), ManualClock::default());
    let options = PassOptions { shard_entries_max: 12, ..PassOptions::new(Path::new("/var/tmp"), &pace, &clock) };
    pass(state, files, &options).unwrap()
}

fn image(ground: &Ground, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(ground.root.join(name)).unwrap()
}

#[test]
fn what_a_door_tells_is_shared_and_need_not_be_read() {
    let rate = HashPolicy::Adaptive { bytes_per_second: 4 * MIB };
    for hashing in [HashPolicy::InBand, HashPolicy::Deferred, rate] {
        on_each(|ground| {
            const BLOCKS: u64 = 2048;
            let template = random_blocks(1, BLOCKS as usize);
            ground.file("template", &template);
            ground.file("image", &random_blocks(2, BLOCKS as usize));
            ground.settled_room();
            let state = state(ground);
            let mut files = Marks::load(&state).unwrap();
            scan_all(&state, &mut files);
            pass_all(&state, &mut files);
            let monitor = open(&state, &mut files, "image", MonitorPolicy { hashing, ..MonitorPolicy::default() });
            let file = image(ground, "image");
            let random = SeededRandom::new(3);
            let mut expected = random_blocks(2, BLOCKS as usize);
            let mut told = 0;
            // Half of the template, in pieces, at other places; and parts of blocks.
            for piece in 0..64 {
                let (from, to) = (random.below(BLOCKS - 16) * K, (piece * 32) * K);
                let bytes = &template[from as usize..][..16 * BLOCK_BYTES];
                file.write_all_at(bytes, to).unwrap();
                expected[to as usize..][..bytes.len()].copy_from_slice(bytes);
                monitor.wrote(to, bytes);
                told += 16 * K;
                if piece % 8 == 0 {
                    file.write_all_at(b"part", to + 20 * K + 5).unwrap();
                    expected[(to + 20 * K + 5) as usize..][..4].copy_from_slice(b"part");
                    monitor.wrote(to + 20 * K + 5, b"part");
                }
                monitor.tick(&state).unwrap();
            }
            file.sync_all().unwrap();
            monitor.flush(&state).unwrap();
            let passed = lend_for_pass(&monitor, &state, &mut files);
            assert_eq!((passed.shared.now, passed.shared.differed), (told, 0), "{hashing:?}: {passed:?}");
            assert!(monitor.close(&state, &mut files).unwrap().is_known);
            assert!(ground.content("image") == expected && ground.content("template") == template);
            let scanned = scan_all(&state, &mut files);
            assert_eq!((scanned.read_bytes, scanned.unchanged), (0, 2), "{hashing:?}: {scanned:?}");
        });
    }
}

/// Four threads of a door write and tell, two workers hash and log, and passes go over all of it meanwhile.
#[test]
fn threads_may_tell_while_workers_work_and_passes_pass() {
    on(XFS, |ground| {
        const PART: u64 = 512;
        let contents = random_blocks(4, 40);
        let content = |number: u64| &contents[number as usize * BLOCK_BYTES..][..BLOCK_BYTES];
        ground.file("image", &random_blocks(5, 4 * PART as usize));
        let state = state(ground);
        let mut files = Marks::load(&state).unwrap();
        let policy = MonitorPolicy {
            hashing: HashPolicy::Adaptive { bytes_per_second: 2 * MIB },
            flush_after: Duration::from_millis(50),
            interval: Duration::from_millis(5),
            ..MonitorPolicy::default()
        };
        let monitor = open(&state, &mut files, "image", policy);
        let file = image(ground, "image");
        let written: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &QUIET).unwrap();
                        monitor.work(&state, &mut |error| panic!("{error}"));
                    })
                })
                .collect();
            let writers: Vec<_> = (0..4)
                .map(|part| {
                    let (monitor, file, content) = (&monitor, &file, &content);
                    scope.spawn(move || {
                        let random = SeededRandom::new(part);
                        let mut written = vec![u64::MAX; PART as usize];
                        for _ in 0..2 * PART {
                            let (block, number) = (random.below(PART), random.below(40));
                            let offset = (part * PART + block) * K;
                            file.write_all_at(content(number), offset).unwrap();
                            monitor.wrote(offset, content(number));
                            written[block as usize] = number;
                        }
                        written
                    })
                })
                .collect();
            while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                lend_for_pass(&monitor, &state, &mut files);
            }
            let written = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            monitor.end();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            written
        });
        monitor.flush(&state).unwrap();
        lend_for_pass(&monitor, &state, &mut files);
        let counts = monitor.close(&state, &mut files).unwrap().counts;
        assert!(counts.in_band_blocks > 0 && counts.deferred_blocks > 0 && counts.logs > 0, "{counts:?}");
        // Every content that was written is stored once, but for blocks that were being written when a pass looked.
        scan_all(&state, &mut files);
        pass_all(&state, &mut files);
        let image = ground.content("image");
        let reader = ground.open("image", onefold_substrate::Access::Read);
        let mut places = std::collections::BTreeMap::new();
        for (at, number) in (0..).zip(written.iter().flatten()).filter(|(_, number)| **number != u64::MAX) {
            assert!(&image[at * BLOCK_BYTES..][..BLOCK_BYTES] == content(*number), "block {at}");
            let place = ground.place_of(&reader, at as u64).unwrap_or_else(|| place_within(ground, &reader, at as u64));
            assert_eq!(*places.entry(number).or_insert(place), place, "block {at}");
        }
    });
}

/// Returns where a block lies that is not the first of its extent.
fn place_within(ground: &Ground, file: &onefold_linux::LinuxFile, block: u64) -> u64 {
    let (map, _) = ground.map(file);
    let extent = map.iter().find(|extent| extent.offset <= block * K && block * K < extent.end()).unwrap();
    extent.place.unwrap() + block * K - extent.offset
}

/// A file system that takes no writes: a log waits, and the teller does not.
#[test]
fn writers_do_not_wait_for_logs() {
    on(XFS, |ground| {
        ground.file("image", &random_blocks(6, 64));
        let state = state(ground);
        let mut files = Marks::load(&state).unwrap();
        let policy = MonitorPolicy { memory_bytes: 1 << 20, ..MonitorPolicy::default() };
        let monitor = open(&state, &mut files, "image", policy);
        monitor.wrote(0, &random_blocks(7, 1));
        let root = ground.root.to_str().unwrap();
        if let Err(error) = run("fsfreeze", ["-f", root]) {
            return skip(&error).unwrap_or_default();
        }
        let is_flushed = AtomicBool::new(false);
        let (longest, was_flushed) = std::thread::scope(|scope| {
            let flusher = scope.spawn(|| {
                let flushed = monitor_flush(&monitor, ground);
                is_flushed.store(true, Ordering::Relaxed);
                flushed
            });
            let started = Instant::now();
            let bytes = random_blocks(8, 16);
            let (mut longest, mut block) = (Duration::ZERO, 0);
            while started.elapsed() < Duration::from_secs(1) {
                let before = Instant::now();
                monitor.wrote(block * 32 * K, &bytes);
                longest = longest.max(before.elapsed());
                block += 1;
            }
            let was_flushed = is_flushed.load(Ordering::Relaxed);
            run("fsfreeze", ["-u", root]).unwrap();
            flusher.join().unwrap().unwrap();
            (longest, was_flushed)
        });
        assert!(!was_flushed, "the file system was not frozen");
        assert!(longest < Duration::from_millis(300), "a write was told of in {longest:?}");
        // More was told than memory holds; that is said.
        assert!(monitor.counts().shed_blocks > 0, "{:?}", monitor.counts());
        assert!(!monitor.close(&state, &mut files).unwrap().is_known);
    });
}

fn monitor_flush(monitor: &Monitor<LinuxSubstrate>, ground: &Ground) -> Result<(), StateError> {
    let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &QUIET)?;
    monitor.flush(&state)
}

/// What could not be logged is logged later, and nothing of it is lost.
#[test]
fn a_log_that_cannot_be_written_is_written_later() {
    on(XFS, |ground| {
        let content = random_blocks(9, 64);
        ground.file("other", &content);
        ground.file("image", &random_blocks(10, 64));
        ground.settled_room();
        let state = state(ground);
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        pass_all(&state, &mut files);
        let monitor = open(&state, &mut files, "image", MonitorPolicy::default());
        let file = image(ground, "image");
        file.write_all_at(&content, 0).unwrap();
        monitor.wrote(0, &content);
        let scratch = ground.root.join(".onefold/scratch");
        let set = |flag: &str| run("chattr", [flag.as_ref(), scratch.as_os_str()]).unwrap();
        set("+i");
        assert!(monitor.flush(&state).is_err());
        monitor.wrote(0, &content[..BLOCK_BYTES]);
        set("-i");
        monitor.flush(&state).unwrap();
        assert_eq!(monitor.counts().logged_blocks, 64);
        let passed = lend_for_pass(&monitor, &state, &mut files);
        assert_eq!(passed.shared.now, 64 * K, "{passed:?}");
        assert!(soon(|| state.logs().unwrap().is_empty()));
        assert!(monitor.close(&state, &mut files).unwrap().is_known);
    });
}
