//! Ranges of a file, in bytes: in order, disjoint, and none of them empty.

use std::ops::Range;

use onefold_block::BLOCK_BYTES_U64;

/// Some ranges of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Returns the union of these ranges.
    pub(crate) fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Ranges {
        let mut ranges: Vec<Range<u64>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Ranges(merged)
    }

    /// Returns all blocks that overlap these ranges.
    pub(crate) fn around(ranges: impl IntoIterator<Item = Range<u64>>) -> Ranges {
        let whole = |range: Range<u64>| {
            let end = range.end.div_ceil(BLOCK_BYTES_U64).saturating_mul(BLOCK_BYTES_U64);
            range.start / BLOCK_BYTES_U64 * BLOCK_BYTES_U64..end
        };
        Ranges::of(ranges.into_iter().filter(|range| !range.is_empty()).map(whole))
    }

    /// Returns the whole blocks within these ranges.
    pub(crate) fn within(ranges: impl IntoIterator<Item = Range<u64>>) -> Ranges {
        let whole = |range: Range<u64>| {
            let start = range.start.div_ceil(BLOCK_BYTES_U64).saturating_mul(BLOCK_BYTES_U64);
            start..range.end / BLOCK_BYTES_U64 * BLOCK_BYTES_U64
        };
        Ranges::of(Ranges::of(ranges).0.into_iter().map(whole))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Returns their total length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    pub(crate) fn plus(&self, other: &Ranges) -> Ranges {
        Ranges::of(self.0.iter().chain(&other.0).cloned())
    }

    pub(crate) fn minus(&self, other: &Ranges) -> Ranges {
        Ranges(self.0.iter().flat_map(|range| other.gaps_in(range.clone())).collect())
    }

    /// Returns the parts before an offset, and from it on.
    pub(crate) fn split(&self, at: u64) -> (Ranges, Ranges) {
        let part = |bounds: Range<u64>| {
            let cut = |range: &Range<u64>| range.start.max(bounds.start)..range.end.min(bounds.end);
            Ranges::of(self.0.iter().map(cut))
        };
        (part(0..at), part(at..u64::MAX))
    }

    /// Returns the parts of a range that are in none of these.
    pub(crate) fn gaps_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), range.start);
        let first = self.0.partition_point(|covered| covered.end <= range.start);
        for covered in self.0[first..].iter().take_while(|covered| covered.start < range.end) {
            gaps.push(at..covered.start);
            at = covered.end;
        }
        gaps.push(at..range.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// Merges the nearest ranges as long as there are more than `most`.
    pub(crate) fn bounded(mut self, most: usize) -> Ranges {
        if self.0.len() > most {
            let mut gaps: Vec<u64> = self.0.windows(2).map(|pair| pair[1].start - pair[0].end).collect();
            gaps.sort_unstable_by(|one, other| other.cmp(one));
            // The number of gaps that stay is one less than that of ranges.
            let least = gaps.get(most.saturating_sub(1)).copied().unwrap_or(0);
            let mut merged: Vec<Range<u64>> = Vec::with_capacity(most);
            for range in self.0 {
                match merged.last_mut() {
                    Some(last) if range.start - last.end <= least => last.end = range.end,
                    _ => merged.push(range),
                }
            }
            self.0 = merged;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;
    use std::collections::BTreeSet;

    fn set(ranges: &Ranges) -> BTreeSet<u64> {
        assert!(ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
        assert!(ranges.0.iter().all(|range| !range.is_empty()), "{ranges:?}");
        ranges.0.iter().flat_map(Clone::clone).collect()
    }

    #[test]
    fn ranges_agree_with_sets() {
        let random = SeededRandom::new(3);
        let draw = || {
            let ranges: Vec<Range<u64>> = (0..random.below(6))
                .map(|_| {
                    let start = random.below(60);
                    start..start + random.below(9)
                })
                .collect();
            (set(&Ranges::of(ranges.clone())), Ranges::of(ranges))
        };
        for _ in 0..2000 {
            let ((one_set, one), (other_set, other)) = (draw(), draw());
            assert_eq!(set(&one.plus(&other)), &one_set | &other_set);
            assert_eq!(set(&one.minus(&other)), &one_set - &other_set);
            assert_eq!(one.bytes(), one_set.len() as u64);
            let at = random.below(70);
            let (before, behind) = one.split(at);
            assert!(set(&before).iter().all(|byte| *byte < at) && set(&behind).iter().all(|byte| *byte >= at));
            assert_eq!(&set(&before) | &set(&behind), one_set);
            let most = 1 + usize::try_from(random.below(4)).unwrap();
            let bounded = one.clone().bounded(most);
            assert!(bounded.0.len() <= most && one_set.is_subset(&set(&bounded)));
        }
    }

    #[test]
    fn blocks_are_those_around_or_within() {
        const K: u64 = BLOCK_BYTES_U64;
        assert_eq!(Ranges::around([1..2, K..K, 2 * K - 1..3 * K + 1]), Ranges::of(std::iter::once(0..4 * K)));
        assert_eq!(Ranges::around([5 * K..5 * K, 3 * K..4 * K]), Ranges::of(std::iter::once(3 * K..4 * K)));
        assert_eq!(Ranges::within([1..2 * K, 2 * K..3 * K, 5 * K + 1..6 * K]), Ranges::of(std::iter::once(K..3 * K)));
    }
}
