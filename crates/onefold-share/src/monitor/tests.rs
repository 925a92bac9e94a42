use crate::pace::Pace;
use onefold_block::clock::ManualClock;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use onefold_block::BLOCK_BYTES;
use onefold_block::random::{Random, SeededRandom};
use onefold_block::zero::is_zero;
use onefold_substrate::{Files, Sharing};

use super::*;
use crate::domain::Domain;
use crate::format::entry::ContentPlace;
use crate::pass::{PassOptions, PassReport, pass};
use crate::scan::{ScanOptions, ScanReport, scan};
use onefold_testing::simulated::{Host, SimulatedFileSystem, SimulatedSubstrate, SimulationOptions};

const IMAGE: &str = "image.raw";
const K: u64 = BLOCK_BYTES_U64;

type Sim = SimulatedSubstrate<'static>;

/// A file system without other images, and a file to which a door writes.
struct Ground {
    file_system: SimulatedFileSystem,
    host: Host<'static>,
}

impl Ground {
    fn new() -> Ground {
        let options =
            SimulationOptions { images: 0, total_blocks: 1 << 16, image_blocks_max: 4, ..SimulationOptions::default() };
        let file_system = SimulatedFileSystem::new(&options);
        let host = file_system.observe();
        Ground { file_system, host }
    }

    fn state(&self) -> State<'_, Sim> {
        State::open(&self.host.substrate, &*self.host.clock, &*self.host.random, &|_| {}).unwrap()
    }

    fn create(&self, content: &[u8]) {
        let file = self.host.substrate.create(Path::new(IMAGE)).unwrap();
        self.host.substrate.write_at(&file, 0, content).unwrap();
        self.settle();
    }

    /// Lets enough time pass for a change to be seen as later.
    fn settle(&self) {
        self.file_system.pass(Duration::from_secs(1));
    }

    fn monitor(&self, state: &State<'_, Sim>, files: &mut Marks, policy: MonitorPolicy) -> Monitor<Sim> {
        Monitor::open(state, files, Path::new(IMAGE), policy, self.host.clock.clone()).unwrap()
    }
}

fn scan_all(state: &State<'_, Sim>, files: &mut Marks) -> ScanReport {
    scan(state, files, &ScanOptions::new(&Pace::unlimited())).unwrap()
}

fn pass_all(state: &State<'_, Sim>, files: &mut Marks) -> PassReport {
    let (pace, clock) = (Pace::unlimited(), ManualClock::default());
    let options = PassOptions {
        memory_bytes: 1 << 20,
        shard_entries_max: 12,
        ..PassOptions::new(Path::new("/var/tmp"), &pace, &clock)
    };
    pass(state, files, &options).unwrap()
}

/// Returns the entries of the index.
fn index(state: &State<'_, Sim>) -> BTreeMap<FingerprintPrefix, ContentPlace> {
    let mut entries = BTreeMap::new();
    state
        .each_entry(|entry| {
            entries.insert(entry.digest, entry.place);
            ControlFlow::Continue(())
        })
        .unwrap();
    entries
}

fn block(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    if number > 0 {
        SeededRandom::new(number).fill(&mut bytes).unwrap();
    }
    bytes
}

fn in_band() -> MonitorPolicy {
    MonitorPolicy { hashing: HashPolicy::InBand, ..MonitorPolicy::default() }
}

/// A door that writes to the image and reports all its writes, with a copy of the expected content of the image.
struct Door<'a> {
    ground: &'a Ground,
    file: <Sim as Files>::File,
    copy: Vec<u8>,
    /// Blocks that were not read since a part of them was written.
    unknown: BTreeSet<u64>,
    reads_parts: bool,
}

