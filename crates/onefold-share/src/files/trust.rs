//! How far the claims of images were right so far, and which claims are not followed any more.
//!
//! Either image may be at fault if a comparison fails, so it counts against the pair of the two. A pair is given up
//! once 64 MiB were compared and more than half of them differ. Blocks that the pair shares already count as equal: an
//! old clone differs from its template in much, and shares more with it. The claims of another image do not change the
//! trust in a pair. So a liar costs each other image 64 MiB of comparisons in each tier, and no savings that this image
//! has with others.
//!
//! An image is given up only if it is known to be at fault: it differs from a common volume, whose content was compared
//! with its digests, or the image records one digest for two files that differ.
//!
//! A range that is a hole in the source is not compared. It costs nothing, and counts against no image.

use std::collections::{BTreeMap, BTreeSet};

use super::tier::Tier;
use crate::format::FileNo;

/// Number of bytes that are compared before claims are given up.
const COMPARED_BYTES_MIN: u64 = 64 << 20;

/// Bytes that were compared, or that were found to be one block on the disk.
#[derive(Clone, Copy, Debug, Default)]
struct ComparedBytes {
    equal: u64,
    different: u64,
}

impl ComparedBytes {
    fn add(&mut self, bytes: u64, is_equal: bool) {
        let sum = if is_equal { &mut self.equal } else { &mut self.different };
        *sum = sum.saturating_add(bytes);
    }

    /// Returns whether more than half of the bytes differ, and there are enough of them to conclude from.
    fn is_wrong(&self) -> bool {
        self.different > self.equal && self.equal.saturating_add(self.different) >= COMPARED_BYTES_MIN
    }
}

/// Images whose claims are not followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum GivenUpClaims {
    /// One image, which is at fault.
    Image(FileNo),
    /// Two images, as far as their claims are about each other. Either may be at fault.
    Pair {
        /// The image with the lower number.
        one: FileNo,
        /// The other one.
        other: FileNo,
    },
}

/// A pair of images, the lower number first: each may be the source of the other.
type Pair = (FileNo, FileNo);

fn pair(one: FileNo, other: FileNo) -> Pair {
    (one.min(other), one.max(other))
}

/// The claims of all images.
#[derive(Debug, Default)]
pub(super) struct Trust {
    pairs: BTreeMap<(Tier, Pair), ComparedBytes>,
    /// An image whose content was compared with its digests: a common volume. It is never at fault.
    vouched: Option<FileNo>,
}

impl Trust {
    /// Returns trust in all images; the given one is never at fault.
    pub(super) fn vouching_for(image: Option<FileNo>) -> Trust {
        Trust { vouched: image, ..Trust::default() }
    }

    /// Counts bytes of two images that were found equal or different.
    pub(super) fn note(&mut self, tier: Tier, one: FileNo, other: FileNo, bytes: u64, is_equal: bool) {
        self.pairs.entry((tier, pair(one, other))).or_default().add(bytes, is_equal);
    }

    /// Returns whether claims of a tier about two images are still worth a comparison.
    pub(super) fn believes(&self, tier: Tier, one: FileNo, other: FileNo) -> bool {
        !self.is_wrong(tier, one, other) && !self.is_at_fault(tier, one) && !self.is_at_fault(tier, other)
    }

    fn is_wrong(&self, tier: Tier, one: FileNo, other: FileNo) -> bool {
        self.pairs.get(&(tier, pair(one, other))).is_some_and(ComparedBytes::is_wrong)
    }

    /// Returns whether an image has made claims of a tier that are known to be wrong.
    fn is_at_fault(&self, tier: Tier, image: FileNo) -> bool {
        if Some(image) == self.vouched {
            return false;
        }
        let differs_from_vouched = self.vouched.is_some_and(|vouched| self.is_wrong(tier, vouched, image));
        // Files with one path and length in two volumes of an image may well differ; files with one digest may not.
        differs_from_vouched || tier == Tier::Digest && self.is_wrong(tier, image, image)
    }

