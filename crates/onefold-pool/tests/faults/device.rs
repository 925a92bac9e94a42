//! Failing devices: each single call of a workload fails once, in each possible way.
//!
//! After a failed write or flush the pool stops, reports the reason and can be reopened with everything promised. After
//! a failed read, discard or measurement it continues. A full backing file does not stop it.

use std::sync::Arc;

use onefold_pool::{
    AllocateMode, Dedup, Durability, Ino, OpenOptions, PoolError, Result, SetAttr, TestLimits, XattrMode,
};
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice, MemoryImage};

use crate::common::observe::{Tree, difference, expected, seen};
use crate::common::reference::Reference;
use crate::common::{behind, quiet, regular};
use crate::trial::{Step, Trial, WORKLOAD, new_pool, reopens_to};

type FaultyMemory = Arc<FaultyDevice<MemoryDevice>>;

fn faulty(image: &MemoryImage, seed: u64) -> FaultyMemory {
    Arc::new(FaultyDevice::new(MemoryDevice::from(image.clone()), seed))
}

/// A workload, and how its pool is opened.
struct Course {
    options: OpenOptions,
    workload: Vec<Step>,
}

impl Course {
    fn usual() -> Course {
        Course { options: quiet(), workload: WORKLOAD.to_vec() }
    }

    /// As usual, with small writes that stay in memory until the next commit, and more of them than may stay there.
    fn late() -> Course {
        let test_limits = TestLimits { late_after: 0, ..TestLimits::default() };
        let mut workload = WORKLOAD.to_vec();
        workload.extend((0..20).map(|piece| Step::Import("g", 10_000 + piece * 16, 16)));
        workload.push(Step::Commit);
        Course { options: OpenOptions { test_limits, ..behind() }, workload }
    }

    fn trial_on(&self, device: &FaultyMemory) -> Result<Trial> {
        Trial::open(device.clone(), self.options.clone())
    }

    /// Returns how many calls of a kind the workload makes, including the opening.
    fn calls(&self, image: &MemoryImage, call: Call) -> u64 {
        let device = faulty(image, 1);
        let mut trial = self.trial_on(&device).expect("opens");
        let failed = trial.run(&self.workload, |_| false, || ());
        assert!(failed.is_none(), "nothing fails: {failed:?}");
        device.count(call)
    }
}

fn trial_on(device: &FaultyMemory) -> Result<Trial> {
    Course::usual().trial_on(device)
}

fn calls(image: &MemoryImage, call: Call) -> u64 {
    Course::usual().calls(image, call)
}

fn nothing_yet() -> [Tree; 1] {
    [expected(&Reference::new(Dedup::On))]
}

/// Checks that a stopped pool refuses every change and every promise, reports its first failure, and can still be read.
fn refuses_all_and_says_why(trial: &Trial, failed: Step, cause: &str) {
    let pool = trial.pool();
    let ino = Ino::ROOT;
    let refused: [(&str, Result<()>); 11] = [
        ("create", pool.create_file(ino, b"late", &regular()).map(|_| ())),
        ("write", pool.write(ino, 0, &[1; 100], Durability::Later)),
        ("truncate", pool.set_attr(ino, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).map(|_| ())),
        ("xattr", pool.set_xattr(ino, b"user.late", b"x", XattrMode::Either)),
        ("unlink", pool.unlink(ino, b"directory")),
        ("grow", pool.grow().map(|_| ())),
        ("sync", pool.sync()),
        ("fsync", pool.fsync(ino)),
        ("commit", pool.commit()),
        ("checkpoint", pool.checkpoint()),
        ("close", pool.close()),
    ];
    for (name, result) in refused {
        match result {
            Err(PoolError::Stopped { cause: told }) => assert_eq!(told, cause, "{name} after {failed:?}"),
            other => panic!("{name} after {failed:?}: {other:?}"),
        }
    }
    let allocated = trial.pool().allocate(ino, 0, 4096, AllocateMode::PunchHole);
    assert!(allocated.is_err());
    assert_eq!(pool.stat().expect("has numbers").stopped.as_deref(), Some(cause), "{failed:?}");
    let tree = seen(pool).expect("a stopped pool can be read");
    let states = &trial.states[trial.promised..];
    let nearest: Vec<_> = states.iter().filter_map(|state| difference(&tree, state)).collect();
    assert!(nearest.len() < states.len(), "after {failed:?} none of {} states: {nearest:?}", states.len());
}

fn each_failing_call_stops_the_pool(course: &Course, call: Call, fault: Fault) {
    let image = new_pool();
    let total = course.calls(&image, call);
    let mut unnoticed = 0;
    for nth in 1..=total {
        let device = faulty(&image, nth);
        device.fail(call, FailingCalls::Nth(nth), fault);
        let mut trial = match course.trial_on(&device) {
            Ok(trial) => trial,
            Err(error) => {
                assert!(matches!(error, PoolError::Io { .. }), "{call:?} {nth}: {error:?}");
                reopens_to(device.inner().image(), &nothing_yet());
                continue;
            }
        };
        let failed = trial.run(&course.workload, |_| false, || ());
        if failed.is_none() {
            unnoticed += 1;
        }
        if let Some((step, error)) = failed
            && trial.pool.is_some()
        {
            // A failure after the close's own commit is reported as the close's.
            let cause = match error {
                PoolError::Io { .. } => error.to_string(),
                PoolError::Stopped { ref cause } if matches!(step, Step::Reopen) => cause.clone(),
                error => panic!("{call:?} {nth}, {step:?}: {error:?}"),
            };
            refuses_all_and_says_why(&trial, step, &cause);
        }
        let (states, promised) = (trial.states.clone(), trial.promised);
        drop(trial);
        reopens_to(device.inner().image(), &states[promised..]);
    }
    // A checkpoint goes on without the summaries of the groups.
    assert!(unnoticed == 0 || call == Call::Write && unnoticed <= total / 10, "{unnoticed} of {total} unnoticed");
    eprintln!("{total} calls of kind {call:?} failed once with {fault:?}");
}

