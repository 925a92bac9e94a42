//! Ranges that the next scan reads again: only those parts of a file where a pass left something undone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use onefold_block::{BLOCK_BYTES_U64, Timestamp};
use onefold_substrate::Substrate;

use super::images::Images;
use crate::format::reading::AGAIN_MAX;
use crate::format::{FileBlock, FileNo};
use crate::ranges::Ranges;
use crate::state::StateError;

/// Maximum number of ranges of a file that are remembered one by one; beyond it, the nearest are merged.
const RANGES_MAX: usize = 1 << 14;

/// Why a range is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RereadCause {
    /// It may hold something else than is known. The next scan reads it.
    Changed,
    /// An operation failed that may succeed another time. The range is read after a pause, which grows.
    Failed,
}

/// Files and ranges that are read again.
#[derive(Debug, Default)]
pub(super) struct RereadSet {
    /// Files of which the undone parts are not known.
    whole: BTreeSet<FileNo>,
    changed: BTreeMap<FileNo, Vec<Range<u64>>>,
    failed: BTreeMap<FileNo, Vec<Range<u64>>>,
}

impl RereadSet {
    /// Makes the next scan read all of a file again.
    pub(super) fn add_file(&mut self, file: FileNo) {
        self.whole.insert(file);
    }

    /// Makes a scan read blocks of a file again.
    pub(super) fn add(&mut self, file: FileNo, first: FileBlock, count: u64, because: RereadCause) {
        let ranges = match because {
            RereadCause::Changed => self.changed.entry(file).or_default(),
            RereadCause::Failed => self.failed.entry(file).or_default(),
        };
        let (start, end) = (first.0 * BLOCK_BYTES_U64, (first.0 + count) * BLOCK_BYTES_U64);
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
        bound(ranges);
    }

    /// Adds what another set has.
    pub(super) fn append(&mut self, other: RereadSet) {
        let RereadSet { mut whole, changed, failed } = other;
        self.whole.append(&mut whole);
        for (ours, theirs) in [(&mut self.changed, changed), (&mut self.failed, failed)] {
            for (file, mut ranges) in theirs {
                let ours = ours.entry(file).or_default();
                ours.append(&mut ranges);
                bound(ours);
            }
        }
    }

    /// Writes the ranges into the marks. Pauses begin now. Ranges of files that other hosts have at the moment are kept
    /// for another time.
    pub(super) fn note<S: Substrate>(
        &mut self,
        images: &mut Images<'_, '_, S>,
        now: Timestamp,
    ) -> Result<(), StateError> {
        for number in self.files() {
            self.note_file(images, number, now)?;
        }
        Ok(())
    }

    /// Writes the ranges of one file into its mark, as [`RereadSet::note`] does.
    pub(super) fn note_file<S: Substrate>(
        &mut self,
        images: &mut Images<'_, '_, S>,
        number: FileNo,
        now: Timestamp,
    ) -> Result<(), StateError> {
        let bounded = |of: &BTreeMap<FileNo, Vec<Range<u64>>>| {
            Ranges::of(of.get(&number).into_iter().flatten().cloned()).bounded(AGAIN_MAX / 4)
        };
        let (changed, failed) = (bounded(&self.changed), bounded(&self.failed));
        let changed = changed.iter().map(|range| (range.clone(), false));
        let ranges: Vec<_> = changed.chain(failed.iter().map(|range| (range.clone(), true))).collect();
        if !ranges.is_empty() && images.read_again(number, &ranges, now)? {
            self.changed.remove(&number);
            self.failed.remove(&number);
        }
        if self.whole.contains(&number) && images.forget_scan(number)? {
            self.whole.remove(&number);
        }
        Ok(())
    }

    /// Returns the files of which some part is read again.
    pub(super) fn files(&self) -> BTreeSet<FileNo> {
        self.changed.keys().chain(self.failed.keys()).chain(&self.whole).copied().collect()
    }

    /// Returns whether some part of a file is read again.
    pub(super) fn has(&self, number: FileNo) -> bool {
        self.changed.contains_key(&number) || self.failed.contains_key(&number) || self.whole.contains(&number)
    }

    /// Returns whether nothing is read again.
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.changed.is_empty() && self.failed.is_empty()
    }
}

/// Merges the nearest of too many ranges of a file.
fn bound(ranges: &mut Vec<Range<u64>>) {
    if ranges.len() > RANGES_MAX {
        *ranges = Ranges::of(ranges.drain(..)).bounded(RANGES_MAX / 2).iter().cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets of many batches go into one: together they keep to the bound, and lose no block.
    #[test]
    fn ranges_of_several_sets_are_bounded_together() {
        const SETS: u64 = 4;
        let of_one_set = RANGES_MAX as u64 - 1;
        for because in [RereadCause::Changed, RereadCause::Failed] {
            let mut all = RereadSet::default();
            for set in 0..SETS {
                let mut one = RereadSet::default();
                for range in 0..of_one_set {
                    // Every other block: no two ranges touch.
                    one.add(FileNo(1), FileBlock((set * of_one_set + range) * 2), 1, because);
                }
                all.append(one);
            }
            let ranges = all.changed.values().chain(all.failed.values()).flatten();
            let ranges: Vec<_> = ranges.cloned().collect();
            assert!(ranges.len() <= RANGES_MAX, "{because:?}: {}", ranges.len());
            for block in 0..SETS * of_one_set {
                let start = block * 2 * BLOCK_BYTES_U64;
                // They are in order.
                let range = ranges.get(ranges.partition_point(|range| range.end <= start));
                let is_there = range.is_some_and(|range| range.contains(&start));
                assert!(is_there, "{because:?}: block {}", block * 2);
            }
        }
    }
}
