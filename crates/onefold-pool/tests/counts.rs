//! Blocks with the maximum number of references.
//!
//! Counts have 32 bits; here the maximum is two, so that the third reference exceeds it.

mod common;

use std::io;
use std::sync::Arc;

use common::observe::{check_clean, check_sums};
use common::{environment, letter, open, quiet, regular};
use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo};
use onefold_pool::{CreateOptions, Durability, Ino, OpenOptions, Pool, PoolError, RangePair, TestLimits};
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice};
use parking_lot::{Condvar, Mutex};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Beyond what an inode itself holds: the file has map nodes, which clones share.
const FAR: u64 = 20;

fn two_at_most() -> OpenOptions {
    OpenOptions { test_limits: TestLimits { references_max: 2, ..TestLimits::default() }, ..quiet() }
}

fn new_pool(device: &Arc<dyn BlockDevice>) -> Pool {
    let create = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(device, &create, &environment()).expect("a pool is made");
    open(device, &two_at_most())
}

fn new_file(pool: &Pool, name: &str) -> Ino {
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("is new").ino;
    pool.release(ino, 1);
    ino
}

fn write(pool: &Pool, ino: Ino, block: u64, number: u64) -> Result<(), PoolError> {
    pool.write(ino, block * BLOCK, &letter(number), Durability::Later)
}

fn assert_holds(pool: &Pool, ino: Ino, block: u64, number: u64) {
    let mut bytes = vec![0; BLOCK_BYTES];
    pool.read(ino, block * BLOCK, &mut bytes).expect("reads");
    assert!(bytes == letter(number), "block {block} of inode {ino} is not letter {number}");
}

fn stored_blocks(pool: &Pool) -> u64 {
    let stat = pool.stat().expect("has numbers");
    (stat.unique_bytes + stat.shared_bytes) / BLOCK
}

fn close(pool: Pool, device: &dyn BlockDevice) {
    check_sums(&pool).expect("adds up");
    pool.close().expect("closes");
    drop(pool);
    check_clean(device).expect("clean");
}

/// The first write into a clone copied a leaf that named a block with a full count, and failed with "no space" on an
/// empty pool, every time: the copy of the leaf had no way to get a copy of the block.
#[test]
fn a_clone_whose_blocks_have_full_counts_can_be_overwritten() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8192));
    let pool = new_pool(&device);
    let (file, clone) = (new_file(&pool, "file"), new_file(&pool, "clone"));
    for block in [0, 1, FAR] {
        write(&pool, file, block, 1).expect("writes");
    }
    write(&pool, file, FAR + 1, 2).expect("writes");
    assert_eq!(stored_blocks(&pool), 3, "two references and one to letter 1, one to letter 2");
    pool.clone_file(file, clone).expect("clones");
    write(&pool, clone, FAR + 1, 3).expect("the leaf is copied");
    for block in [0, 1, FAR] {
        assert_holds(&pool, file, block, 1);
        assert_holds(&pool, clone, block, 1);
    }
    assert_holds(&pool, file, FAR + 1, 2);
    assert_holds(&pool, clone, FAR + 1, 3);
    assert_eq!(stored_blocks(&pool), 5, "six references to letter 1 need three blocks");
    close(pool, &*device);
}

/// Returns ranges of three blocks: a file and its first block in the range, another file and its first block.
fn three_blocks((source, from): (Ino, u64), (target, to): (Ino, u64)) -> RangePair {
    RangePair { source, source_offset: from * BLOCK, target, target_offset: to * BLOCK, bytes: 3 * BLOCK }
}

#[test]
fn small_files_and_ranges_whose_blocks_have_full_counts_can_be_cloned() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8192));
    let pool = new_pool(&device);
    let (file, clone, part) = (new_file(&pool, "file"), new_file(&pool, "clone"), new_file(&pool, "part"));
    for block in 0..4 {
        write(&pool, file, block, 1).expect("writes");
    }
    pool.clone_file(file, clone).expect("clones");
    let cloned = pool.clone_range(three_blocks((file, 1), (part, 7))).expect("clones a range");
    assert_eq!(cloned, 3 * BLOCK);
    (0..4).for_each(|block| assert_holds(&pool, clone, block, 1));
    (7..10).for_each(|block| assert_holds(&pool, part, block, 1));
    assert_eq!(stored_blocks(&pool), 6, "eleven references");
    close(pool, &*device);
}

/// One operation may add the excess references: its rollback leaves a block whose count has room. Such a block was not
/// copied, and the clone was retried forever.
#[test]
fn a_range_with_more_equal_blocks_than_a_count_takes_can_be_cloned() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8192));
    let pool = new_pool(&device);
    let (file, part) = (new_file(&pool, "file"), new_file(&pool, "part"));
    pool.write(file, 0, &letter(1).repeat(3), Durability::Later).expect("writes");
    assert_eq!(stored_blocks(&pool), 2, "three references: the last block has room for one more");
    assert_eq!(pool.clone_range(three_blocks((file, 0), (part, 0))).expect("clones"), 3 * BLOCK);
    assert_eq!(pool.clone_range(three_blocks((file, 0), (part, 5))).expect("clones"), 3 * BLOCK);
    [0, 1, 2, 5, 6, 7].iter().for_each(|block| assert_holds(&pool, part, *block, 1));
    close(pool, &*device);
}

