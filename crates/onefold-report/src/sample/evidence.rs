//! Evidence of a sample about blocks of one size, and its possible random error.
//!
//! Every figure here is a weighted sum over contents or blocks. Let `f` be such a sum from the sample `S`, and `d(r)`
//! the amount that `f` would lose without the region `r`. Regions are in the sample independently, each with
//! probability `p`, so by the inequality of Efron and Stein
//!
//! ```text
//! variance of f  <=  sum over all r of p (1 - p) E[d(r)^2]  =  E[ sum over r in S of (1 - p) d(r)^2 ]
//! ```
//!
//! The sample itself shows the last sum. It counts a region with its whole content, so blocks that belong together are
//! a single random event. The number of all regions and the amount of data that they may hold are known, and explain
//! part of each `d(r)`. That part is known for the whole, so it is corrected and adds no variance.
//!
//! If a sample shows something in no region or in few, it shows no variance either. To compensate, [`UNSEEN`]
//! additional regions are assumed to vary by the maximum of a region.

use std::collections::BTreeMap;

use super::cover::Ground;
use super::least_squares::fit;
use crate::histogram::{Bucket, TOLD_APART};

/// Contents in one region of the sample, in two, and so on; contents in more regions than are distinguished; blocks of
/// the whole that are not zero; pairs of content and offset in the whole.
pub(super) const PARTS: usize = TOLD_APART + 3;
/// Contents in more regions than are distinguished.
pub(super) const MORE: usize = TOLD_APART;
pub(super) const REFERENCES: usize = TOLD_APART + 1;
pub(super) const AT_OFFSET: usize = TOLD_APART + 2;

/// If nothing was seen, up to 3 may be expected (19 times in 20). With the given [`CAUTION`], two additional regions
/// vary by that amount.
pub(super) const UNSEEN: f64 = 2.0;
/// Distance of the bounds in standard deviations. It would give 97.5 percent for a normal distribution with a known
/// deviation.
pub(super) const CAUTION: f64 = 2.24;

/// Weights of parts in a sum.
pub(super) type Weights = [f64; PARTS];

/// Evidence of a sample about blocks of one size.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) values: [f64; PARTS],
    /// Covariance of the parts.
    pub(super) noise: [[f64; PARTS]; PARTS],
}

/// Known facts about all regions.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionFacts<'a> {
    /// The part of regions that is in the sample.
    pub(super) part: f64,
    /// Regions in the sample, by bucket.
    pub(super) grounds: &'a BTreeMap<usize, Ground>,
    /// All regions.
    pub(super) whole: Ground,
}

impl Evidence {
    /// Returns the evidence of `buckets`. A region has `region_blocks`, and `distinct` contents were seen in total.
    pub(super) fn new(known: RegionFacts<'_>, buckets: &[Bucket], distinct: u64, region_blocks: f64) -> Evidence {
        let rows: Vec<([f64; 2], [f64; PARTS], &Bucket)> = known
            .grounds
            .iter()
            .map(|(&at, ground)| ([ground.regions, ground.data_bytes], losses(&buckets[at], known.part), &buckets[at]))
            .collect();
        let regions: f64 = known.grounds.values().map(|ground| ground.regions).sum();
        let data_bytes: f64 = known.grounds.values().map(|ground| ground.data_bytes).sum();
        // Excess of the sample over its share.
        let excess = [regions - known.part * known.whole.regions, data_bytes - known.part * known.whole.data_bytes];

        let mut values = seen(&rows, distinct);
        let mut rests: Vec<[f64; PARTS]> = rows.iter().map(|row| row.1).collect();
        for part in 0..PARTS {
            let fit = fit(rows.iter().map(|row| (row.0, row.1[part])));
            values[part] -= fit.of(excess);
            for (rest, row) in rests.iter_mut().zip(&rows) {
                rest[part] -= fit.of(row.0);
            }
        }
        let scale = (1.0 - known.part) * regions / (regions - 2.0).max(1.0);
        let doubt = doubt(regions - 2.0);
        let mut noise = [[0.0; PARTS]; PARTS];
        for (one, line) in noise.iter_mut().enumerate() {
            for (other, cell) in line.iter_mut().enumerate() {
                *cell = doubt * scale * rests.iter().map(|rest| rest[one] * rest[other]).sum::<f64>();
            }
        }
        for (part, most) in most_in_a_region(&rows, known.part, region_blocks).into_iter().enumerate() {
            noise[part][part] += doubt * UNSEEN * most * most;
        }
        Evidence { values, noise }
    }

