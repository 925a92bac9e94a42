//! Checks whether ranges contain the true figures as often as they promise: many kinds of sets, each sampled many
//! times.
//!
//! A set here is a list of numbers for each image. The numbers represent blocks; 16 blocks are a region, like 16 blocks
//! of 64 KiB.

use std::collections::{BTreeMap, HashMap, HashSet};

use onefold_block::random::SeededRandom;

use super::assemble::Estimates;
use super::certificate::Certificates;
use super::cover::Ground;
use super::evidence::RegionFacts;
use super::{Cover, REGION_BYTES, Sample, Share};
use crate::count::VariantCount;
use crate::histogram::{Histogram, RegionPlaces};
use crate::sampled_analysis::{Range, SampledBlockSize};
use crate::sizes::block_bytes;

/// Blocks of 64 KiB.
const SIZE: u8 = 4;
const REGION_BLOCKS: usize = 16;
/// A number that represents a block of zeros. It represents a hole if the whole region is zero.
const ZERO: u32 = 0;

type Images = Vec<Vec<u32>>;

struct Random(SeededRandom);

impl Random {
    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound.max(1) as u64).unwrap()
    }
}

/// New numbers, no two of them equal.
#[derive(Default)]
struct FreshNumbers(u32);

impl FreshNumbers {
    fn run(&mut self, length: usize) -> Vec<u32> {
        (0..length)
            .map(|_| {
                self.0 += 1;
                self.0
            })
            .collect()
    }
}

fn files(fresh: &mut FreshNumbers, random: &Random, count: usize, longest: usize) -> Vec<Vec<u32>> {
    (0..count).map(|_| fresh.run(1 + random.below(longest))).collect()
}

/// Returns an image with a length of `blocks`, whose files are chosen by `choose`.
fn image_of(files: &[Vec<u32>], blocks: usize, choose: &dyn Fn() -> usize) -> Vec<u32> {
    let mut image = Vec::new();
    while image.len() < blocks {
        image.extend(&files[choose()]);
    }
    image.truncate(blocks);
    image
}

fn shuffled<T>(random: &Random, list: &mut [T]) {
    for at in (1..list.len()).rev() {
        list.swap(at, random.below(at + 1));
    }
}

/// Returns an image of new contents, each of which is in it this many times, with at least `blocks` blocks.
fn repeated(fresh: &mut FreshNumbers, random: &Random, times: usize, blocks: usize) -> Vec<u32> {
    let mut image = Vec::new();
    while image.len() < blocks {
        let block = fresh.run(1);
        image.extend(vec![block[0]; times]);
    }
    shuffled(random, &mut image);
    image
}

