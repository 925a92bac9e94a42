//! Failing devices: each single call of a workload fails once, in each way that it can.
//!
//! After a failed write or flush the pool stops, says why and can be reopened with all that was promised; after a
//! failed read it goes on; a backing file that is full is no dead disk.

mod common;

use std::sync::Arc;

use common::observe::{Tree, check_clean, check_sums, difference, expected, seen};
use common::reference::{ROOT, Reference};
use common::{Dice, environment, kind_of, open, quiet, regular, text};
use onefold_block::BlockDevice;
use onefold_block::device::{Call, Fault, FaultyDevice, MemoryDevice, MemoryImage, When};
use onefold_pool::{AllocateMode, CreateOptions, Dedup, Durability, Ino, Pool, PoolError, RenameMode, Result, SetAttr};

/// One operation of the workload.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create(&'static str),
    Write(&'static str, u64, usize, Durability),
    Clone(&'static str, &'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Truncate(&'static str, u64),
    Punch(&'static str, u64, u64),
    Commit,
    Checkpoint,
    Reclaim,
}

const BLOCK: u64 = 4096;

const WORKLOAD: &[Step] = &[
    Step::Create("a"),
    Step::Write("a", 0, 30 * 4096, Durability::Later),
    Step::Commit,
    Step::Create("b"),
    Step::Write("b", 508 * BLOCK, 25 * 4096 + 100, Durability::Now),
    Step::Clone("b", "c"),
    Step::Write("c", 510 * BLOCK + 7, 9000, Durability::Later),
    Step::Write("a", 3 * BLOCK, 4096, Durability::Now),
    Step::Checkpoint,
    Step::Rename("a", "b"),
    Step::Reclaim,
    Step::Commit,
    Step::Truncate("c", 509 * BLOCK + 1),
    Step::Punch("b", BLOCK, 5 * BLOCK),
    Step::Reclaim,
    Step::Write("c", 0, 40 * 4096, Durability::Now),
    Step::Unlink("c"),
    Step::Reclaim,
    Step::Reclaim,
    Step::Checkpoint,
    Step::Create("d"),
    Step::Write("d", 0, 4096, Durability::Now),
];

/// A pool under the workload, and the states that it may come back to.
struct Trial {
    pool: Pool,
    reference: Reference,
    states: Vec<Tree>,
    promised: usize,
}

impl Trial {
    fn ino(&self, name: &str) -> u64 {
        self.reference.node(ROOT).entries[name.as_bytes()]
    }

    /// Does a step; when it fails, the reference stays as it was.
    fn step(&mut self, step: Step) -> Result<()> {
        let pool = &self.pool;
        match step {
            Step::Create(name) => {
                let attr = pool.create_file(Ino::ROOT, name.as_bytes(), &regular())?;
                pool.release(attr.ino, 1);
                self.reference.create(ROOT, name.as_bytes(), &regular(), attr.ino.0);
            }
            Step::Write(name, offset, length, durability) => {
                let ino = self.ino(name);
                let bytes = text(&Dice::new(offset + length as u64), length, 30);
                let result = pool.write(Ino(ino), offset, &bytes, durability);
                if let Err(error) = result {
                    if durability == Durability::Now {
                        // It may have happened, and only its commit have failed.
                        let mut reference = self.reference.clone();
                        reference.write(ino, offset, &bytes).expect("a sound write");
                        self.states.push(expected(&reference));
                    }
                    return Err(error);
                }
                self.reference.write(ino, offset, &bytes).expect("a sound write");
            }
            Step::Clone(source, name) => {
                if !self.reference.node(ROOT).entries.contains_key(name.as_bytes()) {
                    self.step(Step::Create(name))?;
                }
                let (source, target) = (self.ino(source), self.ino(name));
                self.pool.clone_file(Ino(source), Ino(target))?;
                self.reference.clone_file(source, target).expect("a sound clone");
            }
            Step::Unlink(name) => {
                pool.unlink(Ino::ROOT, name.as_bytes())?;
                self.reference.remove(ROOT, name.as_bytes(), false).expect("is there");
            }
            Step::Rename(name, new_name) => {
                let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
                pool.rename(Ino::ROOT, name, Ino::ROOT, new_name, RenameMode::Replace)?;
                self.reference.rename(ROOT, name, ROOT, new_name, RenameMode::Replace).expect("is there");
            }
            Step::Truncate(name, bytes) => {
                let ino = self.ino(name);
                pool.set_attr(Ino(ino), &SetAttr { size_bytes: Some(bytes), ..SetAttr::default() })?;
                self.reference.truncate(ino, bytes).expect("a sound length");
            }
            Step::Punch(name, offset, bytes) => {
                let ino = self.ino(name);
                pool.allocate(Ino(ino), offset, bytes, AllocateMode::PunchHole)?;
                self.reference.node_mut(ino).zero(offset, offset + bytes);
            }
            Step::Commit => pool.commit()?,
            Step::Checkpoint => pool.checkpoint()?,
            Step::Reclaim => {
                pool.reclaim()?;
            }
        }
        self.reference.forget_orphans();
        self.states.push(expected(&self.reference));
        if matches!(step, Step::Commit | Step::Write(_, _, _, Durability::Now)) {
            self.promised = self.states.len() - 1;
        }
        Ok(())
    }

    /// Does the workload up to a failed step, which it returns. A failed read is tried again.
    fn run(&mut self, goes_on: impl Fn(&PoolError) -> bool) -> Option<(Step, PoolError)> {
        for &step in WORKLOAD {
            let before = self.states.len() - 1;
            if let Err(error) = self.step(step) {
                if !goes_on(&error) {
                    return Some((step, error));
                }
                let tree = seen(&self.pool).expect("reads");
                let was = self.states[before..].iter().any(|state| difference(&tree, state).is_none());
                assert!(was, "{step:?} failed with `{error}` and left {:?}", difference(&tree, &self.states[before]));
                check_sums(&self.pool).expect("adds up");
                self.step(step).unwrap_or_else(|error| panic!("{step:?} failed again: {error}"));
            }
        }
        None
    }
}

fn new_pool() -> MemoryImage {
    let memory = Arc::new(MemoryDevice::new(4096));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let options = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(&device, &options, &environment()).expect("a pool is made");
    memory.image()
}

/// How many calls of a kind the workload makes, the opening included.
fn calls(image: &MemoryImage, call: Call) -> u64 {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::from(image.clone()), 1));
    let mut trial = trial_on(&device).expect("opens");
    assert!(trial.run(|_| false).is_none(), "nothing fails");
    device.count(call)
}

fn trial_on(device: &Arc<FaultyDevice<MemoryDevice>>) -> Result<Trial> {
    let device: Arc<dyn BlockDevice> = device.clone();
    let pool = Pool::open(device, quiet(), environment())?;
    let reference = Reference::new(Dedup::On);
    let states = vec![expected(&reference)];
    Ok(Trial { pool, reference, states, promised: 0 })
}

/// Reopens what the device holds: it is sound and shows one of the states.
fn reopens_to(device: &FaultyDevice<MemoryDevice>, states: &[Tree]) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(device.inner().image()));
    check_clean(&*device).expect("clean before recovery");
    let pool = open(&device, &quiet());
    let tree = seen(&pool).expect("reads");
    let nearest: Vec<_> = states.iter().filter_map(|state| difference(&tree, state)).collect();
    assert!(nearest.len() < states.len(), "none of {} states: {nearest:?}", states.len());
    check_sums(&pool).expect("adds up");
    while pool.reclaim().expect("reclaims") {}
    pool.close().expect("closes");
    check_clean(&*device).expect("clean after a close");
}

