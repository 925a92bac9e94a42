//! The filter after an opening, filled in steps while the pool is in use: from a saved filter, and from the stores.
//!
//! In the end it must hold exactly the stored blocks, whatever changed in between, and find all of them.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::observe::{check_clean, check_sums};
use common::{environment, letter, open, quiet, regular, seed_or};
use onefold_block::random::SeededRandom;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice};
use onefold_pool::format::geometry::{Geometry, STORE_PAGES_PER_GROUP};
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::{
    CreateOptions, Durability, FilterStat, Ino, OpenOptions, Pool, PoolError, StorePlacement, TestLimits,
};
use onefold_testing::device::MemoryDevice;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Size at which a second group is soon needed.
const DEVICE_BLOCKS: u64 = 36_000;

/// How the pool was left before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolEnd {
    /// By a close: with a saved filter.
    Close,
    /// By a crash after a commit: with metadata that only the journal has.
    Crash,
    /// By a crash after a checkpoint.
    CrashInPlace,
}

fn in_steps() -> OpenOptions {
    OpenOptions { test_limits: TestLimits { index_in_steps: true, ..TestLimits::default() }, ..quiet() }
}

fn new_pool(blocks: u64) -> (Arc<dyn BlockDevice>, Pool) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(blocks));
    Pool::create(&device, &CreateOptions::default(), &environment()).expect("a pool is made");
    let pool = open(&device, &quiet());
    (device, pool)
}

/// A pool in use, and its expected content: the number of the letter in each block of each file.
struct TestPool {
    pool: Pool,
    files: BTreeMap<String, (Ino, Vec<u64>)>,
    made: u64,
    random: SeededRandom,
}

impl TestPool {
    fn new(pool: Pool, seed: u64) -> TestPool {
        TestPool { pool, files: BTreeMap::new(), made: 0, random: SeededRandom::new(seed) }
    }

    fn write(&mut self, name: &str, at: usize, letters: &[u64]) {
        let (ino, content) = self.files.get_mut(name).expect("is there");
        let bytes: Vec<u8> = letters.iter().flat_map(|number| letter(*number)).collect();
        self.pool.write(*ino, at as u64 * BLOCK, &bytes, Durability::Later).expect("writes");
        content.resize(content.len().max(at + letters.len()), 0);
        content[at..at + letters.len()].copy_from_slice(letters);
    }

    fn add(&mut self, letters: &[u64]) {
        let name = format!("file {}", self.made);
        self.made += 1;
        let ino = self.pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("is new").ino;
        self.pool.release(ino, 1);
        self.files.insert(name.clone(), (ino, Vec::new()));
        self.write(&name, 0, letters);
    }

    fn any_file(&self) -> Option<String> {
        let at = usize::try_from(self.random.below(self.files.len() as u64)).expect("few files");
        self.files.keys().nth(at).cloned()
    }

    /// Makes a change that adds or removes blocks.
    fn change(&mut self) {
        let first = 1 + self.random.below(30_000);
        let letters: Vec<u64> = (first..first + 1 + self.random.below(120)).collect();
        match (self.random.below(8), self.any_file()) {
            (0..3, Some(name)) => {
                let length = self.files[&name].1.len() as u64;
                let at = usize::try_from(self.random.below(length)).expect("a short file");
                self.write(&name, at, &letters);
            }
            (3..6, Some(name)) => {
                self.pool.unlink(Ino::ROOT, name.as_bytes()).expect("is there");
                self.files.remove(&name);
                // Varies whether all of it is reclaimed now or continues in the next step.
                for _ in 0..self.random.below(4) {
                    self.pool.reclaim().expect("goes on");
                }
            }
            (6, _) => self.pool.commit().expect("commits"),
            _ => self.add(&letters),
        }
        if self.random.below(10) == 0 {
            self.pool.checkpoint().expect("checkpoints");
        }
    }

    fn filter(&self) -> FilterStat {
        self.pool.stat().expect("has numbers").filter
    }

    /// Lets the filter become complete and checks that it is: all stored blocks are found again.
    fn ensure_complete(&mut self) {
        while self.pool.reclaim().expect("goes on") {}
        self.pool.commit().expect("commits");
        check_sums(&self.pool).expect("adds up");
        let (filter, stat) = (self.filter(), self.pool.stat().expect("has numbers"));
        assert_eq!((filter.groups_pending, filter.refused_count), (0, 0));
        assert_eq!(filter.entry_count, (stat.unique_bytes + stat.shared_bytes) / BLOCK);
        let known: Vec<u64> = self.files.values().flat_map(|(_, letters)| letters.iter().copied()).collect();
        let before = self.pool.stat().expect("has numbers").activity;
        for letters in known.chunks(256) {
            self.add(letters);
        }
        let after = self.pool.stat().expect("has numbers").activity;
        let holes = known.iter().filter(|number| **number == 0).count() as u64;
        assert_eq!(after.blocks_shared - before.blocks_shared, known.len() as u64 - holes, "all are found");
    }
}

