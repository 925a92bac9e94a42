//! Ranges of a disk that a damaged archive does not return.

use std::ops::Range;

use parking_lot::Mutex;

/// Number of ranges from which on they are joined before more are added.
const RANGES_MAX: usize = 1 << 20;

/// Gaps that were found so far, by any thread. Beyond 2^20 separate ranges, neighbours count as one gap with all
/// between them.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    ranges: Mutex<Vec<Range<u64>>>,
}

impl Gaps {
    /// Adds ranges. They may overlap others.
    pub(crate) fn add(&self, more: impl Iterator<Item = Range<u64>>) {
        let mut ranges = self.ranges.lock();
        for range in more {
            if ranges.len() >= RANGES_MAX {
                join(&mut ranges);
                coarsen(&mut ranges);
            }
            ranges.push(range);
        }
    }

    /// Adds what of `all` is in none of the ranges in `known`.
    pub(crate) fn add_rest(&self, all: Range<u64>, mut known: Vec<Range<u64>>) {
        known.sort_unstable_by_key(|range| range.start);
        known.push(all.end..all.end);
        let mut at = all.start;
        let rest = known.into_iter().filter_map(|range| {
            let gap = at..range.start.min(all.end);
            at = at.max(range.end);
            (!gap.is_empty()).then_some(gap)
        });
        self.add(rest);
    }

    /// Returns the ranges in order, joined.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges = self.ranges.lock();
        join(&mut ranges);
        ranges.clone()
    }
}

/// Sorts ranges, and joins those that touch.
fn join(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges.drain(..).filter(|range| !range.is_empty()) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    *ranges = joined;
}

/// Halves the number of sorted ranges if there are too many: each two become one.
fn coarsen(ranges: &mut Vec<Range<u64>>) {
    if ranges.len() > RANGES_MAX / 2 {
        *ranges = ranges.chunks(2).map(|two| two[0].start..two[two.len() - 1].end).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_joined_and_the_rest_of_a_region_is_one() {
        let gaps = Gaps::default();
        gaps.add([8..10, 2..4, 3..6, 6..7, 20..20].into_iter());
        assert_eq!(gaps.ranges(), [2..7, 8..10]);
        gaps.add_rest(100..200, vec![90..110, 150..160, 150..155, 195..300]);
        assert_eq!(gaps.ranges(), [2..7, 8..10, 110..150, 160..195]);
        let whole = Gaps::default();
        whole.add_rest(5..9, Vec::new());
        whole.add_rest(20..30, vec![20..25, 25..30]);
        assert_eq!(whole.ranges(), vec![5..9]);
    }

    #[test]
    fn gaps_without_end_become_coarse() {
        let gaps = Gaps::default();
        gaps.add((0..RANGES_MAX as u64 + 10).map(|number| number * 10..number * 10 + 1));
        let ranges = gaps.ranges();
        assert_eq!(ranges.len(), RANGES_MAX / 2 + 10);
        assert_eq!((ranges[0].clone(), ranges.last().unwrap().end), (0..11, (RANGES_MAX as u64 + 9) * 10 + 1));
    }
}
