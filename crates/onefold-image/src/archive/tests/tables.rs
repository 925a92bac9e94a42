//! Reads of packs' tables by several threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::store::hooked::{Call, HookedStore, io_error};

const THREADS: usize = 8;

/// What happened to reads of packs, and what is to happen.
#[derive(Default)]
struct PackReads {
    count: AtomicUsize,
    /// The first reads fail.
    failing: AtomicUsize,
}

/// Returns a store whose packs are slow to read: a read ends when the other threads have had the time to begin theirs.
fn slow_store(reads: &Arc<PackReads>) -> Arc<dyn Store> {
    let reads = Arc::clone(reads);
    Arc::new(HookedStore::new(Arc::new(MemoryStore::default()), move |call, name| {
        if matches!(call, Call::Get(_)) && name.starts_with("packs/") {
            reads.count.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
            let less = |left: usize| left.checked_sub(1);
            if reads.failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                return Err(io_error("read", name, "a bad sector"));
            }
        }
        Ok(())
    }))
}

#[test]
fn threads_that_want_one_table_read_it_once_and_a_failed_read_ends_their_wait() {
    let random = SeededRandom::new(1);
    let reads = Arc::new(PackReads::default());
    let store = slow_store(&reads);
    let archive = Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    capture(&archive, &random, "web", &[vec![7; 1000], vec![8; 2000]]);
    for (failing, failed, most) in [(0, 0, 1), (1, 1, THREADS)] {
        let archive = Archive::open(Arc::clone(&store)).unwrap();
        let pack = archive.state.read().packs()[0];
        reads.count.store(0, Ordering::Relaxed);
        reads.failing.store(failing, Ordering::Relaxed);
        let (barrier, failures) = (Barrier::new(THREADS), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    match archive.table(pack) {
                        Ok(table) => assert_eq!(table.len(), 3, "two units and a header"),
                        Err(_) => _ = failures.fetch_add(1, Ordering::Relaxed),
                    }
                });
            }
        });
        assert_eq!(failures.into_inner(), failed);
        assert!(reads.count.load(Ordering::Relaxed) <= most);
        archive.table(pack).unwrap();
    }
}

/// Regression: the threads that waited for a read which the store had given up, tried for as long again.
#[test]
fn threads_that_wait_for_a_read_that_is_given_up_fail_with_it() {
    let random = SeededRandom::new(2);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    capture(&archive, &random, "web", &[vec![7; 1000]]);
    let reads = Arc::new(AtomicUsize::new(0));
    let failing = HookedStore::new(store, {
        let reads = Arc::clone(&reads);
        move |_, name| match name.to_string() {
            name if name.starts_with("packs/") => {
                reads.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_secs(1));
                Err(StoreError::GaveUp { action: "read", name, source: std::io::ErrorKind::TimedOut.into() })
            }
            _ => Ok(()),
        }
    });
    let archive = Archive::open(Arc::new(failing)).unwrap();
    let (pack, barrier) = (archive.state.read().packs()[0], Barrier::new(THREADS));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                let failed = archive.table(pack);
                assert!(matches!(failed, Err(ArchiveError::Store(StoreError::GaveUp { .. }))), "{failed:?}");
            });
        }
    });
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads < THREADS / 2, "{reads} reads");
}