impl Door<'_> {
    fn act(&mut self, random: &SeededRandom, monitor: &Monitor<Sim>) {
        const BLOCKS: u64 = 24;
        let substrate = &self.ground.host.substrate;
        let mut offset = random.below(BLOCKS * K);
        let mut length = 1 + random.below(3 * K);
        if random.below(3) > 0 {
            (offset, length) = (offset / K * K, length.div_ceil(K) * K);
        }
        match random.below(8) {
            0 => {
                substrate.set_len(&self.file, offset).unwrap();
                self.note_parts(self.copy.len() as u64, offset);
                self.copy.resize(usize::try_from(offset).unwrap(), 0);
                monitor.truncated(offset);
            }
            1 => {
                length = length.min((self.copy.len() as u64).saturating_sub(offset));
                if length > 0 {
                    substrate.punch(&self.file, offset, length).unwrap();
                    self.write(offset, &vec![0; usize::try_from(length).unwrap()]);
                    monitor.zeroed(offset, length);
                }
            }
            kind => {
                let blocks = (0..=length / K + 1).flat_map(|_| block(random.below(12)));
                let bytes: Vec<u8> = blocks.take(usize::try_from(length).unwrap()).collect();
                substrate.write_at(&self.file, offset, &bytes).unwrap();
                self.write(offset, &bytes);
                match kind {
                    2 if self.reads_parts => monitor.wrote_unseen(offset, length),
                    3 if offset.is_multiple_of(K) && length.is_multiple_of(K) => {
                        let digest = |block: &[u8]| FingerprintPrefix::of(monitor.key().fingerprint(block));
                        let digests = bytes.chunks(BLOCK_BYTES).map(|block| (!is_zero(block)).then(|| digest(block)));
                        monitor.wrote_digests(FileBlock(offset / K), &digests.collect::<Vec<_>>());
                    }
                    _ => monitor.wrote(offset, &bytes),
                }
            }
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if offset > self.copy.len() as u64 {
            self.note_parts(self.copy.len() as u64, offset);
        }
        let [from, to] = [offset, end].map(|at| usize::try_from(at).unwrap());
        if to > self.copy.len() {
            self.copy.resize(to, 0);
        }
        self.copy[from..to].copy_from_slice(bytes);
        self.unknown.retain(|block| !(offset / K..end / K).contains(block));
        self.note_parts(offset, end);
    }

    fn note_parts(&mut self, from: u64, to: u64) {
        let cut = [from, to].into_iter().filter(|at| at % K != 0).map(|at| at / K);
        if !self.reads_parts {
            self.unknown.extend(cut);
        }
    }

    /// Returns the digests of all whole blocks that are known, except zeros.
    fn digests(&self, key: &FingerprintKey) -> BTreeSet<FingerprintPrefix> {
        let blocks = self.copy.chunks_exact(BLOCK_BYTES).zip(0..).filter(|(block, _)| !is_zero(block));
        let known = blocks.filter(|(_, number)| !self.unknown.contains(number));
        known.map(|(block, _)| FingerprintPrefix::of(key.fingerprint(block))).collect()
    }

    fn check(&self, state: &State<'_, Sim>, number: FileNo, when: &str) {
        let entries = index(state);
        let found: BTreeSet<FingerprintPrefix> = entries.keys().copied().collect();
        assert_eq!(found, self.digests(&state.key(&Domain::Owner(0))), "{when}");
        for (digest, place) in entries {
            if let ContentPlace::Unique(file, FileBlock(at)) = place {
                let from = usize::try_from(at * K).unwrap();
                let bytes = self.copy.get(from..from + BLOCK_BYTES).unwrap();
                assert_eq!(
                    (file, FingerprintPrefix::of(state.key(&Domain::Owner(0)).fingerprint(bytes))),
                    (number, digest),
                    "{when}: block {at}"
                );
            }
        }
        let mut read = vec![1; self.copy.len()];
        self.ground.host.substrate.read_at(&self.file, 0, &mut read).unwrap();
        assert!(read == self.copy, "{when}: the image reads otherwise");
    }
}

#[test]
fn the_index_after_a_monitor_is_the_one_after_a_scan() {
    let adaptive = HashPolicy::Adaptive { bytes_per_second: 20_000 };
    for (hashing, seed) in [HashPolicy::InBand, HashPolicy::Deferred, adaptive].into_iter().cycle().zip(0..60) {
        let random = SeededRandom::new(seed);
        let ground = Ground::new();
        ground.create(&(0..random.below(20) + 1).flat_map(|_| block(random.below(12))).collect::<Vec<u8>>());
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        pass_all(&state, &mut files);
        let monitor = ground.monitor(&state, &mut files, MonitorPolicy { hashing, ..MonitorPolicy::default() });
        let number = files.of(monitor.handle()).unwrap().number;
        let file = ground.host.substrate.open(Path::new(IMAGE), Access::Write).unwrap();
        let mut copy = vec![0; usize::try_from(ground.host.substrate.stat(&file).unwrap().length).unwrap()];
        ground.host.substrate.read_at(&file, 0, &mut copy).unwrap();
        let reads_parts = hashing != HashPolicy::InBand;
        let mut door = Door { ground: &ground, file, copy, unknown: BTreeSet::new(), reads_parts };
        for round in 0..6 {
            for _ in 0..random.below(30) {
                door.act(&random, &monitor);
                ground.file_system.pass(Duration::from_millis(random.below(300)));
                match random.below(6) {
                    0 => drop(monitor.tick(&state).unwrap()),
                    1 => monitor.flush(&state).unwrap(),
                    _ => {}
                }
            }
            monitor.flush(&state).unwrap();
            monitor.lend(&state, || pass_all(&state, &mut files)).unwrap();
            door.check(&state, number, &format!("seed {seed}, round {round}"));
        }
        let is_known = monitor.close(&state, &mut files).unwrap().is_known;
        // A pass that found something out of date would schedule another reading; nothing is out of date here.
        assert!(is_known, "seed {seed}");
        let length = door.copy.len() as u64;
        let scanned = scan_all(&state, &mut files);
        assert!(scanned.read_bytes == 0 && scanned.unchanged == u64::from(length >= K), "seed {seed}: {scanned:?}");
        // A forced scan finds the same.
        door.unknown.clear();
        let expected = door.digests(&state.key(&Domain::Owner(0)));
        let known = index(&state);
        files.forget_scans(&state).unwrap();
        scan_all(&state, &mut files);
        pass_all(&state, &mut files);
        door.check(&state, number, &format!("seed {seed}, after a scan"));
        if reads_parts {
            assert_eq!(known.keys().copied().collect::<BTreeSet<_>>(), expected, "seed {seed}");
        }
    }
}

