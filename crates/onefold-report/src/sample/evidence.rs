//! What a sample shows of blocks of one size, and how far chance may have moved it.
//!
//! Every figure here is a sum over contents or blocks of what they count for. Let `f` be such a sum, made from the
//! sample `S`, and `d(r)` what `f` would lose without the region `r`. Regions are in the sample independently, each
//! with chance `p`, so by the inequality of Efron and Stein
//!
//! ```text
//! variance of f  <=  sum over all r of p (1 - p) E[d(r)^2]  =  E[ sum over r in S of (1 - p) d(r)^2 ]
//! ```
//!
//! and the last sum is what the sample itself shows. It counts a region with all that is in it, so that blocks that go
//! together are no more than one chance. What is known of all regions, how many there are and how much data they may
//! hold, explains part of each `d(r)`: that part is known for the whole, so it is put right and varies no more.
//!
//! A sample that shows something nowhere, or in few regions, shows no variation either. As many regions more as make up
//! for that ([`UNSEEN`]) are taken to vary by as much as a region can.

use std::collections::BTreeMap;

use super::cover::Ground;
use super::least_squares::fit;
use crate::histogram::{Bucket, TOLD_APART};

/// Contents in one region of the sample, in two, and so on; contents in more than are told apart; blocks that are not
/// zero in the whole; pairs of content and offset in the whole.
pub(super) const PARTS: usize = TOLD_APART + 3;
/// Contents in more regions than are told apart.
pub(super) const MORE: usize = TOLD_APART;
pub(super) const REFERENCES: usize = TOLD_APART + 1;
pub(super) const AT_OFFSET: usize = TOLD_APART + 2;

/// Where nothing was seen, up to 3 may be expected (19 times in 20). With the [`CAUTION`] there is, two more vary by
/// that.
pub(super) const UNSEEN: f64 = 2.0;
/// Standard deviations that bounds keep away. It would be 97.5 in 100, if chance were normal and its deviation known.
pub(super) const CAUTION: f64 = 2.24;

/// Weights of parts in a sum.
pub(super) type Weights = [f64; PARTS];

/// What a sample shows of blocks of one size.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) values: [f64; PARTS],
    /// How parts vary, by two.
    pub(super) noise: [[f64; PARTS]; PARTS],
}

/// What is known about all regions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The part of regions that is in the sample.
    pub(super) part: f64,
    /// Regions in the sample, by bucket.
    pub(super) grounds: &'a BTreeMap<usize, Ground>,
    /// All regions.
    pub(super) whole: Ground,
}

impl Evidence {
    /// Returns what `buckets` show; a region has `region_blocks`, and `distinct` contents were seen in all.
    pub(super) fn new(known: Known<'_>, buckets: &[Bucket], distinct: u64, region_blocks: f64) -> Evidence {
        let rows: Vec<([f64; 2], [f64; PARTS], &Bucket)> = known
            .grounds
            .iter()
            .map(|(&at, ground)| ([ground.regions, ground.data_bytes], losses(&buckets[at], known.part), &buckets[at]))
            .collect();
        let regions: f64 = known.grounds.values().map(|ground| ground.regions).sum();
        let data_bytes: f64 = known.grounds.values().map(|ground| ground.data_bytes).sum();
        // How much more the sample has than its share.
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

    /// Returns how each part adds to the variance of a sum of parts: half of its slope.
    pub(super) fn slopes(&self, weights: &Weights) -> [f64; PARTS] {
        self.noise.map(|line| line.iter().zip(weights).map(|(noise, weight)| noise * weight).sum())
    }

    /// Returns the standard deviation of a sum of parts.
    pub(super) fn deviation(&self, weights: &Weights) -> f64 {
        let variance: f64 = self.slopes(weights).iter().zip(weights).map(|(slope, weight)| slope * weight).sum();
        variance.max(0.0).sqrt()
    }
}

/// Returns by how much a variance counts more that was told from few, as Student's distribution is wider than the
/// normal one: about as much as it is at the [`CAUTION`] there is.
pub(super) fn doubt(others: f64) -> f64 {
    (1.0 + 3.0 / others.max(1.0)).powi(2)
}

/// Returns what each part would lose without the regions of a bucket: a content in two regions would be in one.
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

/// Returns the parts as the sample has them.
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

/// Returns what a region may have of each part: as much as one that was seen.
///
/// Of contents that are there once or twice it may have as many as one image has blocks there, even if none of that
/// kind was seen. What is there more often would mostly have been seen twice: it may have as much as repeats in one
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
