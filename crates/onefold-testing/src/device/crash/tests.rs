//! Tests of the crash images against what the contract of [`BlockDevice`] allows a disk to do.

use std::collections::{BTreeSet, HashSet};

use super::*;
use crate::device::RecordingDevice;
use onefold_block::BlockDevice;
use onefold_block::device::SECTOR_BYTES;
use onefold_block::{BLOCK_BYTES, BlockNo};

const BLOCKS: u64 = 6;

fn plan() -> CrashPlan {
    CrashPlan::with_seed(1)
}

/// Prefixes, and whole changes lost or alone; nothing else.
fn nothing_torn() -> CrashPlan {
    CrashPlan { torn_splits: 0, sectors: false, random_subsets_per_gap: 0, ..plan() }
}

/// Returns `count` blocks in which every sector holds `tag`.
fn tagged(tag: u8, count: usize) -> Vec<u8> {
    vec![tag; count * BLOCK_BYTES]
}

/// Returns the tag of each sector of the device.
fn sector_tags(image: &MemoryImage) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(image.block_count()).unwrap() * BLOCK_BYTES];
    MemoryDevice::from(image.clone()).read(BlockNo(0), &mut bytes).unwrap();
    bytes.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect()
}

/// Returns the tag of each block's first sector.
fn block_tags(image: &CrashImage) -> Vec<u8> {
    sector_tags(&image.device.image()).into_iter().step_by(BLOCK_BYTES / SECTOR_BYTES).collect()
}

/// Writes one block each to blocks 0, 1 and 0 again, then a sync, a promise, and a write to block 2.
fn small_recording() -> Recording {
    let device = RecordingDevice::new(MemoryImage::new(3));
    device.write(BlockNo(0), &tagged(1, 1)).unwrap();
    device.write(BlockNo(1), &tagged(2, 1)).unwrap();
    device.write(BlockNo(0), &tagged(3, 1)).unwrap();
    device.sync().unwrap();
    device.mark(10);
    device.write(BlockNo(2), &tagged(4, 1)).unwrap();
    device.recording()
}

#[test]
fn every_prefix_is_an_image_and_a_mark_counts_from_its_place_on() {
    let recording = small_recording();
    let only_prefixes = CrashPlan { singles: false, ..nothing_torn() };
    let images: Vec<_> = recording.crash_images(only_prefixes).collect();
    let seen: Vec<_> = images.iter().map(|image| (image.cut, image.last_mark(), block_tags(image))).collect();
    let expected = [
        (0, None, vec![0, 0, 0]),
        (1, None, vec![1, 0, 0]),
        (2, None, vec![1, 2, 0]),
        (5, Some(10), vec![3, 2, 0]),
        (6, Some(10), vec![3, 2, 4]),
    ];
    assert_eq!(seen, expected);
    assert_eq!(recording.image_after(6, &only_prefixes), images[4].device.image());
}

#[test]
fn each_change_is_lost_once_and_alone_once() {
    let recording = small_recording();
    let only_singles = CrashPlan { prefixes: false, ..nothing_torn() };
    let seen: BTreeSet<_> = recording.crash_images(only_singles).map(|image| block_tags(&image)).collect();
    let lost = [vec![3, 2, 0], vec![3, 0, 0], vec![1, 2, 0]];
    let alone = [vec![1, 0, 0], vec![0, 2, 0], vec![3, 0, 0]];
    assert_eq!(seen, lost.into_iter().chain(alone).collect());
}

#[test]
fn each_write_is_torn_at_its_first_and_last_sector() {
    let recording = small_recording();
    let only_torn = CrashPlan { prefixes: false, singles: false, torn_splits: 4, ..nothing_torn() };
    let seen: HashSet<_> = recording.crash_images(only_torn).map(|image| sector_tags(&image.device.image())).collect();
    let zeros = [0; 8];
    let torn_last = [[1, 0, 0, 0, 0, 0, 0, 0], zeros, zeros].concat();
    assert!(seen.contains(&torn_last), "the first write, torn after a sector, with no other begun");
    let torn_over = [[1, 1, 1, 1, 1, 1, 1, 3], [2; 8], zeros].concat();
    assert!(seen.contains(&torn_over), "the third write, only its last sector new, over the first");
    let torn_between = [[3; 8], [2, 2, 2, 2, 2, 2, 2, 0], zeros].concat();
    assert!(seen.contains(&torn_between), "the second write, its last sector old, with the third there");
    let torn_later = [[3; 8], [2; 8], [4, 4, 4, 4, 4, 4, 4, 0]].concat();
    assert!(seen.contains(&torn_later));
}

