//! Errors of the tree itself.

use onefold_block::BlockNo;

use super::limits::{LEVEL_MAX, VALUE_BYTES_MAX};

/// Why an operation of the tree failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// A page is not a valid page of the tree.
    #[error("names tree page {page}: {what}")]
    Corrupt {
        /// The page.
        page: BlockNo,
        /// Its defect.
        what: Defect,
    },
    /// The value is longer than the maximum.
    #[error("a value of {bytes} bytes was given to the names tree, the most is {VALUE_BYTES_MAX}")]
    ValueTooLong {
        /// Length of the value.
        bytes: usize,
    },
}

/// A defect of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The header's padding is not zero.
    #[error("the header's padding is not zero")]
    Padding,
    /// The level is above the maximum.
    #[error("level {found}, the highest is {LEVEL_MAX}")]
    LevelTooHigh {
        /// The level in the page's header.
        found: u8,
    },
    /// The level does not fit the page above.
    #[error("level {found}, its parent makes it {expected}")]
    Level {
        /// The level in the page's header.
        found: u8,
        /// One less than the parent's.
        expected: u8,
    },
    /// The header's numbers contradict each other or the page's size.
    #[error("{count} slots, cells from byte {cells_start} and {dead_bytes} dead bytes do not fit together")]
    Layout {
        /// Number of slots.
        count: usize,
        /// Claimed start of the cell area.
        cells_start: usize,
        /// Claimed number of bytes of the cell area that are in no cell.
        dead_bytes: usize,
    },
    /// The page has fewer items than its place in the tree requires.
    #[error("only {count} items")]
    TooFewItems {
        /// Number of items.
        count: usize,
    },
    /// A cell does not lie within the cell area, or its value is too long.
    #[error("item {index} is out of bounds")]
    CellBounds {
        /// Index of its slot.
        index: usize,
    },
    /// A child's block number does not fit 48 bits.
    #[error("child {index} has the impossible block number {found:#x}")]
    ChildNo {
        /// Index of its slot.
        index: usize,
        /// The number found.
        found: u64,
    },
    /// A key is not above the key before it.
    #[error("item {index} is out of order")]
    KeyOrder {
        /// Index of the higher slot.
        index: usize,
    },
    /// A key lies outside the range that the separators above promise.
    #[error("item {index} is out of the range its parent promises")]
    KeyRange {
        /// Index of its slot.
        index: usize,
    },
    /// Two neighbouring children are the same block.
    #[error("children {index} and the next are one block")]
    SameChild {
        /// Index of the first child's slot.
        index: usize,
    },
    /// Two cells share bytes.
    #[error("item {index} overlaps another")]
    CellOverlap {
        /// Index of one of the two slots.
        index: usize,
    },
    /// Cells and dead bytes do not add up to the cell area.
    #[error("cells of {cell_bytes} bytes and {dead_bytes} dead bytes do not fill a cell area of {area_bytes}")]
    Accounting {
        /// Total length of the cells.
        cell_bytes: usize,
        /// Dead bytes according to the header.
        dead_bytes: usize,
        /// Size of the cell area.
        area_bytes: usize,
    },
    /// The page is emptier than splits and merges leave it.
    #[error("only {used_bytes} bytes used")]
    Underfull {
        /// Bytes of slots and cells.
        used_bytes: usize,
    },
}

impl Defect {
    /// Returns the error that `page` has this defect.
    pub(super) fn of(self, page: BlockNo) -> TreeError {
        TreeError::Corrupt { page, what: self }
    }
}
