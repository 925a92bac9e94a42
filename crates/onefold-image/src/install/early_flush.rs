//! The early flush of a target: the kernel begins to write while further chunks come, so that little is left for the
//! last flush. By itself it would wait until a tenth of the memory is dirty, and most disks idle until then.

use std::fs::File;
use std::ops::Range;

use onefold_linux::begin_write_back;
use parking_lot::Mutex;

/// Written bytes after which the kernel is to begin. Fewer would make short requests of chunks with many small files.
const FLUSHED_BYTES: u64 = 8 << 20;

/// The bytes of a target that the kernel was not asked to write yet.
#[derive(Debug, Default)]
pub(super) struct EarlyFlush {
    written: Mutex<PendingWrites>,
}

#[derive(Debug, Default)]
struct PendingWrites {
    /// Number of bytes.
    bytes: u64,
    /// The least range that has all of them.
    range: Option<Range<u64>>,
}

impl EarlyFlush {
    /// Notes that a range was written. Has the kernel write it with the earlier ones if they are many together. A disk
    /// that is behind delays the caller.
    pub(super) fn note(&self, file: &File, offset: u64, length_bytes: u64) {
        if let Some(range) = self.written.lock().add(offset..offset.saturating_add(length_bytes)) {
            begin_write_back(file, range.start, range.end - range.start);
        }
    }
}

impl PendingWrites {
    /// Adds a range. Returns the range that the kernel is to write now.
    fn add(&mut self, range: Range<u64>) -> Option<Range<u64>> {
        self.bytes += range.end - range.start;
        let whole = self.range.take().map_or(range.clone(), |old| old.start.min(range.start)..old.end.max(range.end));
        if self.bytes < FLUSHED_BYTES {
            self.range = Some(whole);
            return None;
        }
        self.bytes = 0;
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_bytes_are_flushed_together_and_each_once() {
        const HALF: u64 = FLUSHED_BYTES / 2;
        let mut written = PendingWrites::default();
        assert_eq!(written.add(6 * HALF..8 * HALF - 1), None);
        assert_eq!(written.add(HALF..HALF + 1), Some(HALF..8 * HALF - 1));
        assert_eq!(written.add(0..1), None, "it counts anew");
        assert_eq!(written.add(5..5 + FLUSHED_BYTES), Some(0..5 + FLUSHED_BYTES));
    }
}