/// Fills a pool and leaves it; opens it in steps and changes it in between.
fn try_out(end: PoolEnd, seed: u64) {
    let (device, pool) = new_pool(DEVICE_BLOCKS);
    let mut before = TestPool::new(pool, seed);
    before.add(&(1..15_000).collect::<Vec<_>>());
    for _ in 0..60 {
        before.change();
    }
    while before.pool.reclaim().expect("goes on") {}
    before.pool.commit().expect("commits");
    match end {
        PoolEnd::Close => before.pool.close().expect("closes"),
        PoolEnd::Crash => {}
        PoolEnd::CrashInPlace => before.pool.checkpoint().expect("checkpoints"),
    }
    let TestPool { pool, files, made, random } = before;
    drop(pool);
    let mut now = TestPool { pool: open(&device, &in_steps()), files, made, random };
    assert!(now.filter().groups_pending > 0, "nothing is read before the first step");
    let mut steps = 0;
    while now.filter().groups_pending > 0 {
        for _ in 0..now.random.below(4) {
            now.change();
        }
        now.pool.reclaim().expect("goes on");
        steps += 1;
    }
    assert!(steps >= 3, "{steps} steps are too few to change anything between them");
    now.ensure_complete();
    now.pool.close().expect("closes");
    drop(now);
    check_clean(&*device).expect("clean");
}

#[test]
fn a_filter_that_is_rebuilt_while_blocks_come_and_go_holds_what_is_stored_in_the_end() {
    for seed in 0..6 {
        try_out(PoolEnd::Crash, seed_or(seed));
        try_out(PoolEnd::CrashInPlace, seed_or(seed));
    }
}

#[test]
fn a_saved_filter_that_is_loaded_while_blocks_come_and_go_holds_what_is_stored_in_the_end() {
    for seed in 0..6 {
        try_out(PoolEnd::Close, seed_or(seed));
    }
}

fn filled(letters: u64) -> (Arc<dyn BlockDevice>, u64) {
    let (device, pool) = new_pool(DEVICE_BLOCKS);
    let mut fill = TestPool::new(pool, 1);
    fill.add(&(1..=letters).collect::<Vec<_>>());
    fill.pool.close().expect("closes");
    (device, letters)
}

#[test]
fn a_close_while_a_saved_filter_is_being_read_saves_it_again() {
    let (device, stored) = filled(25_000);
    let pool = open(&device, &in_steps());
    assert_eq!(pool.stat().expect("has numbers").filter.entry_count, 0);
    pool.close().expect("closes");
    drop(pool);
    let pool = open(&device, &quiet());
    let stat = pool.stat().expect("has numbers");
    assert_eq!((stat.filter.entry_count, stat.filter.groups_pending), (stored, 0));
    assert!(stat.activity.metadata_blocks_read < 20, "no store was read: {stat:?}");
}

/// The blocks of a saved filter are free: an operation that needs them gets them, at the price of the filter.
#[test]
fn a_saved_filter_that_is_being_read_gives_way_to_data() {
    let (device, stored) = filled(25_000);
    let fill_up = |pool: &Pool| {
        let ino = pool.create_file(Ino::ROOT, b"more", &regular()).expect("is new").ino;
        let mut written = 0;
        loop {
            match pool.write(ino, written * BLOCK, &letter(100_000 + written), Durability::Later) {
                Ok(_) => written += 1,
                Err(PoolError::NoSpace) => return written,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let mut pool = TestPool::new(open(&device, &in_steps()), 1);
    let written = fill_up(&pool.pool);
    let stat = pool.pool.stat().expect("has numbers");
    assert_eq!(stat.freeing_bytes, 0, "nothing is held back: {stat:?}");
    while pool.pool.reclaim().expect("goes on") {}
    assert_eq!((pool.filter().entry_count, pool.filter().groups_pending), (stored + written, 0));
    pool.pool.unlink(Ino::ROOT, b"more").expect("is there");
    while pool.pool.reclaim().expect("goes on") {}
    pool.ensure_complete();
}

/// Only unreadable entries are missing. The filter is neither called complete nor saved.
#[test]
fn a_damaged_store_page_is_left_out_of_the_filter() {
    let (device, pool) = new_pool(DEVICE_BLOCKS);
    let mut fill = TestPool::new(pool, 1);
    fill.add(&(1..=25_000).collect::<Vec<_>>());
    fill.pool.commit().expect("commits");
    fill.pool.checkpoint().expect("checkpoints");
    drop(fill);
    let geometry = Geometry::plan(DEVICE_BLOCKS, None, StorePlacement::InGroups).expect("large enough");
    let mut entries = 0;
    // A page in the middle, full of data blocks.
    let at = geometry.store_page(0, STORE_PAGES_PER_GROUP / 2);
    let mut bytes = AlignedBuffer::zeroed(1);
    device.read(at, &mut bytes).expect("reads");
    assert_eq!(header::kind(bytes.block(0).expect("one")), Some(BlockKind::StorePage));
    for entry in bytes[16..].chunks(24) {
        entries += u64::from(entry[22] == 1);
    }
    assert_eq!(entries, 170);
    bytes[2000] ^= 1;
    device.write(at, &bytes).expect("writes");

    for options in [quiet(), in_steps()] {
        let pool = open(&device, &options);
        while pool.reclaim().expect("goes on") {}
        let stat = pool.stat().expect("has numbers");
        assert_eq!((stat.filter.entry_count, stat.filter.groups_pending), (25_000 - entries, 1));
        pool.close().expect("closes");
    }
}
