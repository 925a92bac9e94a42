//! The system's log, for a daemon without a terminal: one datagram per line to `/dev/log`, in the form of syslog(3).

use std::os::unix::net::UnixDatagram;

use onefold_block::shown::ShownText;

const SOCKET: &str = "/dev/log";
/// Facility "system daemons" (3), severity "error" (3) and "informational" (6): facility * 8 + severity.
const DAEMON_ERROR: u32 = 3 * 8 + 3;
const DAEMON_INFO: u32 = 3 * 8 + 6;

/// Writes to the system's log, if there is one.
#[derive(Debug)]
pub(crate) struct SystemLog {
    socket: Option<UnixDatagram>,
}

impl SystemLog {
    /// Connects to the log. Without a log, messages are lost: a daemon must not fail for that.
    pub(crate) fn connect() -> SystemLog {
        let connect = || {
            let socket = UnixDatagram::unbound()?;
            socket.connect(SOCKET)?;
            // A stuck log must not stop a file system.
            socket.set_nonblocking(true)?;
            std::io::Result::Ok(socket)
        };
        SystemLog { socket: connect().ok() }
    }

    /// Logs a message that is no failure.
    pub(crate) fn info(&self, message: &str) {
        self.send(DAEMON_INFO, message);
    }

    fn send(&self, priority: u32, message: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(line(priority, message).as_bytes());
        }
    }
}

impl onefold_export::FailureLog for SystemLog {
    fn error(&self, message: &str) {
        self.send(DAEMON_ERROR, message);
    }
}

fn line(priority: u32, message: &str) -> String {
    format!("<{priority}>onefold[{}]: {}", std::process::id(), ShownText::line(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_forges_no_other() {
        assert_eq!(line(DAEMON_INFO, "x\n<0>y\u{1b}"), format!("<30>onefold[{}]: x\\n<0>y\\x1b", std::process::id()));
    }

    #[test]
    fn a_line_carries_priority_name_and_process() {
        assert_eq!(line(DAEMON_ERROR, "x"), format!("<27>onefold[{}]: x", std::process::id()));
    }
}
