//! Tests of the amount of work that one request makes, counted where only the pool can, and of the locks that it holds.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BLOCK_BYTES_U64, BlockDevice};
use onefold_testing::device::MemoryDevice;

use super::Pool;
use crate::attr::{Durability, FileKind, Ino, NewFile, RangePair, SeekTarget};
use crate::format::map_node::FAN_OUT;
use crate::options::{CreateOptions, Environment, OpenOptions};
use crate::progress::NoProgress;
use crate::waits::notice_waits;

fn environment() -> Environment {
    Environment { clock: Arc::new(ManualClock::starting_at(1)), random: Arc::new(SeededRandom::new(1)) }
}

fn open(device: &Arc<dyn BlockDevice>) -> Pool {
    let options = OpenOptions { background: false, memory_bytes: 64 << 20, ..OpenOptions::default() };
    Pool::open(Arc::clone(device), options, environment()).unwrap()
}

fn new_device() -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(65_536));
    Pool::create(&device, &CreateOptions::default(), &environment()).unwrap();
    device
}

const NEW: NewFile = NewFile { kind: FileKind::Regular, mode: 0o600, umask: 0, uid: 0, gid: 0, rdev: 0 };

/// Writes distinct content into each of the blocks `0..count`.
fn fill(pool: &Pool, ino: Ino, count: u64) {
    for block in 0..count {
        let mut bytes = AlignedBuffer::zeroed(1);
        bytes[..8].copy_from_slice(&(block + 1).to_le_bytes());
        pool.write(ino, block * BLOCK_BYTES_U64, &bytes, Durability::Later).unwrap();
    }
}

/// Clones blocks `0..count` of a file to block `to` of it.
fn clone_within(pool: &Pool, ino: Ino, to: u64, count: u64) {
    let (target_offset, bytes) = (to * BLOCK_BYTES_U64, count * BLOCK_BYTES_U64);
    let mut left = RangePair { source: ino, source_offset: 0, target: ino, target_offset, bytes };
    while left.bytes > 0 {
        left = left.after(pool.clone_range(left).unwrap());
    }
}

/// Regression: finding a hole read each leaf of a file's map. A file whose map has a few hundred nodes can have
/// terabytes of data, and any reader can ask for its holes.
#[test]
fn the_next_hole_of_a_file_full_of_data_is_found_by_few_nodes() {
    let pool = open(&new_device());
    let file = pool.create_file(Ino::ROOT, b"file", &NEW).unwrap().ino;
    fill(&pool, file, FAN_OUT);
    let (mut blocks, end) = (FAN_OUT, FAN_OUT * FAN_OUT * 40);
    while blocks < end {
        let count = blocks.min(end - blocks);
        clone_within(&pool, file, blocks, count);
        blocks += count;
    }
    let far = end + (1 << 31);
    pool.write(file, far * BLOCK_BYTES_U64, b"x", Durability::Later).unwrap();
    for (target, from, expected) in [(SeekTarget::Hole, 5, end), (SeekTarget::Data, end, far)] {
        let before = pool.engine.demand();
        assert_eq!(pool.seek(file, from * BLOCK_BYTES_U64, target).unwrap(), expected * BLOCK_BYTES_U64);
        let holds = pool.engine.demand() - before;
        assert!(holds <= 2, "{holds} operations of hundreds of steps");
    }
}

/// Regression: each step of reclaim visited all removed files that were still open, twice, under the metadata lock.
#[test]
fn removed_files_that_are_open_are_passed_over_once() {
    let device = new_device();
    let pool = open(&device);
    let (held, removed) = (3000, 500);
    for _ in 0..held {
        pool.create_unnamed(Ino::ROOT, &NEW).unwrap();
    }
    let others: Vec<Ino> = (0..removed).map(|_| pool.create_unnamed(Ino::ROOT, &NEW).unwrap().ino).collect();
    let entries_read = |pool: &Pool| pool.engine.meta().orphans.entries_read;
    while pool.reclaim().unwrap() {}
    for ino in others {
        pool.release(ino, 1);
        assert_eq!(pool.stat().unwrap().reclaim_pending, 1);
        while pool.reclaim().unwrap() {}
    }
    let stat = pool.stat().unwrap();
    assert_eq!((stat.inode_count, stat.reclaim_pending), (1 + held, 0));
    assert!(entries_read(&pool) <= held + removed, "{} entries read", entries_read(&pool));
    pool.commit().unwrap();
    drop(pool);
    // As after a crash: no process holds them any more.
    let pool = open(&device);
    assert!(pool.stat().unwrap().reclaim_pending > 0);
    while pool.reclaim().unwrap() {}
    assert_eq!((pool.stat().unwrap().inode_count, entries_read(&pool)), (1, held));
}

/// Regression: a trim right after a deletion passed over the blocks that were not reclaimed yet.
#[test]
fn a_trim_discards_the_blocks_of_files_deleted_before() {
    let device = new_device();
    let pool = open(&device);
    let file = pool.create_file(Ino::ROOT, b"deleted", &NEW).unwrap().ino;
    let content: Vec<u8> = (0..64_u8).flat_map(|block| [block + 1; BLOCK_BYTES]).collect();
    pool.write(file, 0, &content, Durability::Later).unwrap();
    pool.commit().unwrap();
    let without = pool.trim(&NoProgress).unwrap();
    pool.unlink(Ino::ROOT, b"deleted").unwrap();
    pool.release(file, 1);
    assert!(pool.stat().unwrap().reclaim_pending > 0, "nothing has been reclaimed");
    let with = pool.trim(&NoProgress).unwrap();
    assert!(with >= without + 60 * BLOCK_BYTES_U64, "{without}, then {with}");
    assert_eq!(pool.stat().unwrap().reclaim_pending, 0);
}

/// Look-ups wait for memory, and for threads that change the filter. Requests that need no look-up waited with them,
/// because each decision looked its blocks up under the metadata lock.
#[test]
fn a_write_looks_its_blocks_up_without_the_metadata_lock() {
    const LONG: Duration = Duration::from_secs(5);
    let pool = open(&new_device());
    let file = pool.create_file(Ino::ROOT, b"file", &NEW).unwrap().ino;
    let outcome = thread::scope(|scope| {
        let (pool, (wait, waits), (answer, answered)) = (&pool, mpsc::channel(), mpsc::channel());
        // Holds up the look-up.
        let filter = pool.engine.filter.write();
        scope.spawn(move || {
            let _notice = notice_waits(move || {
                wait.send(()).ok();
            });
            pool.write(file, 0, &[1; BLOCK_BYTES], Durability::Later).unwrap();
        });
        let deadline = Instant::now() + LONG;
        while !pool.engine.filter.has_lookups() {
            if Instant::now() > deadline {
                return Err("the write does not look its block up before the decision");
            }
            thread::yield_now();
        }
        scope.spawn(move || answer.send(pool.attr(file).unwrap().size_bytes));
        if answered.recv_timeout(LONG) != Ok(0) {
            return Err("the metadata is locked during the look-up");
        }
        // Waits on the way to the look-up.
        waits.try_iter().for_each(drop);
        // Holds up the decision.
        let meta = pool.engine.meta();
        drop(filter);
        waits.recv_timeout(LONG).map_err(|_| "the write does not wait for the metadata after the look-up")?;
        let filter = pool.engine.filter.write();
        drop(meta);
        // The next wait is for the device, with the decision made.
        waits.recv_timeout(LONG).map_err(|_| "the decision looks the block up again")?;
        drop(filter);
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
}