    /// Returns a sum of parts.
    pub(super) fn sum(&self, weights: &Weights) -> f64 {
        self.values.iter().zip(weights).map(|(value, weight)| value * weight).sum()
    }

    /// Returns the contribution of each part to the variance of a sum of parts: half of its slope.
    pub(super) fn slopes(&self, weights: &Weights) -> [f64; PARTS] {
        self.noise.map(|line| line.iter().zip(weights).map(|(noise, weight)| noise * weight).sum())
    }

    /// Returns the standard deviation of a sum of parts.
    pub(super) fn deviation(&self, weights: &Weights) -> f64 {
        let variance: f64 = self.slopes(weights).iter().zip(weights).map(|(slope, weight)| slope * weight).sum();
        variance.max(0.0).sqrt()
    }
}

/// Returns the factor for a variance that was estimated from few regions, because Student's distribution is wider than
/// the normal one. It is approximately right for the given [`CAUTION`].
pub(super) fn doubt(others: f64) -> f64 {
    (1.0 + 3.0 / others.max(1.0)).powi(2)
}

/// Returns the loss of each part without the regions of a bucket: a content in two regions would be in one.
fn losses(bucket: &Bucket, part: f64) -> [f64; PARTS] {
    let mut losses = [0.0; PARTS];
    for (loss, pair) in losses.iter_mut().zip(bucket.contents.windows(2)) {
        *loss = pair[0] as f64 - pair[1] as f64;
    }
    losses[MORE] = bucket.contents[TOLD_APART] as f64;
    losses[REFERENCES] = bucket.references as f64 / part;
    losses[AT_OFFSET] = bucket.at_offset as f64 / part;
    losses
}

/// Returns the parts in the sample.
fn seen(rows: &[([f64; 2], [f64; PARTS], &Bucket)], distinct: u64) -> [f64; PARTS] {
    let mut seen = [0.0; PARTS];
    for (at, seen) in seen.iter_mut().enumerate().take(TOLD_APART) {
        // A content counts in each of its regions.
        *seen = rows.iter().map(|row| row.2.contents[at] as f64).sum::<f64>() / (at + 1) as f64;
    }
    seen[MORE] = distinct as f64 - seen[..TOLD_APART].iter().sum::<f64>();
    for part in [REFERENCES, AT_OFFSET] {
        seen[part] = rows.iter().map(|row| row.1[part]).sum();
    }
    seen
}

/// Returns the maximum of each part in a region: as much as in any region that was seen.
///
/// The number of contents with one or two places may be the number of an image's blocks in a region, even if no such
/// content was seen. Contents with more places would mostly have been seen twice. Their maximum is the number of
/// repeating contents in a region that was seen.
/// that was.
fn most_in_a_region(rows: &[([f64; 2], [f64; PARTS], &Bucket)], part: f64, region_blocks: f64) -> [f64; PARTS] {
    let highest =
        |of: &dyn Fn(&Bucket) -> u64| rows.iter().map(|row| of(row.2) as f64 / row.0[0].max(1.0)).fold(0.0, f64::max);
    let mut most = [0.0; PARTS];
    let repeating = highest(&|bucket| bucket.contents[1..TOLD_APART].iter().sum());
    for (at, most) in most.iter_mut().enumerate().take(TOLD_APART) {
        let unseen = if at < 2 || repeating < 1.0 { region_blocks } else { repeating.min(region_blocks) };
        *most = highest(&|bucket| bucket.contents[at]).max(unseen);
    }
    most[REFERENCES] = highest(&|bucket| bucket.references) / part;
    most[AT_OFFSET] = highest(&|bucket| bucket.at_offset) / part;
    most
}
