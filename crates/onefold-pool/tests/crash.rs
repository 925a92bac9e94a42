//! Power cuts: every crash image of several workloads is opened, compared with what was promised, and used again.
//!
//! `ONEFOLD_CRASH_IMAGES=n` sets how many images are tried (thirty thousand by default), `ONEFOLD_SEED` where the seeds
//! begin; a failure prints the variables that make its image again.

mod common;
mod workloads;

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use common::bench::{Recorded, count};
use common::observe::{Tree, check_clean, check_sums, difference, seen};
use common::{environment, letter, number_from, regular, seed_or};
use onefold_block::BlockDevice;
use onefold_block::device::{CrashImage, CrashPlan, MemoryDevice, RecordingDevice, Sample};
use onefold_pool::{Durability, Ino, OpenOptions, Pool};
use workloads::{WORKLOADS, Workload};

/// Images tried when nothing else is asked for.
const IMAGES: u64 = 12_000;
/// Images of one round of all workloads; the next round has another seed.
const ROUND_IMAGES: u64 = 4_000;
/// Of so many images one has its recovery cut as well.
const RECOVERY_CUT_EVERY: usize = 150;
/// Images made of a recovery.
const RECOVERY_IMAGES: usize = 12;

fn try_open(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Pool, String> {
    Pool::open(Arc::clone(device), options.clone(), environment()).map_err(|error| format!("does not open: {error}"))
}

/// Opens a pool and finds out which of the states it shows.
fn recover(device: &Arc<dyn BlockDevice>, options: &OpenOptions, allowed: &[Tree]) -> Result<(Pool, Tree), String> {
    check_clean(&**device).map_err(|problem| format!("not clean before recovery: {problem}"))?;
    let pool = try_open(device, options)?;
    let tree = seen(&pool)?;
    if !allowed.contains(&tree) {
        let nearest = allowed.iter().filter_map(|state| difference(&tree, state));
        let differences: Vec<String> = nearest.take(2).collect();
        return Err(format!("shows none of {} allowed states: {}", allowed.len(), differences.join(" / ")));
    }
    check_sums(&pool)?;
    Ok((pool, tree))
}

/// Drains what waits for reclaim and compares the pool's numbers with naive counts: nothing leaked.
fn settle(pool: &Pool, tree: &Tree) -> Result<(), String> {
    let told = |error: onefold_pool::PoolError| format!("draining: {error}");
    while pool.reclaim().map_err(told)? {}
    pool.commit().map_err(told)?;
    check_sums(pool)?;
    let stat = pool.stat().map_err(told)?;
    let (inodes, blocks) = count(tree);
    let unread = tree.values().any(|view| view.xattrs.contains_key(&b"user.unread"[..]));
    let stored = (stat.unique_bytes + stat.shared_bytes) / 4096;
    if stat.inode_count != inodes as u64 || (!unread && stored != blocks as u64) {
        return Err(format!("{inodes} inodes and {blocks} distinct blocks are seen, but {stat:?}"));
    }
    Ok(())
}

/// Uses the pool as anybody would after a crash, and reopens it once more.
fn use_again(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
    pool: Pool,
    before: &Tree,
    close: bool,
) -> Result<(), String> {
    let told = |error: onefold_pool::PoolError| format!("used again: {error}");
    let bytes: Vec<u8> = (0..20).flat_map(|number| letter(number * 3)).collect();
    let made = pool.create_file(Ino::ROOT, b"after", &regular()).map_err(told)?;
    pool.write(made.ino, 4096, &bytes, Durability::Later).map_err(told)?;
    pool.fsync(made.ino).map_err(told)?;
    if close {
        pool.close().map_err(told)?;
    }
    drop(pool);
    check_clean(&**device).map_err(|problem| format!("not clean after use: {problem}"))?;
    let pool = try_open(device, options)?;
    let mut read = vec![0; bytes.len() + 4096];
    let got = pool.read(made.ino, 0, &mut read).map_err(told)?;
    if got != read.len() || read[4096..] != bytes[..] {
        return Err("what was written after recovery is not there".to_owned());
    }
    pool.unlink(Ino::ROOT, b"after").map_err(told)?;
    settle(&pool, before)?;
    let after = seen(&pool)?;
    difference(&after, before).map_or(Ok(()), |difference| Err(format!("after use and reopening: {difference}")))
}

/// Tries one crash image; returns how many were tried with those of its recovery.
fn try_image(recorded: &Recorded, image: CrashImage) -> Result<u64, String> {
    let allowed = recorded.candidates(&image);
    let number = image.number();
    let content = image.device.image();
    let device: Arc<dyn BlockDevice> = Arc::new(image.device);
    let (pool, tree) = recover(&device, &recorded.options, allowed)?;
    settle(&pool, &tree)?;
    use_again(&device, &recorded.options, pool, &tree, number.is_multiple_of(2))?;
    if !number.is_multiple_of(RECOVERY_CUT_EVERY) {
        return Ok(1);
    }
    // The recovery, and reclaim after it, lose power as well: what is seen stays the same.
    let device = Arc::new(RecordingDevice::new(content));
    let recorded_device: Arc<dyn BlockDevice> = device.clone();
    let (pool, tree) = recover(&recorded_device, &recorded.options, allowed)?;
    for _ in 0..20 {
        pool.reclaim().map_err(|error| error.to_string())?;
    }
    pool.commit().and_then(|()| pool.checkpoint()).map_err(|error| error.to_string())?;
    drop(pool);
    let plan = CrashPlan { sample: Sample::AtMost(RECOVERY_IMAGES), ..CrashPlan::with_seed(number as u64) };
    let mut tried = 1;
    for again in device.recording().crash_images(plan) {
        let description = again.description();
        let device: Arc<dyn BlockDevice> = Arc::new(again.device);
        let told = |problem| format!("recovery cut, {description}: {problem}");
        let (pool, tree) = recover(&device, &recorded.options, std::slice::from_ref(&tree)).map_err(told)?;
        settle(&pool, &tree).map_err(told)?;
        tried += 1;
    }
    Ok(tried)
}

/// Tries the images of one workload on all processors.
fn try_workload(name: &str, recorded: &Recorded, seed: u64, sample: Sample) -> u64 {
    let plan = CrashPlan { sample, ..CrashPlan::with_seed(seed) };
    let images = Mutex::new(recorded.recording.crash_images(plan));
    let (tried, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let Some(image) = images.lock().expect("no image panics").next() else { break };
                    let (description, number) = (image.description(), image.number());
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| try_image(recorded, image)));
                    match result.unwrap_or_else(|_| Err("a panic".to_owned())) {
                        Ok(images) => {
                            tried.fetch_add(images, Ordering::Relaxed);
                        }
                        Err(problem) => {
                            failed.store(true, Ordering::Relaxed);
                            eprintln!("{name}: {description}:\n  {problem}\nagain with ONEFOLD_CRASH_WORKLOAD={name} ONEFOLD_SEED={seed} ONEFOLD_CRASH_IMAGE={number}");
                        }
                    }
                }
            });
        }
    });
    assert!(!failed.load(Ordering::Relaxed), "a crash image of `{name}` does not hold what was promised");
    tried.load(Ordering::Relaxed)
}

