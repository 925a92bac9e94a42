//! Converts a sample's counts to the report in bytes.

use std::collections::BTreeMap;

use onefold_block::BLOCK_BYTES_U64;

use super::certificate::{Certificates, Side};
use super::cover::Ground;
use super::evidence::{AT_OFFSET, CAUTION, Evidence, PARTS, REFERENCES, RegionFacts, UNSEEN, doubt};
use super::sampled::Blocks;
use super::{Cover, REGION_BYTES, Sample, SampleExtent};
use crate::advice::advise_by_sample;
use crate::analysis::{Effort, MisalignedPartition, SkippedImage};
use crate::cost;
use crate::count::VariantCount;
use crate::histogram::Histogram;
use crate::sampled_analysis::{
    Range, SampleReport, SampledAnalysis, SampledBlockSize, SampledImage, SampledTotal, SampledWays, ShareRange,
};
use crate::sizes::{SIZES, block_bytes};

/// Minimum probability that a range contains the true figure. `tests/sampled.rs` measures it.
const CONFIDENCE: f64 = 0.95;
/// With fewer regions in the sample, ranges are too wide to be useful.
const REGIONS_MIN: u64 = 100;
/// The best guess is the middle between bounds with this small caution, which lean towards the evidence.
const GUESS: f64 = 1.0;
/// Number of entries of a map leaf, and number of blocks of a file that needs no leaf.
const LEAF_BLOCKS: u64 = 508;
const INLINE_BLOCKS: u64 = 12;

/// An image whose sample was read completely.
pub(crate) struct CompleteSample<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_plain: bool,
    pub(crate) allocated_bytes: u64,
    pub(crate) changed_meanwhile: bool,
    pub(crate) size_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) extent: &'a SampleExtent,
}

/// All results of a sample, as counts.
pub(crate) struct SampledFindings<'a> {
    pub(crate) sample: &'a Sample,
    pub(crate) images: Vec<CompleteSample<'a>>,
    pub(crate) left_out: Vec<SkippedImage>,
    pub(crate) misaligned: Vec<MisalignedPartition>,
    pub(crate) variants: &'a [VariantCount],
    pub(crate) histogram: &'a Histogram,
    pub(crate) spilled_bytes: u64,
}

/// Returns the report on these results.
pub(crate) fn assemble(findings: SampledFindings<'_>) -> SampledAnalysis {
    let mut cover = Cover::default();
    findings.images.iter().for_each(|image| cover.add(&image.extent.cover));
    let grounds = cover.grounds(findings.sample);
    let whole = Ground { regions: cover.region_count() as f64, data_bytes: cover.data_bytes as f64 };
    let part = findings.sample.share().part();
    let estimates = Estimates {
        known: RegionFacts { part, grounds: &grounds, whole },
        certificates: Certificates::new(part),
        histogram: findings.histogram,
        tails: findings.images.len() as u64,
    };
    let sizes: Vec<SampledBlockSize> =
        (0..SIZES).zip(findings.variants).map(|(size, count)| estimates.size(size, count)).collect();
    let images: Vec<SampledImage> = findings.images.iter().map(|image| sampled_image(image, part)).collect();
    let seen = &findings.variants[0];
    let total = estimates.total(&images, &sizes[0], seen);
    let regions_read = regions_of(&grounds);
    let read_bytes: u64 = images.iter().map(|image| image.read_bytes).sum();
    // The sum of no numbers is -0.0, which a reader would see as "-0.0 %".
    let data_read = grounds.values().fold(0.0, |sum, ground| sum + ground.data_bytes);
    SampledAnalysis {
        sample: SampleReport {
            share: part,
            region_bytes: REGION_BYTES,
            regions: cover.region_count(),
            regions_read,
            read_share: if cover.data_bytes == 0 { 0.0 } else { data_read / cover.data_bytes as f64 },
            confidence: CONFIDENCE,
            is_small: regions_read < REGIONS_MIN,
        },
        ways: ways(&findings, &total, &sizes[0]),
        total,
        images,
        left_out: findings.left_out,
        block_sizes: sizes,
        misaligned: findings.misaligned,
        effort: Effort { read_bytes, spilled_bytes: findings.spilled_bytes },
    }
}

fn regions_of(grounds: &BTreeMap<usize, Ground>) -> u64 {
    count(grounds.values().map(|ground| ground.regions).sum())
}

/// Converts an estimated count to a number. Negative values become zero.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is meant to stop at both ends")]
fn count(number: f64) -> u64 {
    number.round() as u64
}

/// A range of counts before rounding.
#[derive(Clone, Copy)]
struct Counts {
    low: f64,
    best: f64,
    high: f64,
}

impl Counts {
    /// Any value. The best guess is that nothing is shared.
    const UNKNOWN: Counts = Counts { low: f64::NEG_INFINITY, best: f64::INFINITY, high: f64::INFINITY };

