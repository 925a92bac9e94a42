//! Power that fails again while a pool recovers, and again during the recovery from that.

use std::sync::Arc;
use std::time::Duration;

use onefold_block::BlockDevice;
use onefold_pool::{Durability, Ino, OpenOptions, Pool, PoolError};
use onefold_testing::device::{CrashImage, CrashPlan, MemoryDevice, MemoryImage, Recording, RecordingDevice, Sample};

use crate::common::bench::WorkloadRecord;
use crate::common::history::{History, Steps, mark};
use crate::common::observe::{Tree, seen};
use crate::common::{Dice, letters, regular};
use crate::recover::{RecoveredPool, recover, settle};
use crate::tally::Failure;

/// Minimum number of successive power failures.
const DEPTH_MIN: u64 = 3;
/// Maximum number of successive power failures.
const DEPTH_MAX: u64 = 8;

/// Lets power fail repeatedly. Each time the pool is opened, shows what it must, and continues with some work; then one
/// of the images that a cut may leave is chosen. Returns how long each recovery took.
///
/// # Errors
/// The problem, and the image that showed it.
pub(crate) fn cut_again_and_again(
    image: MemoryImage,
    options: &OpenOptions,
    tree: Tree,
    seed: u64,
) -> Result<Vec<Duration>, Failure> {
    let dice = Dice::new(seed);
    let mut took = Vec::new();
    let mut content = image;
    let mut history: Box<dyn History> = Box::new(Steps { states: vec![tree] });
    let mut recording = RecordingDevice::new(content.clone()).recording();
    let (mut cut, mut story) = (0, String::from("recovery cut"));
    for level in 1..=DEPTH_MIN + dice.below(DEPTH_MAX - DEPTH_MIN + 1) {
        if dice.one_in(3) {
            content.resize(content.block_count() + 1 + dice.below(600));
        }
        let device = Arc::new(RecordingDevice::new(content.clone()));
        let told = |problem: String| Failure { problem: format!("{story}: {problem}"), image: content.clone() };
        let as_device: Arc<dyn BlockDevice> = device.clone();
        let judge = |tree: &Tree| history.judge(&recording, cut, tree);
        let RecoveredPool { pool, tree, took: time } = recover(&as_device, options, judge).map_err(told)?;
        took.push(time);
        let states = go_on(&pool, &device, tree, level, &dice).map_err(told)?;
        drop(pool);
        let recorded = WorkloadRecord {
            recording: device.recording(),
            options: options.clone(),
            history: Box::new(Steps { states }),
        };
        let image = one_image(&recorded.recording, &dice);
        story = format!("{story}, level {level}: {}", image.description());
        cut = image.cut;
        content = image.device.image();
        WorkloadRecord { recording, history, .. } = recorded;
    }
    let told = |problem: String| Failure { problem: format!("{story}: {problem}"), image: content.clone() };
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(content.clone()));
    let judge = |tree: &Tree| history.judge(&recording, cut, tree);
    let RecoveredPool { pool, tree, took: time } = recover(&device, options, judge).map_err(told)?;
    took.push(time);
    settle(&pool, options, &tree).map_err(told)?;
    Ok(took)
}

/// Returns any one of the images that a cut may leave.
fn one_image(recording: &Recording, dice: &Dice) -> CrashImage {
    let plan = CrashPlan { sectors: dice.one_in(3), ..CrashPlan::with_seed(dice.bits()) };
    let number = dice.index(recording.crash_images(plan).len());
    let plan = CrashPlan { sample: Sample::Only(number), ..plan };
    recording.crash_images(plan).next().expect("there are as many images as were counted")
}

/// Continues with a recovered pool: reclaim, commits, new files, growth. Returns the visible tree at each moment.
fn go_on(pool: &Pool, device: &RecordingDevice, tree: Tree, level: u64, dice: &Dice) -> Result<Vec<Tree>, String> {
    let told = |error: PoolError| format!("going on: {error}");
    let mut states = vec![tree];
    let (mut promised, mut file) = (0, None);
    device.mark(mark(0, 0));
    for step in 0..1 + dice.below(6) {
        match dice.below(8) {
            0..3 => {
                pool.reclaim().map_err(told)?;
            }
            3 => pool.checkpoint().map_err(told)?,
            4 => match pool.grow() {
                // A pool of one group cannot grow to two with its present journal.
                Ok(_) | Err(PoolError::JournalTooSmall { .. }) => {}
                Err(error) => return Err(told(error)),
            },
            5 => {
                pool.commit().map_err(told)?;
                promised = states.len() - 1;
            }
            action => {
                let result = match file {
                    Some(ino) if action == 7 => write(pool, ino, dice),
                    _ => {
                        pool.create_file(Ino::ROOT, format!("level{level}-{step}").as_bytes(), &regular()).map(|made| {
                            pool.release(made.ino, 1);
                            file = Some(made.ino);
                        })
                    }
                };
                match result {
                    Ok(()) => states.push(seen(pool)?),
                    Err(PoolError::NoSpace) => {}
                    Err(error) => return Err(told(error)),
                }
            }
        }
        device.mark(mark(promised, states.len() - 1));
    }
    if dice.one_in(3) {
        pool.close().map_err(told)?;
        device.mark(mark(states.len() - 1, states.len() - 1));
    }
    Ok(states)
}

fn write(pool: &Pool, ino: Ino, dice: &Dice) -> onefold_pool::Result<()> {
    let bytes = letters((0..1 + dice.below(30)).map(|_| dice.below(500)));
    pool.write(ino, dice.below(600) * 4096, &bytes, Durability::Later)
}
