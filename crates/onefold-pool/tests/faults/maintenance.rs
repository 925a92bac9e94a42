//! Failing devices during work on a pool that no process has open: creation, check and repair.

use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo};
use onefold_pool::check::{CheckOptions, check, repair};
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::{CreateOptions, NoProgress, Pool};
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice, MemoryImage};

use crate::common::observe::{Tree, check_clean, difference, seen};
use crate::common::{environment, open, quiet};
use crate::trial::{Trial, WORKLOAD, new_pool};

fn options() -> CheckOptions {
    CheckOptions { memory_bytes: 64 << 20, verify_data: true, ..CheckOptions::default() }
}

/// Returns a closed pool with the workload's files, and its visible tree.
fn filled() -> (MemoryImage, Tree) {
    let device = Arc::new(MemoryDevice::from(new_pool()));
    let mut trial = Trial::open(device.clone(), quiet()).expect("opens");
    assert!(trial.run(WORKLOAD, |_| false, || ()).is_none());
    trial.pool().close().expect("closes");
    (device.image(), trial.states.pop().expect("has states"))
}

/// Returns the same with a damaged bitmap, fingerprint store page and superblock, which can all be rebuilt.
fn damaged() -> (MemoryImage, Tree) {
    let (image, tree) = filled();
    let device = MemoryDevice::from(image.clone());
    let of_kind = |wanted: BlockKind| {
        let found = image
            .blocks()
            .into_iter()
            .find(|(at, bytes)| header::kind(bytes) == Some(wanted) && header::address(bytes) == *at);
        found.expect("every pool has one").0
    };
    for block in [of_kind(BlockKind::Bitmap), of_kind(BlockKind::StorePage), BlockNo(0)] {
        device.write(block, &[0x5a; 4096]).expect("writes");
    }
    (device.image(), tree)
}

fn repaired(device: &Arc<FaultyDevice<MemoryDevice>>) -> onefold_pool::Result<onefold_pool::check::CheckReport> {
    let seam: Arc<dyn BlockDevice> = device.clone();
    repair(&seam, &options(), &environment(), &NoProgress)
}

fn each_failing_call_of_a_repair(call: Call, fault: Fault) -> u64 {
    let (image, tree) = damaged();
    let device = Arc::new(FaultyDevice::new(MemoryDevice::from(image.clone()), 1));
    assert!(!repaired(&device).expect("repairs").is_clean());
    let total = device.count(call);
    for nth in 1..=total {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::from(image.clone()), nth));
        device.fail(call, FailingCalls::Nth(nth), fault);
        let first = repaired(&device);
        assert!(call == Call::Read || first.is_err(), "{call:?} {nth} failed unnoticed");
        device.heal();
        repaired(&device).unwrap_or_else(|error| panic!("{call:?} {nth}: {error}"));
        let mended: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(device.inner().image()));
        check_clean(&*mended).unwrap_or_else(|what| panic!("{call:?} {nth}: {what}"));
        let pool = open(&mended, &quiet());
        let found = seen(&pool).expect("reads");
        assert_eq!(difference(&found, &tree), None, "{call:?} {nth}");
    }
    eprintln!("{total} calls of kind {call:?} of a repair failed once with {fault:?}");
    total
}

#[test]
fn a_repair_that_meets_a_failed_call_says_so_and_is_finished_by_running_it_again() {
    let faults = [(Call::Write, Fault::Io), (Call::Write, Fault::Torn), (Call::Write, Fault::StorageFull)];
    for (call, fault) in faults {
        assert!(each_failing_call_of_a_repair(call, fault) > 2);
    }
    assert!(each_failing_call_of_a_repair(Call::Sync, Fault::Io) > 2);
}

#[test]
fn a_check_that_meets_a_failed_read_says_so_and_writes_nothing() {
    let (image, _) = filled();
    let run = |device: &FaultyDevice<MemoryDevice>| check(device, &options(), &NoProgress);
    let device = FaultyDevice::new(MemoryDevice::from(image.clone()), 1);
    assert!(run(&device).expect("checks").is_clean());
    for fault in [Fault::Io, Fault::Torn] {
        for nth in 1..=device.count(Call::Read) {
            let device = FaultyDevice::new(MemoryDevice::from(image.clone()), nth);
            // An operation that fails in a batch is retried by itself.
            device.fail(Call::Read, FailingCalls::FromNth(nth), fault);
            let found = run(&device);
            assert!(found.map_or(true, |report| !report.is_clean()), "read {nth} failed unnoticed");
            assert_eq!([device.count(Call::Write), device.count(Call::Sync), device.count(Call::Discard)], [0; 3]);
        }
    }
}

#[test]
fn a_creation_that_meets_a_failed_call_fails_and_leaves_no_half_made_pool() {
    let create = |device: &Arc<dyn BlockDevice>| {
        let least = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
        Pool::create(device, &least, &environment())
    };
    let counting = Arc::new(FaultyDevice::new(MemoryDevice::new(4096), 1));
    let seam: Arc<dyn BlockDevice> = counting.clone();
    create(&seam).expect("a pool is made");
    for (call, fault) in [(Call::Write, Fault::Io), (Call::Write, Fault::Torn), (Call::Sync, Fault::Io)] {
        for nth in 1..=counting.count(call) {
            let device = Arc::new(FaultyDevice::new(MemoryDevice::new(4096), nth));
            device.fail(call, FailingCalls::Nth(nth), fault);
            let seam: Arc<dyn BlockDevice> = device.clone();
            assert!(create(&seam).is_err(), "{call:?} {nth} failed unnoticed");
            device.heal();
            if Pool::open(Arc::clone(&seam), quiet(), environment()).is_ok() {
                // Only the very last steps failed: one superblock is complete.
                let tree = seen(&open(&seam, &quiet())).expect("reads");
                assert_eq!(tree.len(), 1, "{call:?} {nth}");
            }
            create(&seam).expect("is made the second time");
            check_clean(&*seam).expect("clean");
        }
    }
}