    /// Returns the range in units of `bytes`, clamped to the certain limits `least` and `most`.
    fn within(self, least: u64, most: u64, bytes: u64) -> Range {
        let most = most.max(least);
        let within = |number: f64| count(number).clamp(least, most);
        let (low, high) = (within(self.low), within(self.high));
        let best = within(self.best).clamp(low, high.max(low));
        Range { low, best, high: high.max(low) }.times(bytes)
    }
}

impl Range {
    fn times(self, factor: u64) -> Range {
        self.map(|number| number.saturating_mul(factor))
    }

    fn map(self, of: impl Fn(u64) -> u64) -> Range {
        Range { low: of(self.low), best: of(self.best), high: of(self.high) }
    }
}

/// Basis of the estimates.
pub(super) struct Estimates<'a> {
    pub(super) known: RegionFacts<'a>,
    pub(super) certificates: Certificates,
    pub(super) histogram: &'a Histogram,
    /// Blocks that are incomplete: the last one of each image.
    pub(super) tails: u64,
}

impl Estimates<'_> {
    fn evidence(&self, size: u8, seen: &VariantCount) -> Evidence {
        let region_blocks = (REGION_BYTES / block_bytes(size)) as f64;
        Evidence::new(self.known, self.histogram.buckets(size), seen.distinct, region_blocks)
    }

    /// Returns bounds of the number of distinct contents, minus `references` times the number of blocks that are not
    /// zero.
    fn distinct_less(&self, evidence: &Evidence, references: f64) -> Counts {
        if self.is_blind() {
            return Counts::UNKNOWN;
        }
        let bound = |side, caution| self.certificates.bound(evidence, side, -references, caution);
        Counts {
            low: bound(Side::Below, CAUTION),
            best: bound(Side::Below, GUESS).midpoint(bound(Side::Above, GUESS)),
            high: bound(Side::Above, CAUTION),
        }
    }

    pub(super) fn size(&self, size: u8, seen: &VariantCount) -> SampledBlockSize {
        let evidence = self.evidence(size, seen);
        let bytes = block_bytes(size);
        // Unread blocks, if all of their regions are full in all images.
        let unread = self.unread_blocks();
        let nonzero = self.part(&evidence, REFERENCES).within(seen.references, seen.references + unread, bytes);
        let most = (nonzero.high / bytes).min(seen.distinct + unread);
        let distinct = self.distinct_less(&evidence, 0.0).within(seen.distinct, most, bytes);
        let most = (nonzero.high / bytes).min(seen.distinct_at_offset + unread);
        let offsets = self.part(&evidence, AT_OFFSET).within(seen.distinct_at_offset, most, bytes);
        SampledBlockSize {
            block_bytes: bytes,
            nonzero_bytes: nonzero,
            distinct_bytes: distinct,
            saved_share: self.saved_share(&evidence, distinct, nonzero, bytes),
            linked_clone_bytes: offsets,
        }
    }

    /// Returns whether no region of the sample has data. Then only the absolute limits are known.
    fn is_blind(&self) -> bool {
        self.known.grounds.is_empty()
    }

    /// Returns the bounds of one part of the evidence.
    fn part(&self, evidence: &Evidence, at: usize) -> Counts {
        if self.is_blind() {
            return Counts::UNKNOWN;
        }
        let mut weights = [0.0; PARTS];
        weights[at] = 1.0;
        let (best, away) = (evidence.sum(&weights), CAUTION * evidence.deviation(&weights));
        Counts { low: best - away, best, high: best + away }
    }

    /// Returns how many unread blocks may be full.
    fn unread_blocks(&self) -> u64 {
        let read: f64 = self.known.grounds.values().map(|ground| ground.data_bytes).sum();
        let unread = (self.known.whole.data_bytes - read).max(0.0);
        // In the worst case, each block of 4 KiB of data occupies a different larger block.
        if unread > 0.0 { count((unread / BLOCK_BYTES_U64 as f64).ceil()) + self.tails } else { 0 }
    }

    /// Returns the saved part of the blocks that are not zero. Both figures come from the same sample, so their ratio
    /// is more certain than either.
    fn saved_share(&self, evidence: &Evidence, distinct: Range, nonzero: Range, bytes: u64) -> ShareRange {
        let blocks = (nonzero.best / bytes) as f64;
        if blocks < 1.0 || self.is_blind() {
            return ShareRange { low: 0.0, best: 0.0, high: if nonzero.high == 0 { 0.0 } else { 1.0 } };
        }
        let ratio = (distinct.best as f64 / nonzero.best as f64).min(1.0);
        let off = self.distinct_less(evidence, ratio);
        let best = 1.0 - ratio;
        // The range is no wider than the one that follows from the two separate ranges, which are more certain near the
        // limits.
        let least = 1.0 - distinct.high as f64 / nonzero.low.max(1) as f64;
        let most = 1.0 - distinct.low as f64 / nonzero.high as f64;
        ShareRange {
            low: (best - off.high / blocks).max(least).clamp(0.0, best),
            best,
            high: (best - off.low / blocks).min(most).clamp(best, 1.0),
        }
    }

    fn total(&self, images: &[SampledImage], base: &SampledBlockSize, seen: &VariantCount) -> SampledTotal {
        let sum = |of: &dyn Fn(&SampledImage) -> u64| images.iter().map(of).fold(0, u64::saturating_add);
        let apparent_bytes = sum(&|image| image.apparent_bytes);
        let (nonzero, distinct) = (base.nonzero_bytes, base.distinct_bytes);
        let less = self.distinct_less(&self.evidence(0, seen), 1.0);
        let best = nonzero.best.saturating_sub(distinct.best);
        let saved = Counts { low: -less.high, best: (best / BLOCK_BYTES_U64) as f64, high: -less.low };
        SampledTotal {
            apparent_bytes,
            allocated_bytes: sum(&|image| image.allocated_bytes),
            data_bytes: sum(&|image| image.data_bytes),
            zero_bytes: turned(apparent_bytes, nonzero),
            nonzero_bytes: nonzero,
            distinct_bytes: distinct,
            saved_bytes: saved.within(
                seen.references - seen.distinct,
                nonzero.high.saturating_sub(distinct.low) / BLOCK_BYTES_U64,
                BLOCK_BYTES_U64,
            ),
            saved_share: base.saved_share,
        }
    }
}

