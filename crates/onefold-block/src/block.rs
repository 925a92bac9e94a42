//! Block numbers and the one block size.

use std::fmt;

/// Size of a block in bytes: the unit of allocation, of fingerprinting and of sharing.
///
/// 4 KiB is the unit that finds duplicates between independently built images; larger ones lose most of them.
pub const BLOCK_BYTES: usize = 4096;

/// [`BLOCK_BYTES`] as a 64-bit number, for arithmetic on offsets.
pub const BLOCK_BYTES_U64: u64 = BLOCK_BYTES as u64;

/// Index of a block on a device. On disk it has 48 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u64);

impl BlockNo {
    /// The highest block number that fits the 48 bits it has on disk.
    pub const MAX: BlockNo = BlockNo((1 << 48) - 1);

    /// Returns the byte offset of the block's first byte on its device.
    #[must_use]
    pub const fn byte_offset(self) -> u64 {
        self.0 * BLOCK_BYTES_U64
    }

    /// Returns the block `count` places further on.
    #[must_use]
    pub const fn plus(self, count: u64) -> BlockNo {
        BlockNo(self.0 + count)
    }
}

impl fmt::Display for BlockNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
