//! How far claims of images were right so far, and which are not followed any more.
//!
//! A comparison that fails may be the fault of either image. So a pair of images is given up first: once enough was
//! compared, and more than half of it differs. An image is given up where two pairs of it were, or where the other
//! pairs together differ that much. So the comparisons with an image that lies take a bounded time. An honest image
//! that was compared with it still shares with other sources.
//!
//! A range that is a hole in the source, and not in the target, counts as different. What did not share with a first
//! source is tried with a second one (`second`), with trust in all images again. So a liar takes a bounded time, twice,
//! and no savings of groups that have an honest source among the first two.

use std::collections::{BTreeMap, BTreeSet};

use super::tier::Tier;
use crate::format::FileNo;

/// Bytes that are compared before claims are given up.
const COMPARED_BYTES_MIN: u64 = 64 << 20;
/// Pairs that are given up before their image is.
const PAIRS_MAX: u32 = 2;

/// Bytes that were compared.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    equal: u64,
    different: u64,
}

impl Compared {
    fn add(&mut self, bytes: u64, is_equal: bool) {
        let sum = if is_equal { &mut self.equal } else { &mut self.different };
        *sum = sum.saturating_add(bytes);
    }

    /// Tells whether more than half of it differs, and it is enough to say so.
    fn is_wrong(&self) -> bool {
        self.different > self.equal && self.equal.saturating_add(self.different) >= COMPARED_BYTES_MIN
    }
}

/// Whose claims are not followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum GivenUp {
    /// Those of an image.
    Image(FileNo),
    /// Those of two images about each other. Either may be wrong.
    Pair {
        /// The image whose blocks would be shared.
        source: FileNo,
        /// The other one.
        target: FileNo,
    },
}

/// What the claims of an image in a tier came to.
#[derive(Clone, Copy, Debug, Default)]
struct OfImage {
    /// All that was compared, but for pairs that were given up.
    others: Compared,
    /// All that was compared.
    all: Compared,
    pairs_given_up: u32,
}

/// The claims of all images.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// By tier, source and target.
    pairs: BTreeMap<(Tier, FileNo, FileNo), Compared>,
    images: BTreeMap<(Tier, FileNo), OfImage>,
    given_up: BTreeSet<(Tier, FileNo)>,
    /// An image that is not given up, though pairs of it are: a common volume, whose content was compared with its
    /// digests. Otherwise two guests that lie would keep it from all others.
    vouched: Option<FileNo>,
}

impl Trust {
    /// Returns trust in all images, one of which is not given up whatever others claim.
    pub(super) fn vouching_for(image: Option<FileNo>) -> Trust {
        Trust { vouched: image, ..Trust::default() }
    }

    /// Takes note of a comparison.
    pub(super) fn note(&mut self, tier: Tier, source: FileNo, target: FileNo, bytes: u64, is_equal: bool) {
        let pair = self.pairs.entry((tier, source, target)).or_default();
        let (was_wrong, before) = (pair.is_wrong(), *pair);
        pair.add(bytes, is_equal);
        let is_wrong = pair.is_wrong();
        let images = if source == target { &[target][..] } else { &[source, target] };
        for image in images.iter().filter(|image| Some(**image) != self.vouched) {
            let of_image = self.images.entry((tier, *image)).or_default();
            of_image.all.add(bytes, is_equal);
            match (was_wrong, is_wrong) {
                (false, true) => {
                    of_image.pairs_given_up += 1;
                    of_image.others.equal = of_image.others.equal.saturating_sub(before.equal);
                    of_image.others.different = of_image.others.different.saturating_sub(before.different);
                }
                (false, false) => of_image.others.add(bytes, is_equal),
                (true, _) => {}
            }
            let has_wrong_pairs = of_image.pairs_given_up >= PAIRS_MAX && of_image.all.is_wrong();
            if has_wrong_pairs || of_image.others.is_wrong() {
                self.given_up.insert((tier, *image));
            }
        }
    }

    /// Tells whether a run of a tier is still worth a comparison.
    pub(super) fn believes(&self, tier: Tier, source: FileNo, target: FileNo) -> bool {
        let is_given_up = |image| self.given_up.contains(&(tier, image));
        let is_wrong = self.pairs.get(&(tier, source, target)).is_some_and(Compared::is_wrong);
        !is_wrong && !is_given_up(source) && !is_given_up(target)
    }

    /// Returns the tiers and images that were given up, and the pairs of other images that were.
    pub(super) fn given_up(&self) -> BTreeSet<(Tier, GivenUp)> {
        let is_given_up = |tier, image| self.given_up.contains(&(tier, image));
        let wrong = self.pairs.iter().filter(|(_, compared)| compared.is_wrong()).map(|(pair, _)| *pair);
        let of_others =
            wrong.filter(|(tier, source, target)| !is_given_up(*tier, *source) && !is_given_up(*tier, *target));
        let pairs = of_others.map(|(tier, source, target)| (tier, GivenUp::Pair { source, target }));
        let images = self.given_up.iter().map(|(tier, image)| (*tier, GivenUp::Image(*image)));
        images.chain(pairs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: Tier = Tier::Digest;
    const MIB: u64 = 1 << 20;

    /// Compares in steps of a MiB as long as the pair is believed; returns how much that was, at most `most`.
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
        assert_eq!(compare(&mut trust, 5, 5, 1000 * MIB, |_| false), COMPARED_BYTES_MIN);
        let pair = |source, target| (TIER, GivenUp::Pair { source: FileNo(source), target: FileNo(target) });
        assert_eq!(trust.given_up().into_iter().collect::<Vec<_>>(), [pair(3, 4), pair(5, 5)]);
    }

    /// A guest whose every claim is wrong is the source of all others: the second one that meets it ends that, and both
    /// still share with honest ones.
    #[test]
    fn a_lying_source_costs_a_bounded_time_and_no_honest_image() {
        let mut trust = Trust::default();
        let mut wasted = 0;
        for target in 2..40 {
            wasted += compare(&mut trust, 1, target, 1000 * MIB, |_| false);
            assert_eq!(compare(&mut trust, 100, target, 100 * MIB, |_| true), 100 * MIB, "{target}");
        }
        assert_eq!(wasted, 2 * COMPARED_BYTES_MIN);
        assert!(trust.given_up().contains(&(TIER, GivenUp::Image(FileNo(1)))));
    }

    #[test]
    fn liars_do_not_keep_a_common_volume_from_others() {
        let mut trust = Trust::vouching_for(Some(FileNo(1)));
        for liar in 2..6 {
            assert_eq!(compare(&mut trust, 1, liar, 1000 * MIB, |_| false), COMPARED_BYTES_MIN);
        }
        assert_eq!(compare(&mut trust, 1, 9, 100 * MIB, |_| true), 100 * MIB);
        assert!(trust.given_up().iter().all(|(_, who)| matches!(who, GivenUp::Pair { .. })));
    }

    #[test]
    fn a_lying_target_costs_a_bounded_time_however_many_sources_it_names() {
        let mut trust = Trust::default();
        let wasted: u64 = (2..200).map(|source| compare(&mut trust, source, 1, 5 * MIB, |_| false)).sum();
        assert!(wasted <= COMPARED_BYTES_MIN + 5 * MIB, "{wasted}");
        assert_eq!(trust.given_up().into_iter().collect::<Vec<_>>(), [(TIER, GivenUp::Image(FileNo(1)))]);
        assert_eq!(compare(&mut trust, 3, 4, 10 * MIB, |_| true), 10 * MIB);
    }
}
