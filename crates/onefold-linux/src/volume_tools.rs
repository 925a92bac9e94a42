//! The programs of e2fsprogs, which make and change the metadata of a common volume.
//!
//! A program gets the volume as an open file under `/proc/self/fd`: no name is resolved again, and no other file can
//! take its place. It runs as the owner of the volume, with a time limit. `debugfs` reports failures only in its
//! messages, so every message but its own name counts as one.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::child::end_with_parent;
use onefold_substrate::{Files, Tool, ToolError, UserNo, VolumeTools};
use parking_lot::Mutex;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{Mode, Uid, fchmod, fchown};

use crate::LinuxSubstrate;
use crate::file::LinuxFile;

const MKE2FS: Tool = Tool { program: "mke2fs", package: "e2fsprogs" };
const TUNE2FS: Tool = Tool { program: "tune2fs", package: "e2fsprogs" };
const DEBUGFS: Tool = Tool { program: "debugfs", package: "e2fsprogs" };
const E2FSCK: Tool = Tool { program: "e2fsck", package: "e2fsprogs" };

/// Where these programs are looked up. The last folders are missing from users' `PATH`.
pub(super) const PATHS: &str = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/sbin";
/// The user and group without rights.
pub(super) const NOBODY: u32 = 65534;
/// Maximum run time of a program. A volume with a million files takes some minutes.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Maximum number of bytes that are kept of messages.
const COMPLAINT_BYTES_MAX: u64 = 4 << 10;
/// Maximum time between two checks for the end of a program.
const POLL_MAX: Duration = Duration::from_millis(20);
/// Features of a volume. Only these programs write to it, so it needs no journal.
const FEATURES: &str = "^has_journal,^resize_inode,metadata_csum,64bit,extent,^inline_data";
/// Held while a program inherits a descriptor, so that no other program started here inherits it, too.
static STARTING: Mutex<()> = Mutex::new(());

impl VolumeTools for LinuxSubstrate {
    fn give(&self, file: &LinuxFile, owner: UserNo) -> io::Result<()> {
        fchmod(file.as_fd(), Mode::RUSR | Mode::WUSR)?;
        if self.protection(file)?.owner != owner {
            fchown(file.as_fd(), Some(Uid::from_raw(owner.0)), None)?;
        }
        Ok(())
    }

    fn make_volume(&self, file: &LinuxFile, owner: UserNo) -> Result<(), ToolError> {
        let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-L", "onefold-common"];
        let lazily = ["-E", "lazy_itable_init=1,nodiscard", "-O", FEATURES];
        run(MKE2FS, &[&options[..], &lazily[..]].concat(), file, owner, "")?;
        run(TUNE2FS, &["-O", "read-only"], file, owner, "").map(drop)
    }

    fn edit_volume(&self, file: &LinuxFile, owner: UserNo, commands: &str) -> Result<(), ToolError> {
        let complaint = run(DEBUGFS, &["-w", "-f", "-"], file, owner, commands)?;
        match complaint.lines().find(|line| !line.is_empty() && !is_banner(line)) {
            Some(line) => Err(ToolError::Failed { tool: DEBUGFS, complaint: line.to_owned() }),
            None => Ok(()),
        }
    }

    fn check_volume(&self, file: &LinuxFile, owner: UserNo) -> Result<(), ToolError> {
        run(E2FSCK, &["-f", "-n"], file, owner, "").map(drop)
    }
}

/// Runs a program on a file with the given input, and returns the beginning of its standard error.
///
/// # Errors
/// See [`ToolError`]; `Failed` if the exit status is not 0.
fn run(tool: Tool, arguments: &[&str], file: &LinuxFile, owner: UserNo, input: &str) -> Result<String, ToolError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => ToolError::Missing { tool },
        _ => ToolError::Io { tool, source },
    };
    let mut child = ToolProcess(start(tool, arguments, file, owner).map_err(failed)?);
    let (stdin, stdout, stderr) = (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take());
    let (status, said, complaint) = thread::scope(|scope| {
        // A program that ends early stops reading: its status says more than the broken pipe.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        let said = scope.spawn(move || stdout.map(read_bounded).unwrap_or_default());
        let complaint = scope.spawn(move || stderr.map(read_bounded).unwrap_or_default());
        let status = child.wait(TIME_MAX);
        if !matches!(status, Ok(Some(_))) {
            child.kill();
        }
        (status, said.join().unwrap_or_default(), complaint.join().unwrap_or_default())
    });
    match status.map_err(|source| ToolError::Io { tool, source })? {
        None => Err(ToolError::Late { tool }),
        Some(status) if status.success() => Ok(complaint),
        Some(status) => Err(ToolError::Failed { tool, complaint: told(&[&complaint, &said], status) }),
    }
}

/// Returns the message of a failed program: its first line that concerns the volume.
fn told(texts: &[&str], status: ExitStatus) -> String {
    let is_telling = |line: &&str| !line.is_empty() && !is_banner(line) && !line.starts_with("Pass ");
    let line = texts.iter().flat_map(|text| text.lines()).map(str::trim).find(is_telling);
    line.map_or_else(|| status.to_string(), str::to_owned)
}

fn is_banner(line: &str) -> bool {
    [MKE2FS, TUNE2FS, DEBUGFS, E2FSCK]
        .iter()
        .any(|tool| line.strip_prefix(tool.program).is_some_and(|rest| rest.starts_with(" 1.") && rest.ends_with(')')))
}

/// Starts a program with the file as its last argument.
fn start(tool: Tool, arguments: &[&str], file: &LinuxFile, owner: UserNo) -> io::Result<Child> {
    let mut command = Command::new(tool.program);
    command.env_clear().env("PATH", PATHS).env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if rustix::process::geteuid().is_root() && owner != UserNo::ROOT {
        // The group with the user's number may belong to others. The file is for its owner alone.
        command.uid(owner.0).gid(NOBODY);
    }
    end_with_parent(&mut command);
    let _starting = STARTING.lock();
    let inherited = rustix::io::dup(file.as_fd())?;
    let path = format!("/proc/self/fd/{}", inherited.as_raw_fd());
    command.args(arguments).arg(path).spawn()
}

/// A program that is killed when this is dropped.
pub(super) struct ToolProcess(pub(super) Child);

impl ToolProcess {
    /// Waits for the program to end; `None` if that takes longer than `time_max`.
    pub(super) fn wait(&mut self, time_max: Duration) -> io::Result<Option<ExitStatus>> {
        let began = Instant::now();
        let mut pause = Duration::from_micros(500);
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            if began.elapsed() > time_max {
                return Ok(None);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    pub(super) fn kill(&mut self) {
        // Both calls fail only if the program has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for ToolProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the beginning of a text. Reads and drops the rest, so that its writer never waits for long.
pub(super) fn read_bounded(from: impl Read) -> String {
    let mut bytes = Vec::new();
    let mut bounded = from.take(COMPLAINT_BYTES_MAX);
    // A broken pipe ends the text like its regular end.
    let _ = bounded.read_to_end(&mut bytes);
    let _ = io::copy(&mut bounded.into_inner(), &mut io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_telling_line_is_what_a_program_says() {
        let status = ExitStatus::default();
        let texts = ["e2fsck 1.47.0 (5-Feb-2023)\n", "Pass 1: Checking inodes\nInode 14 is damaged\n"];
        assert_eq!(told(&texts, status), "Inode 14 is damaged");
        assert_eq!(told(&["debugfs 1.46.2 (28-Feb-2021)"], status), status.to_string());
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(read_bounded(&[b'x'; 1 << 20][..]).len() as u64, COMPLAINT_BYTES_MAX);
    }
}
