//! Full pools: operations that do not fit fail as a whole, operations that free space still work, and space returns.

mod common;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use common::observe::{check_clean, check_sums, seen};
use common::{environment, letters, new_file, open, quiet, regular};
use onefold_block::{BlockDevice, BlockNo};
use onefold_pool::{
    AllocateMode, CreateOptions, Durability, FileKind, Ino, NoProgress, OpenOptions, Pool, PoolError, SetAttr,
};
use onefold_testing::device::MemoryDevice;

const BLOCK: u64 = 4096;

fn new_pool(blocks: u64, options: &OpenOptions) -> (Arc<dyn BlockDevice>, Pool) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(blocks));
    let create = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(&device, &create, &environment()).expect("a pool is made");
    let pool = open(&device, options);
    (device, pool)
}

fn create(pool: &Pool, name: &str) -> Ino {
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("there is room for a file").ino;
    pool.release(ino, 1);
    ino
}

/// Returns distinct blocks from a number on.
fn blocks_from(first: u64, count: u64) -> Vec<u8> {
    letters(1_000 + first..1_000 + first + count)
}

/// Writes distinct blocks until no space is left. Returns their number.
fn fill(pool: &Pool, ino: Ino, first_letter: u64) -> u64 {
    let mut written = 0;
    for piece in [64, 8, 1] {
        loop {
            match pool.write(ino, written * BLOCK, &blocks_from(first_letter + written, piece), Durability::Later) {
                Ok(()) => written += piece,
                Err(PoolError::NoSpace) => break,
                Err(error) => panic!("after {written} blocks: {error}"),
            }
        }
    }
    written
}

fn truncate(pool: &Pool, ino: Ino, bytes: u64) -> onefold_pool::Result<onefold_pool::Attr> {
    pool.set_attr(ino, &SetAttr { size_bytes: Some(bytes), ..SetAttr::default() })
}

fn drain(pool: &Pool) {
    while pool.reclaim().expect("reclaims") {}
    pool.commit().expect("commits");
    pool.checkpoint().expect("checkpoints");
}

fn free_blocks(pool: &Pool) -> u64 {
    pool.fs_stat().blocks_free
}

fn closes_clean(device: &Arc<dyn BlockDevice>, pool: Pool) {
    check_sums(&pool).expect("adds up");
    pool.close().expect("a full pool can be closed");
    drop(pool);
    check_clean(&**device).expect("clean");
    seen(&open(device, &quiet())).expect("reads");
}

#[test]
fn a_write_that_does_not_fit_changes_nothing() {
    let (device, pool) = new_pool(4096, &quiet());
    let file = create(&pool, "file");
    let written = fill(&pool, file, 0);
    assert!(written > 3000, "{written} blocks fit a pool of 4096");
    let before = (seen(&pool).expect("reads"), pool.attr(file).expect("exists"));
    for (offset, count) in [(written * BLOCK, 5), (7 * BLOCK + 5, 3), ((1 << 40) + 100, 1)] {
        let result = pool.write(file, offset, &blocks_from(500_000, count), Durability::Now);
        assert!(matches!(result, Err(PoolError::NoSpace)), "{result:?}");
        assert_eq!((seen(&pool).expect("reads"), pool.attr(file).expect("exists")), before);
    }
    // Content that is already stored takes no space.
    pool.write(file, 0, &blocks_from(5, 3), Durability::Now).expect("is there already");
    closes_clean(&device, pool);
}

