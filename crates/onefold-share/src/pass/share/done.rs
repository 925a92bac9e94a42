//! Which blocks of a target share by now: of several runs into them the first one that is right counts.

use std::collections::BTreeMap;

/// Ranges of a file that are remembered one by one, at most. Beyond that the lowest are forgotten: runs come in order.
const RANGES_MAX: usize = 1 << 16;

/// Ranges of blocks, apart: first block, and the one behind the last.
#[derive(Debug, Default)]
pub(super) struct Done(BTreeMap<u64, u64>);

impl Done {
    /// Adds a range that is not empty. Returns false where another one was forgotten for it.
    pub(super) fn add(&mut self, first: u64, end: u64) -> bool {
        let (mut first, mut end) = (first, end);
        while let Some((&start, &stop)) = self.0.range(..=end).next_back().filter(|&(_, stop)| *stop >= first) {
            (first, end) = (first.min(start), end.max(stop));
            self.0.remove(&start);
        }
        self.0.insert(first, end);
        self.0.len() <= RANGES_MAX || self.0.pop_first().is_none()
    }

    /// Returns a range in parts, and which of them are done.
    pub(super) fn parts(&self, first: u64, end: u64) -> Vec<(u64, u64, bool)> {
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
    fn what_is_done_agrees_with_a_set() {
        let random = SeededRandom::new(4);
        for _ in 0..300 {
            let (mut done, mut set) = (Done::default(), BTreeSet::new());
            for _ in 0..20 {
                let first = random.below(60);
                let end = first + 1 + random.below(9);
                let mut at = first;
                for (from, to, is_done) in done.parts(first, end) {
                    assert!(from == at && to > from);
                    assert!((from..to).all(|block| set.contains(&block) == is_done), "{done:?}");
                    at = to;
                }
                assert_eq!(at, end);
                done.add(first, end);
                set.extend(first..end);
                assert!(done.0.iter().zip(done.0.iter().skip(1)).all(|((_, end), (next, _))| end < next), "{done:?}");
            }
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut done = Done::default();
        for range in 0..3 * RANGES_MAX as u64 {
            assert_eq!(done.add(2 * range, 2 * range + 1), range < RANGES_MAX as u64);
        }
        assert_eq!(done.0.len(), RANGES_MAX);
    }
}
