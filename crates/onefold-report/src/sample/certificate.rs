//! Bounds for the number of distinct contents in the whole, from the numbers of regions that contain them in the
//! sample.
//!
//! A content in `k` regions of the whole is in `j` regions of the sample with the binomial probability `B(j; k)`. Let
//! each content that was seen in `j` regions count for `c(j)`. On average, a content in `k` regions then counts for
//!
//! ```text
//! g(k) = sum over j of c(j) B(j; k)
//! ```
//!
//! If `g(k) >= 1` for every `k`, the sum over all seen contents is on average not below the number of all contents,
//! seen or not. If `g(k) <= 1` for every `k`, it is not above. Such weights are a certificate: they hold for all
//! images, and the noise of the sum is measured (`evidence.rs`). The chosen certificate is the one whose sum, moved by
//! its noise, gives the tightest bound: a convex problem with few unknowns. Its dual is the question that Harnik,
//! Khaitzin and Sotnikov pose as a linear programme ("Estimating Unseen Deduplication", FAST 2016, after Valiant and
//! Valiant): which numbers of contents could have given this sample, within the noise?
//!
//! Contents in more regions of the sample than are distinguished count for one each.

use super::evidence::{Evidence, MORE, PARTS, REFERENCES, Weights};
use crate::histogram::TOLD_APART;

/// Side of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    Above,
}

impl Side {
    fn sign(self) -> f64 {
        if self == Side::Above { 1.0 } else { -1.0 }
    }
}

/// The unknowns: `c(j) - 1`.
type Unknowns = [f64; TOLD_APART];

/// The problem for one share of regions.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    part: f64,
    /// For numbers `k` of regions at close enough intervals: the probabilities to be in none to [`TOLD_APART`] regions
    /// of the sample, given that the number is not larger.
    chances: Vec<[f64; TOLD_APART + 1]>,
}

/// Numbers of regions with a smaller probability are ignored: such contents are in more regions of the sample than are
/// distinguished.
const CHANCE_MIN: f64 = 1e-12;
/// Up to this number of regions, each number is used. Beyond it, probabilities change slowly enough to skip numbers.
const EACH_UP_TO: f64 = 40.0;
/// Factor between numbers beyond it.
const STEP: f64 = 1.04;

impl Certificates {
    /// Returns the problem if a region is read with probability `part`.
    pub(super) fn new(part: f64) -> Certificates {
        let mut chances = Vec::new();
        let mut k = 1.0_f64;
        loop {
            let (line, sum) = chances_of(k, part);
            chances.push(line.map(|chance| chance / sum));
            if sum < CHANCE_MIN {
                return Certificates { part, chances };
            }
            k = if k < EACH_UP_TO { k + 1.0 } else { (k * STEP).ceil() };
        }
    }

    /// Returns a bound of the number of contents plus `references` times the number of blocks that are not zero. The
    /// bound keeps a distance of `caution` standard deviations from the evidence.
    pub(super) fn bound(&self, evidence: &Evidence, side: Side, references: f64, caution: f64) -> f64 {
        let problem = Problem { certificates: self, evidence, side, references, caution };
        let weights = problem.weights(&problem.solved());
        evidence.sum(&weights) + side.sign() * caution * evidence.deviation(&weights)
    }
}

/// Returns the probabilities that a content in `k` regions is in 0, 1, ... [`TOLD_APART`] of the sample, and their sum.
fn chances_of(k: f64, part: f64) -> ([f64; TOLD_APART + 1], f64) {
    let mut line = [0.0; TOLD_APART + 1];
    // Relative to the largest value, so that no relevant one underflows.
    let mut logarithm = k * (-part).ln_1p();
    let odds = part / (1.0 - part);
    for (j, chance) in line.iter_mut().enumerate() {
        *chance = logarithm.exp();
        let left = k - j as f64;
        logarithm = if left > 0.0 { logarithm + (left / (j + 1) as f64 * odds).ln() } else { f64::NEG_INFINITY };
    }
    let sum = line.iter().sum();
    (line, sum)
}

/// One bound to compute.
struct Problem<'a> {
    certificates: &'a Certificates,
    evidence: &'a Evidence,
    side: Side,
    references: f64,
    caution: f64,
}

/// Rounds of the search. In each, the certificate may come closer to its limits by [`FASTER`].
const ROUNDS: u32 = 5;
const FASTER: f64 = 30.0;
/// Maximum number of steps in a round.
const STEPS_MAX: usize = 50;