/// Returns sets of all kinds, of images with `regions` regions.
fn kinds(regions: usize) -> Vec<(&'static str, Images)> {
    let random = Random(SeededRandom::new(11));
    let mut fresh = FreshNumbers::default();
    let blocks = regions * REGION_BLOCKS;
    let mut kinds: Vec<(&'static str, Images)> = Vec::new();

    kinds.push(("all unique", (0..4).map(|_| fresh.run(blocks)).collect()));
    kinds.push(("one content everywhere", vec![vec![1; blocks]; 3]));
    let base = fresh.run(blocks);
    let clones = (0..8).map(|_| {
        let mut clone = base.clone();
        for _ in 0..regions / 8 {
            let length = 1 + random.below(40);
            let at = random.below(blocks - length);
            clone[at..at + length].copy_from_slice(&fresh.run(length));
        }
        clone
    });
    kinds.push(("linked clones", clones.collect()));
    let mut shift = base.clone();
    shift.rotate_right(3 * REGION_BLOCKS + 5);
    kinds.push(("all moved", vec![base.clone(), shift]));
    let mut single = base.clone();
    shuffled(&random, &mut single);
    kinds.push(("blocks shuffled", vec![base.clone(), single]));
    let catalogue = files(&mut fresh, &random, regions / 4, 120);
    let order = || {
        let mut order: Vec<&Vec<u32>> = catalogue.iter().collect();
        shuffled(&random, &mut order);
        order.into_iter().flatten().copied().collect()
    };
    kinds.push(("files in other orders", (0..5).map(|_| order()).collect()));
    let popular = || {
        let part = (random.below(1 << 20) as f64 + 1.0) / f64::from(1 << 20);
        // Few files are in very many places, most in one or two.
        let place = (catalogue.len() as f64).powf(part) - 1.0;
        (0..catalogue.len()).take_while(|at| (*at as f64) < place).count().min(catalogue.len() - 1)
    };
    kinds.push(("files as popular as words", (0..4).map(|_| image_of(&catalogue, blocks, &popular)).collect()));
    let large = files(&mut fresh, &random, regions / 20, 800);
    kinds.push((
        "large files at random",
        (0..3).map(|_| image_of(&large, blocks, &|| random.below(large.len()))).collect(),
    ));
    let half = fresh.run(blocks / 2);
    kinds.push(("two systems on each disk", vec![[half.clone(), half].concat(); 3]));
    let mut each = |times| vec![repeated(&mut fresh, &random, times, blocks)];
    kinds.push(("each block three times", each(3)));
    kinds.push(("each block twenty times", each(20)));
    kinds.push(("each block a hundred times", each(100)));
    let small = files(&mut fresh, &random, regions / 2, 30);
    let mixture = (0..6).map(|at| {
        let part = blocks / 4;
        let mut image = base[..part].to_vec();
        image.extend(image_of(&small, part, &|| random.below(small.len())));
        image.extend(fresh.run(part / (at + 1)));
        image.extend(vec![ZERO; part / 2]);
        image.extend(vec![7; part / 8]);
        image
    });
    kinds.push(("mixture", mixture.collect()));
    let sparse = (0..20).map(|_| {
        let mut image = vec![ZERO; blocks];
        for _ in 0..regions / 60 {
            let file = &catalogue[random.below(catalogue.len())];
            let at = random.below(blocks - file.len());
            image[at..at + file.len()].copy_from_slice(file);
        }
        image
    });
    kinds.push(("sparse", sparse.collect()));
    kinds
}

/// Counts distinct blocks, blocks that are not zero, and pairs of content and offset.
fn counted(images: &Images) -> (u64, u64, u64) {
    let mut offsets = HashSet::new();
    let mut references = 0;
    for image in images {
        for (at, &block) in image.iter().enumerate().filter(|(_, block)| **block != ZERO) {
            offsets.insert((block, at));
            references += 1;
        }
    }
    let distinct: HashSet<u32> = offsets.iter().map(|pair| pair.0).collect();
    (distinct.len() as u64, references, offsets.len() as u64)
}

/// Returns the estimates of one sample of `images`.
fn sampled(images: &Images, sample: &Sample) -> SampledBlockSize {
    let (mut cover, mut histogram) = (Cover::default(), Histogram::new());
    let mut contents: HashMap<u32, (RegionPlaces, HashSet<usize>)> = HashMap::new();
    let mut seen = VariantCount::default();
    for image in images {
        for (region, blocks) in image.chunks(REGION_BLOCKS).enumerate() {
            if blocks.iter().all(|&block| block == ZERO) {
                continue;
            }
            let start = region as u64 * REGION_BYTES;
            let is_sampled = sample.has(region as u64);
            cover.note(region as u64, &(start..start + blocks.len() as u64 * block_bytes(SIZE)), is_sampled);
            if !is_sampled {
                continue;
            }
            for (at, &block) in blocks.iter().enumerate().filter(|(_, block)| **block != ZERO) {
                let index = region * REGION_BLOCKS + at;
                histogram.add_reference(SIZE, index as u64);
                seen.references += 1;
                let (places, offsets) = contents.entry(block).or_default();
                places.note(SIZE, index as u64);
                if offsets.insert(index) {
                    histogram.add_offset(SIZE, index as u64);
                    seen.distinct_at_offset += 1;
                }
            }
        }
    }
    seen.distinct = contents.len() as u64;
    contents.values().for_each(|(places, _)| histogram.add_content(SIZE, places));
    let grounds: BTreeMap<usize, Ground> = cover.grounds(sample);
    let whole = Ground { regions: cover.region_count() as f64, data_bytes: cover.data_bytes as f64 };
    let part = sample.share().part();
    let known = RegionFacts { part, grounds: &grounds, whole };
    Estimates { known, certificates: Certificates::new(part), histogram: &histogram, tails: 0 }.size(SIZE, &seen)
}

fn holds(range: Range, truth: u64) -> bool {
    (range.low..=range.high).contains(&truth)
}

fn width(range: Range, truth: u64) -> f64 {
    (range.high - range.low) as f64 / truth as f64
}

/// Returns estimates with narrower ranges.
fn narrow(mut found: SampledBlockSize, part: f64) -> SampledBlockSize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two sizes")]
    let towards = |end: u64, best: u64| (best as f64 + (end as f64 - best as f64) * part) as u64;
    for range in [&mut found.distinct_bytes, &mut found.nonzero_bytes, &mut found.linked_clone_bytes] {
        *range = Range { low: towards(range.low, range.best), high: towards(range.high, range.best), ..*range };
    }
    let share = &mut found.saved_share;
    share.low = share.best + (share.low - share.best) * part;
    share.high = share.best + (share.high - share.best) * part;
    found
}