#[test]
fn a_mebibyte_of_logs_tells_of_150_of_blocks() {
    for (what, step) in [("in sequence", 1), ("scattered", 977)] {
        let ground = Ground::new();
        ground.create(&block(1));
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        let monitor = ground.monitor(&state, &mut files, in_band());
        let blocks = 200_000;
        for number in 0..blocks {
            let mut digest = [1; FingerprintPrefix::BYTES];
            digest[..8].copy_from_slice(&u64::to_le_bytes(number));
            // Each block is written twice, and the last write counts.
            monitor.wrote_digests(FileBlock(number * step), &[None]);
            monitor.wrote_digests(FileBlock(number * step), &[Some(FingerprintPrefix(digest))]);
            monitor.tick(&state).unwrap();
        }
        monitor.flush(&state).unwrap();
        let counts = monitor.counts();
        assert_eq!((counts.logged_blocks, counts.shed_blocks), (blocks, 0), "{what}: {counts:?}");
        assert!((2..10).contains(&counts.logs), "{what}: {counts:?}");
        let ratio = counts.logged_blocks * K / counts.log_bytes;
        assert!(ratio >= 150, "{what}: {ratio} MB in a log of 1 MB");
        // A separate log of a few blocks, like those that are written every ten minutes.
        for number in 0..12 {
            monitor.wrote_digests(FileBlock(number * step), &[Some(FingerprintPrefix([1; 12]))]);
        }
        monitor.flush(&state).unwrap();
        let bytes = monitor.counts().log_bytes - counts.log_bytes;
        assert!(12 * K / bytes >= 150, "{what}: {bytes} bytes");
    }
}

#[test]
fn what_does_not_fit_into_memory_is_scanned() {
    let ground = Ground::new();
    ground.create(&(1..=40).flat_map(block).collect::<Vec<u8>>());
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    pass_all(&state, &mut files);
    assert_eq!(index(&state).len(), 40);
    let monitor = ground.monitor(&state, &mut files, MonitorPolicy { memory_bytes: 8 * 64, ..in_band() });
    let file = ground.host.substrate.open(Path::new(IMAGE), Access::Write).unwrap();
    for number in 0..10 {
        ground.host.substrate.write_at(&file, number * 2 * K, &block(100 + number)).unwrap();
        monitor.wrote(number * 2 * K, &block(100 + number));
    }
    assert!(monitor.counts().shed_blocks > 0 && !monitor.is_known(), "{:?}", monitor.counts());
    monitor.flush(&state).unwrap();
    monitor.lend(&state, || pass_all(&state, &mut files)).unwrap();
    // All blocks between the first and the last that did not fit may have changed; those behind are unchanged.
    let known = index(&state);
    let is_there =
        |number| known.contains_key(&FingerprintPrefix::of(state.key(&Domain::Owner(0)).fingerprint(&block(number))));
    assert!((1..=19).step_by(2).all(|number| !is_there(number)) && (21..=40).all(is_there));
    assert!(!monitor.close(&state, &mut files).unwrap().is_known);
    ground.settle();
    assert_eq!(scan_all(&state, &mut files).read_bytes, 40 * K);
    pass_all(&state, &mut files);
    assert_eq!(index(&state).len(), 40);
}

