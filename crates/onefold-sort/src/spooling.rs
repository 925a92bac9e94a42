//! A spool that is read for the first time while a thread writes it.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::vec;

use crate::{Merge, Row, Spool, SpoolWriter};

/// Rows that are handed over at once: 96 KiB of them.
const CHUNK_ROWS: usize = 4096;
/// Maximum number of chunks that wait to be taken.
const CHUNKS_AHEAD: usize = 2;

/// Merges rows and puts them into a spool; returns that.
type SpoolingWork = Box<dyn FnOnce() -> io::Result<Spool> + Send>;
type Thread = JoinHandle<io::Result<Spool>>;

/// Yields the rows of a merge and keeps them in a [`Spool`]. If some of the rows are in files, a thread merges and
/// keeps them, a little ahead of the caller.
///
/// After an error there are no more rows, and no spool.
#[derive(Debug)]
pub struct SpooledMerge {
    /// Rows that were handed over.
    taken: vec::IntoIter<Row>,
    /// Where the next rows come from; none at the end and after an error.
    source: Option<RowSource>,
    /// All rows, once the last one was handed over.
    spool: Option<Spool>,
}

#[derive(Debug)]
enum RowSource {
    /// The caller's thread merges the rows itself, as it takes them.
    Caller(Spooler),
    /// A thread merges them.
    Thread { chunks: Receiver<Vec<Row>>, thread: Thread },
}

/// A merge, and where its rows are kept.
#[derive(Debug)]
struct Spooler {
    rows: Merge,
    writer: SpoolWriter,
}

impl SpooledMerge {
    /// Returns the rows of a merge. At most `memory_bytes` of what is kept are in memory, and the rest is in a file in
    /// `folder`.
    #[must_use]
    pub fn new(rows: Merge, folder: &Path, memory_bytes: usize) -> SpooledMerge {
        SpooledMerge::spawned_by(spawn, rows, folder, memory_bytes)
    }

    fn spawned_by(
        spawn: fn(SpoolingWork) -> io::Result<Thread>,
        rows: Merge,
        folder: &Path,
        memory_bytes: usize,
    ) -> SpooledMerge {
        // A thread would cost more than it gains where the rows are few.
        let is_short = rows.is_in_memory();
        let spooler = Spooler { rows, writer: SpoolWriter::new(folder, memory_bytes) };
        let source = if is_short { RowSource::Caller(spooler) } else { RowSource::of_thread(spawn, spooler) };
        SpooledMerge { taken: Vec::new().into_iter(), source: Some(source), spool: None }
    }

    /// Returns all rows, whether the caller has taken them or not.
    ///
    /// # Errors
    /// Those of reading and writing files; no space; that an earlier call has failed.
    pub fn finish(mut self) -> io::Result<Spool> {
        while self.chunk()?.is_some() {}
        self.spool.take().ok_or_else(|| io::Error::other("some rows could not be kept"))
    }

    /// Returns the next rows; none at the end.
    fn chunk(&mut self) -> io::Result<Option<Vec<Row>>> {
        match self.source.take() {
            None => Ok(None),
            Some(RowSource::Caller(mut spooler)) => {
                let chunk = spooler.chunk()?;
                if chunk.is_empty() {
                    self.spool = Some(spooler.writer.finish()?);
                    return Ok(None);
                }
                self.source = Some(RowSource::Caller(spooler));
                Ok(Some(chunk))
            }
            Some(RowSource::Thread { chunks, thread }) => match chunks.recv() {
                Ok(chunk) => {
                    self.source = Some(RowSource::Thread { chunks, thread });
                    Ok(Some(chunk))
                }
                // The thread has ended.
                Err(_) => {
                    let ended = thread.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked));
                    self.spool = Some(ended?);
                    Ok(None)
                }
            },
        }
    }
}

impl Iterator for SpooledMerge {
    type Item = io::Result<Row>;

