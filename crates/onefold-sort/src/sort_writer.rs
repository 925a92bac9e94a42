//! A sort that one thread feeds, while another one sorts what came before.

use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use crate::{Merge, ROW_BYTES, Row, RowBuffer, Sorter};

/// Sorts rows and files them; returns their memory.
type FilingWork = Box<dyn FnOnce() -> io::Result<Vec<Row>> + Send>;
type FilingThread = JoinHandle<io::Result<Vec<Row>>>;

/// Takes rows down in any order and returns them sorted, once. For a sort that several threads feed, use a [`Sorter`].
///
/// Where not all rows fit into memory, half of it is filled while a thread sorts the other half and puts it into a
/// file.
#[derive(Debug)]
pub struct SortWriter {
    sorter: Arc<Sorter>,
    rows: RowBuffer,
    /// Sorts the rows before those, files them, and gives their memory back.
    filing: Option<FilingThread>,
    spawn: fn(FilingWork) -> io::Result<FilingThread>,
    /// Why rows were lost, if they were. The list is of no use any more.
    failed: Option<io::ErrorKind>,
}

impl SortWriter {
    /// Returns an empty list, of which at most `memory_bytes` are in memory and the rest in files in `folder`. Memory
    /// is taken with the first row.
    #[must_use]
    pub fn new(folder: &Path, memory_bytes: usize) -> SortWriter {
        let half = (memory_bytes / 2).max(ROW_BYTES);
        let sorter = Arc::new(Sorter::new(folder));
        SortWriter { sorter, rows: RowBuffer::new(half), filing: None, spawn, failed: None }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// Those of writing a file, perhaps for rows that were added before; no space. After an error all later calls fail.
    pub fn push(&mut self, row: Row) -> io::Result<()> {
        self.check()?;
        if self.rows.is_full() {
            self.file().inspect_err(|error| self.failed = Some(error.kind()))?;
        }
        self.rows.add(row);
        Ok(())
    }

    /// Has the rows that are in memory sorted and put into a file.
    fn file(&mut self) -> io::Result<()> {
        let emptied = self.wait()?;
        let sorter = Arc::clone(&self.sorter);
        let full = std::mem::replace(&mut self.rows.rows, emptied);
        let work = move |mut full: Vec<Row>| {
            full.sort_unstable();
            sorter.file(&full)?;
            full.clear();
            Ok(full)
        };
        let (give, take) = mpsc::sync_channel(1);
        let work_of_thread = work.clone();
        // Where no thread begins, the rows are still here.
        match (self.spawn)(Box::new(move || take.recv().map_or_else(|_| Ok(Vec::new()), work_of_thread))) {
            Ok(thread) => {
                self.filing = Some(thread);
                // The thread waits for it.
                let _ = give.send(full);
            }
            // The system has no thread left.
            Err(_) => self.rows.rows = work(full)?,
        }
        Ok(())
    }

    /// Fails where rows were lost.
    fn check(&self) -> io::Result<()> {
        self.failed.map_or(Ok(()), |kind| Err(io::Error::new(kind, "rows before could not be put into a file")))
    }

    /// Waits until the rows before are in a file; returns their memory, or an empty list where there were none.
    fn wait(&mut self) -> io::Result<Vec<Row>> {
        match self.filing.take().map(JoinHandle::join) {
            None => Ok(Vec::new()),
            Some(Ok(filed)) => filed,
            Some(Err(panicked)) => std::panic::resume_unwind(panicked),
        }
    }

    /// Returns all rows in order. What is in memory stays there.
    ///
    /// # Errors
    /// Those of writing and reading the files; no space.
    pub fn finish(mut self) -> io::Result<Merge> {
        self.check()?;
        let rows = std::mem::replace(&mut self.rows, RowBuffer::new(0)).sorted();
        self.wait()?;
        self.sorter.merged(vec![rows])
    }
}

fn spawn(work: FilingWork) -> io::Result<FilingThread> {
    thread::Builder::new().name("sort".to_owned()).spawn(work)
}

impl Drop for SortWriter {
    fn drop(&mut self) {
        // A caller that gives the list up may go on to remove the folder. The rows have no reader any more, so that
        // errors tell nothing.
        drop(self.filing.take().map(JoinHandle::join));
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::ROW_BYTES;

    #[test]
    fn rows_come_out_in_order_from_memory_and_from_files() {
        let random = SeededRandom::new(3);
        let rows: Vec<Row> = (0..5000).map(|_| [random.next_u64() % 50, random.next_u64(), 1]).collect();
        let mut expected = rows.clone();
        expected.sort_unstable();
        let folder = tempfile::tempdir().unwrap();
        for rows_max in [1, 64, 4999, 5000, 5001] {
            let mut writer = SortWriter::new(folder.path(), rows_max * ROW_BYTES);
            rows.iter().for_each(|row| writer.push(*row).unwrap());
            let all = writer.finish().unwrap().collect::<io::Result<Vec<Row>>>().unwrap();
            assert!(all == expected, "{rows_max} rows in memory");
        }
        assert_eq!(SortWriter::new(folder.path(), 0).finish().unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
    }

    #[test]
    fn rows_that_could_not_be_filed_are_an_error_of_a_later_step() {
        let folder = tempfile::tempdir().unwrap();
        for count in [2, 3, 100] {
            let mut writer = SortWriter::new(&folder.path().join("nowhere"), 2 * ROW_BYTES);
            let pushed = (0..count).try_for_each(|number| writer.push([number, 0, 0]));
            assert_eq!(pushed.is_err(), count > 2, "{count} rows");
            assert!(pushed.and_then(|()| writer.finish()).is_err(), "{count} rows");
        }
    }

    /// The rows that a failed step took with it are gone: a list without them must not pass for the whole.
    #[test]
    fn after_an_error_a_list_fails_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SortWriter::new(&folder.path().join("nowhere"), 2 * ROW_BYTES);
        assert!((0..100).any(|number| writer.push([number, 0, 0]).is_err()));
        assert_eq!(writer.push([0; 3]).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// Limits of processes (`pids.max`, RLIMIT_NPROC) are no reason to end the work.
    #[test]
    fn without_a_thread_rows_are_sorted_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SortWriter::new(folder.path(), 10 * ROW_BYTES);
        writer.spawn = |_| Err(io::ErrorKind::WouldBlock.into());
        (0..1000).rev().for_each(|number| writer.push([number, 0, 0]).unwrap());
        let all = writer.finish().unwrap().map(|row| row.map(|[first, ..]| first)).collect::<io::Result<Vec<_>>>();
        assert_eq!(all.unwrap(), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_list_that_is_given_up_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SortWriter::new(folder.path(), 100 * ROW_BYTES);
        (0..1000).for_each(|number| writer.push([number % 7, number, 0]).unwrap());
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        folder.close().unwrap();
    }
}