#[test]
fn one_write_with_more_equal_blocks_than_a_count_takes_stores_some_again() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8192));
    let pool = new_pool(&device);
    let file = new_file(&pool, "file");
    pool.write(file, 0, &letter(1).repeat(9), Durability::Later).expect("writes");
    (0..9).for_each(|block| assert_holds(&pool, file, block, 1));
    assert_eq!(stored_blocks(&pool), 5);
    close(pool, &*device);
}

#[test]
fn a_copy_that_cannot_be_written_changes_nothing() {
    for (fault, kind) in [(Fault::Io, "Io"), (Fault::StorageFull, "NoSpace")] {
        let faulty = Arc::new(FaultyDevice::new(MemoryDevice::new(8192), 1));
        let device: Arc<dyn BlockDevice> = faulty.clone();
        let pool = new_pool(&device);
        let (file, clone) = (new_file(&pool, "file"), new_file(&pool, "clone"));
        for block in [0, 1, FAR] {
            write(&pool, file, block, 1).expect("writes");
        }
        pool.clone_file(file, clone).expect("clones");
        pool.commit().expect("commits");
        faulty.fail(Call::Write, FailingCalls::FromNth(0), fault);
        // Zeros need no block of their own; only the copy of the leaf does.
        let refused = write(&pool, clone, FAR, 0).expect_err("the device takes nothing");
        let found = match refused {
            PoolError::Io { .. } => "Io",
            PoolError::NoSpace => "NoSpace",
            _ => "unexpected",
        };
        assert_eq!(found, kind, "{refused}");
        faulty.heal();
        assert_eq!(write(&pool, clone, FAR, 0).is_ok(), fault == Fault::StorageFull, "an I/O error stops the pool");
        drop(pool);
        check_clean(&*device).expect("clean");
        let pool = open(&device, &two_at_most());
        (0..2).for_each(|block| assert_holds(&pool, clone, block, 1));
        assert_holds(&pool, file, FAR, 1);
        close(pool, &*device);
    }
}

/// State of a held read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldState {
    /// No read is held.
    Off,
    /// The next read will be held.
    Next,
    /// A read waits.
    Waiting,
}

/// A device that holds one read until it is released.
struct HeldRead {
    inner: MemoryDevice,
    hold: Mutex<HoldState>,
    changed: Condvar,
}

impl HeldRead {
    fn set(&self, hold: HoldState) {
        *self.hold.lock() = hold;
        self.changed.notify_all();
    }

    fn wait_until(&self, wanted: HoldState) {
        let mut hold = self.hold.lock();
        self.changed.wait_while(&mut hold, |hold| *hold != wanted);
    }
}

impl BlockDevice for HeldRead {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        let is_held = *self.hold.lock() == HoldState::Next;
        if is_held {
            self.set(HoldState::Waiting);
            self.wait_until(HoldState::Off);
        }
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

/// A read of a clone had looked up the place of its block. A write to another range of the clone then copied the leaf,
/// and with it the full block, and the source was removed. The block was freed and reused, and the read returned
/// another file's data.
#[test]
fn a_block_with_a_full_count_stays_while_a_read_that_began_before_its_copy_goes_on() {
    let held = Arc::new(HeldRead {
        inner: MemoryDevice::new(8192),
        hold: Mutex::new(HoldState::Off),
        changed: Condvar::new(),
    });
    let device: Arc<dyn BlockDevice> = held.clone();
    let pool = new_pool(&device);
    let (file, clone) = (new_file(&pool, "file"), new_file(&pool, "clone"));
    for block in [0, 1] {
        write(&pool, file, block, 1).expect("writes");
    }
    write(&pool, file, FAR, 2).expect("writes");
    pool.clone_file(file, clone).expect("clones");
    let filler = new_file(&pool, "filler");
    // The metadata is in memory, but not the block.
    assert_holds(&pool, clone, FAR, 2);
    held.set(HoldState::Next);
    let refill = || {
        let mut written = 0;
        while write(&pool, filler, written, 10_000 + written).is_ok() {
            written += 1;
        }
        written
    };
    let filled = std::thread::scope(|scope| {
        let reader = scope.spawn(|| assert_holds(&pool, clone, 0, 1));
        held.wait_until(HoldState::Waiting);
        write(&pool, clone, FAR, 3).expect("the leaf is copied");
        pool.unlink(Ino::ROOT, b"file").expect("is there");
        while pool.reclaim().expect("reclaims") {}
        pool.commit().expect("commits");
        pool.checkpoint().expect("checkpoints");
        // All free blocks are reused.
        let filled = refill();
        held.set(HoldState::Off);
        reader.join().expect("the read returns what the clone holds");
        filled
    });
    assert_holds(&pool, clone, 0, 1);
    pool.set_attr(filler, &onefold_pool::SetAttr { size_bytes: Some(0), ..Default::default() }).expect("truncates");
    pool.commit().expect("commits");
    assert!(refill() > filled, "the block came back when the read had ended");
    close(pool, &*device);
}
