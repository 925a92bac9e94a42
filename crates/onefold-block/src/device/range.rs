//! The check of a transfer's place and length, which every device makes before it moves a byte.

use std::io;

use crate::{BLOCK_BYTES, BLOCK_BYTES_U64, BlockNo};

/// A transfer that no device can perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The buffer is not a whole number of blocks.
    #[error("a transfer of {bytes} bytes is not a whole number of blocks")]
    PartialBlock {
        /// The buffer's length.
        bytes: usize,
    },
    /// Some of the blocks lie past the device's end.
    #[error("{count} blocks at {first} reach past the device's end at {block_count}")]
    PastEnd {
        /// The first requested block.
        first: BlockNo,
        /// Number of requested blocks.
        count: u64,
        /// Number of blocks of the device.
        block_count: u64,
    },
}

impl From<RangeError> for io::Error {
    fn from(error: RangeError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Returns the number of blocks in `bytes` bytes.
///
/// # Errors
/// When they are not a whole number of blocks.
pub fn whole_blocks(bytes: usize) -> Result<u64, RangeError> {
    if bytes.is_multiple_of(BLOCK_BYTES) {
        Ok(bytes as u64 / BLOCK_BYTES_U64)
    } else {
        Err(RangeError::PartialBlock { bytes })
    }
}

/// Checks that `count` blocks from `first` lie on a device of `block_count`.
///
/// # Errors
/// When they reach past its end.
pub fn check_on_device(first: BlockNo, count: u64, block_count: u64) -> Result<(), RangeError> {
    match first.0.checked_add(count) {
        Some(end) if end <= block_count => Ok(()),
        _ => Err(RangeError::PastEnd { first, count, block_count }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_end_at_the_end_are_on_the_device_and_no_further_ones() {
        let fits = |first, count| check_on_device(BlockNo(first), count, 10).is_ok();
        assert!(fits(0, 10) && fits(9, 1) && fits(10, 0));
        assert!(!fits(0, 11) && !fits(9, 2) && !fits(10, 1) && !fits(11, 0));
        assert!(!fits(u64::MAX, 1) && !fits(1, u64::MAX), "no overflow");
    }

    #[test]
    fn only_whole_blocks_are_transferred() {
        assert_eq!(whole_blocks(0), Ok(0));
        assert_eq!(whole_blocks(3 * BLOCK_BYTES), Ok(3));
        assert_eq!(whole_blocks(BLOCK_BYTES + 512), Err(RangeError::PartialBlock { bytes: BLOCK_BYTES + 512 }));
    }
}