impl Problem<'_> {
    fn weights(&self, unknowns: &Unknowns) -> Weights {
        let mut weights = [0.0; PARTS];
        for (weight, unknown) in weights.iter_mut().zip(unknowns) {
            *weight = unknown + 1.0;
        }
        weights[MORE] = 1.0;
        weights[REFERENCES] = self.references;
        weights
    }

    /// Returns an initial certificate, which exists for any sample: for an upper bound, each place of a content counts
    /// separately; for a lower bound, only seen contents count.
    fn first(&self) -> Unknowns {
        let mut first = [-0.01; TOLD_APART];
        if self.side == Side::Above {
            for (at, unknown) in first.iter_mut().enumerate() {
                *unknown = 1.01 * (at + 1) as f64 / self.certificates.part - 1.0;
            }
        }
        first
    }

    /// Returns the distance of a certificate from its limit for each number of regions: `g(k) - 1` or `1 - g(k)`,
    /// divided by the probability to be in no more regions of the sample than are distinguished.
    fn slacks<'a>(&'a self, unknowns: &'a Unknowns) -> impl Iterator<Item = (f64, &'a [f64; TOLD_APART + 1])> {
        self.certificates.chances.iter().map(move |line| {
            let sum: f64 = unknowns.iter().zip(&line[1..]).map(|(unknown, chance)| unknown * chance).sum();
            (self.side.sign() * (sum - line[0]), line)
        })
    }

    /// Returns the value to minimise, in units of `scale`: the bound, or minus the bound.
    fn objective(&self, unknowns: &Unknowns, scale: f64) -> f64 {
        let weights = self.weights(unknowns);
        let sum = self.side.sign() * self.evidence.sum(&weights);
        (sum + self.caution * self.evidence.deviation(&weights)) / scale
    }

    /// Searches by an interior-point method. After every step the unknowns are still a certificate, so the bound holds
    /// wherever the search ends.
    fn solved(&self) -> Unknowns {
        let mut unknowns = self.first();
        let scale = (0..TOLD_APART).map(|at| self.evidence.values[at].max(0.0) * (at + 1) as f64).sum::<f64>()
            / self.certificates.part
            + self.evidence.values[MORE].max(1.0);
        for round in 0..ROUNDS {
            let weight = FASTER.powi(i32::try_from(round).unwrap_or(0));
            for _ in 0..STEPS_MAX {
                if !self.step(&mut unknowns, weight, scale) {
                    break;
                }
            }
        }
        unknowns
    }

    /// Returns the value that a step reduces: the objective, and a barrier before the limits of certificates.
    fn height(&self, unknowns: &Unknowns, weight: f64, scale: f64) -> f64 {
        let wall: f64 =
            self.slacks(unknowns).map(|(slack, _)| if slack > 0.0 { -slack.ln() } else { f64::INFINITY }).sum();
        weight * self.objective(unknowns, scale) + wall
    }

    /// Takes a step of Newton's method. Returns whether the step was worthwhile.
    fn step(&self, unknowns: &mut Unknowns, weight: f64, scale: f64) -> bool {
        let (gradient, curvature) = self.derivatives(unknowns, weight, scale);
        let Some(direction) = solve(curvature, gradient.map(|slope| -slope)) else { return false };
        let fall: f64 = direction.iter().zip(&gradient).map(|(step, slope)| step * slope).sum();
        if fall.is_nan() || fall > -1e-7 {
            return false;
        }
        let height = self.height(unknowns, weight, scale);
        let mut length = 1.0;
        while length > 1e-9 {
            let mut next = *unknowns;
            next.iter_mut().zip(&direction).for_each(|(unknown, step)| *unknown += length * step);
            if self.height(&next, weight, scale) <= height + 0.1 * length * fall {
                *unknowns = next;
                return true;
            }
            length /= 2.0;
        }
        false
    }

    fn derivatives(&self, unknowns: &Unknowns, weight: f64, scale: f64) -> (Unknowns, Square) {
        let weights = self.weights(unknowns);
        let slopes = self.evidence.slopes(&weights);
        let deviation = self.evidence.deviation(&weights).max(f64::MIN_POSITIVE);
        let (mut gradient, mut curvature) = ([0.0; TOLD_APART], [[0.0; TOLD_APART]; TOLD_APART]);
        let noise_weight = weight * self.caution / scale / deviation;
        for one in 0..TOLD_APART {
            gradient[one] = weight * self.side.sign() * self.evidence.values[one] / scale + noise_weight * slopes[one];
            for other in 0..TOLD_APART {
                let bent = slopes[one] / deviation * (slopes[other] / deviation);
                curvature[one][other] = noise_weight * (self.evidence.noise[one][other] - bent);
            }
        }
        for (slack, line) in self.slacks(unknowns) {
            for one in 0..TOLD_APART {
                let slope = line[one + 1] / slack;
                gradient[one] -= self.side.sign() * slope;
                for other in 0..TOLD_APART {
                    curvature[one][other] += slope * (line[other + 1] / slack);
                }
            }
        }
        (gradient, curvature)
    }
}

type Square = [[f64; TOLD_APART]; TOLD_APART];

/// Solves `square * x = right` for a positive definite matrix (Cholesky), scaled to ones on its diagonal.
fn solve(mut square: Square, mut right: Unknowns) -> Option<Unknowns> {
    let mut scales = [0.0; TOLD_APART];
    for (at, scale) in scales.iter_mut().enumerate() {
        *scale = square[at][at].sqrt().recip();
        if !scale.is_finite() {
            return None;
        }
    }
    for one in 0..TOLD_APART {
        right[one] *= scales[one];
        for other in 0..TOLD_APART {
            square[one][other] *= scales[one] * scales[other];
        }
        square[one][one] += 1e-13;
    }
    for column in 0..TOLD_APART {
        let above: f64 = square[column][..column].iter().map(|cell| cell * cell).sum();
        let root = (square[column][column] - above).sqrt();
        if root.is_nan() || root <= 0.0 {
            return None;
        }
        square[column][column] = root;
        for row in column + 1..TOLD_APART {
            let sum: f64 = (0..column).map(|at| square[row][at] * square[column][at]).sum();
            square[row][column] = (square[row][column] - sum) / root;
        }
    }
    for row in 0..TOLD_APART {
        let sum: f64 = (0..row).map(|at| square[row][at] * right[at]).sum();
        right[row] = (right[row] - sum) / square[row][row];
    }
    for row in (0..TOLD_APART).rev() {
        let sum: f64 = (row + 1..TOLD_APART).map(|at| square[at][row] * right[at]).sum();
        right[row] = (right[row] - sum) / square[row][row];
    }
    right.iter_mut().zip(&scales).for_each(|(value, scale)| *value *= scale);
    Some(right)
}