/// Returns the difference between `whole` and `part`.
fn turned(whole: u64, part: Range) -> Range {
    let left = part.map(|bytes| whole.saturating_sub(bytes));
    Range { low: left.high, best: left.best, high: left.low }
}

fn sampled_image(image: &CompleteSample<'_>, part: f64) -> SampledImage {
    let apparent_bytes = image.size_bytes.div_ceil(BLOCK_BYTES_U64) * BLOCK_BYTES_U64;
    let data_bytes = image.extent.cover.data_bytes;
    let data = data_bytes.div_ceil(BLOCK_BYTES_U64);
    let nonzero = full_blocks(&image.extent.blocks, data, part);
    SampledImage {
        name: image.name.to_owned(),
        changed_meanwhile: image.changed_meanwhile,
        apparent_bytes,
        allocated_bytes: image.allocated_bytes,
        data_bytes,
        read_bytes: image.read_bytes,
        zero_bytes: turned(apparent_bytes, nonzero),
    }
}

/// Returns how many of an image's blocks of data are not zero, estimated from the regions that were read.
fn full_blocks(read: &Blocks, data: u64, part: f64) -> Range {
    let all = data as f64;
    if read.data < 1.0 {
        return Counts { low: 0.0, best: all, high: all }.within(0, data, BLOCK_BYTES_U64);
    }
    let ratio = read.full / read.data;
    let rest = read.full_full - 2.0 * ratio * read.data_full + ratio * ratio * read.data_data;
    let region = read.data / read.regions;
    // As for all images together: `UNSEEN` additional regions may differ by their whole content.
    let measured = (1.0 - part) * rest.max(0.0) * read.regions / (read.regions - 1.0).max(1.0);
    let variance = doubt(read.regions - 1.0) * (measured + UNSEEN * region * region);
    let away = CAUTION * variance.sqrt() * (all / read.data);
    let full = count(read.full);
    let unread = data.saturating_sub(count(read.data));
    Counts { low: ratio * all - away, best: ratio * all, high: ratio * all + away }.within(
        full,
        full + unread,
        BLOCK_BYTES_U64,
    )
}

fn ways(findings: &SampledFindings<'_>, total: &SampledTotal, base: &SampledBlockSize) -> SampledWays {
    let map_max: u64 = findings.images.iter().map(|image| cost::map_bytes(image.extent.map_nodes_max)).sum();
    // No leaf has more than its entries, and a few blocks need no leaf.
    let blocks =
        (total.nonzero_bytes.low / BLOCK_BYTES_U64).saturating_sub(INLINE_BLOCKS * findings.images.len() as u64);
    let map_min = cost::map_bytes(blocks / LEAF_BLOCKS).min(map_max);
    let stored = |bytes: u64| bytes + cost::fixed_bytes(bytes / BLOCK_BYTES_U64);
    let pool = total.distinct_bytes.map(stored);
    let mut ways = SampledWays {
        now_bytes: total.allocated_bytes,
        pool_bytes: Range { low: pool.low + map_min, best: pool.best + map_max, high: pool.high + map_max },
        sharing_bytes: findings
            .images
            .iter()
            .all(|image| image.is_plain)
            .then(|| total.distinct_bytes.map(|bytes| bytes + cost::index_bytes(bytes / BLOCK_BYTES_U64))),
        linked_clone_bytes: base.linked_clone_bytes,
        recommendation: String::new(),
    };
    ways.recommendation = advise_by_sample(&ways);
    ways
}
