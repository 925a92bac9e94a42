//! Bounds of what an ordinary user can cause with one request: memory and work are limited, however large a file is and
//! however many files there are.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::sync::Arc;

use common::{environment, open, quiet, regular};
use onefold_block::random::SeededRandom;
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, BlockDevice, Random};
use onefold_pool::{
    CreateOptions, Durability, Ino, MEMORY_BYTES_MIN, NoProgress, Pool, PoolError, RangePair, XATTR_BYTES_MAX,
    XATTR_LIST_BYTES_MAX, XattrMode,
};
use onefold_testing::allocator::{CountingAllocator, watched};
use onefold_testing::device::MemoryDevice;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn new_pool(blocks: u64) -> Pool {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(blocks));
    Pool::create(&device, &CreateOptions::default(), &environment()).unwrap();
    open(&device, &quiet())
}

fn make(pool: &Pool, name: &str) -> Ino {
    pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).unwrap().ino
}

/// Writes `count` distinct blocks.
fn fill(pool: &Pool, ino: Ino, count: u64) {
    let random = SeededRandom::new(7);
    let mut bytes = vec![0; 256 * BLOCK_BYTES];
    for first in (0..count).step_by(256) {
        random.fill(&mut bytes).unwrap();
        pool.write(ino, first * BLOCK_BYTES_U64, &bytes, Durability::Later).unwrap();
    }
}

/// What was wrong: the numbers of a file were computed with sets of all blocks that it shares. For a cloned file of a
/// tebibyte the sets took 5 to 10 GB, and every user who may read the file can ask for the numbers.
#[test]
fn the_numbers_of_a_file_take_little_memory_however_much_it_shares() {
    let count = 128 * 256;
    let pool = new_pool(200_000);
    let (one, same, clone) = (make(&pool, "one"), make(&pool, "same"), make(&pool, "clone"));
    fill(&pool, one, count);
    fill(&pool, same, count);
    pool.clone_file(one, clone).unwrap();
    for (what, ino) in [("by equal blocks", same), ("by a clone", clone)] {
        let (stat, peak) = watched(|| pool.file_stat(ino, &NoProgress).unwrap());
        assert!(stat.is_estimated, "{what}");
        assert_eq!(stat.apparent_bytes, stat.zero_bytes + stat.unique_bytes + stat.shared_bytes);
        assert_eq!((stat.unique_bytes, stat.distinct_bytes), (0, count * BLOCK_BYTES_U64), "{what}");
        assert!(peak < 600 << 10, "{what}: {peak} bytes of {MEMORY_BYTES_MIN}");
    }
    let few = make(&pool, "few");
    pool.clone_range(RangePair { source: one, source_offset: 0, target: few, target_offset: 0, bytes: 1 << 20 })
        .unwrap();
    let stat = pool.file_stat(few, &NoProgress).unwrap();
    assert_eq!((stat.is_estimated, stat.distinct_bytes), (false, 1 << 20), "what fits is exact");
}

/// What was wrong: the list of a file's attributes had no bound, although Linux shows no more than 64 KiB of it, and
/// values were read to find the names.
#[test]
fn a_list_of_attributes_is_bounded_and_reads_no_values() {
    let pool = new_pool(16_384);
    let file = make(&pool, "file");
    let name = |number: usize| format!("user.{number:0250}").into_bytes();
    let fit = XATTR_LIST_BYTES_MAX / (name(0).len() + 1);
    for number in 0..fit {
        let value = vec![1; if number % 16 == 0 { XATTR_BYTES_MAX } else { 1 }];
        pool.set_xattr(file, &name(number), &value, XattrMode::Either).unwrap();
    }
    let (names, peak) = watched(|| pool.xattr_names(file).unwrap());
    let mut expected: Vec<Vec<u8>> = (0..fit).map(name).collect();
    let mut found = names;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert!(peak < 4 * XATTR_LIST_BYTES_MAX, "{peak} bytes");
    for number in fit..20 * fit {
        pool.set_xattr(file, &name(number), b"", XattrMode::Either).unwrap();
    }
    let (listed, peak) = watched(|| pool.xattr_names(file));
    assert!(matches!(listed, Err(PoolError::TooManyAttributes)), "{:?}", listed.map(|names| names.len()));
    assert!(peak < 4 * XATTR_LIST_BYTES_MAX, "{peak} bytes");
    pool.unlink(Ino::ROOT, b"file").unwrap();
    pool.release(file, 1);
    while pool.reclaim().unwrap() {}
    assert_eq!(pool.stat().unwrap().inode_count, 1, "they go with the file");
}