#[test]
fn ten_thousand_crash_images_hold_what_was_promised() {
    let began = Instant::now();
    let wanted = number_from("ONEFOLD_CRASH_IMAGES").unwrap_or(IMAGES);
    let only = std::env::var("ONEFOLD_CRASH_WORKLOAD").ok();
    let chosen: Vec<&Workload> =
        WORKLOADS.iter().filter(|workload| only.as_ref().is_none_or(|only| only == workload.name)).collect();
    assert!(!chosen.is_empty(), "there is no workload {only:?}");
    let parts: u64 = chosen.iter().map(|workload| workload.part).sum();
    let replayed =
        number_from("ONEFOLD_CRASH_IMAGE").map(|number| Sample::Only(usize::try_from(number).expect("a number")));
    let mut tried = 0;
    for seed in seed_or(1).. {
        for workload in &chosen {
            let recorded = (workload.run)(seed);
            let events = recorded.recording.events().len();
            let share =
                usize::try_from(ROUND_IMAGES.min(wanted) * workload.part / parts + 1).expect("a share of a round");
            let images = try_workload(workload.name, &recorded, seed, replayed.unwrap_or(Sample::AtMost(share)));
            tried += images;
            // Past the test harness, which keeps what tests print.
            let _ =
                writeln!(std::io::stderr(), "crash: {}, seed {seed}: {events} events, {images} images", workload.name);
        }
        if tried >= wanted || replayed.is_some() {
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let _ = writeln!(
        std::io::stderr(),
        "crash: {tried} crash images in {seconds:.0} s, each opened, compared and used again"
    );
}

#[test]
fn an_image_without_damage_shows_the_last_state() {
    for Workload { name, run, .. } in WORKLOADS {
        let recorded = run(7);
        let events = recorded.recording.events().len();
        let image = recorded.recording.image_after(events, &CrashPlan::with_seed(1));
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(image));
        recover(&device, &recorded.options, std::slice::from_ref(recorded.last_state()))
            .unwrap_or_else(|problem| panic!("{name}: {problem}"));
    }
}
