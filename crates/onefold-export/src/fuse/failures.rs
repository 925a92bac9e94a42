//! Turns failures into errnos, and reports those to the operator that an errno cannot express.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use onefold_pool::{Ino, PoolError};
use rustix::io::Errno;

use super::errno::{Reportee, errno_of};
use crate::log::FailureLog;

/// Maximum number of log lines about failed requests during the life of a mount. A dead disk fails a million requests a
/// minute, and the first thousand lines suffice.
const LINES_MAX: u32 = 1000;

/// Handles the failures of requests.
pub(super) struct FailureHandler {
    log: Arc<dyn FailureLog>,
    lines: AtomicU32,
    stopped_reported: AtomicBool,
}

impl FailureHandler {
    pub(super) fn new(log: Arc<dyn FailureLog>) -> FailureHandler {
        FailureHandler { log, lines: AtomicU32::new(0), stopped_reported: AtomicBool::new(false) }
    }

    /// Returns the errno for the `error` of `operation` on `ino`, and reports the error if the operator must see it.
    pub(super) fn handle(&self, operation: &'static str, ino: Ino, error: &PoolError) -> Errno {
        let (errno, report) = errno_of(error);
        if report == Reportee::Operator && self.is_news(error) {
            self.tell(&format!("{operation} of inode {ino} failed: {error}"));
        }
        errno
    }

    /// Writes a line to the log. The log may be a pipe that no process reads at the moment.
    fn tell(&self, line: &str) {
        onefold_pool::about_to_wait();
        self.log.error(line);
    }

    fn is_news(&self, error: &PoolError) -> bool {
        // A stopped pool repeats its first failure for every request.
        if matches!(error, PoolError::Stopped { .. }) && self.stopped_reported.swap(true, Ordering::Relaxed) {
            return false;
        }
        match self.lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lines| lines.checked_add(1)) {
            Ok(LINES_MAX) => {
                self.tell("further failures of requests are not reported");
                false
            }
            lines => lines.is_ok_and(|lines| lines < LINES_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::BlockNo;
    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct RecordedLines(Mutex<Vec<String>>);

    impl FailureLog for RecordedLines {
        fn error(&self, message: &str) {
            self.0.lock().push(message.to_owned());
        }
    }

    fn damaged() -> PoolError {
        PoolError::Damaged { structure: "file map", block: BlockNo(9), what: "bad checksum".into() }
    }

    #[test]
    fn damage_is_reported_with_the_operation_and_the_inode() {
        let lines = Arc::new(RecordedLines::default());
        let failures = FailureHandler::new(lines.clone());
        assert_eq!(failures.handle("read", Ino(5), &damaged()), Errno::IO);
        let heard = lines.0.lock().join("\n");
        assert!(heard.contains("read of inode 5") && heard.contains("file map"), "{heard}");
    }

    #[test]
    fn a_callers_mistake_is_not_reported() {
        let lines = Arc::new(RecordedLines::default());
        assert_eq!(FailureHandler::new(lines.clone()).handle("lookup", Ino(1), &PoolError::NotFound), Errno::NOENT);
        assert!(lines.0.lock().is_empty());
    }

    #[test]
    fn a_stopped_pool_is_reported_once() {
        let lines = Arc::new(RecordedLines::default());
        let failures = FailureHandler::new(lines.clone());
        for _ in 0..5 {
            failures.handle("write", Ino(5), &PoolError::Stopped { cause: "cannot flush".into() });
        }
        assert_eq!(lines.0.lock().len(), 1);
    }

    #[test]
    fn reports_are_bounded() {
        let lines = Arc::new(RecordedLines::default());
        let failures = FailureHandler::new(lines.clone());
        for _ in 0..LINES_MAX * 2 {
            failures.handle("read", Ino(5), &damaged());
        }
        let heard = lines.0.lock();
        assert_eq!(u32::try_from(heard.len()).unwrap(), LINES_MAX + 1);
        assert!(heard.last().unwrap().contains("not reported"));
    }
}