#[test]
fn unlink_truncate_and_commit_work_on_a_full_pool_and_space_comes_back() {
    let (device, pool) = new_pool(4096, &quiet());
    let files: Vec<Ino> = (0..4).map(|number| create(&pool, &format!("file{number}"))).collect();
    for (number, &file) in (0..).zip(&files[1..]) {
        pool.write(file, 0, &blocks_from(number * 10_000, 300), Durability::Later).expect("fits");
        // The ends are cut within a block, which is rewritten.
        pool.write(file, 300 * BLOCK, &vec![7; 3000], Durability::Later).expect("fits");
    }
    let written = fill(&pool, files[0], 100_000);
    pool.commit().expect("commits");
    truncate(&pool, files[1], 100 * BLOCK + 17).expect("a truncate within a block works on a full pool");
    pool.allocate(files[2], 50 * BLOCK + 9, 100 * BLOCK, AllocateMode::PunchHole)
        .expect("a punch works on a full pool");
    pool.unlink(Ino::ROOT, b"file3").expect("an unlink works on a full pool");
    pool.commit().expect("commits");
    drain(&pool);
    let more = blocks_from(900_000, 500);
    pool.write(files[0], written * BLOCK, &more, Durability::Now).expect("space has come back");
    for number in 0..3 {
        pool.unlink(Ino::ROOT, format!("file{number}").as_bytes()).expect("is there");
    }
    drain(&pool);
    let stat = pool.stat().expect("has numbers");
    assert_eq!((stat.unique_bytes, stat.shared_bytes, stat.freeing_bytes), (0, 0, 0), "{stat:?}");
    let file = create(&pool, "again");
    assert!(fill(&pool, file, 200_000) > 3000, "as much fits as at first");
    closes_clean(&device, pool);
}

#[test]
fn a_write_waits_for_reclaim_before_it_fails() {
    let (device, pool) = new_pool(4096, &quiet());
    let file = create(&pool, "old");
    let written = fill(&pool, file, 0);
    pool.unlink(Ino::ROOT, b"old").expect("is there");
    // Only the write itself triggers reclaim.
    let file = create(&pool, "new");
    for piece in 0..written / 64 {
        pool.write(file, piece * 64 * BLOCK, &blocks_from(50_000 + piece * 64, 64), Durability::Later)
            .expect("there is space");
    }
    closes_clean(&device, pool);
}

#[test]
fn overwriting_a_clone_on_a_full_pool_fails_and_changes_nothing() {
    let (device, pool) = new_pool(4096, &quiet());
    let source = create(&pool, "source");
    pool.write(source, 0, &blocks_from(0, 600), Durability::Later).expect("fits");
    let clone = create(&pool, "clone");
    pool.clone_file(source, clone).expect("clones");
    let filler = create(&pool, "filler");
    fill(&pool, filler, 10_000);
    let before = seen(&pool).expect("reads");
    let result = pool.write(clone, 5 * BLOCK, &blocks_from(900_000, 2), Durability::Later);
    assert!(matches!(result, Err(PoolError::NoSpace)), "{result:?}");
    assert_eq!(seen(&pool).expect("reads"), before);
    pool.unlink(Ino::ROOT, b"clone").expect("a clone can go");
    drain(&pool);
    assert_eq!(pool.stat().expect("has numbers").saved_by_clones_bytes, 0);
    closes_clean(&device, pool);
}

#[test]
fn reserved_space_is_there_when_all_other_space_is_gone() {
    let (device, pool) = new_pool(4096, &quiet());
    let reserved = create(&pool, "reserved");
    pool.allocate(reserved, 0, 700 * BLOCK, AllocateMode::Extend).expect("fits");
    let far = create(&pool, "far");
    pool.allocate(far, 508 * BLOCK * 5, 508 * BLOCK, AllocateMode::KeepSize).expect("fits");
    let filler = create(&pool, "filler");
    fill(&pool, filler, 10_000);
    // Names take the remaining space, too.
    let mut names = 0;
    let made = loop {
        match pool.create_file(Ino::ROOT, format!("{names:0200}").as_bytes(), &new_file(FileKind::Fifo)) {
            Ok(attr) => pool.release(attr.ino, 1),
            Err(error) => break error,
        }
        names += 1;
    };
    assert!(matches!(made, PoolError::NoSpace), "{made}");
    for block in 0..700 {
        let written = pool.write(reserved, block * BLOCK, &blocks_from(500_000 + block, 1), Durability::Later);
        written.unwrap_or_else(|error| panic!("block {block} of 700 was promised: {error}"));
    }
    for block in (0..508).rev() {
        let written = pool.write(far, (508 * 5 + block) * BLOCK, &blocks_from(600_000 + block, 1), Durability::Later);
        written.unwrap_or_else(|error| panic!("block {block} of 508 was promised: {error}"));
    }
    closes_clean(&device, pool);
}

