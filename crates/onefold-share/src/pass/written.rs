//! Which blocks the logs of a pass tell of: older entries of the index that name them are stale.

use std::collections::BTreeMap;

use crate::format::{FileBlock, FileNo};

/// Ranges of blocks, by file.
#[derive(Debug, Default)]
pub(super) struct WrittenRanges {
    /// First block and the one behind the last, apart and in order once `seal` was called.
    files: BTreeMap<FileNo, Vec<(u64, u64)>>,
}

impl WrittenRanges {
    /// Adds a block. Costs memory only where it does not go on where the last one of the file ended.
    pub(super) fn insert(&mut self, file: FileNo, block: FileBlock) {
        let ranges = self.files.entry(file).or_default();
        match ranges.last_mut() {
            Some((_, end)) if *end == block.0 => *end += 1,
            _ => ranges.push((block.0, block.0 + 1)),
        }
    }

    /// Brings the ranges into the order that look-ups need: a file may have several logs.
    pub(super) fn seal(&mut self) {
        for ranges in self.files.values_mut() {
            ranges.sort_unstable();
            let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
            for &(first, end) in ranges.iter() {
                match merged.last_mut() {
                    Some(last) if last.1 >= first => last.1 = last.1.max(end),
                    _ => merged.push((first, end)),
                }
            }
            *ranges = merged;
        }
    }

    /// Tells whether a block was written.
    pub(super) fn contains(&self, file: FileNo, block: FileBlock) -> bool {
        self.files.get(&file).is_some_and(|ranges| {
            let next = ranges.partition_point(|(_, end)| *end <= block.0);
            ranges.get(next).is_some_and(|(first, _)| *first <= block.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_hold_what_a_set_holds() {
        let random = SeededRandom::new(3);
        let (mut ranges, mut set) = (WrittenRanges::default(), BTreeSet::new());
        for _ in 0..200 {
            let (file, first) = (FileNo(u32::try_from(random.below(3)).unwrap()), random.below(500));
            for block in first..first + random.below(20) {
                ranges.insert(file, FileBlock(block));
                set.insert((file, block));
            }
        }
        ranges.seal();
        for file in (0..4).map(FileNo) {
            for block in 0..600 {
                assert_eq!(ranges.contains(file, FileBlock(block)), set.contains(&(file, block)), "{file:?} {block}");
            }
        }
    }
}
