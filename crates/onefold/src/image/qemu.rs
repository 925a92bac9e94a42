//! All other formats through QEMU's own `qemu-img`, which turns them into a raw file that is gone afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::Show;
use onefold_block::shown::ShownOutput;
use serde_json::Value;

use super::chain::{Allowed, CHAIN_LENGTH_MAX, ChainError};
use crate::cli::values::ImageFormat;
use crate::disk::{Disk, FileDisk};
use crate::failure::{Failure, Outcome};
use crate::progress::Meter;

const PROGRAM: &str = "qemu-img";
/// `qemu-img info` only reads headers; an image that keeps it busy for longer is made to.
const INFO_TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of answer and of complaint that are read from it.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// A raw copy of an image, deleted when dropped.
pub(super) struct Converted {
    disk: FileDisk,
    _copy: TemporaryFile,
}

impl Disk for Converted {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Outcome<Option<Range<u64>>> {
        self.disk.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Outcome<()> {
        self.disk.read(offset, into)
    }
}

/// Converts the image at `path` into a temporary sparse raw file, in `$TMPDIR` or `/var/tmp`.
pub(super) fn convert(path: &Path, format: ImageFormat, allowed: &Allowed, meter: &Meter) -> Outcome<Converted> {
    let cannot = || format!("cannot read the {} image `{}`", format.name(), path.shown());
    // An absolute path is never taken for an option or a protocol.
    let path = fs::canonicalize(path).map_err(|error| Failure::of_io(cannot(), &error))?;
    check_chain(&path, format, allowed, cannot)?;
    let copy = TemporaryFile::create()?;
    let child = Command::new(PROGRAM)
        .args(["convert", "-p", "-S", "4k", "-O", "raw", "-f", format.name()])
        .arg(&path)
        .arg(&copy.path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| not_started(cannot(), &error))?;
    let size_bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    follow(child, meter, size_bytes, cannot)?;
    let file = File::open(&copy.path).map_err(|error| Failure::of_io(cannot(), &error))?;
    Ok(Converted { disk: FileDisk::new(file, &path)?, _copy: copy })
}

/// Follows a conversion to its end: `qemu-img -p` writes "    (12.34/100%)" again and again.
fn follow(mut child: Child, meter: &Meter, size_bytes: u64, cannot: impl Fn() -> String) -> Outcome<()> {
    let complaint = child.stderr.take().map(|stderr| thread::spawn(move || read_bounded(stderr)));
    let mut text = Vec::new();
    for byte in child.stdout.take().into_iter().flat_map(|stdout| std::io::BufReader::new(stdout).bytes()) {
        let Ok(byte) = byte else { break };
        text.push(byte);
        if byte != b')' && text.len() < 64 {
            continue;
        }
        if let Some(percent) = percent(&text)
            && meter.show_bytes(size_bytes / 100 * percent, size_bytes) == ControlFlow::Break(())
        {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure::interrupted("converting").hint("nothing was written to the pool"));
        }
        text.clear();
    }
    meter.finish();
    let status = child.wait().map_err(|error| Failure::of_io(cannot(), &error))?;
    let complaint = complaint.and_then(|thread| thread.join().ok()).unwrap_or_default();
    if status.success() { Ok(()) } else { Err(complained(cannot(), &complaint)) }
}

fn percent(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (_, number) = text.rsplit_once('(')?;
    number.split(['.', '/']).next()?.trim().parse().ok().filter(|percent| *percent <= 100)
}

