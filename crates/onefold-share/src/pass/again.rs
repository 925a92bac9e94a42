//! What the next scan reads again: of a file only the ranges of which something was left undone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use onefold_block::{BLOCK_BYTES_U64, Timestamp};
use onefold_substrate::Substrate;

use super::images::Images;
use crate::format::reading::AGAIN_MAX;
use crate::format::{FileBlock, FileNo};
use crate::ranges::Ranges;
use crate::state::StateError;

/// Ranges of a file that are remembered one by one; then the nearest become one.
const RANGES_MAX: usize = 1 << 14;

/// Why a range is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    /// It may hold something else than was known: it is read by the next scan.
    Changed,
    /// Something failed that may succeed another time: it is read after a pause, which grows.
    Failed,
}

/// What is read again.
#[derive(Debug, Default)]
pub(super) struct Again {
    /// Files of which it is not known what was left undone.
    whole: BTreeSet<FileNo>,
    changed: BTreeMap<FileNo, Vec<Range<u64>>>,
    failed: BTreeMap<FileNo, Vec<Range<u64>>>,
}

impl Again {
    /// Has all of a file read again.
    pub(super) fn add_file(&mut self, file: FileNo) {
        self.whole.insert(file);
    }

    /// Has blocks of a file read again.
    pub(super) fn add(&mut self, file: FileNo, first: FileBlock, count: u64, because: Because) {
        let ranges = match because {
            Because::Changed => self.changed.entry(file).or_default(),
            Because::Failed => self.failed.entry(file).or_default(),
        };
        let (start, end) = (first.0 * BLOCK_BYTES_U64, (first.0 + count) * BLOCK_BYTES_U64);
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
        if ranges.len() > RANGES_MAX {
            *ranges = Ranges::of(ranges.drain(..)).bounded(RANGES_MAX / 2).iter().cloned().collect();
        }
    }

    /// Writes it into the marks. Pauses begin now. What other hosts have just now is kept for another time.
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

    /// Writes into the mark of one file what is to be read of it, as [`Again::note`].
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

    /// Returns the files of which something is read again.
    pub(super) fn files(&self) -> BTreeSet<FileNo> {
        self.changed.keys().chain(self.failed.keys()).chain(&self.whole).copied().collect()
    }

    /// Returns whether something of a file is read again.
    pub(super) fn has(&self, number: FileNo) -> bool {
        self.changed.contains_key(&number) || self.failed.contains_key(&number) || self.whole.contains(&number)
    }

    /// Returns whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.changed.is_empty() && self.failed.is_empty()
    }
}
