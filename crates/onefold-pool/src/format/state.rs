//! Pool state: the roots and counters that change with every transaction, in one block at a fixed place.
//!
//! After the header follow numbers of 8 bytes in the order of [`Field`]. All of them change only through the journal.

use super::header::HEADER_BYTES;
use super::{BlockBytes, get_u64};

/// A number of the pool state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Field {
    /// Block of the names tree's root page.
    TreeRoot = 0,
    /// The next inode number; numbers are never reused.
    NextIno = 1,
    /// Number of initialised block groups; the bitmap and store of later groups may hold anything.
    GroupsReady = 2,
    /// Number of the next entry of the reclaim list.
    NextReclaim = 3,
    /// Inodes in use.
    Inodes = 4,
    /// Blocks spanned by the lengths of all regular files.
    ApparentBlocks = 5,
    /// Blocks mapped by all files; a block counts once for each place that a file shows.
    LogicalBlocks = 6,
    /// References of map leaves to data blocks: the sum of all data blocks' counts.
    References = 7,
    /// Data blocks in use.
    DataBlocks = 8,
    /// Data blocks with more than one reference.
    SharedBlocks = 9,
    /// Map nodes and tree pages in use.
    MetadataBlocks = 10,
    /// Blocks promised to `fallocate`d ranges.
    ReservedBlocks = 11,
    /// Entries of the reclaim list.
    ReclaimPending = 12,
}

/// Fields in use.
pub const FIELD_COUNT: usize = 13;

impl Field {
    /// All fields, in order.
    pub const ALL: [Field; FIELD_COUNT] = [
        Field::TreeRoot,
        Field::NextIno,
        Field::GroupsReady,
        Field::NextReclaim,
        Field::Inodes,
        Field::ApparentBlocks,
        Field::LogicalBlocks,
        Field::References,
        Field::DataBlocks,
        Field::SharedBlocks,
        Field::MetadataBlocks,
        Field::ReservedBlocks,
        Field::ReclaimPending,
    ];

    /// Returns the byte range of the number in the block.
    #[must_use]
    pub fn range(self) -> std::ops::Range<usize> {
        let first = HEADER_BYTES + self as usize * 8;
        first..first + 8
    }

    /// Reads the number.
    #[must_use]
    pub fn get(self, bytes: &BlockBytes) -> u64 {
        get_u64(bytes, self.range().start)
    }
}
