//! The blocks that the logs of a pass report as written: older entries of the index that name them are stale.

use std::collections::BTreeMap;

use crate::format::{FileBlock, FileNo};

/// Ranges of blocks, by file: first block, and the block behind the last.
#[derive(Debug, Default)]
pub(super) struct WrittenRanges {
    /// Ranges of sealed logs, disjoint and in order.
    sealed: BTreeMap<FileNo, Vec<(u64, u64)>>,
    /// Ranges of the log that is being read.
    open: BTreeMap<FileNo, Vec<(u64, u64)>>,
}

impl WrittenRanges {
    /// Takes in consecutive blocks of the log that is being read.
    pub(super) fn add(&mut self, file: FileNo, first: FileBlock, count: u64) {
        let ranges = self.open.entry(file).or_default();
        match ranges.last_mut() {
            // Needs more memory only if a run does not continue the last one of the file.
            Some((_, end)) if *end == first.0 => *end += count,
            _ => ranges.push((first.0, first.0 + count)),
        }
    }

    /// Seals the log that was read: the following notes are of an older log.
    pub(super) fn seal(&mut self) {
        for (file, open) in std::mem::take(&mut self.open) {
            let ranges = self.sealed.entry(file).or_default();
            ranges.extend(open);
            ranges.sort();
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

    /// Returns whether a sealed log reports blocks of a file.
    pub(super) fn has(&self, file: FileNo) -> bool {
        self.sealed.contains_key(&file)
    }

    /// Returns whether a sealed log reports a block.
    pub(super) fn contains(&self, file: FileNo, block: FileBlock) -> bool {
        self.sealed.get(&file).is_some_and(|ranges| {
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
    fn the_newest_log_is_believed_and_all_are_counted() {
        let random = SeededRandom::new(3);
        let (mut ranges, mut set) = (WrittenRanges::default(), BTreeSet::new());
        for _ in 0..200 {
            let file = FileNo(u32::try_from(random.below(3)).unwrap());
            let (mut next, mut told) = (random.below(500), Vec::new());
            for _ in 0..random.below(9) {
                let count = 1 + random.below(4);
                ranges.add(file, FileBlock(next), count);
                told.extend((next..next + count).map(|block| (file, block)));
                for block in next..next + count {
                    // The log that is being read counts once it is sealed.
                    assert_eq!(
                        ranges.contains(file, FileBlock(block)),
                        set.contains(&(file, block)),
                        "{file:?} {block}"
                    );
                }
                next += count + random.below(2);
            }
            ranges.seal();
            set.extend(told);
            assert_eq!(ranges.has(file), set.iter().any(|(other, _)| *other == file), "{file:?}");
        }
        for file in (0..4).map(FileNo) {
            for block in 0..600 {
                assert_eq!(ranges.contains(file, FileBlock(block)), set.contains(&(file, block)), "{file:?} {block}");
            }
        }
    }
}
