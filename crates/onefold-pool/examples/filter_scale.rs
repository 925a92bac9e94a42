//! Fills a fingerprint filter and prints its cost: `cargo run --release --example filter_scale [BLOCKS [POOL]]` for
//! this many stored blocks (default 10^8) in a pool for POOL blocks (default the same number).

use std::hint::black_box;
use std::time::Instant;

use onefold_block::Fingerprint;
use onefold_pool::filter::{Coverage, Filter, FilterOptions, Loader, StorePageNo};

/// Number of blocks whose entries share one store page.
const PAGE_BLOCKS: u64 = 170;
/// Number of blocks that are looked up together: those of a write of 1 MiB.
const BATCH: u64 = 256;
/// Number of operations over which each kind is timed.
const SAMPLES: u64 = 4_000_000;

/// Returns fingerprint `number` of a family, as uniform as that of a keyed hash.
fn fingerprint(family: u64, number: u64) -> Fingerprint {
    let mut mixed = (number ^ family << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(mixed ^ mixed >> 31).to_be_bytes());
    Fingerprint(bytes)
}

/// Runs `work` on each number and returns the average nanoseconds.
fn time(numbers: impl Iterator<Item = u64>, mut work: impl FnMut(u64)) -> f64 {
    let started = Instant::now();
    let mut count = 0_u32;
    for number in numbers {
        work(number);
        count += 1;
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// Returns the process's resident memory in bytes, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number of blocks"));
    let stored = numbers.next().unwrap_or(100_000_000).max(1);
    let pool = numbers.next().unwrap_or(stored);
    let page_of = |number: u64| StorePageNo(number / PAGE_BLOCKS);
    let resident_before = resident_bytes();
    let options = FilterOptions {
        blocks_max: pool,
        pages: pool.div_ceil(PAGE_BLOCKS),
        memory_bytes_max: u64::MAX,
        index_bits: None,
        tag_bits: None,
    };
    let mut filter = Filter::new(&options);

    println!("{stored} blocks stored in a pool of {pool}; n = {}, k = {}", filter.index_bits(), filter.tag_bits());
    for tenth in 1..=10 {
        let (from, to) = (stored * (tenth - 1) / 10, stored * tenth / 10);
        let insert_ns = time(from..to, |number| {
            assert_eq!(filter.insert(fingerprint(1, number), page_of(number)), Coverage::Indexed);
        });
        let bytes = filter.memory_bytes();
        println!("  {to:>11} entries: {:.3} bytes each, {insert_ns:.0} ns an insert", bytes as f64 / to as f64);
    }
    if let (Some(before), Some(after)) = (resident_before, resident_bytes()) {
        println!("resident: {:.3} bytes an entry", (after - before) as f64 / stored as f64);
    }

    let samples = SAMPLES.min(stored);
    let scattered = || (0..samples).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % stored);
    let mut false_pages = 0;
    let new_ns = time(0..samples, |number| false_pages += filter.candidates(fingerprint(2, number)).len());
    let known_ns = time(scattered(), |number| {
        black_box(filter.candidates(fingerprint(1, number)));
    });
    println!(
        "look-up of a new block: {new_ns:.0} ns, {:.3} % name a page",
        100.0 * false_pages as f64 / samples as f64
    );
    println!("look-up of a stored block: {known_ns:.0} ns");
    let batches = samples / BATCH;
    let batch_ns = time(0..batches, |batch| {
        let new: Vec<Fingerprint> = (batch * BATCH..(batch + 1) * BATCH).map(|number| fingerprint(3, number)).collect();
        black_box(filter.candidates_each(&new));
    });
    println!("look-up of a new block, {BATCH} at a time: {:.0} ns each", batch_ns / BATCH as f64);
    let mix_ns = time(scattered(), |number| {
        filter.remove(fingerprint(1, number), page_of(number));
        let _ = filter.insert(fingerprint(1, number), page_of(number));
    });
    println!("remove and insert again: {mix_ns:.0} ns");

    let started = Instant::now();
    filter.check().expect("the invariants hold");
    println!("check: {:.1} s", started.elapsed().as_secs_f64());

    // Saving and loading alternate, so that only one chunk is in memory; only loading is timed.
    let mut loader = Loader::new(&options, 1);
    let mut load_seconds = 0.0;
    for chunk in filter.save(1) {
        let started = Instant::now();
        loader.load(&chunk).expect("what was just saved can be loaded");
        load_seconds += started.elapsed().as_secs_f64();
    }
    let loaded = loader.finish().expect("all chunks have come");
    assert_eq!(loaded.entry_count(), filter.entry_count());
    println!("load of {:.3} bytes an entry: {load_seconds:.1} s", filter.saved_bytes() as f64 / stored as f64);
}
