//! One run: a range of a file, and what is believed to hold the same.

use onefold_block::BLOCK_BYTES_U64;

use crate::format::{FileBlock, FileNo, Slot};

/// What a range is to share with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Blocks of an arena file, from this slot on.
    Slot(Slot),
    /// Nothing: the range is believed to be zero, and becomes a hole.
    Zeros,
}

/// Consecutive blocks of a file, the target, and what is believed to hold the same: whether it does is for the file system
/// to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub(in crate::pass) file: FileNo,
    /// First block of the target.
    pub(in crate::pass) first: u64,
    pub(in crate::pass) source: Source,
    /// How many blocks both sides have.
    pub(in crate::pass) count: u64,
}

impl Run {
    /// Returns the block behind the target's last one.
    pub(in crate::pass) fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Returns the first block of the target.
    pub(in crate::pass) fn first_block(&self) -> FileBlock {
        FileBlock(self.first)
    }

    /// Returns where the target begins in its file, in bytes.
    pub(in crate::pass) fn offset(&self) -> u64 {
        self.first * BLOCK_BYTES_U64
    }

    /// Returns how long each side is, in bytes.
    pub(in crate::pass) fn bytes(&self) -> u64 {
        self.count * BLOCK_BYTES_U64
    }

    /// Returns a part of the run.
    pub(in crate::pass) fn part(&self, from: u64, count: u64) -> Run {
        let source = match self.source {
            Source::Zeros => Source::Zeros,
            Source::Slot(slot) => Source::Slot(Slot::from_number(slot.number() + from).expect("within the run's file")),
        };
        Run { first: self.first + from, source, count, ..*self }
    }

    /// Tells whether another run says nothing new: two logs may name one block.
    pub(super) fn tells_as_much_as(&self, next: &Run) -> bool {
        self.file == next.file && self.end() >= next.end()
    }

    /// Tells whether another run begins where this one ends, on both sides.
    pub(super) fn goes_on_with(&self, next: &Run) -> bool {
        let source_goes_on = match (self.source, next.source) {
            (Source::Zeros, Source::Zeros) => true,
            (Source::Slot(first), Source::Slot(next)) => {
                first.arena() == next.arena() && first.number() + self.count == next.number()
            }
            _ => false,
        };
        self.file == next.file && self.end() == next.first && source_goes_on
    }
}
