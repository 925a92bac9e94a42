//! Sound pools are clean, after all kinds of operations and all ways of ending.

use std::ops::ControlFlow;

use onefold_block::random::SeededRandom;
use onefold_pool::check::{CheckOptions, check};
use onefold_pool::{CreateOptions, FileKind, Ino, PoolError, Progress, StorePlacement};
use onefold_testing::device::MemoryDevice;

use super::common::*;

#[test]
fn a_new_pool_and_a_filled_one_are_clean() {
    assert_clean(&new_pool(4096));
    let report = checked(&sample());
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(report.inodes_checked, 6);
    assert_eq!(report.data_blocks_hashed, 513 + 1 + 3, "each data block is read once");
}

#[test]
fn a_pool_stays_clean_through_random_operations_left_at_any_point() {
    for seed in 0..6 {
        let random = SeededRandom::new(seed);
        let device = new_pool(8192);
        for round in 0..8 {
            let pool = open(&device);
            for _ in 0..4 {
                churn(&pool, &random, 40);
                match random.below(4) {
                    0 => pool.commit().unwrap(),
                    1 => pool.checkpoint().unwrap(),
                    2 => while pool.reclaim().unwrap() {},
                    _ => {}
                }
                // The present content of the device is what a loss of power would leave.
                let left = MemoryDevice::from(device.image());
                let report = checked(&left);
                assert!(report.is_clean(), "seed {seed} round {round}: {report:#?}");
            }
            if random.below(2) == 0 {
                pool.close().unwrap();
            }
            drop(pool);
            assert_clean(&device);
        }
    }
}

#[test]
fn a_pool_with_its_stores_at_the_end_is_clean() {
    let device = std::sync::Arc::new(MemoryDevice::new(40_000));
    let seam: std::sync::Arc<dyn onefold_block::BlockDevice> = device.clone();
    let create = CreateOptions { store_placement: StorePlacement::AtEnd, ..CreateOptions::default() };
    onefold_pool::Pool::create(&seam, &create, &environment()).unwrap();
    let pool = open(&device);
    churn(&pool, &SeededRandom::new(3), 150);
    pool.close().unwrap();
    assert_clean(&device);
}

#[test]
fn a_file_without_a_name_that_is_still_open_is_no_damage() {
    let device = new_pool(8192);
    let pool = open(&device);
    let made = pool.create_unnamed(Ino::ROOT, &new_file(FileKind::Regular)).unwrap();
    pool.write(made.ino, 0, &noise(1, 3_000_000), onefold_pool::Durability::Now).unwrap();
    assert_clean(&MemoryDevice::from(device.image()));
}

#[test]
fn a_check_changes_nothing() {
    let device = sample();
    let before = device.image();
    checked(&device);
    assert!(device.image() == before);
}

struct StopPoint(u64);

impl Progress for StopPoint {
    fn update(&self, done: u64, _: u64) -> ControlFlow<()> {
        if done >= self.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn a_check_stops_when_asked_and_says_so() {
    let device = sample();
    for at in [0, 1, 16_384] {
        let report = check(&*device, &options(), &StopPoint(at)).unwrap();
        assert!(report.stopped && report.is_clean(), "{at}: {report:?}");
    }
}

#[test]
fn too_little_memory_is_refused() {
    let few = CheckOptions { memory_bytes: MEMORY - 1, verify_data: false, ..CheckOptions::default() };
    let refused = check(&*sample(), &few, &onefold_pool::NoProgress);
    assert!(matches!(refused, Err(PoolError::MemoryTooSmall { .. })), "{refused:?}");
}