#[test]
fn each_failing_write_stops_the_pool_and_keeps_its_promises() {
    for course in [Course::usual(), Course::late()] {
        each_failing_call_stops_the_pool(&course, Call::Write, Fault::Io);
    }
}

#[test]
fn each_short_write_stops_the_pool_and_keeps_its_promises() {
    for course in [Course::usual(), Course::late()] {
        each_failing_call_stops_the_pool(&course, Call::Write, Fault::Torn);
    }
}

#[test]
fn each_failing_flush_stops_the_pool_and_keeps_its_promises() {
    for course in [Course::usual(), Course::late()] {
        each_failing_call_stops_the_pool(&course, Call::Sync, Fault::Io);
    }
}

/// A flush that failed once and would succeed the second time: the system has forgotten the data that it could not
/// write.
#[test]
fn a_failed_flush_is_never_tried_again() {
    let image = new_pool();
    for nth in 1..=calls(&image, Call::Sync) {
        let device = faulty(&image, nth);
        device.fail(Call::Sync, FailingCalls::Nth(nth), Fault::Io);
        let Ok(mut trial) = trial_on(&device) else { continue };
        let failed = trial.run(WORKLOAD, |_| false, || ());
        let (flushes, writes) = (device.count(Call::Sync), device.count(Call::Write));
        assert!(failed.is_some() && flushes == nth, "flush {nth} of {flushes}");
        if let Some(pool) = &trial.pool {
            assert!(pool.sync().is_err() && pool.close().is_err());
        }
        drop(trial);
        assert_eq!((device.count(Call::Sync), device.count(Call::Write)), (flushes, writes), "after flush {nth}");
    }
}

/// Checks failures that leave no doubt about the device's content: the pool continues.
fn each_failing_call_fails_one_operation(call: Call, fault: Fault, action: &str) {
    let image = new_pool();
    let total = calls(&image, call);
    for nth in 1..=total {
        let device = faulty(&image, nth);
        device.fail(call, FailingCalls::Nth(nth), fault);
        let Ok(mut trial) = trial_on(&device) else {
            reopens_to(device.inner().image(), &nothing_yet());
            continue;
        };
        let is_expected = |error: &PoolError| matches!(error, PoolError::Io { action: told, .. } if *told == action);
        let failed = trial.run(WORKLOAD, is_expected, || ());
        assert!(failed.is_none(), "{call:?} {nth}: {failed:?}");
        assert!(trial.scrub_problems <= 1 && (trial.scrub_problems == 0 || call == Call::Read), "{call:?} {nth}");
        trial.pool().close().unwrap_or_else(|error| panic!("{call:?} {nth}: {error}"));
        reopens_to(device.inner().image(), &trial.states[trial.states.len() - 1..]);
    }
    assert!(total > 0);
    eprintln!("{total} calls of kind {call:?} failed once with {fault:?}");
}

#[test]
fn each_failing_read_fails_one_operation_as_a_whole_and_the_pool_goes_on() {
    each_failing_call_fails_one_operation(Call::Read, Fault::Io, "read");
}

#[test]
fn each_short_read_fails_one_operation_as_a_whole_and_the_pool_goes_on() {
    each_failing_call_fails_one_operation(Call::Read, Fault::Torn, "read");
}

#[test]
fn each_failing_discard_fails_a_trim_and_the_pool_goes_on() {
    each_failing_call_fails_one_operation(Call::Discard, Fault::Io, "discard");
}

#[test]
fn each_failing_measurement_fails_one_operation_and_the_pool_goes_on() {
    each_failing_call_fails_one_operation(Call::Measure, Fault::Io, "measure");
}

/// For any kind of write, even the journal's own: copy-on-write host file systems can be full anywhere.
#[test]
fn a_full_backing_file_fails_one_operation_as_a_whole_and_the_pool_goes_on() {
    let image = new_pool();
    let (mut unnoticed, mut failed) = (0, 0);
    for nth in 1..=calls(&image, Call::Write) {
        let device = faulty(&image, nth);
        // Twice: after the first failure the pool may look for room elsewhere.
        device.fail(Call::Write, FailingCalls::Nth(nth), Fault::StorageFull);
        device.fail(Call::Write, FailingCalls::Nth(nth + 1), Fault::StorageFull);
        let Ok(mut trial) = trial_on(&device) else {
            reopens_to(device.inner().image(), &nothing_yet());
            continue;
        };
        let noticed = std::cell::Cell::new(0);
        let goes_on = |error: &PoolError| matches!(error, PoolError::NoSpace);
        let stopped = trial.run(WORKLOAD, goes_on, || {
            noticed.set(noticed.get() + 1);
            device.heal();
        });
        match stopped {
            None => {
                if noticed.get() > 0 {
                    failed += 1
                } else {
                    unnoticed += 1
                }
                trial.pool().close().unwrap_or_else(|error| panic!("write {nth}: {error}"));
                reopens_to(device.inner().image(), &trial.states[trial.states.len() - 1..]);
            }
            // Only growth writes a superblock, and never for the first time.
            Some((Step::Grow, PoolError::Io { .. })) => {
                reopens_to(device.inner().image(), &trial.states[trial.promised..]);
            }
            Some((step, error)) => panic!("write {nth}, {step:?}: {error:?}"),
        }
    }
    eprintln!("a full backing file failed {failed} operations and was worked around {unnoticed} times");
    assert!(failed > 10 && unnoticed > 0, "{failed} failed, {unnoticed} went by");
}