fn each_failing_call_stops_the_pool(call: Call, fault: Fault) {
    let image = new_pool();
    let total = calls(&image, call);
    for nth in 1..=total {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::from(image.clone()), nth));
        device.fail(call, When::Nth(nth), fault);
        let mut trial = match trial_on(&device) {
            Ok(trial) => trial,
            Err(error) => {
                assert_eq!(kind_of(&error), "unexpected", "an I/O error: {error}");
                reopens_to(&device, &[expected(&Reference::new(Dedup::On))]);
                continue;
            }
        };
        let (step, error) = trial.run(|_| false).unwrap_or_else(|| panic!("{call:?} {nth} failed unnoticed"));
        assert!(matches!(error, PoolError::Io { .. }), "{call:?} {nth}, {step:?}: {error:?}");
        let refused = trial.pool.create_file(Ino::ROOT, b"late", &regular()).expect_err("the pool has stopped");
        let PoolError::Stopped { cause } = refused else { panic!("{call:?} {nth}, {step:?}: {refused:?}") };
        assert_eq!(cause, error.to_string(), "the first failure is told");
        for result in [
            trial.pool.sync(),
            trial.pool.fsync(Ino::ROOT),
            trial.pool.commit(),
            trial.pool.checkpoint(),
            trial.pool.close(),
        ] {
            assert!(matches!(result, Err(PoolError::Stopped { .. })), "{call:?} {nth}, {step:?}: {result:?}");
        }
        let (states, promised) = (trial.states.clone(), trial.promised);
        drop(trial);
        reopens_to(&device, &states[promised..]);
    }
    eprintln!("{total} calls of kind {call:?} failed once with {fault:?}");
}

