//! A mount that outlives its command: the command starts itself again as a daemon and waits for the daemon's first
//! word.
//!
//! A new program instead of a fork inherits no thread and no lock, and needs no `unsafe`. The daemon reports on its
//! standard output, a pipe, whether the mount is ready. Then it closes all three standard streams.

mod syslog;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

pub(crate) use syslog::SystemLog;

use crate::failure::{Failure, Outcome};

/// Maximum length of a daemon's first word, in bytes.
const WORD_BYTES_MAX: u64 = 64 << 10;

/// The daemon's first word.
#[derive(Debug, Serialize, Deserialize)]
enum StartReport {
    Ready,
    Failed(Failure),
}

/// Runs this program again with `arguments` in the background. Returns when it reports that it is ready.
pub(crate) fn start(arguments: Vec<OsString>) -> Outcome<u32> {
    let cannot = || "cannot start the daemon".to_owned();
    let mut child = Command::new("/proc/self/exe")
        .arg0("onefold")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::of_io(cannot(), &error))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let heard = BufReader::new(stdout.take(WORD_BYTES_MAX)).read_line(&mut line);
        heard.map_err(|error| Failure::of_io(cannot(), &error))?;
    }
    match serde_json::from_str(&line) {
        Ok(StartReport::Ready) => Ok(child.id()),
        Ok(StartReport::Failed(failure)) => {
            // It ends by itself, and its report is known.
            let _ = child.wait();
            Err(failure)
        }
        Err(_) => {
            let status = child.wait().map_err(|error| Failure::of_io(cannot(), &error))?;
            Err(Failure::new(cannot()).because_of(format!("it ended without a message: {status}")))
        }
    }
}

/// In the daemon: leaves the terminal of the starting process, whose signals and end then do not matter.
pub(crate) fn detach() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// In the daemon: reports that the mount is ready, and releases the standard streams and the working directory.
pub(crate) fn say_ready() -> io::Result<()> {
    say(&StartReport::Ready)?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir("/")
}

/// In the daemon: reports why there is no mount.
pub(crate) fn say_failed(failure: &Failure) {
    // If no process listens any more, only the exit code is left to report.
    let _ = say(&StartReport::Failed(failure.clone()));
}

fn say(word: &StartReport) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_line() {
        let word = StartReport::Failed(Failure::new("two\nlines").hint("x"));
        let line = serde_json::to_string(&word).unwrap();
        assert!(!line.contains('\n'));
        assert!(
            matches!(serde_json::from_str(&line), Ok(StartReport::Failed(failure)) if failure.error == "two\nlines")
        );
    }
}