#[test]
fn each_sector_is_lost_once_alone_once_and_the_last_to_arrive_once() {
    let device = RecordingDevice::new(MemoryImage::new(2));
    device.write(BlockNo(0), &tagged(1, 2)).unwrap();
    device.write(BlockNo(1), &tagged(2, 1)).unwrap();
    let plan = CrashPlan { prefixes: false, singles: false, sectors: true, ..nothing_torn() };
    let recording = device.recording();
    let seen: HashSet<_> = recording.crash_images(plan).map(|image| sector_tags(&image.device.image())).collect();
    let all: Vec<u8> = [[1; 8], [2; 8]].concat();
    for sector in 0..16 {
        let with = |tags: &[u8], tag| [&tags[..sector], &[tag], &tags[sector + 1..]].concat();
        let torn: Vec<u8> = (0..16).map(|at| u8::from(at < sector)).collect();
        assert!(seen.contains(&with(&all, if sector < 8 { 0 } else { 1 })), "sector {sector} lost");
        assert!(seen.contains(&with(&[0; 16], 1)), "sector {sector} of the first write alone");
        assert!(sector == 0 || seen.contains(&torn), "the first write torn before sector {sector}");
        assert!(sector < 8 || seen.contains(&with(&[0; 16], 2)), "sector {sector} of the second write alone");
    }
}

/// Makes random calls; each write has a tag of its own.
fn random_recording(seed: u64) -> Recording {
    let random = SeededRandom::new(seed);
    let device = RecordingDevice::new(MemoryImage::new(BLOCKS));
    for tag in 1..=60 {
        match random.below(10) {
            0 => device.sync().unwrap(),
            1 => device.mark(u64::from(tag)),
            _ => {
                let first = random.below(BLOCKS);
                let count = 1 + random.below((BLOCKS - first).min(3));
                device.write(BlockNo(first), &tagged(tag, usize::try_from(count).unwrap())).unwrap();
            }
        }
    }
    device.recording()
}

/// Returns the tags that each sector may have when power fails after `cut` events.
fn allowed_tags(recording: &Recording, cut: usize) -> Vec<HashSet<u8>> {
    let mut allowed = vec![HashSet::from([0]); usize::try_from(BLOCKS).unwrap() * BLOCK_BYTES / SECTOR_BYTES];
    let mut last = vec![0; allowed.len()];
    for event in &recording.events()[..cut] {
        match event {
            Event::Write { first, blocks } => {
                let start = usize::try_from(first.0).unwrap() * 8;
                for sector in start..start + blocks.len() * 8 {
                    allowed[sector].insert(blocks[0][0]);
                    last[sector] = blocks[0][0];
                }
            }
            Event::Sync => allowed = last.iter().map(|tag| HashSet::from([*tag])).collect(),
            Event::Discard { .. } | Event::Mark(_) => {}
        }
    }
    allowed
}

#[test]
fn no_image_loses_what_was_synced_nor_has_what_was_never_written() {
    for seed in 0..20 {
        let recording = random_recording(seed);
        let plan = CrashPlan { random_subsets_per_gap: 30, torn_splits: 6, ..CrashPlan::with_seed(seed) };
        let mut distinct = HashSet::new();
        for image in recording.crash_images(plan) {
            let tags = sector_tags(&image.device.image());
            let allowed = allowed_tags(&recording, image.cut);
            let is_allowed = tags.iter().zip(&allowed).all(|(tag, allowed)| allowed.contains(tag));
            assert!(is_allowed, "{}", image.description());
            assert_eq!(image.last_mark(), recording.marks_before(image.cut).last());
            distinct.insert(tags);
        }
        assert!(distinct.len() > 100, "only {} images differ", distinct.len());
    }
}

#[test]
fn random_subsets_reach_every_allowed_value_of_every_sector() {
    let recording = random_recording(3);
    let last_gap = gaps(recording.events()).pop().unwrap();
    let plan = CrashPlan { random_subsets_per_gap: 2000, ..plan() };
    let mut seen = vec![HashSet::new(); usize::try_from(BLOCKS).unwrap() * 8];
    for image in recording.crash_images(plan).filter(|image| last_gap.start <= image.cut) {
        for (seen, tag) in seen.iter_mut().zip(sector_tags(&image.device.image())) {
            seen.insert(tag);
        }
    }
    assert_eq!(seen, allowed_tags(&recording, recording.events().len()));
}