#[test]
fn an_image_is_the_monitors_until_it_is_lent_or_closed() {
    let ground = Ground::new();
    ground.create(&[block(1), block(2)].concat());
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let monitor = ground.monitor(&state, &mut files, in_band());
    let again = Monitor::open(&state, &mut files, Path::new(IMAGE), in_band(), ground.host.clock.clone());
    assert!(matches!(again, Err(MonitorError::Elsewhere { .. })));
    monitor.wrote(0, &block(3));
    monitor.flush(&state).unwrap();
    assert_eq!(pass_all(&state, &mut files).logs_elsewhere, 1);
    assert_eq!(scan_all(&state, &mut files).passed_over, 1);
    assert_eq!(monitor.lend(&state, || pass_all(&state, &mut files)).unwrap().logs, 1);
    assert_eq!(scan_all(&state, &mut files).passed_over, 1);
    // Another host is faster: the monitor goes on, and takes the lock back when that host is done.
    let other = monitor.lend(&state, || state.try_lock(&Subject::File(monitor.handle().clone())).unwrap()).unwrap();
    assert!(other.is_some());
    drop(other);
    monitor.tick(&state).unwrap();
    assert_eq!(scan_all(&state, &mut files).passed_over, 1);
    monitor.close(&state, &mut files).unwrap();
    assert_eq!(scan_all(&state, &mut files).passed_over, 0);
}

/// Threads that work for the monitor do not take the image's lock from the borrower.
#[test]
fn what_is_lent_stays_lent_whatever_ticks() {
    let ground = Ground::new();
    ground.create(&block(1));
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let monitor = ground.monitor(&state, &mut files, in_band());
    let free = || state.try_lock(&Subject::File(monitor.handle().clone())).unwrap().is_some();
    let lent = || {
        monitor.tick(&state).unwrap();
        free()
    };
    assert!(monitor.lend(&state, lent).unwrap() && !free());
    assert!(monitor.lend(&state, || monitor.lend(&state, lent).unwrap() && lent()).unwrap() && !free());
}

/// The conditions under which an image counts as scanned when it is closed.
#[test]
fn an_image_is_known_only_if_all_was_told() {
    type Meanwhile = fn(&Ground, &State<'_, Sim>, &mut Marks, &Monitor<Sim>);
    let write: Meanwhile = |ground, _, _, monitor| {
        let file = ground.host.substrate.open(Path::new(IMAGE), Access::Write).unwrap();
        ground.host.substrate.write_at(&file, K, &block(9)).unwrap();
        monitor.wrote(K, &block(9));
    };
    let cases: [(&str, bool, Meanwhile, bool); 6] = [
        ("never scanned", false, write, false),
        ("scanned, nothing written", true, |_, _, _, _| {}, true),
        ("scanned, all told", true, write, true),
        ("lost track", true, |_, _, _, monitor| monitor.lost_track(), false),
        (
            "a pass wants it read again",
            true,
            |_, state, files, monitor| {
                let number = files.of(monitor.handle()).unwrap().number;
                files.forget_scan(state, number).unwrap();
            },
            false,
        ),
        (
            "scanned meanwhile",
            false,
            |ground, state, files, monitor| {
                ground.settle();
                assert!(monitor.lend(state, || scan_all(state, files)).unwrap().read_bytes > 0);
            },
            true,
        ),
    ];
    for (what, is_scanned, meanwhile, is_known) in cases {
        let ground = Ground::new();
        ground.create(&(1..=5).flat_map(block).collect::<Vec<u8>>());
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        if is_scanned {
            scan_all(&state, &mut files);
        }
        let monitor = ground.monitor(&state, &mut files, in_band());
        assert_eq!(monitor.is_known(), is_scanned, "{what}");
        meanwhile(&ground, &state, &mut files, &monitor);
        assert_eq!(monitor.close(&state, &mut files).unwrap().is_known, is_known, "{what}");
        ground.settle();
        assert_eq!(scan_all(&state, &mut files).read_bytes, if is_known { 0 } else { 5 * K }, "{what}");
    }
    // A monitor that dies has logged nothing.
    let ground = Ground::new();
    ground.create(&(1..=5).flat_map(block).collect::<Vec<u8>>());
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let monitor = ground.monitor(&state, &mut files, in_band());
    write(&ground, &state, &mut files, &monitor);
    drop(monitor);
    ground.settle();
    assert_eq!(scan_all(&state, &mut files).read_bytes, 5 * K);
}

#[test]
fn ranges_are_cut_at_the_last_block_that_can_be() {
    let range = ByteRange::new(K - 1, 2 * K + 2);
    assert_eq!((range.whole_blocks(), range.parts()), (1..3, [Some(0), Some(3)]));
    let range = ByteRange::new(K + 5, 7);
    assert!(range.whole_blocks().is_empty());
    assert_eq!(range.parts(), [Some(1), None]);
    assert_eq!(ByteRange::new(K, 2 * K).parts(), [None, None]);
    for range in [ByteRange::new(u64::MAX, u64::MAX), ByteRange::new(FileBlock::LIMIT * K, 1), ByteRange::new(5, 0)] {
        assert!(range.is_empty(), "{range:?}");
    }
    assert_eq!(ByteRange::new(0, u64::MAX).whole_blocks(), 0..FileBlock::LIMIT);
}
