//! The log for failures that no caller gets.

use onefold_block::shown::ShownText;

/// Receives one line for each failure whose answer is a bare number (an errno), or that has no answer at all.
pub trait FailureLog: Send + Sync {
    /// Reports a failure. `message` is one line without a newline.
    fn error(&self, message: &str);
}

/// Writes to standard error, where a service manager's journal finds it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StderrLog;

impl FailureLog for StderrLog {
    fn error(&self, message: &str) {
        use std::io::Write;
        // If standard error is gone, the daemon has nowhere left to report.
        let _ = writeln!(std::io::stderr().lock(), "onefold: {}", ShownText::line(message));
    }
}
