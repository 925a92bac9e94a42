//! Where the doors report what no caller will hear of.

use onefold_block::shown::ShownText;

/// Receives one line for each failure that is answered with a bare number (an errno) or with nothing at all.
pub trait Log: Send + Sync {
    /// Reports a failure. `message` is one line without a newline.
    fn error(&self, message: &str);
}

/// Writes to standard error, where a service manager's journal finds it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StderrLog;

impl Log for StderrLog {
    fn error(&self, message: &str) {
        use std::io::Write;
        // A daemon whose standard error is gone has nowhere left to complain.
        let _ = writeln!(std::io::stderr().lock(), "onefold: {}", ShownText::line(message));
    }
}
