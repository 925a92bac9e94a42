//! Runs of consecutive blocks.

use std::num::NonZeroU32;

use crate::BlockNo;

/// A run of consecutive blocks. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    first: BlockNo,
    count: NonZeroU32,
}

impl Extent {
    /// Returns the run of `count` blocks starting at `first`.
    #[must_use]
    pub const fn new(first: BlockNo, count: NonZeroU32) -> Extent {
        Extent { first, count }
    }

    /// Returns the first block.
    #[must_use]
    pub const fn first(self) -> BlockNo {
        self.first
    }

    /// Returns the number of blocks, at least one.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count.get()
    }

    /// Returns the block after the last one.
    #[must_use]
    pub const fn end(self) -> BlockNo {
        BlockNo(self.first.0 + self.count.get() as u64)
    }

    /// Returns whether `block` is one of the run.
    #[must_use]
    pub const fn contains(self, block: BlockNo) -> bool {
        self.first.0 <= block.0 && block.0 < self.end().0
    }
}
