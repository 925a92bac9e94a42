//! Scrub of a pool in use, with concurrent writers, clones, removals, reclaim, commits and trims. It never mistakes
//! changes for damage, and finds real damage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onefold_pool::check::ScrubOptions;
use onefold_pool::{AllocateMode, Durability, FileKind, Ino, NoProgress, OpenOptions, Pool, PoolError};
use onefold_testing::device::MemoryDevice;

use super::common::*;
use super::shared::{Dice, letter};
use super::structures::Structures;

const WRITERS: u64 = 3;
/// Number of complete scrubs while the writers continue.
const SCRUBS: usize = 40;
const SCRUBS_MAX: usize = 400;
/// Minimum number of operations by the writers meanwhile.
const OPERATIONS_MIN: u64 = 100;

/// Writes, clones, punches and removes until stopped. Blocks are constantly allocated, shared, freed and reused.
fn write(pool: &Pool, thread: u64, stop: &AtomicBool, done: &AtomicU64) {
    let dice = Dice::new(70 + thread);
    let names = |dice: &Dice| format!("writer {thread} {}", dice.below(4)).into_bytes();
    while !stop.load(Ordering::Relaxed) {
        let name = names(&dice);
        let ino = match pool.lookup(Ino::ROOT, &name) {
            Ok(attr) => attr.ino,
            Err(_) => pool.create_file(Ino::ROOT, &name, &new_file(FileKind::Regular)).unwrap().ino,
        };
        let bytes: Vec<u8> = (0..=dice.below(60)).flat_map(|_| letter(1 + dice.below(400))).collect();
        let offset = dice.below(700) * 4096;
        let result = match dice.below(8) {
            0 => pool.unlink(Ino::ROOT, &name),
            1 => pool.allocate(ino, offset, 100 * 4096, AllocateMode::PunchHole),
            2 => {
                let name = format!("clone {thread}");
                let clone = make(pool, Ino::ROOT, name.as_bytes(), FileKind::Regular);
                let cloned = pool.clone_file(ino, clone).and_then(|()| pool.write(clone, 0, &bytes, Durability::Later));
                pool.unlink(Ino::ROOT, name.as_bytes()).and(cloned)
            }
            3 => pool.commit(),
            4 => pool.trim(&NoProgress).map(drop),
            5 => pool.write(ino, offset, &bytes, Durability::Now),
            _ => pool.write(ino, offset, &bytes, Durability::Later),
        };
        pool.release(ino, 1);
        match result {
            Ok(()) | Err(PoolError::NoSpace | PoolError::NotFound) => {}
            Err(error) => panic!("{error}"),
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs scrubs beside writers; returns their reports, and the number of the writers' operations.
fn scrub_beside_writers(pool: &Pool) -> (Vec<onefold_pool::check::CheckReport>, u64) {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let reports = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|thread| {
                let (stop, done) = (&stop, &done);
                scope.spawn(move || write(pool, thread, stop, done))
            })
            .collect();
        let mut reports = Vec::new();
        // On a slow machine the writers get less done, so there are more scrubs.
        while reports.len() < SCRUBS || reports.len() < SCRUBS_MAX && done.load(Ordering::Relaxed) <= OPERATIONS_MIN {
            reports.push(pool.scrub(&ScrubOptions::default(), &NoProgress).unwrap());
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().expect("a writer fails"));
        reports
    });
    (reports, done.into_inner())
}

/// Returns a small pool with background threads, and a file that nothing changes.
fn busy_pool() -> (Arc<MemoryDevice>, Ino) {
    let device = new_pool(6000);
    let pool = open(&device);
    let still = make(&pool, Ino::ROOT, b"still", FileKind::Regular);
    pool.write(still, 0, &noise(1, 600 * 4096), Durability::Now).unwrap();
    pool.close().unwrap();
    (device, still)
}

fn open_busy(device: &Arc<MemoryDevice>) -> Pool {
    let options = OpenOptions { background: true, memory_bytes: MEMORY, ..OpenOptions::default() };
    Pool::open(device.clone(), options, environment()).unwrap()
}

#[test]
fn a_scrub_beside_writers_never_raises_a_false_alarm() {
    let (device, _) = busy_pool();
    let pool = open_busy(&device);
    let (reports, done) = scrub_beside_writers(&pool);
    let hashed: u64 = reports.iter().map(|report| report.data_blocks_hashed).sum();
    for report in &reports {
        assert!(report.is_clean(), "{report:#?}");
    }
    pool.close().unwrap();
    drop(pool);
    assert_clean(&device);
    println!("{} scrubs hashed {hashed} blocks beside {done} operations: no false alarm", reports.len());
    assert!(hashed > 600 * SCRUBS as u64 && done > OPERATIONS_MIN, "{hashed} blocks, {done} operations");
}

#[test]
fn a_scrub_beside_writers_finds_what_is_damaged_and_nothing_else() {
    let (device, still) = busy_pool();
    let damaged = Structures::of(&device.image()).data_of(still)[77];
    flip(&device, damaged, 123);
    let pool = open_busy(&device);
    let (reports, _) = scrub_beside_writers(&pool);
    for report in &reports {
        assert_eq!(report.problems_total, 1, "{report:#?}");
        assert_eq!((report.problems[0].structure, report.problems[0].block), ("data", Some(damaged)));
        assert_eq!(report.problems[0].files, ["/still"]);
    }
    pool.close().unwrap();
}
