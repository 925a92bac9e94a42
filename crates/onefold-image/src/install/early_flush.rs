//! The early flush of a target: the kernel begins to write while further chunks come, so that little is left for the
//! last flush. By itself it would wait until a tenth of the memory is dirty, and most disks idle until then.
//!
//! A call that has the kernel write waits once the queue of the disk is full. A thread of its own makes it, so that
//! writes go on as long as the memory takes them, though the disk is slower than the network.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use onefold_linux::begin_write_back;
use parking_lot::{Condvar, Mutex};

/// Written bytes after which the kernel is to begin. Fewer would make short requests of chunks with many small files.
const FLUSHED_BYTES: u64 = 8 << 20;
/// Longest range of one call. The end of the target waits for it.
const CALL_BYTES: u64 = FLUSHED_BYTES;

/// The early flush of one target. It ends, and closes the target, when this is dropped.
#[derive(Debug)]
pub(super) struct EarlyFlush {
    queue: Arc<WriteQueue>,
    /// `None` if there is no thread; then nothing is flushed early.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct WriteQueue {
    pending: Mutex<PendingWrites>,
    /// Told of enough bytes, and of the end.
    changed: Condvar,
}

/// The bytes of a target that the kernel was not asked to write yet.
#[derive(Debug, Default)]
struct PendingWrites {
    /// Number of bytes.
    bytes: u64,
    /// The least range that has all of them.
    range: Option<Range<u64>>,
    is_stopped: bool,
}

impl EarlyFlush {
    /// Returns the early flush of a file. Without a descriptor or a thread for it, there is none.
    pub(super) fn of(file: &File) -> EarlyFlush {
        match file.try_clone() {
            Ok(file) => EarlyFlush::by(move |range| begin_write_back(&file, range.start, range.end - range.start)),
            Err(_) => EarlyFlush { queue: Arc::default(), thread: None },
        }
    }

    /// Returns an early flush by calls of `flush`.
    pub(super) fn by(flush: impl Fn(Range<u64>) + Send + 'static) -> EarlyFlush {
        let queue = Arc::new(WriteQueue::default());
        let of_thread = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("early-flush".to_owned());
        EarlyFlush { queue, thread: thread.spawn(move || of_thread.run(&flush)).ok() }
    }

    /// Notes that a range was written. If many bytes are together, the kernel is to write them. Waits for no disk.
    pub(super) fn note(&self, offset: u64, length_bytes: u64) {
        if self.thread.is_some() && self.queue.pending.lock().add(offset..offset.saturating_add(length_bytes)) {
            self.queue.changed.notify_one();
        }
    }
}

impl Drop for EarlyFlush {
    fn drop(&mut self) {
        self.queue.pending.lock().is_stopped = true;
        self.queue.changed.notify_one();
        // The thread holds the lock of the target.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl WriteQueue {
    /// Flushes until the end.
    fn run(&self, flush: &dyn Fn(Range<u64>)) {
        while let Some(mut rest) = self.next() {
            while !rest.is_empty() && !self.pending.lock().is_stopped {
                let end = rest.end.min(rest.start.saturating_add(CALL_BYTES));
                flush(rest.start..end);
                rest.start = end;
            }
        }
    }

    /// Waits for a range that the kernel is to write. Returns `None` at the end.
    fn next(&self) -> Option<Range<u64>> {
        let mut pending = self.pending.lock();
        loop {
            if pending.is_stopped {
                return None;
            }
            if let Some(range) = pending.take() {
                return Some(range);
            }
            self.changed.wait(&mut pending);
        }
    }
}

impl PendingWrites {
    /// Adds a range. Returns whether the kernel is to write now.
    fn add(&mut self, range: Range<u64>) -> bool {
        self.bytes = self.bytes.saturating_add(range.end - range.start);
        let whole = self.range.take().map_or(range.clone(), |old| old.start.min(range.start)..old.end.max(range.end));
        self.range = Some(whole);
        self.bytes >= FLUSHED_BYTES
    }

    /// Returns the range that the kernel is to write now.
    fn take(&mut self) -> Option<Range<u64>> {
        if self.bytes < FLUSHED_BYTES {
            return None;
        }
        self.bytes = 0;
        self.range.take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const HALF: u64 = FLUSHED_BYTES / 2;
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn many_bytes_are_flushed_together_and_each_once() {
        let mut written = PendingWrites::default();
        assert!(!written.add(6 * HALF..8 * HALF - 1));
        assert_eq!(written.take(), None);
        assert!(written.add(HALF..HALF + 1));
        assert!(written.add(4 * HALF..4 * HALF + 1), "the thread is busy");
        assert_eq!(written.take(), Some(HALF..8 * HALF - 1));
        assert!(!written.add(0..1), "it counts anew");
        assert!(written.add(5..5 + FLUSHED_BYTES));
        assert_eq!(written.take(), Some(0..5 + FLUSHED_BYTES));
    }

    #[test]
    fn a_disk_that_is_behind_delays_no_write_and_gets_the_rest_in_one_range() {
        let (begin, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let flush = EarlyFlush::by(move |range| {
            let _ = begin.send(range);
            let _ = released.recv();
        });
        flush.note(0, FLUSHED_BYTES);
        assert_eq!(begun.recv_timeout(PATIENCE), Ok(0..FLUSHED_BYTES));
        // The thread is in the call now.
        (2..20).for_each(|at| flush.note(at * HALF, HALF));
        assert!(begun.try_recv().is_err());
        for at in 1..10 {
            release.send(()).unwrap();
            assert_eq!(begun.recv_timeout(PATIENCE), Ok(at * FLUSHED_BYTES..(at + 1) * FLUSHED_BYTES));
        }
        release.send(()).unwrap();
        flush.note(0, HALF);
        drop(flush);
        assert!(begun.recv().is_err(), "few bytes are left for the last flush, and the thread has ended");
    }

    #[test]
    fn the_end_waits_for_one_call_at_most() {
        let (begin, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let flush = EarlyFlush::by(move |range| {
            let _ = begin.send(range);
            let _ = released.recv();
        });
        flush.note(0, 100 * FLUSHED_BYTES);
        assert_eq!(begun.recv_timeout(PATIENCE), Ok(0..CALL_BYTES));
        flush.queue.pending.lock().is_stopped = true;
        drop(release);
        drop(flush);
        assert_eq!(begun.try_iter().count(), 0);
    }
}