#[test]
fn a_discarded_block_may_read_as_anything_until_it_is_written_again() {
    let device = RecordingDevice::new(MemoryImage::new(1));
    device.write(BlockNo(0), &tagged(1, 1)).unwrap();
    device.sync().unwrap();
    device.discard(BlockNo(0), 1).unwrap();
    device.sync().unwrap();
    device.mark(5);
    device.write(BlockNo(0), &tagged(2, 1)).unwrap();
    device.sync().unwrap();
    let recording = device.recording();

    let kind_of = |tags: &[u8]| if tags == [0; 8] || tags == [1; 8] { tags[0] } else { u8::MAX };
    let mut seen = BTreeSet::new();
    for seed in 0..30 {
        for image in recording.crash_images(CrashPlan::with_seed(seed)) {
            let tags = sector_tags(&image.device.image());
            if image.cut == 5 {
                seen.insert(kind_of(&tags));
            } else if image.cut == 7 {
                assert_eq!(tags, [2; 8]);
            }
        }
    }
    assert_eq!(seen, BTreeSet::from([0, 1, u8::MAX]), "zero, old and garbage");
}

#[test]
fn a_sampled_image_is_the_same_as_in_the_whole_plan() {
    let recording = random_recording(9);
    let contents = |sample| -> Vec<_> {
        let images = recording.crash_images(CrashPlan { sample, ..plan() });
        images.map(|image| (image.number(), image.description(), image.last_mark(), image.device.image())).collect()
    };
    let all = contents(Sample::All);
    assert_eq!(all.len(), recording.crash_images(plan()).len());
    for number in [0, 1, all.len() / 2, all.len() - 1] {
        assert_eq!(contents(Sample::Only(number)), all[number..=number]);
    }
    let mut shards = contents(Sample::EveryNth { step: 2, offset: 1 });
    assert!(shards.iter().all(|image| image.0 % 2 == 1));
    shards.extend(contents(Sample::EveryNth { step: 2, offset: 0 }));
    shards.sort_by_key(|image| image.0);
    assert_eq!(shards, all);
    let prefixes = recording.crash_images(CrashPlan { singles: false, ..nothing_torn() }).len();
    for count in [1, 25, prefixes + 1, prefixes + 100, all.len() - 1] {
        let drawn = contents(Sample::AtMost(count));
        assert_eq!(drawn.len(), count);
        assert!(drawn.iter().all(|image| *image == all[image.0]));
        let drawn_prefixes = drawn.iter().filter(|image| image.1.contains("all of them there")).count();
        assert_eq!(drawn_prefixes, count.min(prefixes), "prefixes come first");
    }
    assert_eq!(contents(Sample::AtMost(usize::MAX)), all);
}

#[test]
fn images_can_be_written_to_without_changing_each_other() {
    let recording = small_recording();
    let images: Vec<_> = recording.crash_images(plan()).collect();
    let before: Vec<_> = images.iter().map(block_tags).collect();
    images[0].device.write(BlockNo(0), &tagged(99, 3)).unwrap();
    assert_eq!(images[1..].iter().map(block_tags).collect::<Vec<_>>(), before[1..]);
    let fresh: Vec<_> = recording.crash_images(plan()).map(|image| block_tags(&image)).collect();
    assert_eq!(fresh, before);
}

/// A pool of 256 MiB and writes of 1 MiB: copying images would take terabytes.
#[test]
fn ten_thousand_images_of_a_large_device_share_their_blocks() {
    let device = RecordingDevice::new(MemoryImage::new(65536));
    let random = SeededRandom::new(4);
    for tag in 0..300 {
        let (first, count) = if tag % 4 == 0 { (random.below(65280), 256) } else { (random.below(65536), 1) };
        device.write(BlockNo(first), &tagged(u8::try_from(tag % 256).unwrap(), count)).unwrap();
        if tag % 30 == 29 {
            device.sync().unwrap();
        }
    }
    let recording = device.recording();
    let mut images = recording.crash_images(CrashPlan { random_subsets_per_gap: 800, sectors: false, ..plan() });
    assert!(images.len() > 10_000, "{}", images.len());
    let last = images.by_ref().last().unwrap();
    assert_eq!(last.cut, recording.events().len());
}
