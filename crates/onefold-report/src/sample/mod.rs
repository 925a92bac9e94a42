//! A sampled analysis: reads the same regions of every image, and estimates the whole from them, with bounds.
//!
//! A secret key and the region's place alone decide whether a region is read. So clones show all of the content that
//! they share in these regions. Each region is in the sample independently of all others, which is the basis of the
//! bounds (`certificate.rs`).

mod assemble;
mod certificate;
mod cover;
#[cfg(test)]
mod coverage;
mod evidence;
mod least_squares;
mod sampled;

pub(crate) use assemble::{CompleteSample, SampledFindings, assemble};
pub(crate) use cover::Cover;
pub(crate) use sampled::{SampleExtent, SampledDisk};

use crate::sizes::PIECE_BYTES;

/// Length of a region. It is the largest block size, so that blocks of all sizes are read whole. It is also long enough
/// that a disk spends about as much time reading a region as seeking to it.
pub(crate) const REGION_BYTES: u64 = PIECE_BYTES;

/// The part of all regions that is read.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// Default share: one in 25, so that even a disk that must seek for each region needs only a tenth of the time.
    pub const USUAL: Share = Share(0.04);
    /// With a smaller share, hardly anything can be estimated.
    pub const MIN: Share = Share(0.001);
    /// With a larger share, reading everything takes hardly longer.
    pub const MAX: Share = Share(0.5);

    /// Returns the share `part` of the whole, if it is within the limits.
    #[must_use]
    pub fn new(part: f64) -> Option<Share> {
        (Share::MIN.0..=Share::MAX.0).contains(&part).then_some(Share(part))
    }

    /// Returns the share as a fraction of one.
    #[must_use]
    pub fn part(self) -> f64 {
        self.0
    }
}

/// Which regions are read.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    key: [u8; 32],
    share: Share,
}

/// Separates the choice of regions from the fingerprints, which use the same key.
const CHOICE_CONTEXT: &str = "onefold 2026-11-22 analysis, choice of regions";

impl Sample {
    /// Returns the sample of one analysis. `key` is secret, so that nobody can prepare images for the chosen regions.
    pub(crate) fn new(key: [u8; 32], share: Share) -> Sample {
        Sample { key: blake3::derive_key(CHOICE_CONTEXT, &key), share }
    }

    pub(crate) fn share(&self) -> Share {
        self.share
    }

    /// Returns whether `region` is read. The answer is the same for all images.
    pub(crate) fn has(&self, region: u64) -> bool {
        let digest = blake3::keyed_hash(&self.key, &region.to_le_bytes());
        let number = u64::from_le_bytes(*digest.as_bytes().first_chunk().expect("32 bytes have a first 8"));
        // An f64 can represent 2^64. Its rounding errors below are far smaller than the resolution of a share.
        (number as f64) < self.share.0 * 2_f64.powi(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_share_of_regions_and_each_key_has_others() {
        let count = |key: u8, share: f64| {
            let sample = Sample::new([key; 32], Share::new(share).unwrap());
            (0..100_000).filter(|&region| sample.has(region)).count()
        };
        for key in 0..5 {
            // Five standard deviations.
            assert!(count(key, 0.04).abs_diff(4_000) < 310, "{}", count(key, 0.04));
            assert!(count(key, 0.5).abs_diff(50_000) < 790);
        }
        assert_ne!(count(1, 0.04), count(2, 0.04));
    }

    #[test]
    fn shares_that_tell_nothing_or_save_nothing_are_refused() {
        for part in [0.0, -1.0, 0.0009, 0.51, 1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(part), None, "{part}");
        }
        assert_eq!(Share::new(0.04), Some(Share::USUAL));
    }
}
