//! The log of a server. A thread of its own writes the lines, so nothing else waits for standard error: a terminal may
//! be stopped, and a pipe full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Maximum number of lines that wait to be written. Further ones are left out.
const WAITING_MAX: usize = 1024;

/// The log of a server.
#[derive(Clone, Debug)]
pub(super) struct ServerLog {
    entries: SyncSender<LogEntry>,
    /// Number of lines that were left out, and not mentioned yet.
    left_out: Arc<AtomicU64>,
}

/// An entry for the thread that writes.
#[derive(Debug)]
enum LogEntry {
    Line(String),
    /// All lines before this one are written once the other end is dropped.
    End(SyncSender<()>),
}

impl ServerLog {
    /// Starts the thread, which writes lines by `write` until the log is dropped.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub(super) fn begin(write: impl FnMut(&str) + Send + 'static) -> io::Result<ServerLog> {
        let (entries, waiting) = sync_channel(WAITING_MAX);
        let log = ServerLog { entries, left_out: Arc::default() };
        let left_out = Arc::clone(&log.left_out);
        thread::Builder::new().name("log".to_owned()).spawn(move || write_lines(&waiting, &left_out, write))?;
        Ok(log)
    }

    /// Adds a line, and waits for nothing. Without room for the line, it is left out and counted.
    pub(super) fn add(&self, line: &str) {
        if self.entries.try_send(LogEntry::Line(line.to_owned())).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written, but not longer than `patience`.
    pub(super) fn finish(&self, patience: Duration) {
        let (done, written) = sync_channel(0);
        if self.entries.try_send(LogEntry::End(done)).is_ok() {
            let _ = written.recv_timeout(patience);
        }
    }
}

/// Writes lines until no log can add one.
fn write_lines(entries: &Receiver<LogEntry>, left_out: &AtomicU64, mut write: impl FnMut(&str)) {
    for entry in entries {
        match entry {
            LogEntry::Line(line) => write(&line),
            LogEntry::End(written) => drop(written),
        }
        let count = left_out.swap(0, Ordering::Relaxed);
        if count > 0 {
            write(&format!("lines left out because the log was full: {count}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn lines_are_written_in_their_order() {
        let (written, lines) = channel();
        let log = ServerLog::begin(move |line| written.send(line.to_owned()).unwrap()).unwrap();
        ["a", "b", "c"].iter().for_each(|line| log.add(line));
        log.finish(PATIENCE);
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn nobody_waits_for_a_log_that_takes_no_line() {
        let ((begun, begins), (release, released)) = (channel(), channel::<()>());
        let (written, lines) = channel();
        let log = ServerLog::begin(move |line| {
            let _ = begun.send(());
            let _ = released.recv();
            let _ = written.send(line.to_owned());
        })
        .unwrap();
        log.add("first");
        begins.recv_timeout(PATIENCE).unwrap();
        let began = Instant::now();
        (0..WAITING_MAX + 7).for_each(|_| log.add("line"));
        log.finish(Duration::from_secs(3600));
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        drop(release);
        let deadline = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        while all.len() < WAITING_MAX + 2 && Instant::now() < deadline {
            all.extend(lines.recv_timeout(PATIENCE));
        }
        assert_eq!(all[..3], ["first", "lines left out because the log was full: 7", "line"]);
        assert_eq!(all.len(), WAITING_MAX + 2);
    }
}
