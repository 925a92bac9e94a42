//! A sampled analysis from end to end, against the analysis of all: what it reads, and whether its ranges hold the
//! truth.
//!
//! Many more kinds of sets and samples, without their bytes, are in `src/sample/coverage.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Memory, SilentProgress, analyzed, image, image_of, options, random_images};
use onefold_block::random::SeededRandom;
use onefold_disk::{Disk, DiskError};
use onefold_report::{Analysis, Image, Options, Range, SampledAnalysis, Share, WatchedDisk, analyze_sample};
use parking_lot::Mutex;

const REGION_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;

/// A disk of numbered blocks, 0 for zeros; it notes what is read of it.
#[derive(Clone)]
struct NumberedDisk {
    blocks: Arc<Vec<u32>>,
    reads: Arc<Mutex<BTreeSet<u64>>>,
    read_bytes: Arc<AtomicU64>,
}

impl NumberedDisk {
    fn new(blocks: Vec<u32>) -> NumberedDisk {
        NumberedDisk { blocks: Arc::new(blocks), reads: Arc::default(), read_bytes: Arc::default() }
    }

    fn image(&self, name: &str) -> Image {
        let disk = self.clone();
        let open = move || {
            Ok(WatchedDisk { disk: Box::new(disk.clone()), has_changed: Box::new(|| false), has_writer: false })
        };
        Image { open: Box::new(open), ..image(name, &[]) }
    }
}

impl Disk for NumberedDisk {
    fn size_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    fn next_data(&self, offset: u64) -> Result<Option<std::ops::Range<u64>>, DiskError> {
        // Holes are stretches of 16 blocks of zeros.
        let first = usize::try_from(offset / BLOCK_BYTES).unwrap();
        let start =
            (first..self.blocks.len()).find(|&at| self.blocks[at / 16 * 16..].iter().take(16).any(|&block| block != 0));
        Ok(start.map(|start| {
            let end = (start / 16 + 1) * 16;
            (start as u64 * BLOCK_BYTES).max(offset)..(end.min(self.blocks.len()) as u64 * BLOCK_BYTES)
        }))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        // The partition table does not count.
        if into.len() as u64 == REGION_BYTES {
            self.reads.lock().insert(offset / REGION_BYTES);
            self.read_bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        }
        into.fill(0);
        let first = usize::try_from(offset / BLOCK_BYTES).unwrap();
        for (block, into) in self.blocks[first..].iter().zip(into.chunks_mut(4096)) {
            let end = into.len().min(4);
            into[..end].copy_from_slice(&block.to_le_bytes()[..end]);
        }
        Ok(())
    }
}

const BLOCKS: usize = 256 * 256;

/// Sets of four images of 256 MiB.
fn kinds() -> Vec<(&'static str, Vec<Vec<u32>>)> {
    let random = SeededRandom::new(5);
    let below = |bound: usize| usize::try_from(random.next_u64() % bound as u64).unwrap();
    let fresh = |first: usize| -> Vec<u32> { (first..first + BLOCKS).map(|n| u32::try_from(n).unwrap()).collect() };
    let unique = (0..4).map(|at| fresh(1 + at * BLOCKS)).collect();
    let clones = (0..4).map(|at| {
        let mut clone = fresh(1);
        for _ in 0..300 {
            let (start, length) = (below(BLOCKS - 100), below(100));
            let own = fresh((at + 1) * BLOCKS + start);
            clone[start..start + length].copy_from_slice(&own[..length]);
        }
        clone
    });
    let files: Vec<Vec<u32>> = (0..900).map(|at| fresh(1 + at * 70)[..1 + below(70)].to_vec()).collect();
    let moved = (0..4).map(|_| {
        let mut disk = Vec::new();
        while disk.len() < BLOCKS {
            disk.extend(&files[below(files.len())]);
            // Some holes, and some zeros that lie between data.
            disk.extend(vec![0; below(40) / 20 * 25]);
        }
        disk.truncate(BLOCKS);
        disk
    });
    let (clones, moved) = (clones.collect(), moved.collect());
    vec![("unique", unique), ("clones", clones), ("one content", vec![vec![9; BLOCKS]; 4]), ("files", moved)]
}

fn sampled(images: &[Image], options: &Options, share: f64) -> SampledAnalysis {
    analyze_sample(images, options, Share::new(share).unwrap(), &SilentProgress).unwrap()
}

fn holds(range: Range, truth: u64) -> bool {
    (range.low..=range.high).contains(&truth) && (range.low..=range.high).contains(&range.best)
}

/// Seen: the sum of no numbers is -0.0, so a sample that drew no region spoke of "-0.0 %".
#[test]
fn a_sample_without_a_region_is_of_no_negative_part() {
    let disk = NumberedDisk::new(vec![7; 256]);
    let found = (0..64)
        .map(|key| sampled(&[disk.image("disk")], &Options { key: [key; 32], ..options() }, 0.02))
        .find(|found| found.sample.regions_read == 0)
        .expect("one of these keys draws no region");
    assert!(found.sample.read_share.is_sign_positive() && !found.sample.to_string().contains("-0"), "{}", found.sample);
}