/// A device that runs an action in the middle of each discard, once it has one.
struct DiscardingDevice {
    device: MemoryDevice,
    meanwhile: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl BlockDevice for DiscardingDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.device.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.device.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.device.write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.device.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        if let Some(meanwhile) = self.meanwhile.get() {
            meanwhile();
        }
        self.device.discard(first, count)
    }
}

/// A trim keeps the blocks that it discards from other operations for the moment. Promised blocks are not among them.
#[test]
fn reserved_space_is_there_in_the_middle_of_a_trim() {
    let device = Arc::new(DiscardingDevice { device: MemoryDevice::new(4096), meanwhile: OnceLock::new() });
    let shown: Arc<dyn BlockDevice> = device.clone();
    let create_options = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(&shown, &create_options, &environment()).expect("a pool is made");
    let pool = Arc::new(open(&shown, &quiet()));
    let (reserved, filler) = (create(&pool, "reserved"), create(&pool, "filler"));
    pool.allocate(reserved, 0, 700 * BLOCK, AllocateMode::Extend).expect("fits");
    let filled = fill(&pool, filler, 10_000);
    // Some blocks are free for all.
    truncate(&pool, filler, (filled - 400) * BLOCK).expect("truncates");
    drain(&pool);
    let discards = Arc::new(AtomicU64::new(0));
    let (writer, count) = (Arc::downgrade(&pool), discards.clone());
    let meanwhile = move || {
        // The third discard used to hold nearly all free blocks.
        let is_third = count.fetch_add(1, Ordering::Relaxed) == 2;
        let Some(pool) = writer.upgrade().filter(|_| is_third) else { return };
        for block in 0..700 {
            let bytes = blocks_from(500_000 + block, 1);
            let written = pool.write(reserved, block * BLOCK, &bytes, Durability::Later);
            written.unwrap_or_else(|error| panic!("block {block} of 700 was promised: {error}"));
        }
    };
    assert!(device.meanwhile.set(Box::new(meanwhile)).is_ok());
    assert!(pool.trim(&NoProgress).expect("trims") > 0);
    assert!(discards.load(Ordering::Relaxed) > 2);
    let pool = Arc::into_inner(pool).expect("the device keeps none");
    closes_clean(&shown, pool);
}

#[test]
fn a_reservation_that_does_not_fit_is_refused() {
    let (device, pool) = new_pool(4096, &quiet());
    let file = create(&pool, "file");
    let free = free_blocks(&pool);
    let result = pool.allocate(file, 0, (free + 100) * BLOCK, AllocateMode::Extend);
    assert!(matches!(result, Err(PoolError::NoSpace)), "{result:?}");
    assert_eq!(pool.attr(file).expect("exists").size_bytes, 0);
    let result = pool.allocate(file, 0, 1 << 42, AllocateMode::KeepSize);
    assert!(matches!(result, Err(PoolError::NoSpace)), "{result:?}");
    truncate(&pool, file, 0).expect("truncates");
    pool.unlink(Ino::ROOT, b"file").expect("is there");
    drain(&pool);
    assert_eq!(
        pool.stat().expect("has numbers").reserved_bytes,
        0,
        "what was reserved before the failure is given back"
    );
    closes_clean(&device, pool);
}

