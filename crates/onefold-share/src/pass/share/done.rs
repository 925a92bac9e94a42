//! The blocks of a target that share by now. Of several runs into them, the first one that is right counts. A block
//! that shared before stays with its source, too. Otherwise two right sources would take it from each other in every
//! pass.

use std::collections::BTreeMap;

/// Maximum number of ranges of a file that are remembered one by one. Beyond that the lowest are forgotten: runs come
/// in order.
const RANGES_MAX: usize = 1 << 16;

/// Result of earlier runs for a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlierResult {
    /// No right run has reached it.
    Nothing,
    /// It shared before this pass.
    Before,
    /// This pass has made it share.
    Done,
}

/// The blocks of a target that share.
#[derive(Debug, Default)]
pub(super) struct DoneRanges {
    now: Ranges,
    before: Ranges,
}

impl DoneRanges {
    /// Adds a range that is not empty, and that this pass has made share. Returns false if another range was forgotten
    /// for it.
    pub(super) fn add(&mut self, first: u64, end: u64) -> bool {
        self.now.add(first, end)
    }

    /// Adds a range that is not empty, and that shared before. The map still shows forgotten ranges of this kind.
    pub(super) fn add_before(&mut self, first: u64, end: u64) {
        self.before.add(first, end);
    }

    /// Returns the parts of a range, with what is known of each.
    pub(super) fn parts(&self, first: u64, end: u64) -> Vec<(u64, u64, EarlierResult)> {
        let mut parts = Vec::new();
        for (first, end, is_done) in self.now.parts(first, end) {
            if is_done {
                parts.push((first, end, EarlierResult::Done));
                continue;
            }
            let of = |is_before| if is_before { EarlierResult::Before } else { EarlierResult::Nothing };
            let seen = self.before.parts(first, end);
            parts.extend(seen.into_iter().map(|(first, end, is_before)| (first, end, of(is_before))));
        }
        parts
    }
}

/// Disjoint ranges of blocks: first block, and the block behind the last.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range that is not empty. Returns false if another range was forgotten for it.
    fn add(&mut self, first: u64, end: u64) -> bool {
        let (mut first, mut end) = (first, end);
        while let Some((&start, &stop)) = self.0.range(..=end).next_back().filter(|&(_, stop)| *stop >= first) {
            (first, end) = (first.min(start), end.max(stop));
            self.0.remove(&start);
        }
        self.0.insert(first, end);
        self.0.len() <= RANGES_MAX || self.0.pop_first().is_none()
    }

    /// Returns the parts of a range, and whether each is known.
    fn parts(&self, first: u64, end: u64) -> Vec<(u64, u64, bool)> {
        let (mut parts, mut at) = (Vec::new(), first);
        let from = self.0.range(..=first).next_back().map_or(first, |(start, _)| *start);
        for (&start, &stop) in self.0.range(from..end) {
            let (start, stop) = (start.max(at), stop.min(end));
            if stop <= at {
                continue;
            }
            parts.push((at, start, false));
            parts.push((start, stop, true));
            at = stop;
        }
        parts.push((at, end, false));
        parts.retain(|(first, end, _)| first < end);
        parts
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onefold_block::random::SeededRandom;

    use super::*;

    #[test]
    fn what_is_known_agrees_with_two_sets() {
        let random = SeededRandom::new(4);
        for _ in 0..300 {
            let (mut done, mut now, mut before) = (DoneRanges::default(), BTreeSet::new(), BTreeSet::new());
            for _ in 0..20 {
                let first = random.below(60);
                let end = first + 1 + random.below(9);
                let known = |block| match (now.contains(&block), before.contains(&block)) {
                    (true, _) => EarlierResult::Done,
                    (false, true) => EarlierResult::Before,
                    (false, false) => EarlierResult::Nothing,
                };
                let mut at = first;
                for (from, to, what) in done.parts(first, end) {
                    assert!(from == at && to > from);
                    assert!((from..to).all(|block| known(block) == what), "{done:?}");
                    at = to;
                }
                assert_eq!(at, end);
                if random.below(2) == 0 {
                    done.add(first, end);
                    now.extend(first..end);
                } else {
                    done.add_before(first, end);
                    before.extend(first..end);
                }
                for Ranges(ranges) in [&done.now, &done.before] {
                    assert!(
                        ranges.iter().zip(ranges.iter().skip(1)).all(|((_, end), (next, _))| end < next),
                        "{done:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut done = DoneRanges::default();
        for range in 0..3 * RANGES_MAX as u64 {
            assert_eq!(done.add(2 * range, 2 * range + 1), range < RANGES_MAX as u64);
            done.add_before(2 * range, 2 * range + 1);
        }
        assert_eq!([done.now.0.len(), done.before.0.len()], [RANGES_MAX; 2]);
    }
}
