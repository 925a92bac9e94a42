//! Refuses every allocation of a workload once: the operation fails as a whole or finds another way, and nothing leaks.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use onefold_block::BlockDevice;
use onefold_pool::{
    Allocation, AllocationSeam, CreateOptions, Dedup, Durability, FileKind, Ino, OpenOptions, Pool, PoolError,
    PoolStat, RangePair, XattrMode,
};
use onefold_testing::device::{MemoryDevice, MemoryImage};
use parking_lot::Mutex;

use crate::common::observe::check_clean;
use crate::common::reference::{ROOT, Reference};
use crate::common::{environment, letter, letters, open, quiet, regular};
use crate::trial::{BLOCK, Step, Trial, WORKLOAD, new_pool, reopens_to};

/// How often an allocation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalPattern {
    /// Once: a retry succeeds.
    Once,
    /// With all later ones of its kind, until the operation has failed.
    FromThenOn,
}

/// Counts allocations, and refuses one.
#[derive(Debug, Default)]
struct Refusals {
    counts: Mutex<HashMap<Allocation, u64>>,
    chosen: Mutex<Option<(Allocation, u64, RefusalPattern)>>,
}

impl AllocationSeam for Refusals {
    fn permits(&self, what: Allocation) -> bool {
        let mut counts = self.counts.lock();
        let number = counts.entry(what).or_insert(0);
        *number += 1;
        match *self.chosen.lock() {
            Some((kind, nth, RefusalPattern::Once)) => kind != what || nth != *number,
            Some((kind, nth, RefusalPattern::FromThenOn)) => kind != what || nth > *number,
            None => true,
        }
    }
}

/// A pool, its content, and an operation on it.
struct Scene {
    image: MemoryImage,
    reference: Reference,
    workload: &'static [Step],
}

impl Scene {
    fn trial(&self, refusals: &Arc<Refusals>) -> Result<(Arc<MemoryDevice>, Trial), PoolError> {
        let device = Arc::new(MemoryDevice::from(self.image.clone()));
        let options = OpenOptions { allocations: Some(refusals.clone()), ..quiet() };
        let trial = Trial::on(device.clone(), options, self.reference.clone())?;
        Ok((device, trial))
    }

    /// Returns the pool's numbers after everything has been removed.
    fn emptied(&self) -> PoolStat {
        let (_, mut trial) = self.trial(&Arc::default()).expect("opens");
        assert!(trial.run(self.workload, |_| false, || ()).is_none(), "nothing fails");
        empty(&trial)
    }
}

/// Removes everything and returns the pool's numbers.
fn empty(trial: &Trial) -> PoolStat {
    let pool = trial.pool();
    let names: Vec<_> = trial.reference.node(ROOT).entries.iter().collect();
    for (name, ino) in names {
        match trial.reference.node(*ino).kind {
            FileKind::Directory => pool.remove_directory(Ino::ROOT, name).expect("is empty"),
            _ => pool.unlink(Ino::ROOT, name).expect("is there"),
        }
    }
    while pool.reclaim().expect("reclaims") {}
    pool.commit().expect("commits");
    pool.checkpoint().expect("checkpoints");
    let stat = pool.stat().expect("has numbers");
    assert_eq!((stat.unique_bytes, stat.shared_bytes, stat.freeing_bytes, stat.reserved_bytes), (0, 0, 0, 0));
    stat
}

fn each_refused_allocation(scene: &Scene, kind: Allocation, refuse: RefusalPattern) -> (u64, u64) {
    let counting = Arc::new(Refusals::default());
    let (_, mut trial) = scene.trial(&counting).expect("opens");
    assert!(trial.run(scene.workload, |_| false, || ()).is_none(), "nothing fails");
    drop(trial);
    let total = counting.counts.lock().get(&kind).copied().unwrap_or(0);
    let emptied = scene.emptied();
    let mut failed = 0;
    for nth in 1..=total {
        let refusals = Arc::new(Refusals::default());
        *refusals.chosen.lock() = Some((kind, nth, refuse));
        let (device, mut trial) = match scene.trial(&refusals) {
            Ok(opened) => opened,
            Err(error) => {
                assert!(matches!(error, PoolError::NoSpace | PoolError::TooLargeForJournal), "{error}");
                continue;
            }
        };
        let told = std::cell::Cell::new(0);
        let goes_on = |error: &PoolError| matches!(error, PoolError::NoSpace | PoolError::TooLargeForJournal);
        let other = trial.run(scene.workload, goes_on, || {
            told.set(told.get() + 1);
            *refusals.chosen.lock() = None;
        });
        assert!(other.is_none() && told.get() <= 1, "{kind:?} {nth}: {other:?}");
        failed += told.get();
        *refusals.chosen.lock() = None;
        let stat = empty(&trial);
        let numbers = |stat: &PoolStat| (stat.inode_count, stat.metadata_dynamic_bytes, stat.free_bytes);
        assert_eq!(numbers(&stat), numbers(&emptied), "{kind:?} {nth} leaked");
        trial.pool().close().expect("closes");
        check_clean(&*device).expect("clean");
    }
    eprintln!("{kind:?}: {total} allocations refused ({refuse:?}), {failed} operations failed by it");
    (total, failed)
}

fn usual() -> Scene {
    Scene { image: new_pool(), reference: Reference::new(Dedup::On), workload: WORKLOAD }
}

