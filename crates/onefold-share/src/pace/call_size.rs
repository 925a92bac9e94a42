//! The size of calls, learned from their durations.

use std::cell::Cell;
use std::time::Duration;

use onefold_block::BLOCK_BYTES_U64;

/// Size of the first calls, before anything is known: an eighth of the usual maximum.
const FIRST_BYTES: u64 = 128 << 10;
/// Where growing ends by itself; the file system's own maximum is far below.
const BYTES_MAX: u64 = 1 << 30;

/// The size of the calls of one kind.
#[derive(Debug)]
pub(super) struct CallSize {
    bytes: Cell<u64>,
}

impl Default for CallSize {
    fn default() -> CallSize {
        CallSize { bytes: Cell::new(FIRST_BYTES) }
    }
}

impl CallSize {
    /// Returns the size of the next call, at most `most`.
    pub(super) fn bytes(&self, most: u64) -> u64 {
        self.bytes.get().min(most.max(BLOCK_BYTES_U64))
    }

    /// Halves the size after a call that took more than half of the ceiling. Adds an eighth after one of full size that
    /// took less than an eighth. The range between the two leaves room for slower calls.
    pub(super) fn learn(&self, bytes: u64, took: Duration, ceiling: Duration) {
        let size = self.bytes.get();
        let learned = if took > ceiling / 2 {
            // A call below the size, because there was no more to do, was still too large.
            size.min(bytes) / 2
        } else if took < ceiling / 8 && bytes >= size / 2 {
            (size + (size / 8).max(BLOCK_BYTES_U64)).min(BYTES_MAX)
        } else {
            return;
        };
        self.bytes.set((learned / BLOCK_BYTES_U64).max(1) * BLOCK_BYTES_U64);
    }
}
