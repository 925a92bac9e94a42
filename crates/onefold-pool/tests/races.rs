//! Many threads on one pool: equal contents, overlapping ranges, clones, removals, commits and reclaim at once.
//!
//! The expected content of each file is known, because each written block identifies itself: its content is a letter of
//! a small alphabet, so that threads constantly meet on the same contents.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::observe::{check_clean, check_sums, seen};
use common::{Dice, environment, kind_of, letter, open, quiet, read_as_doors_do, regular, write_as_doors_do};
use onefold_block::BlockDevice;
use onefold_pool::{
    AllocateMode, CreateOptions, Durability, Ino, OpenOptions, Pool, RangePair, SetAttr, TestLimits, Verification,
};
use onefold_testing::device::MemoryDevice;

const BLOCK: u64 = 4096;
const LETTERS: u64 = 12;
const THREADS: u64 = 4;

fn new_pool(options: &OpenOptions) -> (Arc<dyn BlockDevice>, Pool) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8192));
    let create = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(&device, &create, &environment()).expect("a pool is made");
    let pool = open(&device, options);
    (device, pool)
}

fn create(pool: &Pool, name: &str) -> Ino {
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("there is room").ino;
    pool.release(ino, 1);
    ino
}

/// Returns whether the block is a letter of the alphabet, including zeros.
fn is_letter(block: &[u8], alphabet: &[[u8; 4096]]) -> bool {
    alphabet.iter().any(|letter| letter[..] == *block)
}

/// One thread's work on its own file and on a shared one; its own file is compared with the expected content.
fn work(pool: &Pool, thread: u64, shared: Ino, seed: u64, rounds: u64) {
    let dice = Dice::new(seed * 100 + thread);
    let alphabet: Vec<_> = (0..LETTERS).map(letter).collect();
    let own = create(pool, &format!("own{thread}"));
    let mut holds: Vec<u64> = vec![0; 600];
    for round in 0..rounds {
        let first = dice.below(580);
        let letters: Vec<u64> = (0..=dice.below(16)).map(|_| dice.below(LETTERS)).collect();
        let bytes: Vec<u8> =
            letters.iter().flat_map(|letter| alphabet[usize::try_from(*letter).expect("small")]).collect();
        match dice.below(12) {
            0..4 => {
                let durability = if dice.one_in(10) { Durability::Now } else { Durability::Later };
                write_as_doors_do(pool, own, first * BLOCK, &bytes, durability).expect("writes");
                for (place, letter) in (usize::try_from(first).expect("small")..).zip(&letters) {
                    holds[place] = *letter;
                }
            }
            4..7 => write_as_doors_do(pool, shared, dice.below(40) * BLOCK, &bytes, Durability::Later).expect("writes"),
            7 => {
                let name = format!("clone{thread}");
                let clone = create(pool, &name);
                pool.clone_file(if dice.one_in(2) { own } else { shared }, clone).expect("clones");
                pool.write(clone, dice.below(40) * BLOCK, &bytes, Durability::Later).expect("writes");
                pool.unlink(Ino::ROOT, name.as_bytes()).expect("is there");
            }
            8 => {
                pool.allocate(own, first * BLOCK, 9 * BLOCK, AllocateMode::PunchHole).expect("punches");
                let first = usize::try_from(first).expect("small");
                holds[first..first + 9].fill(0);
            }
            9..11 => {
                // Equal or not: what matters is that every read stays the same.
                let (one, other) = if dice.one_in(2) { (own, shared) } else { (shared, own) };
                let bytes = (1 + dice.below(3)) * BLOCK;
                let _ = pool
                    .share_range(RangePair {
                        source: one,
                        source_offset: dice.below(40) * BLOCK,
                        target: other,
                        target_offset: dice.below(40) * BLOCK,
                        bytes,
                    })
                    .expect("shares");
                let _ = pool
                    .share_range(RangePair {
                        source: own,
                        source_offset: first * BLOCK,
                        target: own,
                        target_offset: (first + 4) % 580 * BLOCK,
                        bytes,
                    })
                    .expect("shares");
            }
            _ => {
                // Small files have their block numbers in the inode, and other threads free and rewrite these blocks.
                let count = if dice.one_in(2) { 40 } else { 1 + dice.below(2) };
                let mut read = vec![0; usize::try_from(count * BLOCK).expect("small")];
                let own_at = dice.below(590);
                let got = read_as_doors_do(pool, own, own_at * BLOCK, &mut read[..4096]).expect("reads");
                let held = holds[usize::try_from(own_at).expect("small")];
                let is_held = got == 0 || read[..4096] == alphabet[usize::try_from(held).expect("small")];
                assert!(is_held, "block {own_at} of inode {own} is not letter {held}");
                let shared_at = if count == 40 { 0 } else { dice.below(40) };
                let got = read_as_doors_do(pool, shared, shared_at * BLOCK, &mut read).expect("reads");
                for block in read[..got].chunks_exact(4096) {
                    assert!(is_letter(block, &alphabet), "a block of the shared file is what nobody wrote");
                }
            }
        }
        if round % 16 == 0 {
            compare(pool, own, &holds, &alphabet);
        }
    }
    compare(pool, own, &holds, &alphabet);
}

