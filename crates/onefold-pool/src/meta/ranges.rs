//! The changed bytes of a block.

use onefold_block::BLOCK_BYTES;

/// Maximum number of ranges; more are joined: the bytes between them cost less than another range.
const RANGES_MAX: usize = 12;
/// Maximum gap between ranges that are joined: a separate range costs as much in the journal.
const GAP_BYTES_MAX: u16 = 8;

/// A few disjoint byte ranges of a block, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DirtyRanges {
    ranges: Vec<(u16, u16)>,
}

impl DirtyRanges {
    /// Adds bytes `first..end`.
    pub(crate) fn add(&mut self, first: usize, end: usize) {
        debug_assert!(first < end && end <= BLOCK_BYTES, "{first}..{end} is no range of a block");
        let (Ok(mut first), Ok(mut end)) = (u16::try_from(first), u16::try_from(end)) else { return };
        if let Some(last) = self.ranges.last_mut() {
            // Entries are mostly written in ascending order.
            if first >= last.0 && first <= last.1.saturating_add(GAP_BYTES_MAX) {
                last.1 = last.1.max(end);
                return;
            }
        }
        let from = self.ranges.partition_point(|range| range.1.saturating_add(GAP_BYTES_MAX) < first);
        let to = self.ranges.partition_point(|range| range.0 <= end.saturating_add(GAP_BYTES_MAX));
        if from < to {
            first = first.min(self.ranges[from].0);
            end = end.max(self.ranges[to - 1].1);
        }
        self.ranges.splice(from..to, [(first, end)]);
        if self.ranges.len() > RANGES_MAX {
            self.join_closest();
        }
    }

    fn join_closest(&mut self) {
        let closest = (1..self.ranges.len()).min_by_key(|&at| self.ranges[at].0 - self.ranges[at - 1].1);
        if let Some(at) = closest {
            let (_, end) = self.ranges.remove(at);
            self.ranges[at - 1].1 = end;
        }
    }

    /// Returns the ranges: first byte and the byte after the last.
    pub(crate) fn as_slice(&self) -> &[(u16, u16)] {
        &self.ranges
    }

    /// Returns the number of bytes in the ranges.
    pub(crate) fn byte_count(&self) -> usize {
        self.ranges.iter().map(|range| usize::from(range.1 - range.0)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;

    #[test]
    fn every_byte_added_stays_covered_and_ranges_stay_few_and_apart() {
        let random = SeededRandom::new(11);
        for _ in 0..2000 {
            let mut ranges = DirtyRanges::default();
            let mut naive = vec![false; BLOCK_BYTES];
            for _ in 0..random.below(40) {
                let first = usize::try_from(random.below(4090)).unwrap();
                let end = (first + 1 + usize::try_from(random.below(60)).unwrap()).min(BLOCK_BYTES);
                ranges.add(first, end);
                naive[first..end].fill(true);
                assert!(ranges.as_slice().len() <= RANGES_MAX);
                assert!(ranges.as_slice().windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
            for (at, _) in naive.iter().enumerate().filter(|(_, dirty)| **dirty) {
                assert!(
                    ranges.as_slice().iter().any(|range| (usize::from(range.0)..usize::from(range.1)).contains(&at)),
                    "{at}"
                );
            }
        }
    }
}