#[test]
fn each_refused_allocation_fails_one_operation_as_a_whole_and_leaks_nothing() {
    let scene = usual();
    let kinds =
        [Allocation::Data, Allocation::MapNode, Allocation::TreePage, Allocation::Reservation, Allocation::JournalRoom];
    for kind in kinds {
        let (total, failed) = each_refused_allocation(&scene, kind, RefusalPattern::FromThenOn);
        assert!(total > 1 && failed > 1, "{kind:?}: {failed} of {total}");
    }
    // A pool without such a run takes blocks one by one, or fails.
    let (total, _) = each_refused_allocation(&scene, Allocation::MetadataRun, RefusalPattern::FromThenOn);
    assert!(total > 0);
}

#[test]
fn an_allocation_that_is_refused_once_leaks_nothing() {
    let scene = usual();
    for kind in [Allocation::Data, Allocation::MapNode, Allocation::JournalRoom] {
        let (total, _) = each_refused_allocation(&scene, kind, RefusalPattern::Once);
        assert!(total > 0, "{kind:?}");
    }
}

/// Returns a pool of two groups, the first of which is nearly filled by one file.
fn nearly_full_group() -> &'static (MemoryImage, Reference) {
    static PREPARED: OnceLock<(MemoryImage, Reference)> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let memory = Arc::new(MemoryDevice::new(36_000));
        let device: Arc<dyn BlockDevice> = memory.clone();
        Pool::create(&device, &CreateOptions::default(), &environment()).expect("a pool is made");
        let pool = open(&device, &quiet());
        let mut reference = Reference::new(Dedup::On);
        let filler = pool.create_file(Ino::ROOT, b"filler", &regular()).expect("is new").ino;
        pool.release(filler, 1);
        reference.create(ROOT, b"filler", &regular(), filler.0);
        pool.set_xattr(filler, b"user.unread", b"", XattrMode::Either).expect("sets");
        reference.node_mut(filler.0).xattrs.insert(b"user.unread".to_vec(), Vec::new());
        let pieces = 788;
        for piece in 0..pieces {
            let first = 1_000_000 + piece * 40;
            let bytes = letters(first..first + 40);
            pool.write(filler, piece * 40 * BLOCK, &bytes, Durability::Later).expect("writes");
        }
        reference.truncate(filler.0, pieces * 40 * BLOCK).expect("a length");
        pool.close().expect("closes");
        (memory.image(), reference)
    })
}

const SPILL: &[Step] = &[
    Step::Create("a"),
    Step::Import("a", 0, 200),
    Step::Create("b"),
    Step::Import("b", 1000, 250),
    Step::Import("b", 2000, 250),
    Step::Import("a", 3000, 250),
    Step::Commit,
    Step::Import("a", 4000, 250),
    Step::Reopen,
    Step::Unlink("b"),
    Step::Reclaim,
    Step::Import("a", 5000, 250),
];

#[test]
fn a_block_group_that_cannot_be_initialised_fails_one_write_as_a_whole_and_leaks_nothing() {
    let (image, reference) = nearly_full_group().clone();
    let scene = Scene { image, reference, workload: SPILL };
    for refuse in [RefusalPattern::Once, RefusalPattern::FromThenOn] {
        let (total, failed) = each_refused_allocation(&scene, Allocation::BlockGroup, refuse);
        assert!(total > 0 && failed > 0, "{failed} of {total}");
    }
}

/// The first write after a clone lost the reservation: the writer copied the node that held it and left it to the other
/// file.
#[test]
fn what_was_promised_to_a_file_stays_with_it_when_it_is_cloned() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(new_pool()));
    let pool = open(&device, &quiet());
    let create = |name: &str| {
        let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("fits").ino;
        pool.release(ino, 1);
        ino
    };
    let source = create("source");
    let promised = 900;
    pool.allocate(source, 0, promised * BLOCK, onefold_pool::AllocateMode::Extend).expect("fits");
    let block = |number: u64| letter(1000 + number);
    for number in (0..promised).step_by(7) {
        pool.write(source, number * BLOCK, &block(number), Durability::Later).expect("was promised");
    }
    for name in ["whole", "part"] {
        let clone = create(name);
        if name == "whole" {
            pool.clone_file(source, clone).expect("clones");
        } else {
            let bytes = promised * BLOCK;
            let ranges = RangePair { source, source_offset: 0, target: clone, target_offset: 0, bytes };
            let done = pool.clone_range(ranges).expect("clones");
            assert_eq!(done, promised * BLOCK);
        }
        // The clone's holes are its own.
        pool.write(clone, BLOCK, &block(50_000), Durability::Later).expect("fits");
    }
    let filler = create("filler");
    let mut filled = 0;
    while pool.write(filler, filled * BLOCK, &block(100_000 + filled), Durability::Later).is_ok() {
        filled += 1;
    }
    assert!(filled > 1000, "{filled}");
    let first_write = (0..promised).filter(|number| number % 7 != 0);
    for number in first_write {
        let written = pool.write(source, number * BLOCK, &block(number), Durability::Later);
        written.unwrap_or_else(|error| panic!("block {number} of {promised} was promised: {error}"));
    }
    let mut got = vec![0; 4096];
    for number in 0..promised {
        pool.read(source, number * BLOCK, &mut got).expect("reads");
        assert!(got == block(number), "block {number}");
    }
    pool.close().expect("closes");
    check_clean(&*device).expect("clean");
    drop(pool);
    let memory = open(&device, &quiet());
    let tree = crate::common::observe::seen(&memory).expect("reads");
    assert_eq!(tree.len(), 5);
}

#[test]
fn the_workload_itself_ends_where_it_should() {
    let scene = usual();
    let (device, mut trial) = scene.trial(&Arc::default()).expect("opens");
    assert!(trial.run(scene.workload, |_| false, || ()).is_none());
    trial.pool().close().expect("closes");
    reopens_to(device.image(), &trial.states[trial.states.len() - 1..]);
}