/// Refuses an image whose further files may not be followed. QEMU itself sees loops.
fn check_chain(path: &Path, format: ImageFormat, allowed: &Allowed, cannot: impl Fn() -> String) -> Outcome<()> {
    let mut child = Command::new(PROGRAM)
        .args(["info", "--backing-chain", "--output=json", "-f", format.name()])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| not_started(cannot(), &error))?;
    let answer = child.stdout.take().map(|stdout| thread::spawn(move || read_bounded(stdout)));
    let complaint = child.stderr.take().map(|stderr| thread::spawn(move || read_bounded(stderr)));
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < INFO_TIME_MAX => thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure::new(cannot()).because_of("qemu-img did not come to an end with it"));
            }
            Err(error) => return Err(Failure::of_io(cannot(), &error)),
        }
    };
    let joined = |thread: Option<thread::JoinHandle<String>>| thread.and_then(|thread| thread.join().ok());
    if !status.success() {
        return Err(complained(cannot(), &joined(complaint).unwrap_or_default()));
    }
    let answer = joined(answer).unwrap_or_default();
    let chain: Value = serde_json::from_str(&answer).map_err(|error| Failure::new(cannot()).because(&error))?;
    let members = chain.as_array().map_or(&[][..], Vec::as_slice);
    let refused = |why: &ChainError| {
        let failure = Failure::new(cannot()).because(why);
        match why.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    };
    if members.len() > CHAIN_LENGTH_MAX {
        return Err(refused(&ChainError::TooLong));
    }
    for file in members.iter().flat_map(files_of) {
        allowed.resolve(Path::new(file)).map_err(|why| refused(&why))?;
    }
    Ok(())
}

/// Returns the files that one member of a chain consists of, as `qemu-img info` tells them.
fn files_of(member: &Value) -> Vec<&str> {
    let mut files: Vec<&str> = member["filename"].as_str().into_iter().collect();
    let data = &member["format-specific"]["data"];
    let extents = data["extents"].as_array().map_or(&[][..], Vec::as_slice);
    files.extend(extents.iter().filter_map(|extent| extent["filename"].as_str()));
    files.extend(data["data-file"].as_str());
    files
}

fn not_started(cannot: String, error: &std::io::Error) -> Failure {
    let failure = Failure::new(cannot).because_of(format!("cannot start {PROGRAM}: {error}"));
    match error.kind() {
        std::io::ErrorKind::NotFound => failure.hint("install QEMU's tools (Debian: `apt-get install qemu-utils`)"),
        _ => failure,
    }
}

fn complained(cannot: String, complaint: &str) -> Failure {
    let failure = match ShownOutput(complaint.as_bytes()).to_string() {
        complaint if complaint.is_empty() => Failure::new(cannot),
        complaint => Failure::new(cannot).because_of(complaint),
    };
    failure.hint("`qemu-img info --backing-chain` and `qemu-img check` tell more about the image")
}

/// Reads a bounded text to its end, so that its writer is never stuck; the rest is thrown away.
fn read_bounded(from: impl Read) -> String {
    let mut bytes = Vec::new();
    let mut bounded = from.take(ANSWER_BYTES_MAX);
    // A broken pipe ends the text as its end would.
    let _ = bounded.read_to_end(&mut bytes);
    let _ = std::io::copy(&mut bounded.into_inner(), &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A file of our own that is deleted when dropped.
#[derive(Debug)]
struct TemporaryFile {
    path: PathBuf,
}

impl TemporaryFile {
    fn create() -> Outcome<TemporaryFile> {
        let folder = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let path = folder.join(format!("onefold-import-{}.raw", std::process::id()));
        let cannot = || format!("cannot make the temporary file `{}`", path.shown());
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| Failure::of_io(cannot(), &error).hint("set TMPDIR to a directory with enough room"))?;
        Ok(TemporaryFile { path })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // If it can't be removed there is nobody left to tell, and it says in its name what it is.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_what_qemu_img_prints() {
        assert_eq!(percent(b"    (0.00/100%)"), Some(0));
        assert_eq!(percent(b"\r    (57.31/100%)"), Some(57));
        assert_eq!(percent(b"(100.00/100%)"), Some(100));
        assert_eq!(percent(b"(101.00/100%)"), None);
        assert_eq!(percent(b"warning)"), None);
        assert_eq!(percent(&[0xff, b')']), None);
    }

    #[test]
    fn all_files_of_a_member_are_seen() {
        let member: Value = serde_json::from_str(
            r#"{"filename": "/a/x.vmdk", "format-specific": {"data": {"extents": [{"filename": "/etc/shadow"}, {}]}}}"#,
        )
        .unwrap();
        assert_eq!(files_of(&member), ["/a/x.vmdk", "/etc/shadow"]);
        assert!(files_of(&Value::Null).is_empty());
    }

    #[test]
    fn a_temporary_file_is_gone_when_dropped() {
        let file = TemporaryFile::create().unwrap();
        let path = file.path.clone();
        assert!(path.exists());
        drop(file);
        assert!(!path.exists());
    }
}
