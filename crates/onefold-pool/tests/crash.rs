//! Power cuts: crash images of all workloads are opened, compared with what was promised, and used again.
//!
//! `ONEFOLD_CRASH_IMAGES=n` sets the number of images, `ONEFOLD_SEED` the first seed. A failure prints the variables
//! that make its image again, and where the image was kept.

mod common;
#[path = "crash/nested.rs"]
mod nested;
#[path = "crash/recover.rs"]
mod recover;
#[path = "crash/tally.rs"]
mod tally;
mod workloads;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use common::bench::{WorkloadRecord, new_pool};
use common::observe::{Tree, check_clean};
use common::{number_from, open, quiet, seed_or};
use onefold_block::{BlockDevice, BlockNo};
use onefold_testing::device::{CrashImage, CrashPlan, MemoryDevice, MemoryImage, RecordingDevice, Sample};
use recover::{recover, settle, use_again};
use tally::{Failure, Tally};
use workloads::{WORKLOADS, Workload};

/// Default number of images.
const IMAGES: u64 = 20_500;
/// Number of rounds of all workloads over which the images are spread, each with another seed.
const ROUNDS: u64 = 2;
/// Maximum number of images of one round: a million images use more seeds, too.
const ROUND_IMAGES_MAX: u64 = 60_000;
/// One in this many images is used again after its recovery.
const USED_AGAIN_EVERY: usize = 2;
/// In one of this many images, the recovery is interrupted as well, and the recovery from that, repeatedly.
const RECOVERY_CUT_EVERY: usize = 25;

/// Tries one crash image, and those of its recovery.
fn try_image(recorded: &WorkloadRecord, image: CrashImage, seed: u64, tally: &Mutex<Tally>) -> Result<(), Failure> {
    let (number, content) = (image.number(), image.device.image());
    let failed = |problem| Failure { problem, image: content.clone() };
    let device: Arc<dyn BlockDevice> = Arc::new(image.device);
    let judge = |tree: &Tree| recorded.history.judge(&recorded.recording, image.cut, tree);
    let recovered = recover(&device, &recorded.options, judge).map_err(failed)?;
    let tree = recovered.tree;
    tally.lock().expect("no panic").note(recovered.took);
    settle(&recovered.pool, &recorded.options, &tree).map_err(failed)?;
    if number.is_multiple_of(USED_AGAIN_EVERY) {
        let close = number.is_multiple_of(USED_AGAIN_EVERY * 2);
        use_again(&device, &recorded.options, recovered.pool, &tree, close).map_err(failed)?;
    }
    if number.is_multiple_of(RECOVERY_CUT_EVERY) {
        let seed = seed << 32 ^ number as u64;
        let took = nested::cut_again_and_again(content.clone(), &recorded.options, tree, seed)?;
        tally.lock().expect("no panic").note_nested(&took);
    }
    Ok(())
}

/// Keeps an image as a sparse file, for use with `onefold pool check`. Returns its path.
fn keep(image: &MemoryImage, name: &str) -> std::io::Result<PathBuf> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let file = std::fs::File::create(&path)?;
    file.set_len(image.block_count() * 4096)?;
    for (block, content) in image.blocks() {
        file.write_all_at(&content[..], block.0 * 4096)?;
    }
    Ok(path)
}

/// Tries the images of one workload on all processors.
fn try_workload(name: &str, recorded: &WorkloadRecord, seed: u64, sample: Sample) -> Tally {
    let plan = CrashPlan { sample, ..CrashPlan::with_seed(seed) };
    let images = Mutex::new(recorded.recording.crash_images(plan));
    let (tally, failed) = (Mutex::new(Tally::default()), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let Some(image) = images.lock().expect("no image panics").next() else { break };
                    let (description, number, content) = (image.description(), image.number(), image.device.image());
                    let tried = std::panic::AssertUnwindSafe(|| try_image(recorded, image, seed, &tally));
                    let panicked = |_| Err(Failure { problem: "a panic".to_owned(), image: content });
                    let Err(Failure { problem, image }) = std::panic::catch_unwind(tried).unwrap_or_else(panicked)
                    else {
                        continue;
                    };
                    failed.store(true, Ordering::Relaxed);
                    let kept = keep(&image, &format!("crash-{name}-{seed}-{number}"));
                    eprintln!(
                        "{name}: {description}:\n  {problem}\nthe image is kept: {kept:?}\n\
                         again with ONEFOLD_CRASH_WORKLOAD={name} ONEFOLD_SEED={seed} ONEFOLD_CRASH_IMAGE={number}"
                    );
                }
            });
        }
    });
    assert!(!failed.load(Ordering::Relaxed), "a crash image of `{name}` does not hold what was promised");
    tally.into_inner().expect("no panic")
}