#[test]
fn each_failing_write_stops_the_pool_and_keeps_its_promises() {
    each_failing_call_stops_the_pool(Call::Write, Fault::Io);
}

#[test]
fn each_torn_write_stops_the_pool_and_keeps_its_promises() {
    each_failing_call_stops_the_pool(Call::Write, Fault::Torn);
}

#[test]
fn each_failing_flush_stops_the_pool_and_keeps_its_promises() {
    each_failing_call_stops_the_pool(Call::Sync, Fault::Io);
}

#[test]
fn each_failing_read_fails_one_operation_as_a_whole_and_the_pool_goes_on() {
    let image = new_pool();
    for nth in 1..=calls(&image, Call::Read) {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::from(image.clone()), nth));
        device.fail(Call::Read, When::Nth(nth), Fault::Io);
        let Ok(mut trial) = trial_on(&device) else {
            reopens_to(&device, &[expected(&Reference::new(Dedup::On))]);
            continue;
        };
        let failed = trial.run(|error| matches!(error, PoolError::Io { action: "read", .. }));
        assert!(failed.is_none(), "read {nth}: {failed:?}");
        trial.pool.close().unwrap_or_else(|error| panic!("read {nth}: {error}"));
        reopens_to(&device, &trial.states[trial.states.len() - 1..]);
    }
}

#[test]
fn a_full_backing_file_fails_one_write_as_a_whole_and_the_pool_goes_on() {
    let image = new_pool();
    let (mut went_on, mut stopped) = (0, 0);
    for nth in 1..=calls(&image, Call::Write) {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::from(image.clone()), nth));
        device.fail(Call::Write, When::Nth(nth), Fault::StorageFull);
        let Ok(mut trial) = trial_on(&device) else {
            reopens_to(&device, &[expected(&Reference::new(Dedup::On))]);
            continue;
        };
        match trial.run(|error| matches!(error, PoolError::NoSpace)) {
            None => {
                went_on += 1;
                trial.pool.close().unwrap_or_else(|error| panic!("write {nth}: {error}"));
                reopens_to(&device, &trial.states[trial.states.len() - 1..]);
            }
            // The journal and structures with a fixed place were written before: there they can't run out of space.
            Some((step, error)) => {
                stopped += 1;
                assert!(matches!(error, PoolError::Io { .. }), "write {nth}, {step:?}: {error:?}");
                assert!(matches!(trial.pool.sync(), Err(PoolError::Stopped { .. })), "write {nth}, {step:?}");
                reopens_to(&device, &trial.states[trial.promised..]);
            }
        }
    }
    assert!(went_on >= 5 && stopped > 5, "{went_on} writes of data and {stopped} others");
}
