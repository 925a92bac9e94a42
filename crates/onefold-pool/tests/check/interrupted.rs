//! A repair that a power cut interrupts at any point: run again, it ends with a clean pool, and keeps everything that
//! an uninterrupted repair would have kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo};
use onefold_pool::check::repair;
use onefold_pool::format::geometry::{STATE, SUPERBLOCK_COPY};
use onefold_pool::{FileKind, NoProgress};
use onefold_testing::device::{CrashPlan, MemoryDevice, MemoryImage, RecordingDevice, Sample};

use super::common::*;
use super::history::make_history;
use super::shared::observe::{self, Tree};
use super::shared::{seed_moved, tries};
use super::structures::{BITMAPS, Damage, JOURNAL_SLOTS, STORE_FIRST, Structure, Structures, damaged};

/// Number of crash images of each damaged pool.
const IMAGES: u64 = 12;

/// Returns the visible tree without names: files that an interrupted repair moved to `/lost+found` may be moved there
/// again.
fn contents(device: &MemoryImage) -> BTreeSet<String> {
    let device = Arc::new(MemoryDevice::from(device.clone()));
    assert_clean_but_data(&device);
    let seen: Tree = observe::seen(&open(&device)).unwrap();
    seen.iter()
        .filter(|(path, _)| *path != "/lost+found")
        .map(|(_, view)| {
            // A directory's length is the number of its names.
            let size = if view.kind == FileKind::Directory { 0 } else { view.size };
            let owned = (view.kind, view.mode, view.owner, size, &view.blocks, &view.target, &view.xattrs);
            format!("{} {owned:?}", view.ino)
        })
        .collect()
}

fn assert_clean_but_data(device: &MemoryDevice) {
    let left = checked(device);
    assert!(left.problems.iter().all(|problem| problem.structure == "data"), "{left:#?}");
}

/// Returns the damaged pools whose repair is interrupted.
fn broken() -> Vec<(String, MemoryImage)> {
    let kept = make_history();
    let forgotten = kept.without_log();
    let mut all = Vec::new();
    for (log, history) in [("kept", &kept), ("forgotten", &forgotten)] {
        let structures = Structures::of(&history.now);
        let first = |structure: Structure| structures.all.iter().find(|one| one.0 == structure).unwrap().1;
        let leaf = first(Structure::TreeLeaf);
        let mut add = |targets: &[(Structure, BlockNo)], damage: Damage| {
            let device = MemoryDevice::from(history.now.clone());
            for target in targets {
                if let Some(bytes) = damaged(damage, *target, &structures, &history.older, 5) {
                    device.write(target.1, &bytes).unwrap();
                }
            }
            all.push((format!("{damage:?} of {targets:?}, journal {log}"), device.image()));
        };
        add(&JOURNAL_SLOTS.map(|at| (Structure::JournalSlot, at)), Damage::Zeroed);
        add(&[(Structure::State, STATE)], Damage::Noise);
        add(&[(Structure::State, STATE)], Damage::Stale);
        add(&[(Structure::TreeLeaf, leaf)], Damage::BitFlip);
        add(&[(Structure::TreeInterior, first(Structure::TreeInterior))], Damage::Stale);
        add(&[(Structure::MapNode, first(Structure::MapNode)), (Structure::TreeLeaf, leaf)], Damage::Zeroed);
        let many = [
            (Structure::SuperblockCopy, SUPERBLOCK_COPY),
            (Structure::Bitmap, BITMAPS[0]),
            (Structure::Store, STORE_FIRST.plus(3)),
            (Structure::State, STATE),
            (Structure::MapLeaf, first(Structure::MapLeaf)),
            (Structure::TreeLeaf, leaf),
        ];
        add(&many, Damage::Noise);
        add(&[(Structure::Bitmap, BITMAPS[0]), (Structure::Store, STORE_FIRST.plus(3))], Damage::Stale);
    }
    all
}

#[test]
fn a_repair_that_is_cut_anywhere_keeps_as_much_as_one_that_is_not() {
    let images = tries(IMAGES) as usize;
    let (mut cut_count, mut pool_count) = (0, 0);
    for (name, image) in broken() {
        let device = Arc::new(RecordingDevice::new(image));
        let seam: Arc<dyn BlockDevice> = device.clone();
        repair(&seam, &options(), &environment(), &NoProgress).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = contents(&device.image());
        let plan = CrashPlan { sample: Sample::AtMost(images), ..CrashPlan::with_seed(seed_moved(11)) };
        for crash in device.recording().crash_images(plan) {
            let story = crash.description();
            let cut = Arc::new(crash.device);
            let seam: Arc<dyn BlockDevice> = cut.clone();
            repair(&seam, &options(), &environment(), &NoProgress)
                .unwrap_or_else(|error| panic!("{name}, {story}: {error}"));
            let found = contents(&cut.image());
            let lost: Vec<_> = expected.difference(&found).collect();
            assert!(lost.is_empty(), "{name}, {story}: {lost:#?}");
            cut_count += 1;
        }
        pool_count += 1;
    }
    println!("{cut_count} repairs cut, of {pool_count} damaged pools");
    assert!(cut_count >= pool_count * images.min(20));
}