#[test]
fn a_pool_full_of_names_can_be_emptied() {
    let (device, pool) = new_pool(4096, &quiet());
    let mut names = Vec::new();
    loop {
        let name = format!("{:0240}", names.len()).into_bytes();
        match pool.create_file(Ino::ROOT, &name, &new_file(FileKind::Fifo)) {
            Ok(attr) => pool.release(attr.ino, 1),
            Err(PoolError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
        names.push(name);
    }
    assert!(names.len() > 10_000, "{} names", names.len());
    pool.commit().expect("commits");
    for (number, name) in names.iter().enumerate() {
        pool.unlink(Ino::ROOT, name).unwrap_or_else(|error| panic!("name {number} of {}: {error}", names.len()));
    }
    drain(&pool);
    let left = pool.stat().expect("has numbers").metadata_dynamic_bytes;
    assert_eq!(left, 2 * BLOCK, "the root of the names tree and the summaries of the groups are left");
    closes_clean(&device, pool);
}

#[test]
fn a_full_pool_can_be_closed_and_opened_at_every_fill() {
    // The filter is saved to free blocks, and the names tree may need one more page: neither may hinder the other.
    for files in 0..60 {
        let (device, pool) = new_pool(4096, &quiet());
        for number in 0..files {
            create(&pool, &format!("{number:0>100}"));
        }
        let file = create(&pool, "file");
        fill(&pool, file, 0);
        closes_clean(&device, pool);
        if files > 2 {
            let pool = open(&device, &quiet());
            truncate(&pool, file, (files % 7) * 10 * BLOCK).expect("truncates");
            closes_clean(&device, pool);
        }
    }
}

/// Returns a file whose blocks are so far apart that the entries of a leaf are on 508 store pages, and a clone of it.
fn scattered(journal_bytes: u64) -> (Arc<dyn BlockDevice>, Pool, Ino) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(4 * 32_768));
    let create_options =
        CreateOptions { journal_bytes: Some(journal_bytes), any_journal: true, ..CreateOptions::default() };
    Pool::create(&device, &create_options, &environment()).expect("a pool is made");
    let pool = open(&device, &quiet());
    let (source, filler) = (create(&pool, "source"), create(&pool, "filler"));
    for number in 0..508 {
        pool.write(source, number * BLOCK, &blocks_from(number, 1), Durability::Later).expect("fits");
        pool.write(filler, number * 180 * BLOCK, &blocks_from(10_000 + number * 180, 180), Durability::Later)
            .expect("fits");
    }
    let clone = create(&pool, "clone");
    pool.clone_file(source, clone).expect("clones");
    (device, pool, clone)
}

#[test]
fn a_clone_of_scattered_blocks_can_be_overwritten_and_deleted() {
    let (device, pool, clone) = scattered(8 << 20);
    pool.write(clone, 0, &blocks_from(900_000, 1), Durability::Now).expect("copies a leaf");
    pool.unlink(Ino::ROOT, b"source").expect("is there");
    pool.unlink(Ino::ROOT, b"clone").expect("is there");
    drain(&pool);
    closes_clean(&device, pool);
}

/// The operation was rolled back, but the blocks that it had touched stayed in the running transaction, which was then
/// larger than the journal: the next commit made checkpoints forever to get room.
#[test]
fn an_operation_too_large_for_the_journal_fails_and_leaves_a_pool_that_commits() {
    let (device, pool, clone) = scattered(1 << 20);
    let before = seen(&pool).expect("reads");
    let result = pool.write(clone, 0, &blocks_from(900_000, 1), Durability::Now);
    assert!(matches!(result, Err(PoolError::TooLargeForJournal)), "{result:?}");
    pool.commit().expect("commits");
    assert_eq!(seen(&pool).expect("reads"), before);
    create(&pool, "another");
    closes_clean(&device, pool);
}

/// A pool could be made with any journal, and only a write to a clone, perhaps years later, reported that it was too
/// small.
#[test]
fn a_journal_too_small_for_the_largest_operation_is_refused_when_the_pool_is_made_or_grows() {
    let memory = Arc::new(MemoryDevice::new(4 * 32_768));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let with = |journal_bytes| CreateOptions { journal_bytes: Some(journal_bytes), ..CreateOptions::default() };
    let refused = Pool::create(&device, &with(1 << 20), &environment()).expect_err("is too small");
    let PoolError::JournalTooSmall { given_bytes, needed_bytes } = refused else { panic!("{refused}") };
    assert_eq!(given_bytes, 1 << 20);
    assert!(Pool::create(&device, &with(needed_bytes - 4096), &environment()).is_err());
    Pool::create(&device, &with(needed_bytes), &environment()).expect("is the least that works");

    let pool = open(&device, &quiet());
    let before = pool.fs_stat();
    memory.resize(8 * 32_768);
    let refused = pool.grow().expect_err("the largest operation grows with the pool");
    assert!(matches!(refused, PoolError::JournalTooSmall { needed_bytes: more, .. } if more > needed_bytes));
    assert_eq!(pool.fs_stat(), before, "nothing has changed");
    let file = create(&pool, "file");
    pool.write(file, 0, &blocks_from(0, 3), Durability::Now).expect("the pool goes on");
    closes_clean(&device, pool);
}
