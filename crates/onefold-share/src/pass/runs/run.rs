//! A run: a range of a file, and the source that is believed to hold the same content.

use onefold_block::BLOCK_BYTES_U64;

use crate::format::{FileBlock, FileNo, Slot};

/// A finder's key for a content. The engine hands it back with the outcome of a run, and never looks into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentKey(u32);

impl ContentKey {
    /// Limit of the numbers: the highest number plus one.
    pub const LIMIT: u32 = 1 << 31;

    /// Returns the key with this number, if the number is below the limit.
    #[must_use]
    pub fn new(number: u32) -> Option<ContentKey> {
        (number < ContentKey::LIMIT).then_some(ContentKey(number))
    }

    /// Returns its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePlace {
    /// The file.
    pub file: FileNo,
    /// The block.
    pub block: FileBlock,
}

/// The source with which a range is to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Blocks of an arena file, from this slot on.
    Slot(Slot),
    /// Nothing: the range is believed to be zero, and becomes a hole.
    Zeros,
    /// Blocks of a file, from this one on.
    File(FilePlace),
}

/// Consecutive blocks of a file, the target, and a source that is believed to hold the same content. The file system
/// checks whether it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinderRun {
    pub(in crate::pass) file: FileNo,
    /// First block of the target.
    pub(in crate::pass) first: u64,
    pub(in crate::pass) source: Source,
    /// How many blocks both sides have.
    pub(in crate::pass) count: u64,
    pub(in crate::pass) key: ContentKey,
}

impl FinderRun {
    /// Returns the run of `count` blocks of two files, or of one. `None` if it would be empty, would end beyond all
    /// blocks, or both sides are the same.
    #[must_use]
    pub fn between(source: FilePlace, target: FilePlace, count: u64, key: ContentKey) -> Option<FinderRun> {
        let has_room = |place: FilePlace| place.block.0.checked_add(count).is_some_and(|end| end <= FileBlock::LIMIT);
        let is_one = count > 0 && source != target && has_room(source) && has_room(target);
        let (file, first) = (target.file, target.block.0);
        is_one.then_some(FinderRun { file, first, source: Source::File(source), count, key })
    }

    /// Returns the first block of the target.
    #[must_use]
    pub fn target(&self) -> FilePlace {
        FilePlace { file: self.file, block: FileBlock(self.first) }
    }

    /// Returns the source.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns how many blocks each side has.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the finder's key for the content.
    #[must_use]
    pub fn key(&self) -> ContentKey {
        self.key
    }

    /// Returns the block behind the target's last one.
    pub(in crate::pass) fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Returns the first block of the target.
    pub(in crate::pass) fn first_block(&self) -> FileBlock {
        FileBlock(self.first)
    }

    /// Returns the offset of the target in its file, in bytes.
    pub(in crate::pass) fn offset(&self) -> u64 {
        self.first * BLOCK_BYTES_U64
    }

    /// Returns the length of each side, in bytes.
    pub(in crate::pass) fn bytes(&self) -> u64 {
        self.count * BLOCK_BYTES_U64
    }

    /// Returns a part of the run.
    pub(in crate::pass) fn part(&self, from: u64, count: u64) -> FinderRun {
        FinderRun { first: self.first + from, source: self.source.behind(from), count, ..*self }
    }

    /// Returns whether another run adds nothing new: two logs may name one block.
    pub(super) fn tells_as_much_as(&self, next: &FinderRun) -> bool {
        // If a target is believed to equal two files, the first may be the wrong one.
        let is_of_logs = !matches!(next.source, Source::File(_));
        is_of_logs && self.file == next.file && self.end() >= next.end()
    }

    /// Returns whether another run begins where this one ends, on both sides.
    pub(super) fn goes_on_with(&self, next: &FinderRun) -> bool {
        let source_goes_on = match (self.source, next.source) {
            (Source::Zeros, Source::Zeros) => true,
            (Source::Slot(first), Source::Slot(next)) => {
                first.arena() == next.arena() && first.number() + self.count == next.number()
            }
            (Source::File(_), Source::File(_)) => self.source.behind(self.count) == next.source,
            _ => false,
        };
        self.file == next.file && self.end() == next.first && source_goes_on
    }
}

impl Source {
    /// Returns the source of the block that is this many blocks behind in the same run.
    fn behind(self, blocks: u64) -> Source {
        match self {
            Source::Zeros => Source::Zeros,
            Source::Slot(slot) => {
                Source::Slot(Slot::from_number(slot.number() + blocks).expect("within the run's file"))
            }
            Source::File(FilePlace { file, block }) => {
                Source::File(FilePlace { file, block: FileBlock(block.0 + blocks) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(file: u32, block: u64) -> FilePlace {
        FilePlace { file: FileNo(file), block: FileBlock(block) }
    }

    #[test]
    fn runs_that_cannot_be_are_none() {
        let key = ContentKey::default();
        let last = FileBlock::LIMIT - 1;
        assert!(FinderRun::between(place(1, last), place(2, 0), 1, key).is_some());
        for (source, target, count) in [
            (place(1, 0), place(2, 0), 0),
            (place(1, 5), place(1, 5), 3),
            (place(1, last), place(2, 0), 2),
            (place(1, 0), place(2, last), 2),
            (place(1, u64::MAX), place(2, 0), 1),
            (place(1, 0), place(2, 1), u64::MAX),
        ] {
            assert_eq!(FinderRun::between(source, target, count, key), None, "{source:?} {target:?} {count}");
        }
        assert_eq!(ContentKey::new(ContentKey::LIMIT), None);
    }
}
