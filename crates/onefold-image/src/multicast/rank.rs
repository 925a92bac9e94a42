//! The place of a whole chunk among those that machines lack.

use std::cmp::Reverse;

/// The place of a chunk in the order in which whole chunks are sent: the lowest is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkRank {
    machines: Reverse<u32>,
    /// Index of the chunk.
    pub(super) chunk: u32,
}

impl ChunkRank {
    /// Returns the place of a chunk that so many machines lack.
    pub(super) fn new(machines: u32, chunk: u32) -> ChunkRank {
        ChunkRank { machines: Reverse(machines), chunk }
    }
}
