//! Target ranges where runs have failed, without the parts that other runs have shared.
//!
//! Both lists are sorted by rows:
//!
//! | word of the row | where a run failed | where one shares |
//! |---|---|---|
//! | 0 | the file of the target | the same |
//! | 1 | the first block | the same |
//! | 2 | the block behind the last one, times four, and the [`Failure`] | the block behind the last one |

use std::io;
use std::path::Path;

use onefold_sort::{Merge, Row, SortWriter};

use crate::format::FileNo;
use crate::pass::{FilePlace, FinderRun};

/// Bits of a failure in a row.
const FAILURE_BITS: u32 = 2;

/// Why a target did not share with its first source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// They differ.
    Differed,
    /// The source is a hole there.
    SourceEmpty,
    /// The claims of one of the two images were given up.
    GivenUp,
}

impl Failure {
    const ALL: [Failure; 3] = [Failure::Differed, Failure::SourceEmpty, Failure::GivenUp];

    fn number(self) -> u64 {
        match self {
            Failure::Differed => 0,
            Failure::SourceEmpty => 1,
            Failure::GivenUp => 2,
        }
    }
}

/// Targets that did not share, and the parts of them that share with other sources, in any order.
#[derive(Debug)]
pub(super) struct FailedTargets {
    failed: SortWriter,
    shared: SortWriter,
    is_empty: bool,
}

impl FailedTargets {
    /// Returns an empty list. It keeps at most `memory_bytes` in memory, and the rest in files in `folder`.
    pub(super) fn new(folder: &Path, memory_bytes: usize) -> FailedTargets {
        let for_shared = memory_bytes / 4;
        FailedTargets {
            failed: SortWriter::new(folder, memory_bytes - for_shared),
            shared: SortWriter::new(folder, for_shared),
            is_empty: true,
        }
    }

    /// Adds the target of a run that failed.
    ///
    /// # Errors
    /// Errors of writing temporary files.
    pub(super) fn push(&mut self, run: &FinderRun, failure: Failure) -> io::Result<()> {
        let [file, first, end] = row_of(run);
        self.is_empty = false;
        self.failed.push([file, first, end << FAILURE_BITS | failure.number()])
    }

    /// Adds the target of a run that shares.
    ///
    /// # Errors
    /// Errors of writing temporary files.
    pub(super) fn push_shared(&mut self, run: &FinderRun) -> io::Result<()> {
        self.shared.push(row_of(run))
    }

    /// Returns whether nothing failed.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Returns the ranges that failed and do not share.
    ///
    /// # Errors
    /// Errors of temporary files.
    pub(super) fn finish(self) -> io::Result<FailedRanges> {
        let (failed, mut shared) = (self.failed.finish()?, self.shared.finish()?);
        let next_shared = shared.next().transpose()?;
        Ok(FailedRanges { failed, shared, next_shared, rest: None, begun: None })
    }
}

/// Returns the file of a target, its first block, and the one behind its last.
fn row_of(run: &FinderRun) -> Row {
    let FilePlace { file, block } = run.target();
    [u64::from(file.0), block.0, block.0.saturating_add(run.count())]
}

/// A range of a file where a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailedRange {
    pub(super) file: FileNo,
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) failure: Failure,
}

impl FailedRange {
    fn of_row([file, first, last]: Row) -> Option<FailedRange> {
        let failure = Failure::ALL.into_iter().find(|failure| failure.number() == last & ((1 << FAILURE_BITS) - 1))?;
        Some(FailedRange { file: FileNo(u32::try_from(file).ok()?), first, end: last >> FAILURE_BITS, failure })
    }
}

/// Ranges that failed and do not share: disjoint, and in order.
#[derive(Debug)]
pub(super) struct FailedRanges {
    failed: Merge,
    shared: Merge,
    /// The next row of `shared`.
    next_shared: Option<Row>,
    /// The rest of a range that is not handed out yet.
    rest: Option<FailedRange>,
    /// The block behind the ranges that were read.
    begun: Option<(FileNo, u64)>,
}

impl FailedRanges {
    /// Returns the next range that is not empty.
    ///
    /// # Errors
    /// Errors of temporary files.
    pub(super) fn next_range(&mut self) -> io::Result<Option<FailedRange>> {
        loop {
            let rest = self.rest.take();
            let Some(range) = rest.map_or_else(|| self.read(), |rest| Ok(Some(rest)))? else { return Ok(None) };
            let file = u64::from(range.file.0);
            while self.next_shared.is_some_and(|[of, _, end]| (of, end) <= (file, range.first)) {
                self.next_shared = self.shared.next().transpose()?;
            }
            let Some([of, first, end]) = self.next_shared else { return Ok(Some(range)) };
            if (of, first) >= (file, range.end) {
                return Ok(Some(range));
            }
            self.rest = (end < range.end).then_some(FailedRange { first: end, ..range });
            if first > range.first {
                return Ok(Some(FailedRange { end: first, ..range }));
            }
        }
    }

    /// Returns the part that the next row adds to the rows before it. Where runs into the same blocks overlap, the one
    /// that begins first counts.
    fn read(&mut self) -> io::Result<Option<FailedRange>> {
        while let Some(row) = self.failed.next().transpose()? {
            let Some(range) = FailedRange::of_row(row) else { continue };
            let begun = self.begun.filter(|(file, _)| *file == range.file).map_or(0, |(_, end)| end);
            self.begun = Some((range.file, begun.max(range.end)));
            if range.end > begun {
                return Ok(Some(FailedRange { first: range.first.max(begun), ..range }));
            }
        }
        Ok(None)
    }
}
