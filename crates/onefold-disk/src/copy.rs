//! Copies a sparse disk into a new sink. Holes and zero blocks are skipped; several threads read and write.

use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};
use std::thread;

use onefold_block::zero::is_zero;
use onefold_block::{AlignedBuffer, BLOCK_BYTES};

use crate::disk::{Disk, Sink};
use crate::error::{DiskError, LongWork};
use crate::progress::{OnProgress, Progress};

/// Bytes in one read and write: the largest request that a mounted pool takes.
const PIECE_BYTES: u64 = 1 << 20;
/// Upper bound; more threads have not made the copy of one disk faster.
const THREADS_MAX: usize = 4;

/// Result of a copy, in bytes: `size = written + zero`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyResult {
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Holes and zero blocks, which were skipped.
    pub zero_bytes: u64,
}

/// Copies all of `disk` into `sink`, which must read as zeros so far.
///
/// # Errors
/// When a read or write fails, or `progress` stops the copy. The first error ends the work of all threads.
pub fn copy(disk: &dyn Disk, sink: &dyn Sink, progress: OnProgress<'_>) -> Result<CopyResult, DiskError> {
    let cursor = Mutex::new(CopyCursor { disk, data: 0..0, written_bytes: 0, error: None });
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&cursor, disk, sink, progress));
        }
    });
    let cursor = cursor.into_inner().unwrap_or_else(PoisonError::into_inner);
    match cursor.error {
        Some(error) => Err(error),
        None => Ok(CopyResult {
            written_bytes: cursor.written_bytes,
            zero_bytes: disk.size_bytes().saturating_sub(cursor.written_bytes),
        }),
    }
}

/// The progress of all threads.
struct CopyCursor<'a> {
    disk: &'a dyn Disk,
    /// Rest of the current range of data.
    data: Range<u64>,
    written_bytes: u64,
    /// The first error; it stops all threads.
    error: Option<DiskError>,
}

impl CopyCursor<'_> {
    /// Returns the next piece to copy; it does not cross a multiple of the piece size.
    fn next_piece(&mut self) -> Result<Option<Range<u64>>, DiskError> {
        if self.error.is_some() {
            return Ok(None);
        }
        if self.data.is_empty() {
            match self.disk.next_data(self.data.end)? {
                Some(data) => self.data = data,
                None => return Ok(None),
            }
        }
        let start = self.data.start;
        let end = (start / PIECE_BYTES + 1).saturating_mul(PIECE_BYTES).min(self.data.end);
        self.data.start = end;
        Ok(Some(start..end))
    }
}

/// Copies pieces until all are done or a thread has failed.
fn work(cursor: &Mutex<CopyCursor<'_>>, disk: &dyn Disk, sink: &dyn Sink, progress: OnProgress<'_>) {
    let mut buffer = AlignedBuffer::zeroed(usize::try_from(PIECE_BYTES).map_or(1, |bytes| bytes / BLOCK_BYTES));
    let locked = || cursor.lock().unwrap_or_else(PoisonError::into_inner);
    let mut copy_next = || {
        // The lock is released before the piece is copied.
        let next = locked().next_piece();
        let Some(piece) = next? else { return Ok(ControlFlow::Break(())) };
        if progress(Progress { done_bytes: piece.start, total_bytes: disk.size_bytes() }).is_break() {
            return Err(DiskError::Stopped(LongWork::Copying));
        }
        let written_bytes = copy_piece(disk, sink, &piece, &mut buffer)?;
        locked().written_bytes += written_bytes;
        Ok(ControlFlow::Continue(()))
    };
    loop {
        match copy_next() {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return,
            Err(error) => {
                locked().error.get_or_insert(error);
                return;
            }
        }
    }
}

/// Copies one piece, one run of nonzero blocks after another. Returns the number of bytes written.
fn copy_piece(
    disk: &dyn Disk,
    sink: &dyn Sink,
    piece: &Range<u64>,
    buffer: &mut AlignedBuffer,
) -> Result<u64, DiskError> {
    let length = usize::try_from(piece.end - piece.start).map_or(buffer.len(), |length| length.min(buffer.len()));
    let bytes = &mut buffer[..length];
    disk.read(piece.start, bytes)?;
    let mut written_bytes = 0;
    for run in runs_of_data(bytes) {
        let run_bytes = run.end - run.start;
        sink.write(piece.start + run.start as u64, &bytes[run])?;
        written_bytes += run_bytes as u64;
    }
    Ok(written_bytes)
}

