//! Reports that are not logged yet, and the ranges that writers report.

use std::time::Duration;

use onefold_block::BLOCK_BYTES_U64;

use super::notes::Notes;
use super::policy::Budget;
use super::report::MonitorCounts;
use crate::format::{FileBlock, FingerprintPrefix};

/// Reports that are not logged yet.
pub(super) struct PendingNotes {
    pub(super) notes: Notes,
    pub(super) budget: Budget,
    /// Length of the image according to the reports, in bytes.
    pub(super) length: u64,
    /// Since when there are reports.
    pub(super) since: Option<Duration>,
    /// The number of the last reading.
    pub(super) reading: u64,
    /// Whether some block is less well known than after a scan.
    pub(super) is_lossy: bool,
    pub(super) is_ending: bool,
    pub(super) counts: MonitorCounts,
}

impl PendingNotes {
    /// Notes the content of written whole blocks.
    pub(super) fn written(&mut self, first: u64, digests: &[Option<FingerprintPrefix>]) {
        let blocks = (first..FileBlock::LIMIT).zip(digests);
        blocks.for_each(|(block, digest)| self.notes.written(block, *digest));
        self.counts.in_band_blocks += digests.len() as u64;
    }

    /// Notes that a part of a block was written.
    pub(super) fn part(&mut self, block: u64) {
        if block >= FileBlock::LIMIT {
            return;
        }
        self.counts.parts += 1;
        if self.budget.reads_parts() {
            self.notes.unseen(block, 1);
        } else {
            self.notes.changed(block, 1);
        }
    }

    /// Forgets contents if there are too many runs.
    pub(super) fn keep_within(&mut self, runs_max: usize) {
        if self.notes.len() > runs_max {
            self.counts.shed_blocks += self.notes.shed(runs_max / 4);
            self.is_lossy = true;
        }
    }
}

/// A range of an image, within the limits of block numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteRange {
    pub(super) offset: u64,
    pub(super) end: u64,
}

impl ByteRange {
    pub(super) fn new(offset: u64, length: u64) -> ByteRange {
        const END: u64 = FileBlock::LIMIT * BLOCK_BYTES_U64;
        ByteRange { offset: offset.min(END), end: offset.saturating_add(length).min(END) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offset == self.end
    }

    /// Returns the whole blocks in it; an empty range if there are none.
    pub(super) fn whole_blocks(&self) -> std::ops::Range<u64> {
        let (first, end) = (self.offset.div_ceil(BLOCK_BYTES_U64), self.end / BLOCK_BYTES_U64);
        first..end.max(first)
    }

    /// Returns the blocks that lie in it only in part.
    pub(super) fn parts(&self) -> [Option<u64>; 2] {
        let cut = |at: u64| (!at.is_multiple_of(BLOCK_BYTES_U64)).then_some(at / BLOCK_BYTES_U64);
        let (first, last) = (cut(self.offset), cut(self.end));
        [first, last.filter(|_| last != first)]
    }
}
