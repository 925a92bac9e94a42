//! Targets that follow on each other, as runs.

use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::Row;

use crate::format::{FileBlock, FileNo, Slot};
use crate::pass::rows::{Source, Target};

/// Consecutive blocks that are to share with consecutive slots, or to become a hole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) file: FileNo,
    pub(super) first: u64,
    pub(super) source: Source,
    pub(super) count: u64,
}

impl Run {
    fn of(target: &Target) -> Run {
        Run { file: target.file, first: target.block.0, source: target.source, count: 1 }
    }

    /// Returns the block behind the last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Returns the first block.
    pub(super) fn first_block(&self) -> FileBlock {
        FileBlock(self.first)
    }

    /// Returns where it begins in its file, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.first * BLOCK_BYTES_U64
    }

    /// Returns how long it is, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.count * BLOCK_BYTES_U64
    }

    /// Returns a part of the run.
    pub(super) fn part(&self, from: u64, count: u64) -> Run {
        let source = match self.source {
            Source::Zeros => Source::Zeros,
            Source::Slot(slot) => Source::Slot(Slot::from_number(slot.number() + from).expect("within the run's file")),
        };
        Run { file: self.file, first: self.first + from, source, count }
    }

    fn has(&self, target: &Target) -> bool {
        self.file == target.file && self.end() > target.block.0
    }

    fn goes_on_with(&self, target: &Target) -> bool {
        let source_goes_on = match (self.source, target.source) {
            (Source::Zeros, Source::Zeros) => true,
            (Source::Slot(first), Source::Slot(next)) => {
                first.arena() == next.arena() && first.number() + self.count == next.number()
            }
            _ => false,
        };
        self.file == target.file && self.end() == target.block.0 && source_goes_on
    }
}

/// Returns the runs of targets that come in order of their places. An error comes instead of the run that it cuts off.
pub(super) fn runs(targets: impl Iterator<Item = io::Result<Row>>) -> impl Iterator<Item = io::Result<Run>> {
    let mut targets = targets.map(|row| row.map(Target::of)).peekable();
    std::iter::from_fn(move || {
        let mut run = match targets.next()? {
            Ok(first) => Run::of(&first),
            Err(error) => return Some(Err(error)),
        };
        // Two logs may name one block.
        let belongs = |run: &Run, target: &Target| run.has(target) || run.goes_on_with(target);
        loop {
            match targets.next_if(|next| next.as_ref().map_or(true, |next| belongs(&run, next))) {
                Some(Ok(target)) => run.count += u64::from(run.goes_on_with(&target)),
                Some(Err(error)) => return Some(Err(error)),
                None => return Some(Ok(run)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_before_the_run_that_it_cuts_off_is_shared() {
        let zeros = |block| Ok(Target { file: FileNo(1), block: FileBlock(block), source: Source::Zeros }.row());
        let rows = [zeros(3), zeros(4), zeros(9), zeros(10), Err(io::ErrorKind::StorageFull.into()), zeros(11)];
        let mut runs = runs(rows.into_iter());
        let whole = runs.next().unwrap().unwrap();
        assert_eq!((whole.first, whole.count), (3, 2));
        assert_eq!(runs.next().unwrap().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