fn compare(pool: &Pool, ino: Ino, holds: &[u64], alphabet: &[[u8; 4096]]) {
    let mut read = vec![0; holds.len() * 4096];
    pool.read(ino, 0, &mut read).expect("reads");
    for (place, (block, letter)) in read.chunks_exact(4096).zip(holds).enumerate() {
        let expected = &alphabet[usize::try_from(*letter).expect("small")];
        assert!(block == expected, "block {place} of inode {ino} is not letter {letter}");
    }
}

/// Runs threads against each other, with one that commits, checkpoints and reclaims, and judges the result.
fn race(options: &OpenOptions, seed: u64, rounds: u64) {
    let (device, pool) = new_pool(options);
    let shared = create(&pool, "shared");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let pool = &pool;
                scope.spawn(move || work(pool, thread, shared, seed, rounds))
            })
            .collect();
        let (pool, ended) = (&pool, &ended);
        let housekeeper = scope.spawn(move || {
            let dice = Dice::new(seed);
            while !ended.load(Ordering::Relaxed) {
                match dice.below(8) {
                    0 => pool.commit().expect("commits"),
                    1 => pool.checkpoint().expect("checkpoints"),
                    2 => {
                        let size = SetAttr { size_bytes: Some(dice.below(40) * BLOCK), ..SetAttr::default() };
                        pool.set_attr(shared, &size).expect("truncates");
                    }
                    _ => {
                        pool.reclaim().expect("reclaims");
                    }
                }
                std::thread::yield_now();
            }
        });
        let panics = workers.into_iter().map(|worker| worker.join().is_err()).filter(|panicked| *panicked).count();
        ended.store(true, Ordering::Relaxed);
        assert!(housekeeper.join().is_ok() && panics == 0, "{panics} threads panicked, seed {seed}");
    });
    while pool.reclaim().expect("reclaims") {}
    pool.commit().expect("commits");
    pool.checkpoint().expect("checkpoints");
    let stat = pool.stat().expect("has numbers");
    assert_eq!((stat.freeing_bytes, stat.reclaim_pending), (0, 0), "nothing is busy or under way any more: {stat:?}");
    if options.test_limits == TestLimits::default() {
        let stored = (stat.unique_bytes + stat.shared_bytes) / BLOCK;
        assert!(stored < LETTERS, "{stored} blocks for {LETTERS} contents, zeros among them: {stat:?}");
    }
    check_sums(&pool).expect("adds up");
    let before = seen(&pool).expect("reads");
    pool.close().expect("closes");
    drop(pool);
    check_clean(&*device).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    assert_eq!(seen(&open(&device, &quiet())).expect("reads"), before);
}

#[test]
fn threads_with_equal_contents_share_blocks_and_lose_nothing() {
    for seed in 1..=4 {
        race(&quiet(), seed, 400);
    }
}

#[test]
fn threads_that_compare_bytes_share_blocks_and_lose_nothing() {
    for seed in 11..=13 {
        race(&OpenOptions { verify: Verification::Value, ..quiet() }, seed, 300);
    }
}

