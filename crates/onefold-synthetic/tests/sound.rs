//! Tests that a synthetic pool is a pool like any other.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_pool::check::{CheckOptions, check};
use onefold_pool::{Environment, Ino, MEMORY_BYTES_MIN, NoProgress, OpenOptions, Pool};
use onefold_synthetic::{Plan, PoolSummary, describe, save_filter};
use onefold_testing::device::MemoryDevice;

fn environment() -> Environment {
    Environment { clock: Arc::new(ManualClock::starting_at(1000)), random: Arc::new(SeededRandom::new(1)) }
}

fn made(plan: &Plan) -> (Arc<dyn BlockDevice>, PoolSummary) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(plan.device_blocks()));
    let made = describe(&device, plan, &environment()).expect("the pool is made");
    (device, made)
}

fn open(device: &Arc<dyn BlockDevice>) -> Pool {
    let options = OpenOptions { background: false, memory_bytes: MEMORY_BYTES_MIN, ..OpenOptions::default() };
    Pool::open(Arc::clone(device), options, environment()).expect("the pool opens")
}

fn ensure_clean(device: &Arc<dyn BlockDevice>) {
    let options = CheckOptions { memory_bytes: MEMORY_BYTES_MIN, ..CheckOptions::default() };
    let report = check(&**device, &options, &NoProgress).expect("the check ends");
    assert!(report.is_clean(), "{report:#?}");
}

#[test]
fn a_described_pool_is_clean_and_all_of_it_is_in_the_filter() {
    // One leaf, one full leaf, one more than that, several groups, and maps of three levels.
    for (blocks, files) in [(1, 1), (508, 1), (509, 1), (508 * 508 + 1, 1), (100_003, 7)] {
        let plan = Plan { blocks, files, free_blocks: 1000 };
        let (device, made) = made(&plan);
        ensure_clean(&device);
        assert_eq!(made.data_blocks, blocks);
        let pool = open(&device);
        let stat = pool.stat().unwrap();
        assert_eq!(stat.filter.entry_count, blocks);
        assert_eq!(stat.unique_bytes, blocks * 4096);
        assert_eq!(stat.apparent_bytes, blocks * 4096);
        assert!(stat.free_bytes >= 1000 * 4096);
    }
}

#[test]
fn removing_the_described_files_leaves_an_empty_pool() {
    let plan = Plan { blocks: 70_000, files: 2, free_blocks: 1000 };
    let (device, _) = made(&plan);
    let pool = open(&device);
    for name in ["described-0", "described-1"] {
        pool.unlink(Ino::ROOT, name.as_bytes()).unwrap();
    }
    while pool.reclaim().unwrap() {}
    let stat = pool.stat().unwrap();
    assert_eq!((stat.unique_bytes, stat.filter.entry_count, stat.apparent_bytes), (0, 0, 0));
    pool.close().unwrap();
    ensure_clean(&device);
}

#[test]
fn a_saved_filter_is_taken_at_the_next_opening() {
    let plan = Plan { blocks: 40_000, files: 1, free_blocks: 1000 };
    let (device, _) = made(&plan);
    save_filter(Arc::clone(&device), MEMORY_BYTES_MIN, environment()).unwrap();
    ensure_clean(&device);
    let pool = open(&device);
    assert_eq!(pool.stat().unwrap().filter.entry_count, 40_000);
    assert!(pool.stat().unwrap().activity.metadata_blocks_read < 20, "no store was read");
}