/// Samples sets of all kinds with `seeds` keys, and prints how often and how closely ranges contain the truth. Returns
/// the kinds for which that is too rare. Ranges are first narrowed to a part of their width.
fn measured(regions: usize, share: f64, seeds: u8, narrowed: f64) -> Vec<String> {
    let mut failed = Vec::new();
    println!(
        "{regions} regions, {share} of them read, {seeds} samples: how often the truth is within, mean width, mean error of the guess"
    );
    for (kind, images) in kinds(regions) {
        let (distinct, references, offsets) = counted(&images);
        let bytes = block_bytes(SIZE);
        let saved = 1.0 - distinct as f64 / references as f64;
        let mut within = [0_u32; 4];
        let (mut wide, mut wide_share, mut off) = (0.0, 0.0, 0.0);
        for seed in 0..seeds {
            let found = sampled(&images, &Sample::new([seed; 32], Share::new(share).unwrap()));
            let found = narrow(found, narrowed);
            let share = found.saved_share;
            within[0] += u32::from(holds(found.distinct_bytes, distinct * bytes));
            within[1] += u32::from((share.low - 1e-9..=share.high + 1e-9).contains(&saved));
            within[2] += u32::from(holds(found.nonzero_bytes, references * bytes));
            within[3] += u32::from(holds(found.linked_clone_bytes, offsets * bytes));
            wide += width(found.distinct_bytes, distinct * bytes) / f64::from(seeds);
            wide_share += (share.high - share.low) / f64::from(seeds);
            off += (found.distinct_bytes.best as f64 / (distinct * bytes) as f64 - 1.0).abs() / f64::from(seeds);
        }
        println!(
            "  {kind:28} saved {:5.1} %: distinct {:3}, saved {:3}, full {:3}, clones {:3}; distinct {:6.1} % wide, saved {:5.1} points, guess {:5.1} % off",
            saved * 100.0,
            within[0],
            within[1],
            within[2],
            within[3],
            wide * 100.0,
            wide_share * 100.0,
            off * 100.0
        );
        // Minimum number of hits. With a probability of 95 percent, fewer occur by chance only in one of a thousand
        // runs.
        let least = f64::from(seeds) * 0.95 - 3.1 * (f64::from(seeds) * 0.95 * 0.05).sqrt();
        if within.iter().any(|&count| f64::from(count) < least) {
            failed.push(format!("{kind}: {within:?} of {seeds}"));
        }
    }
    failed
}

#[test]
fn ranges_of_many_regions_hold_the_truth_as_often_as_they_say() {
    assert_eq!(measured(4096, 0.04, 40, 1.0), Vec::<String>::new());
}

#[test]
fn ranges_of_few_regions_hold_the_truth_as_often_as_they_say() {
    assert_eq!(measured(1024, 0.1, 40, 1.0), Vec::<String>::new());
}

#[test]
fn narrower_ranges_would_not_hold_it() {
    let failed = measured(1024, 0.1, 15, 0.25);
    assert!(failed.len() >= 5, "{failed:?}");
}
