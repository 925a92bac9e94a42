//! Power cuts in the middle of scans and passes: whatever is left opens, is clean, and every image reads as before.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_pool::{Ino, OpenOptions};
use onefold_testing::device::{CrashPlan, RecordingDevice, Sample};

use crate::ground::*;

/// Crash images that are tried of each pass.
const IMAGES: usize = 240;
/// Of so many of them one has the engine run again over what is left.
const RUN_AGAIN_EVERY: usize = 20;

fn cut_everywhere(import: OpenOptions, then: &OpenOptions, seed: u64) {
    let device = new_pool(4096);
    let pool = open(device.clone(), import);
    let mut contents = Contents::new();
    for (name, numbers) in [("a", 1..=120), ("b", 1..=120), ("c", 60..=200)] {
        contents.insert(name.to_owned(), blocks(numbers));
    }
    contents.insert("scattered".to_owned(), blocks((0..150).map(|place| 1 + place * 37 % 190)));
    for (name, content) in &contents {
        put(&pool, Ino::ROOT, name, content);
    }
    pool.close().unwrap();
    drop(pool);

    let recorded = Arc::new(RecordingDevice::new(device.image()));
    let seam: Arc<dyn BlockDevice> = recorded.clone();
    let pool = open(seam, then.clone());
    let found = run(&substrate(&pool)).unwrap();
    assert!(found.passed.shared.now > 200 * K, "{found:?}");
    pool.commit().unwrap();
    drop(pool);

    let recording = recorded.recording();
    let plan = CrashPlan { sample: Sample::AtMost(IMAGES), ..CrashPlan::with_seed(seed) };
    let mut tried = 0;
    for image in recording.crash_images(plan) {
        let description = image.description();
        let fail = |problem: String| -> ! { panic!("{description}: {problem}") };
        let device: Arc<dyn BlockDevice> = Arc::new(image.device);
        check_clean(&*device).unwrap_or_else(|problem| fail(format!("before it is opened: {problem}")));
        let pool = open(device.clone(), then.clone());
        compare(&pool, &contents).unwrap_or_else(|problem| fail(problem));
        if tried % RUN_AGAIN_EVERY == 0 {
            let again = run(&substrate(&pool)).unwrap_or_else(|error| fail(error.to_string()));
            assert_eq!(again.passed.shared.differed, 0, "{description}: {again:?}");
            compare(&pool, &contents).unwrap_or_else(|problem| fail(problem));
            // One more, for what the first one found in logs and marks that the crash had cut.
            run(&substrate(&pool)).unwrap_or_else(|error| fail(error.to_string()));
            remove_state(&pool);
            assert_eq!(stored_and_saved(&pool).0, 200 * K, "{description}");
            compare(&pool, &contents).unwrap_or_else(|problem| fail(problem));
            pool.close().unwrap_or_else(|error| fail(error.to_string()));
            check_clean(&*device).unwrap_or_else(|problem| fail(format!("after another run: {problem}")));
        }
        tried += 1;
    }
    assert!(tried > IMAGES / 2, "{tried} images");
}

#[test]
fn a_pass_over_what_the_filter_missed_may_be_cut_anywhere() {
    cut_everywhere(with_filter(0), &with_filter(0), 1);
}

#[test]
fn a_pass_over_private_blocks_may_be_cut_anywhere() {
    cut_everywhere(OpenOptions { dedup: onefold_pool::Dedup::Off, ..finding() }, &finding(), 2);
}