#[test]
fn threads_beside_background_work_share_blocks_and_lose_nothing() {
    for seed in 21..=23 {
        let background = OpenOptions { background: true, commit_interval_ms: 10, ..quiet() };
        race(&background, seed, 400);
    }
}

/// Shows what `verify=value` prevents, and that short fingerprints do collide: without it the second content is lost.
#[test]
fn contents_with_one_fingerprint_are_mixed_up_unless_bytes_are_compared() {
    for (verify, expected) in [(Verification::Fingerprint, 1), (Verification::Value, 2)] {
        let test_limits = TestLimits { fingerprint_bits: 0, ..TestLimits::default() };
        let (_, pool) = new_pool(&OpenOptions { verify, test_limits, ..quiet() });
        let file = create(&pool, "file");
        for number in 1..=2 {
            pool.write(file, number * BLOCK, &letter(number), Durability::Later).expect("writes");
        }
        let mut read = [0; 4096];
        read_as_doors_do(&pool, file, 2 * BLOCK, &mut read).expect("reads");
        assert!(read == letter(expected), "{verify:?} does not give letter {expected}");
    }
}

/// Twelve contents share four fingerprints, and a freed block is the next to be reused: only the comparison of bytes
/// keeps them apart.
#[test]
fn threads_whose_contents_have_colliding_fingerprints_lose_nothing() {
    let test_limits = TestLimits { fingerprint_bits: 2, lowest_first: true, ..TestLimits::default() };
    for (seed, background) in [(31, false), (32, true), (33, true)] {
        let commit_interval_ms = 10;
        race(
            &OpenOptions { verify: Verification::Value, test_limits, background, commit_interval_ms, ..quiet() },
            seed,
            250,
        );
    }
}

#[test]
fn threads_whose_contents_all_have_one_fingerprint_lose_nothing() {
    let test_limits = TestLimits { fingerprint_bits: 0, lowest_first: true, ..TestLimits::default() };
    race(&OpenOptions { verify: Verification::Value, test_limits, ..quiet() }, 41, 150);
}

/// The fourth reference to a block exceeds the maximum, so clones and writes constantly need copies.
///
/// A write into a clone copied a leaf, made a copy of a full block for it, and dropped the only reference to that copy,
/// all in one operation. The freed block counted as neither used nor busy. It was allocated at once, and again to a
/// second writer when its free became durable. Files held data of other files.
#[test]
fn threads_on_blocks_with_full_counts_lose_nothing() {
    let test_limits = TestLimits { references_max: 3, lowest_first: true, ..TestLimits::default() };
    for (seed, background) in [(51, false), (52, true)] {
        race(&OpenOptions { test_limits, background, commit_interval_ms: 10, ..quiet() }, seed, 250);
    }
}

/// One thread removes a file while others rewrite its contents: a block whose count has reached zero is never shared
/// again.
#[test]
fn contents_written_while_their_last_file_goes_are_right() {
    let (device, pool) = new_pool(&OpenOptions { background: true, commit_interval_ms: 10, ..quiet() });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                let name = format!("file{thread}");
                let bytes: Vec<u8> = (1..30).flat_map(letter).collect();
                for round in 0..150 {
                    let file = create(pool, &name);
                    let durability = if round % 20 == thread { Durability::Now } else { Durability::Later };
                    pool.write(file, 0, &bytes, durability).expect("writes");
                    let mut read = vec![0; bytes.len()];
                    pool.read(file, 0, &mut read).expect("reads");
                    assert!(read == bytes, "round {round} of thread {thread}");
                    pool.unlink(Ino::ROOT, name.as_bytes()).expect("is there");
                }
            });
        }
    });
    while pool.reclaim().expect("reclaims") {}
    pool.close().expect("closes");
    drop(pool);
    check_clean(&*device).expect("clean");
    let missing = open(&device, &quiet()).lookup(Ino::ROOT, b"file0").expect_err("was removed");
    assert_eq!(kind_of(&missing), "NotFound");
}