/// Tells which of the figures that both have are within their ranges.
fn hits(found: &SampledAnalysis, truth: &Analysis) -> Vec<bool> {
    let total = [
        (found.total.zero_bytes, truth.total.zero_bytes),
        (found.total.distinct_bytes, truth.total.distinct_bytes),
        (found.total.saved_bytes, truth.total.saved_bytes),
        (found.ways.pool_bytes, truth.ways.pool_bytes),
        (found.ways.sharing_bytes.unwrap(), truth.ways.sharing_bytes),
        (found.ways.linked_clone_bytes, truth.ways.linked_clone_bytes),
    ];
    let images = found.images.iter().zip(&truth.images).map(|(found, truth)| (found.zero_bytes, truth.zero_bytes));
    let sizes = found.block_sizes.iter().zip(&truth.block_sizes).flat_map(|(found, truth)| {
        assert_eq!(found.block_bytes, truth.block_bytes);
        [
            (found.distinct_bytes, truth.distinct_bytes),
            (found.nonzero_bytes, truth.nonzero_bytes),
            (found.linked_clone_bytes, truth.linked_clone_bytes),
        ]
    });
    total.into_iter().chain(images).chain(sizes).map(|(range, truth)| holds(range, truth)).collect()
}

#[test]
fn ranges_hold_what_the_analysis_of_all_finds() {
    const SEEDS: u8 = 12;
    for (kind, disks) in kinds() {
        let disks: Vec<NumberedDisk> = disks.into_iter().map(NumberedDisk::new).collect();
        let images: Vec<Image> = disks.iter().map(|disk| disk.image("disk")).collect();
        let truth = analyzed(&images, &Options { memory_bytes: 256 << 20, ..options() });
        let mut missed = Vec::new();
        let mut count = 0;
        for seed in 0..SEEDS {
            let options = Options { memory_bytes: 256 << 20, key: [seed; 32], ..options() };
            let found = sampled(&images, &options, 0.2);
            assert_eq!(found.total.apparent_bytes, truth.total.apparent_bytes);
            let hits = hits(&found, &truth);
            count += hits.len();
            missed.extend(hits.iter().enumerate().filter(|hit| !hit.1).map(|hit| (seed, hit.0)));
            println!(
                "{kind} {seed}: distinct {:?}, truly {}; saved {:?}",
                found.total.distinct_bytes, truth.total.distinct_bytes, found.total.saved_share
            );
        }
        assert!(missed.len() * 20 <= count, "{kind}: {missed:?} of {count}");
    }
}

#[test]
fn a_sample_reads_its_share_and_the_same_places_of_every_image() {
    let disks: Vec<NumberedDisk> = kinds().remove(1).1.into_iter().map(NumberedDisk::new).collect();
    let images: Vec<Image> = disks.iter().map(|disk| disk.image("disk")).collect();
    let found = sampled(&images, &options(), Share::USUAL.part());
    let read: u64 = disks.iter().map(|disk| disk.read_bytes.load(Ordering::Relaxed)).sum();
    assert_eq!(found.effort.read_bytes, read);
    assert!(read > 0 && read * 10 <= found.total.apparent_bytes, "{read}");
    assert!((found.sample.read_share - read as f64 / found.total.data_bytes as f64).abs() < 1e-9);
    let places = disks[0].reads.lock().clone();
    assert_eq!(found.sample.regions_read, places.len() as u64);
    assert!(disks.iter().all(|disk| *disk.reads.lock() == places));
    assert!(found.sample.is_small, "so few regions tell little");
    // Another key, other places.
    disks[0].reads.lock().clear();
    sampled(&images, &Options { key: [8; 32], ..options() }, Share::USUAL.part());
    assert_ne!(*disks[0].reads.lock(), places);
}

#[test]
fn half_of_small_random_images_bounds_the_rest() {
    // Few regions or none, odd lengths, holes: little but what is certain can be told, and that must be true.
    let (mut missed, mut count) = (0, 0);
    for seed in 0..20_u8 {
        let bytes = random_images(u64::from(seed), 1 + usize::from(seed) % 4, 2000);
        let images: Vec<Image> = bytes.iter().map(|bytes| image("disk", bytes)).collect();
        let truth = analyzed(&images, &options());
        let found = sampled(&images, &Options { key: [seed; 32], ..options() }, 0.5);
        let hits = hits(&found, &truth);
        count += hits.len();
        missed += hits.iter().filter(|hit| !**hit).count();
        // The same with next to no memory.
        let spilled = sampled(&images, &Options { key: [seed; 32], memory_bytes: 8 << 10, ..options() }, 0.5);
        assert_eq!(SampledAnalysis { effort: found.effort.clone(), ..spilled }, found);
    }
    assert!(missed * 20 <= count, "{missed} of {count}");
}

#[test]
fn nothing_of_an_image_that_fails_counts() {
    let bytes = random_images(3, 2, 3000);
    let failing = vec![7; 64 << 20];
    let with = [
        image("a", &bytes[0]),
        image_of("b", move || {
            Ok(Memory { bytes: Arc::new(failing.clone()), fails_at: Some(32 << 20), changes: false })
        }),
        image("c", &bytes[1]),
    ];
    let mut found = sampled(&with, &options(), 0.5);
    assert_eq!(found.left_out.len(), 1);
    assert_eq!((found.left_out[0].name.as_str(), found.left_out[0].why.as_str()), ("b", "the disk is gone"));
    found.left_out.clear();
    // What does not fit into memory depends on which thread is first.
    let effort = found.effort.clone();
    let without = sampled(&[image("a", &bytes[0]), image("c", &bytes[1])], &options(), 0.5);
    assert_eq!(found, SampledAnalysis { effort, ..without });
}

#[test]
fn a_sample_of_nothing_is_nothing() {
    let found = sampled(&[image("empty", &[]), image("zeros", &[0; 5 << 20])], &options(), 0.04);
    assert_eq!(found.total.zero_bytes, Range { low: 5 << 20, best: 5 << 20, high: 5 << 20 });
    assert_eq!(found.total.distinct_bytes, Range::default());
    assert_eq!(found.ways.pool_bytes, Range::default());
}