    fn next(&mut self) -> Option<io::Result<Row>> {
        if self.taken.as_slice().is_empty() {
            match self.chunk() {
                Ok(Some(chunk)) => self.taken = chunk.into_iter(),
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.taken.next().map(Ok)
    }
}

impl Drop for SpooledMerge {
    fn drop(&mut self) {
        if let Some(RowSource::Thread { chunks, thread }) = self.source.take() {
            // Without a receiver the thread ends at its next chunk. The caller may go on to remove the folder. Nobody
            // needs the rows any more, so that errors tell nothing.
            drop(chunks);
            drop(thread.join());
        }
    }
}

impl RowSource {
    fn of_thread(spawn: fn(SpoolingWork) -> io::Result<Thread>, spooler: Spooler) -> RowSource {
        let (give, take) = mpsc::sync_channel::<Spooler>(1);
        let (hand_over, chunks) = mpsc::sync_channel(CHUNKS_AHEAD);
        let work = move || match take.recv() {
            Ok(spooler) => spooler.run(&hand_over),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        };
        // Where no thread begins, the rows are still here.
        match spawn(Box::new(work)) {
            Ok(thread) => {
                // The thread waits for it.
                let _ = give.send(spooler);
                RowSource::Thread { chunks, thread }
            }
            // The system has no thread left.
            Err(_) => RowSource::Caller(spooler),
        }
    }
}

impl Spooler {
    /// Returns the next rows, which are kept; an empty list at the end.
    fn chunk(&mut self) -> io::Result<Vec<Row>> {
        let mut chunk = Vec::with_capacity(CHUNK_ROWS);
        for row in self.rows.by_ref().take(CHUNK_ROWS) {
            let row = row?;
            self.writer.push(row)?;
            chunk.push(row);
        }
        Ok(chunk)
    }

    /// Hands all rows over, and returns them. Ends early where nobody takes them.
    fn run(mut self, hand_over: &SyncSender<Vec<Row>>) -> io::Result<Spool> {
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() || hand_over.send(chunk).is_err() {
                return self.writer.finish();
            }
        }
    }
}

fn spawn(work: SpoolingWork) -> io::Result<Thread> {
    thread::Builder::new().name("merge".to_owned()).spawn(work)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::BufReader;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::{ROW_BYTES, SortWriter, SortedRows};

    /// Returns rows, and a merge of them of which `rows_max` may be in memory.
    fn sorted(count: usize, rows_max: usize, folder: &Path) -> (Vec<Row>, Merge) {
        let random = SeededRandom::new(4);
        let mut rows: Vec<Row> = (0..count).map(|_| [random.next_u64() % 50, random.next_u64(), 1]).collect();
        let mut writer = SortWriter::new(folder, rows_max * ROW_BYTES);
        rows.iter().for_each(|row| writer.push(*row).unwrap());
        rows.sort_unstable();
        (rows, writer.finish().unwrap())
    }

    /// Returns rows whose files end in an error after the first one.
    fn damaged(folder: &Path) -> Merge {
        // A folder can be opened, but not read.
        let unreadable = SortedRows::File(BufReader::new(File::open(folder).unwrap()));
        let mut merge = Merge::new(vec![SortedRows::Memory(vec![[1; 3]].into_iter())]).unwrap();
        merge.inputs.push(unreadable);
        merge.heads.push(std::cmp::Reverse(([2; 3], 1)));
        merge
    }

    #[test]
    fn rows_are_yielded_and_kept_by_any_merge() {
        let folder = tempfile::tempdir().unwrap();
        for spawn in [spawn, |_: SpoolingWork| Err(io::ErrorKind::WouldBlock.into())] {
            for (count, rows_max) in [(0, 10), (CHUNK_ROWS, 20_000), (20_000, 50_000), (20_000, 3_000)] {
                for taken in [0, 1, CHUNK_ROWS, 20_000] {
                    let (expected, merge) = sorted(count, rows_max, folder.path());
                    let mut spooling = SpooledMerge::spawned_by(spawn, merge, folder.path(), 100 * ROW_BYTES);
                    let rows = spooling.by_ref().take(taken).collect::<io::Result<Vec<Row>>>().unwrap();
                    assert!(rows == expected[..taken.min(count)], "{taken} of {count} rows");
                    let spool = spooling.finish().unwrap();
                    let kept = spool.read(0, u64::MAX).collect::<io::Result<Vec<Row>>>().unwrap();
                    assert!(kept == expected, "{count} rows, {taken} of them taken");
                }
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
    }

    #[test]
    fn a_thread_merges_only_what_is_in_files() {
        let folder = tempfile::tempdir().unwrap();
        for (rows_max, has_thread) in [(50_000, false), (3_000, true)] {
            let (_, merge) = sorted(20_000, rows_max, folder.path());
            let spooling = SpooledMerge::new(merge, folder.path(), 0);
            assert_eq!(matches!(spooling.source, Some(RowSource::Thread { .. })), has_thread);
        }
    }

    #[test]
    fn an_error_is_returned_once_and_there_is_no_spool() {
        let folder = tempfile::tempdir().unwrap();
        for spawn in [spawn, |_: SpoolingWork| Err(io::ErrorKind::WouldBlock.into())] {
            let mut spooling = SpooledMerge::spawned_by(spawn, damaged(folder.path()), folder.path(), 0);
            assert_eq!(spooling.next().unwrap().unwrap_err().kind(), io::ErrorKind::IsADirectory);
            assert!(spooling.next().is_none());
            assert!(spooling.finish().is_err());
            let unread = SpooledMerge::spawned_by(spawn, damaged(folder.path()), folder.path(), 0);
            assert_eq!(unread.finish().unwrap_err().kind(), io::ErrorKind::IsADirectory);
            let nowhere = folder.path().join("nowhere");
            let (_, merge) = sorted(20_000, 3_000, folder.path());
            let unkept = SpooledMerge::spawned_by(spawn, merge, &nowhere, 0);
            assert_eq!(unkept.finish().unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn rows_that_are_given_up_leave_no_thread_behind() {
        static HAS_ENDED: AtomicBool = AtomicBool::new(false);
        let slowly = |work: SpoolingWork| {
            let ends_late = || {
                let spool = work();
                thread::sleep(Duration::from_millis(100));
                HAS_ENDED.store(true, Ordering::SeqCst);
                spool
            };
            thread::Builder::new().spawn(ends_late)
        };
        let folder = tempfile::tempdir().unwrap();
        let (expected, merge) = sorted(50_000, 3_000, folder.path());
        let mut spooling = SpooledMerge::spawned_by(slowly, merge, folder.path(), 0);
        assert_eq!(spooling.next().unwrap().unwrap(), expected[0]);
        drop(spooling);
        assert!(HAS_ENDED.load(Ordering::SeqCst));
    }
}