/// Prints directly, as the test harness captures what tests print.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "crash: {what}");
}

#[test]
fn twenty_thousand_crash_images_hold_what_was_promised() {
    let began = Instant::now();
    let wanted = number_from("ONEFOLD_CRASH_IMAGES").unwrap_or(IMAGES);
    let only = std::env::var("ONEFOLD_CRASH_WORKLOAD").ok();
    let chosen: Vec<&Workload> =
        WORKLOADS.iter().filter(|workload| only.as_ref().is_none_or(|only| only == workload.name)).collect();
    assert!(!chosen.is_empty(), "there is no workload {only:?}");
    let parts: u64 = chosen.iter().map(|workload| workload.part).sum();
    let replayed =
        number_from("ONEFOLD_CRASH_IMAGE").map(|number| Sample::Only(usize::try_from(number).expect("a number")));
    let mut tallies = vec![Tally::default(); chosen.len()];
    for seed in seed_or(1).. {
        let tried: u64 = tallies.iter().map(Tally::images).sum();
        if tried >= wanted {
            break;
        }
        // Images of interrupted recoveries come on top.
        let round = wanted.div_ceil(ROUNDS).min(ROUND_IMAGES_MAX).min(wanted - tried) * 6 / 7;
        for (workload, tally) in chosen.iter().zip(&mut tallies) {
            let recorded = (workload.run)(seed);
            let share = usize::try_from(round * workload.part / parts + 1).expect("a share of a round");
            let found = try_workload(workload.name, &recorded, seed, replayed.unwrap_or(Sample::AtMost(share)));
            let events = recorded.recording.events().len();
            say(&format!("{}, seed {seed}: {events} events, {found}", workload.name));
            tally.add(&found);
        }
        if replayed.is_some() {
            break;
        }
    }
    let mut all = Tally::default();
    for (workload, tally) in chosen.iter().zip(&tallies) {
        say(&format!("{}, all seeds: {tally}", workload.name));
        all.add(tally);
    }
    let seconds = began.elapsed().as_secs_f64();
    say(&format!("{all}; each opened and compared, every second one used again, in {seconds:.0} s"));
}

#[test]
fn an_image_without_damage_shows_the_last_state() {
    for Workload { name, run, .. } in WORKLOADS {
        let recorded = run(7);
        let events = recorded.recording.events().len();
        let image = recorded.recording.image_after(events, &CrashPlan::with_seed(1));
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(image));
        recover(&device, &recorded.options, |tree| recorded.history.judge_last(tree))
            .unwrap_or_else(|problem| panic!("{name}: {problem}"));
    }
}

/// `check` reported a pool as damaged if its growth had been interrupted between its two superblocks, and the older
/// copy was never updated. If the newer one had been damaged later, the pool would have had its old size and lost its
/// newest data.
#[test]
fn a_growth_that_was_cut_is_clean_and_the_next_opening_completes_it() {
    let mut content = new_pool(4096, 1 << 20);
    content.resize(5000);
    let device = Arc::new(RecordingDevice::new(content));
    let as_device: Arc<dyn BlockDevice> = device.clone();
    device.show(4096);
    let pool = open(&as_device, &quiet());
    let old = pool.fs_stat().blocks;
    device.show(5000);
    pool.grow().expect("grows");
    drop(pool);
    let mut grown = 0;
    for image in device.recording().crash_images(CrashPlan::with_seed(1)) {
        let description = image.description();
        let memory = Arc::new(image.device);
        let device: Arc<dyn BlockDevice> = memory.clone();
        check_clean(&*device).unwrap_or_else(|problem| panic!("{description}: {problem}"));
        let blocks = open(&device, &quiet()).fs_stat().blocks;
        for place in [0, 4095] {
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(memory.image()));
            device.write(BlockNo(place), &[0; 4096]).expect("is written");
            let left = open(&device, &quiet()).fs_stat().blocks;
            assert_eq!(left, blocks, "{description}: with the superblock at {place} lost");
        }
        grown += u64::from(blocks > old);
    }
    assert!(grown > 0);
}
