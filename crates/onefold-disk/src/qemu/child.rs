//! A run of `qemu-img`, which inherits open files and is killed when it is dropped or this process ends.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onefold_block::child::end_with_parent;
use parking_lot::Mutex;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::error::ImageError;

const PROGRAM: &str = "qemu-img";
/// Time between two checks of a run, for its end and for the room that is left.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of bytes that are kept of its error messages.
const COMPLAINT_BYTES_MAX: u64 = 4 << 10;

/// Held while files are inheritable, so that no other run of the program inherits them.
static STARTING: Mutex<()> = Mutex::new(());

/// A run of `qemu-img`.
#[derive(Debug)]
pub(super) struct QemuProcess {
    child: Child,
    complaint: Option<JoinHandle<String>>,
}

impl QemuProcess {
    /// Starts the program. It inherits `files` under the same descriptor numbers as in this process. It ends with the
    /// calling thread at the latest.
    ///
    /// # Errors
    /// [`ImageError::NotStarted`], also if the program is missing.
    pub(super) fn start(arguments: &[String], files: &[&File]) -> Result<QemuProcess, ImageError> {
        QemuProcess::try_start(arguments, files).map_err(ImageError::NotStarted)
    }

    fn try_start(arguments: &[String], files: &[&File]) -> io::Result<QemuProcess> {
        let _starting = STARTING.lock();
        let inheritable = |flags: FdFlags| files.iter().try_for_each(|file| fcntl_setfd(file, flags));
        let started = inheritable(FdFlags::empty()).map_err(io::Error::from).and_then(|()| {
            let mut command = Command::new(PROGRAM);
            // A process that is killed drops nothing.
            end_with_parent(&mut command);
            command
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                // Ctrl-C in a terminal is for this process, which ends the program itself and says so.
                .process_group(0)
                .spawn()
        });
        let restored = inheritable(FdFlags::CLOEXEC);
        let mut child = started?;
        let complaint =
            child.stderr.take().map(|stderr| thread::spawn(move || read_bounded(stderr, COMPLAINT_BYTES_MAX)));
        let running = QemuProcess { child, complaint };
        restored?;
        Ok(running)
    }

    /// Limits the length of the files that it writes, in bytes.
    pub(super) fn limit_file_length(&self, bytes: u64) -> io::Result<()> {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        prlimit(Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(0)), Resource::Fsize, limit)?;
        Ok(())
    }

    /// Returns its standard output; `None` the second time.
    pub(super) fn output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Returns its exit status; `None` while it runs.
    pub(super) fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Returns the error with its messages, up to a maximum length. Waits for the program to end.
    pub(super) fn complaint(&mut self) -> ImageError {
        ImageError::Complaint(self.complaint.take().and_then(|thread| thread.join().ok()).unwrap_or_default())
    }
}

impl Drop for QemuProcess {
    fn drop(&mut self) {
        // Both calls fail only if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the first `bytes_max` bytes of a text. Reads and drops the rest, so that its writer never blocks.
pub(super) fn read_bounded(from: impl Read, bytes_max: u64) -> String {
    let mut bytes = Vec::new();
    let mut bounded = from.take(bytes_max);
    // A broken pipe ends the text like its regular end.
    let _ = bounded.read_to_end(&mut bytes);
    let dropped = io::copy(&mut bounded.into_inner(), &mut io::sink()).unwrap_or(0);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if dropped > 0 {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_has_a_bounded_length() {
        assert_eq!(read_bounded(&b"short"[..], 8), "short");
        assert_eq!(read_bounded(&[b'x'; 1 << 20][..], 8), "xxxxxxxx...");
    }
}
