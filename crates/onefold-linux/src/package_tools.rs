//! `dpkg-deb`, which unpacks package archives. Archives are hostile, so it runs without privileges.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::child::end_with_parent;
use onefold_substrate::{ArchivePart, PackageTools, Tool, ToolError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Resource;

use crate::sys;
use crate::volume_tools::{NOBODY, PATHS, ToolProcess, read_bounded};

const DPKG_DEB: Tool = Tool { program: "dpkg-deb", package: "dpkg" };
/// Limits for each of its processes: processor time in seconds, memory in bytes, and no file.
const LIMITS: &[(Resource, u64)] =
    &[(Resource::Cpu, 1800), (Resource::As, 4 << 30), (Resource::Fsize, 0), (Resource::Core, 0)];
/// Maximum time without output.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Maximum time from the end of its output to its exit.
const END_MAX: Duration = Duration::from_secs(30);

/// Runs `dpkg-deb`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DpkgDeb;

impl PackageTools for DpkgDeb {
    fn tool(&self) -> Tool {
        DPKG_DEB
    }

    fn unpack(
        &self,
        archive: &File,
        part: ArchivePart,
        take: &mut dyn FnMut(&mut dyn Read) -> io::Result<()>,
    ) -> Result<(), ToolError> {
        let tool = DPKG_DEB;
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ToolError::Missing { tool },
            _ => ToolError::Io { tool, source },
        };
        let mut child = start(archive, part).map_err(failed)?;
        let (stdout, stderr) = (child.0.stdout.take(), child.0.stderr.take());
        let (taken, ended, complaint) = thread::scope(|scope| {
            let complaint = scope.spawn(move || stderr.map(read_bounded).unwrap_or_default());
            let taken = stdout.map_or(Ok(()), |stdout| take(&mut ProgramOutput(stdout)));
            if taken.is_err() {
                child.kill();
            }
            let ended = child.wait(END_MAX);
            child.kill();
            (taken, ended, complaint.join().unwrap_or_default())
        });
        match ended.map_err(failed)? {
            // If the program failed by itself, its message says more than the end of its output.
            Some(status) if !status.success() && status.code().is_some() => {
                let line = complaint.lines().find(|line| !line.is_empty()).unwrap_or("no message").to_owned();
                Err(ToolError::Failed { tool, complaint: line })
            }
            _ if taken.is_err() => taken.map_err(|source| ToolError::Io { tool, source }),
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(ToolError::Failed { tool, complaint: status.to_string() }),
            None => Err(ToolError::Late { tool }),
        }
    }
}

fn start(archive: &File, part: ArchivePart) -> io::Result<ToolProcess> {
    let mut input = archive.try_clone()?;
    input.rewind()?;
    let mut command = Command::new(DPKG_DEB.program);
    command.env_clear().env("PATH", PATHS).env("LC_ALL", "C").current_dir("/");
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let argument = match part {
        ArchivePart::Control => "--ctrl-tarfile",
        ArchivePart::Files => "--fsys-tarfile",
    };
    end_with_parent(&mut command);
    sys::limit(&mut command, LIMITS);
    Ok(ToolProcess(command.args([argument, "-"]).spawn()?))
}

/// The program's output. A read fails after a long silence.
struct ProgramOutput(ChildStdout);

impl Read for ProgramOutput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let until = Instant::now() + SILENCE_MAX;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
                Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.0.read(into),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_is_no_archive_is_named_as_such() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"no archive at all").unwrap();
        let mut take = |from: &mut dyn Read| io::copy(from, &mut io::sink()).map(drop);
        match DpkgDeb.unpack(&file, ArchivePart::Files, &mut take) {
            Err(ToolError::Failed { complaint, .. }) => assert!(complaint.contains("archive"), "{complaint}"),
            Err(ToolError::Missing { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
