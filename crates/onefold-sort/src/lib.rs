//! Sorting more rows than fit into memory: sorted runs in temporary files, merged at the end.
//!
//! The files have no names from the moment they exist, so nothing is left behind however the process ends.

mod ordered;
mod sort_writer;
mod spool;
mod spooling;

pub use ordered::{OrderedRows, OrderedWriter};
pub use sort_writer::SortWriter;
pub use spool::{Spool, SpoolReader, SpoolWriter};
pub use spooling::SpooledMerge;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use parking_lot::Mutex;

/// What is sorted, by its words from first to last.
pub type Row = [u64; 3];

/// Length of a row, in memory and in a file.
pub const ROW_BYTES: usize = size_of::<Row>();
/// As many runs of one generation are merged into one of the next: it bounds open files and buffers.
const RUNS_MAX: usize = 32;
/// Buffer of each file that is being written or merged.
const BUFFER_BYTES: usize = 128 << 10;

/// A sort in progress, fed by several threads through a [`SortBatch`] each.
#[derive(Debug)]
pub struct Sorter {
    folder: PathBuf,
    /// Runs in files, by generation.
    filed: Mutex<Vec<Vec<SortedFile>>>,
    spilled_bytes: AtomicU64,
}

/// Sorted rows in a file.
#[derive(Debug)]
struct SortedFile {
    file: File,
}

impl Sorter {
    /// Returns an empty sort that puts what does not fit into memory into `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Sorter {
        Sorter { folder: folder.to_owned(), filed: Mutex::default(), spilled_bytes: AtomicU64::new(0) }
    }

    /// Returns a batch of at most `memory_bytes`; memory is taken as it fills.
    #[must_use]
    pub fn batch(&self, memory_bytes: usize) -> SortBatch<'_> {
        SortBatch { sorter: self, rows: RowBuffer::new(memory_bytes) }
    }

    /// Returns how much was written into files so far.
    #[must_use]
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes.load(Ordering::Relaxed)
    }

    /// Returns all rows in order; `batches` are those of this sort. What is in memory stays there.
    ///
    /// # Errors
    /// Those of reading the files.
    pub fn merged(&self, batches: Vec<Vec<Row>>) -> io::Result<Merge> {
        let mut inputs: Vec<SortedRows> =
            batches.into_iter().map(|rows| SortedRows::Memory(rows.into_iter())).collect();
        for run in std::mem::take(&mut *self.filed.lock()).into_iter().flatten() {
            inputs.push(run.open()?);
        }
        Merge::new(inputs)
    }

    /// Files a sorted run, and merges those of a generation that is complete.
    fn file(&self, rows: &[Row]) -> io::Result<()> {
        let mut run = self.write(rows.iter().map(|row| Ok(*row)))?;
        // The lock is held during a merge: others that have a run to file wait, and no more files are opened meanwhile.
        let mut filed = self.filed.lock();
        for generation in 0.. {
            if filed.len() == generation {
                filed.push(Vec::new());
            }
            filed[generation].push(run);
            if filed[generation].len() < RUNS_MAX {
                break;
            }
            let inputs: io::Result<Vec<SortedRows>> = filed[generation].drain(..).map(SortedFile::open).collect();
            run = self.write(Merge::new(inputs?)?)?;
        }
        Ok(())
    }

    fn write(&self, rows: impl Iterator<Item = io::Result<Row>>) -> io::Result<SortedFile> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, tempfile::tempfile_in(&self.folder)?);
        for row in rows {
            out.write_all(&encode(row?))?;
        }
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.spilled_bytes.fetch_add(file.stream_position()?, Ordering::Relaxed);
        Ok(SortedFile { file })
    }
}

/// One thread's part of a sort.
#[derive(Debug)]
pub struct SortBatch<'a> {
    sorter: &'a Sorter,
    rows: RowBuffer,
}

impl SortBatch<'_> {
    /// Adds a row.
    ///
    /// # Errors
    /// Those of writing a file; no space.
    pub fn push(&mut self, row: Row) -> io::Result<()> {
        self.rows.push(row, self.sorter)
    }

    /// Returns what is left in memory, sorted.
    #[must_use]
    pub fn finish(self) -> Vec<Row> {
        self.rows.sorted()
    }
}

/// Rows in memory, which go into files as they become too many.
#[derive(Debug)]
struct RowBuffer {
    rows: Vec<Row>,
    rows_max: usize,
}

impl RowBuffer {
    fn new(memory_bytes: usize) -> RowBuffer {
        RowBuffer { rows: Vec::new(), rows_max: (memory_bytes / ROW_BYTES).max(1) }
    }

    fn push(&mut self, row: Row, sorter: &Sorter) -> io::Result<()> {
        self.add(row);
        if self.is_full() {
            self.rows.sort_unstable();
            sorter.file(&self.rows)?;
            self.rows.clear();
        }
        Ok(())
    }

    /// Adds a row to those in memory, which are not full.
    fn add(&mut self, row: Row) {
        if self.rows.capacity() == 0 {
            // All at once: growing would hold two copies for a moment. Pages are taken when they are written.
            self.rows.reserve_exact(self.rows_max);
        }
        self.rows.push(row);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= self.rows_max
    }