/// Returns the ranges of `bytes` that consist of nonzero blocks.
fn runs_of_data(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        if is_zero(block) {
            continue;
        }
        let start = index * BLOCK_BYTES;
        let end = start + block.len();
        match runs.last_mut() {
            Some(run) if run.end == start => run.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk in memory that claims the given ranges to be data.
    struct MemoryDisk {
        bytes: Vec<u8>,
        data: Vec<Range<u64>>,
    }

    impl Disk for MemoryDisk {
        fn size_bytes(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            let next = self.data.iter().find(|range| range.end > offset);
            Ok(next.map(|range| range.start.max(offset)..range.end))
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            let offset = usize::try_from(offset).unwrap();
            into.copy_from_slice(&self.bytes[offset..offset + into.len()]);
            Ok(())
        }
    }

    /// Keeps the written bytes; fails at the write that touches `fails_at`.
    struct MemorySink {
        bytes: Mutex<Vec<u8>>,
        fails_at: Option<u64>,
    }

    impl MemorySink {
        fn new(size: usize) -> MemorySink {
            MemorySink { bytes: Mutex::new(vec![0; size]), fails_at: None }
        }
    }

    impl Sink for MemorySink {
        fn write(&self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
            if self.fails_at.is_some_and(|at| (offset..offset + from.len() as u64).contains(&at)) {
                return Err(DiskError::Other("full".into()));
            }
            let offset = usize::try_from(offset).unwrap();
            self.bytes.lock().unwrap()[offset..offset + from.len()].copy_from_slice(from);
            Ok(())
        }
    }

    fn going_on(_: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Returns a disk of three and a half MiB and 100 bytes: data, a zero block inside it, a hole, data to an unaligned
    /// end.
    fn disk() -> MemoryDisk {
        let mut bytes: Vec<u8> = (0..(7 << 19) + 100).map(|index| 1 + u8::try_from(index % 251).unwrap()).collect();
        bytes[8192..12288].fill(0);
        bytes[1_500_000..3_000_000].fill(0);
        let end = bytes.len() as u64;
        MemoryDisk { bytes, data: vec![0..1_500_000, 3_000_000..end] }
    }

    #[test]
    fn the_copy_is_equal_and_its_numbers_add_up() {
        let disk = disk();
        let sink = MemorySink::new(disk.bytes.len());
        let copied = copy(&disk, &sink, &going_on).unwrap();
        assert!(*sink.bytes.lock().unwrap() == disk.bytes, "bytes differ");
        assert_eq!(copied.written_bytes + copied.zero_bytes, disk.size_bytes());
        assert_eq!(copied.zero_bytes, 1_500_000 + 4096);
    }

    #[test]
    fn nothing_is_copied_of_an_empty_disk() {
        let disk = MemoryDisk { bytes: Vec::new(), data: Vec::new() };
        assert_eq!(copy(&disk, &MemorySink::new(0), &going_on).unwrap(), CopyResult::default());
    }

    #[test]
    fn a_failed_write_stops_the_copy_and_is_told() {
        let disk = disk();
        let sink = MemorySink { fails_at: Some(3_200_000), ..MemorySink::new(disk.bytes.len()) };
        assert_eq!(copy(&disk, &sink, &going_on).unwrap_err().to_string(), "full");
    }

    #[test]
    fn a_copy_stops_when_its_progress_says_so() {
        let disk = disk();
        let sink = MemorySink::new(disk.bytes.len());
        let stopped = copy(&disk, &sink, &|progress| {
            assert_eq!(progress.total_bytes, disk.size_bytes());
            if progress.done_bytes < 3 << 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert!(matches!(stopped, Err(DiskError::Stopped(LongWork::Copying))), "{stopped:?}");
        assert!(*sink.bytes.lock().unwrap() != disk.bytes, "all was copied");
    }

    #[test]
    fn runs_leave_zero_blocks_out() {
        let mut bytes = vec![0; 5 * BLOCK_BYTES + 10];
        bytes[BLOCK_BYTES] = 1;
        bytes[3 * BLOCK_BYTES - 1] = 1;
        bytes[5 * BLOCK_BYTES + 9] = 1;
        let runs = runs_of_data(&bytes);
        assert_eq!(runs, [BLOCK_BYTES..3 * BLOCK_BYTES, 5 * BLOCK_BYTES..5 * BLOCK_BYTES + 10]);
        assert!(runs_of_data(&[0; 100]).is_empty());
    }
}