    /// Returns the tiers and images that were given up, and the pairs of other images.
    pub(super) fn given_up(&self) -> BTreeSet<(Tier, GivenUpClaims)> {
        let wrong = self.pairs.iter().filter(|(_, compared)| compared.is_wrong()).map(|(wrong, _)| *wrong);
        let mut given_up = BTreeSet::new();
        for (tier, (one, other)) in wrong {
            let at_fault = [one, other].into_iter().filter(|image| self.is_at_fault(tier, *image));
            let images: Vec<_> = at_fault.map(|image| (tier, GivenUpClaims::Image(image))).collect();
            if images.is_empty() {
                given_up.insert((tier, GivenUpClaims::Pair { one, other }));
            }
            given_up.extend(images);
        }
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: Tier = Tier::Digest;
    const MIB: u64 = 1 << 20;

    /// Compares in steps of a MiB as long as the pair is believed. Returns the amount compared, at most `most`.
    fn compare(trust: &mut Trust, source: u32, target: u32, most: u64, is_equal: impl Fn(u64) -> bool) -> u64 {
        let (source, target) = (FileNo(source), FileNo(target));
        let mut done = 0;
        while done < most && trust.believes(TIER, source, target) {
            trust.note(TIER, source, target, MIB, is_equal(done));
            done += MIB;
        }
        done
    }

    #[test]
    fn a_pair_is_given_up_once_more_than_half_of_enough_bytes_differs() {
        let mut trust = Trust::default();
        assert_eq!(compare(&mut trust, 1, 2, 1000 * MIB, |at| (at / MIB).is_multiple_of(2)), 1000 * MIB);
        assert_eq!(compare(&mut trust, 3, 4, 1000 * MIB, |_| false), COMPARED_BYTES_MIN);
        let pair = |one, other| (TIER, GivenUpClaims::Pair { one: FileNo(one), other: FileNo(other) });
        assert_eq!(trust.given_up().into_iter().collect::<Vec<_>>(), [pair(3, 4)]);
    }

    /// Regression: two liars that were sources of one image had it given up, and so did many that lied a little each.
    #[test]
    fn liars_do_not_have_an_honest_image_given_up() {
        let mut trust = Trust::default();
        for liar in [2, 3, 4] {
            assert_eq!(compare(&mut trust, liar, 1, 1000 * MIB, |_| false), COMPARED_BYTES_MIN);
        }
        for liar in 10..60 {
            assert_eq!(compare(&mut trust, liar, 1, 4 * MIB, |_| false), 4 * MIB);
            assert_eq!(compare(&mut trust, 1, liar, 4 * MIB, |_| false), 4 * MIB);
        }
        assert_eq!(compare(&mut trust, 100, 1, 100 * MIB, |_| true), 100 * MIB);
        assert_eq!(compare(&mut trust, 1, 100, 100 * MIB, |_| true), 100 * MIB);
        assert!(
            trust.given_up().iter().all(|(_, who)| matches!(who, GivenUpClaims::Pair { .. })),
            "{:?}",
            trust.given_up()
        );
    }

    /// A guest whose claims are all wrong is the source of all others, and claims the contents of all of them.
    #[test]
    fn a_liar_costs_each_other_image_a_bounded_number_of_bytes_and_no_honest_image() {
        let mut trust = Trust::default();
        for target in 2..40 {
            assert_eq!(compare(&mut trust, 1, target, 1000 * MIB, |_| false), COMPARED_BYTES_MIN, "{target}");
            assert_eq!(compare(&mut trust, target, 1, 1000 * MIB, |_| false), 0, "{target}");
            assert_eq!(compare(&mut trust, 100, target, 100 * MIB, |_| true), 100 * MIB, "{target}");
        }
    }

    #[test]
    fn liars_do_not_keep_a_common_volume_from_others_and_are_known_by_it() {
        let mut trust = Trust::vouching_for(Some(FileNo(1)));
        for liar in 2..6 {
            assert_eq!(compare(&mut trust, 1, liar, 1000 * MIB, |_| false), COMPARED_BYTES_MIN);
            assert_eq!(compare(&mut trust, liar, 9, 100 * MIB, |_| false), 0);
        }
        assert_eq!(compare(&mut trust, 1, 9, 100 * MIB, |_| true), 100 * MIB);
        let liars = (2..6).map(|liar| (TIER, GivenUpClaims::Image(FileNo(liar))));
        assert_eq!(trust.given_up(), liars.collect());
    }

    /// Two files of one image have one digest, and differ: one of its two claims is wrong.
    #[test]
    fn an_image_whose_own_claims_contradict_each_other_is_given_up() {
        let mut trust = Trust::default();
        assert_eq!(compare(&mut trust, 5, 5, 1000 * MIB, |_| false), COMPARED_BYTES_MIN);
        assert_eq!(compare(&mut trust, 5, 6, 1000 * MIB, |_| true), 0);
        assert_eq!(trust.given_up(), [(TIER, GivenUpClaims::Image(FileNo(5)))].into());
    }
}