    fn sorted(mut self) -> Vec<Row> {
        self.rows.sort_unstable();
        self.rows
    }
}

impl SortedFile {
    fn open(mut self) -> io::Result<SortedRows> {
        self.file.rewind()?;
        Ok(SortedRows::File(BufReader::with_capacity(BUFFER_BYTES, self.file)))
    }
}

/// Sorted rows, wherever they are.
#[derive(Debug)]
enum SortedRows {
    Memory(vec::IntoIter<Row>),
    File(BufReader<File>),
}

impl SortedRows {
    fn next(&mut self) -> io::Result<Option<Row>> {
        match self {
            SortedRows::Memory(rows) => Ok(rows.next()),
            SortedRows::File(file) => {
                let mut bytes = [0; ROW_BYTES];
                // The file is our own and holds whole rows: an end is the end.
                match file.read_exact(&mut bytes) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                    Err(error) => return Err(error),
                }
                Ok(Some(decode(bytes)))
            }
        }
    }
}

fn encode(row: Row) -> [u8; ROW_BYTES] {
    let mut bytes = [0; ROW_BYTES];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(row) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

fn decode(bytes: [u8; ROW_BYTES]) -> Row {
    let mut row = [0; 3];
    for (word, bytes) in row.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    row
}

/// The rows of several inputs in one order.
#[derive(Debug)]
pub struct Merge {
    inputs: Vec<SortedRows>,
    /// The next row of each input that has one.
    heads: BinaryHeap<Reverse<(Row, usize)>>,
}

impl Merge {
    /// Tells whether all rows are in memory.
    fn is_in_memory(&self) -> bool {
        self.inputs.iter().all(|input| matches!(input, SortedRows::Memory(_)))
    }

    fn new(mut inputs: Vec<SortedRows>) -> io::Result<Merge> {
        let mut heads = BinaryHeap::with_capacity(inputs.len());
        for (at, input) in inputs.iter_mut().enumerate() {
            if let Some(row) = input.next()? {
                heads.push(Reverse((row, at)));
            }
        }
        Ok(Merge { inputs, heads })
    }
}

impl Iterator for Merge {
    type Item = io::Result<Row>;

    fn next(&mut self) -> Option<io::Result<Row>> {
        let mut head = self.heads.peek_mut()?;
        let Reverse((row, at)) = *head;
        match self.inputs[at].next() {
            Ok(Some(next)) => *head = Reverse((next, at)),
            Ok(None) => {
                PeekMut::pop(head);
            }
            Err(error) => {
                PeekMut::pop(head);
                return Some(Err(error));
            }
        }
        Some(Ok(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;

    fn random_rows(seed: u64, count: usize) -> Vec<Row> {
        let random = SeededRandom::new(seed);
        // Few values, so that many rows are equal.
        (0..count).map(|_| [random.next_u64() % 5, random.next_u64() % 50, random.next_u64()]).collect()
    }

    /// Sorts `rows` through `threads` batches of `rows_max` rows.
    fn sorted(rows: &[Row], threads: usize, rows_max: usize) -> (Vec<Row>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let sorter = Sorter::new(folder.path());
        let mut batches: Vec<SortBatch<'_>> = (0..threads).map(|_| sorter.batch(rows_max * ROW_BYTES)).collect();
        for (index, row) in rows.iter().enumerate() {
            batches[index % threads].push(*row).unwrap();
        }
        let left = batches.into_iter().map(SortBatch::finish).collect();
        let all = sorter.merged(left).unwrap().collect::<io::Result<Vec<Row>>>().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
        (all, sorter.spilled_bytes())
    }

    #[test]
    fn rows_come_out_in_order_whatever_fits_into_memory() {
        let rows = random_rows(1, 20_000);
        let mut expected = rows.clone();
        expected.sort_unstable();
        for (threads, rows_max) in [(1, 100_000), (2, 20_000), (2, 900), (3, 64), (1, 7)] {
            let (all, spilled_bytes) = sorted(&rows, threads, rows_max);
            assert!(all == expected, "{threads} threads, {rows_max} rows");
            assert_eq!(spilled_bytes > 0, threads * rows_max < 20_000);
        }
    }

    #[test]
    fn many_small_runs_are_merged_in_generations() {
        // 20,000 rows in runs of 7 are 2,857 runs: two generations of 32.
        let folder = tempfile::tempdir().unwrap();
        let sorter = Sorter::new(folder.path());
        let mut batch = sorter.batch(7 * ROW_BYTES);
        for row in random_rows(2, 20_000) {
            batch.push(row).unwrap();
        }
        let filed = sorter.filed.lock();
        assert!(filed.len() == 3 && filed.iter().all(|runs| runs.len() < RUNS_MAX), "{}", filed.len());
    }

    #[test]
    fn nothing_sorted_is_nothing() {
        assert_eq!(sorted(&[], 2, 10), (Vec::new(), 0));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let sorter = Sorter::new(Path::new("/proc/nowhere"));
        let mut batch = sorter.batch(ROW_BYTES);
        assert!(batch.push([1, 2, 3]).is_err());
    }
}
