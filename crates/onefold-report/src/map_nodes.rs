//! Counts the nodes of an image's map in a pool, which determine the cost of its metadata.

use std::collections::BTreeMap;

/// Entries of a map node in the pool's format.
const FAN_OUT: u64 = 508;
/// A file whose blocks all lie before this block has its map in its inode.
const INLINE_BLOCKS: u64 = 12;

/// The leaves of a map of some blocks.
///
/// A bit for each leaf, in words that exist only where blocks are: a terabyte of data takes at most 64 KiB here.
#[derive(Debug, Default)]
pub(crate) struct MapNodes {
    leaves: BTreeMap<u64, u64>,
    highest: u64,
    is_mapped: bool,
}

impl MapNodes {
    /// Records that block `index` is stored.
    pub(crate) fn note(&mut self, index: u64) {
        let leaf = index / FAN_OUT;
        *self.leaves.entry(leaf / 64).or_default() |= 1 << (leaf % 64);
        self.highest = self.highest.max(index);
        self.is_mapped = true;
    }

    /// Records that all blocks from `first` on and before `end` are stored.
    pub(crate) fn note_range(&mut self, first: u64, end: u64) {
        let mut index = first;
        while index < end {
            self.note(index);
            index = (index / FAN_OUT + 1) * FAN_OUT;
        }
        if first < end {
            self.highest = self.highest.max(end - 1);
        }
    }

    /// Returns the number of nodes of all levels.
    pub(crate) fn count(&self) -> u64 {
        if !self.is_mapped || self.highest < INLINE_BLOCKS {
            return 0;
        }
        let leaves = self
            .leaves
            .iter()
            .flat_map(|(word, bits)| (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| word * 64 + bit));
        let mut level: Vec<u64> = leaves.collect();
        let mut count = level.len() as u64;
        // The highest block determines the height of the tree.
        let mut highest = self.highest / FAN_OUT;
        while highest > 0 {
            for node in &mut level {
                *node /= FAN_OUT;
            }
            level.dedup();
            highest /= FAN_OUT;
            count += level.len() as u64;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(blocks: impl IntoIterator<Item = u64>) -> u64 {
        let mut nodes = MapNodes::default();
        blocks.into_iter().for_each(|index| nodes.note(index));
        nodes.count()
    }

    #[test]
    fn maps_are_as_large_as_their_blocks_need() {
        assert_eq!(nodes([]), 0);
        assert_eq!(nodes(0..12), 0, "in the inode");
        assert_eq!(nodes([12]), 1);
        assert_eq!(nodes(0..508), 1);
        assert_eq!(nodes([508]), 2, "one leaf, and a root that leads there");
        assert_eq!(nodes(0..1016), 3);
        assert_eq!(nodes([5, 508 * 508]), 5, "two leaves, two nodes, the root");
    }

    #[test]
    fn a_range_is_as_all_its_blocks() {
        for (first, end) in [(0, 0), (0, 12), (0, 13), (507, 509), (3, 5000), (508 * 508 - 1, 508 * 508 + 1)] {
            let mut range = MapNodes::default();
            range.note_range(first, end);
            assert_eq!(range.count(), nodes(first..end), "{first}..{end}");
        }
    }
}
