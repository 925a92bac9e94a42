//! A sampled analysis: the same regions of every image are read, and the whole is told from them, with bounds.
//!
//! Whether a region is read is drawn from a secret key and the region's place alone. So images that are clones of each
//! other show all of what they share in the regions that are read, and each region is in the sample or not
//! independently of all others, which is what the bounds rest on (`certificate.rs`).

mod assemble;
mod certificate;
mod cover;
#[cfg(test)]
mod coverage;
mod evidence;
mod least_squares;
mod sampled;

pub(crate) use assemble::{SampledFindings, SampledWhole, assemble};
pub(crate) use cover::Cover;
pub(crate) use sampled::{Extent, Sampled};

use crate::sizes::PIECE_BYTES;

/// Length of a region: the largest block size, so that blocks of all sizes are seen whole, and long enough that a disk
/// spends about as much time reading it as getting there.
pub(crate) const REGION_BYTES: u64 = PIECE_BYTES;

/// The part of all regions that is read.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// What is read unless somebody asks for another share: a twenty-fifth, so that even a disk that has to move its
    /// heads for each region is done in a tenth of the time.
    pub const USUAL: Share = Share(0.04);
    /// With less, hardly anything could be told.
    pub const MIN: Share = Share(0.001);
    /// With more, reading all takes hardly longer.
    pub const MAX: Share = Share(0.5);

    /// Returns the share `part` of the whole, where it is one that can be used.
    #[must_use]
    pub fn new(part: f64) -> Option<Share> {
        (Share::MIN.0..=Share::MAX.0).contains(&part).then_some(Share(part))
    }

    /// Returns the share as a part of one.
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

/// Keeps the choice of regions apart from the fingerprints, which have the same key.
const CHOICE_CONTEXT: &str = "onefold 2026-11-22 analysis, choice of regions";

impl Sample {
    /// Returns the sample of one analysis; `key` is secret, so that nobody prepares images for what is read.
    pub(crate) fn new(key: [u8; 32], share: Share) -> Sample {
        Sample { key: blake3::derive_key(CHOICE_CONTEXT, &key), share }
    }

    pub(crate) fn share(&self) -> Share {
        self.share
    }

    /// Tells whether `region` is read, in whatever image.
    pub(crate) fn has(&self, region: u64) -> bool {
        let digest = blake3::keyed_hash(&self.key, &region.to_le_bytes());
        let number = u64::from_le_bytes(*digest.as_bytes().first_chunk().expect("32 bytes have a first 8"));
        // 2^64 is a number that f64 has; what is lost below is far less than a share can be told by.
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
