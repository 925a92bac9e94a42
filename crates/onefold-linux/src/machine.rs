//! The machine that a watch runs on: its load, its local time, and which images its processes have open.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use onefold_substrate::{Access, FileHandle, Files, Machine, MinuteOfDay, OpenImages, Writer, WrittenBytes};
use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, statx};

use crate::{LinuxSubstrate, sys};

/// This machine, with the file system whose open files matter.
#[derive(Clone, Copy, Debug)]
pub struct LinuxMachine<'a> {
    substrate: &'a LinuxSubstrate,
}

impl<'a> LinuxMachine<'a> {
    /// Returns this machine, which looks for open files of `substrate`.
    #[must_use]
    pub fn new(substrate: &'a LinuxSubstrate) -> LinuxMachine<'a> {
        LinuxMachine { substrate }
    }
}

impl Machine for LinuxMachine<'_> {
    fn load(&self) -> Option<f64> {
        fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
    }

    fn time_of_day(&self) -> MinuteOfDay {
        let (hour, minute) = sys::local_time().unwrap_or_default();
        // A machine whose local time is unknown counts as being at midnight.
        MinuteOfDay::new(hour, minute).or(MinuteOfDay::new(0, 0)).expect("midnight is a time of day")
    }

    fn name(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// Searches the descriptors of all processes in `/proc`: root sees those of all users and of containers. Files that
    /// the kernel itself has open (loop devices, block exports) have no descriptor.
    fn open_for_writing(&self, images: &[&Path]) -> io::Result<OpenImages> {
        let mut by_inode = BTreeMap::new();
        for path in images {
            // No process is looked for at an image that cannot be opened or has gone.
            let Ok(file) = self.substrate.open(path, Access::Read) else { continue };
            let (Ok(stat), Ok(inode)) = (self.substrate.stat(&file), inode_of(&file, c"")) else { continue };
            by_inode.insert(inode, stat.handle);
        }
        let mut open = OpenImages::default();
        if by_inode.is_empty() {
            return Ok(open);
        }
        let images = ImageInodes { numbers: by_inode.keys().map(|inode| inode.number).collect(), by_inode };
        let own = std::process::id().to_string();
        for process in fs::read_dir("/proc")? {
            let process = process?;
            let name = process.file_name();
            let is_process = name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
            if !is_process || *own == *name {
                continue;
            }
            let mut found = WrittenImages::default();
            let looked = look_at(&process.path(), &images, &mut found);
            let process_no = name.to_str().and_then(|name| name.parse().ok());
            if let (false, Some(process_no)) = (found.images.is_empty(), process_no) {
                open.handles.extend(found.images.iter().cloned());
                // A process whose counters are hidden counts as one that writes little.
                if let Some(written) = written_by(&process.path(), found.is_direct) {
                    open.writers.push(Writer { process: process_no, written, images: found.images });
                }
            }
            match looked {
                // The process has ended.
                Err(error) if is_gone(&error) => {}
                // One process with an unreadable descriptor must not hide the images of all others.
                Err(_) => open.unseen_processes += 1,
                Ok(()) => {}
            }
        }
        Ok(open)
    }
}

/// Identifies a file among all others of this machine while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InodeId {
    device: (u32, u32),
    number: u64,
}

/// The images to look for.
struct ImageInodes {
    by_inode: BTreeMap<InodeId, FileHandle>,
    /// The inode numbers alone.
    numbers: BTreeSet<u64>,
}

/// Returns the inode of a file. Asks no server: for a network file system that hangs, the kernel's cached answer is
/// enough.
fn inode_of(folder: impl rustix::fd::AsFd, path: impl rustix::path::Arg) -> io::Result<InodeId> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(folder, path, flags, StatxFlags::INO)?;
    Ok(InodeId { device: (stat.stx_dev_major, stat.stx_dev_minor), number: stat.stx_ino })
}

/// Returns the number of bytes that a process has written since it began, including threads that have ended.
fn written_by(process: &Path, is_direct: bool) -> Option<WrittenBytes> {
    written_of(&fs::read_to_string(process.join("io")).ok()?, is_direct)
}

/// Returns the number of written bytes from the text of `/proc/PID/io`.
///
/// `write_bytes` counts each direct write by its length, also through io_uring. But it counts a write into the page
/// cache as its whole folio, which may be two mebibytes for one block. So the lengths of write calls (`wchar`) bound
/// the count for such writes. `wchar` omits buffered writes through io_uring, which are therefore counted too low.
fn written_of(text: &str, is_direct: bool) -> Option<WrittenBytes> {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok();
    let (by_pages, by_calls) = (value("write_bytes:")?, value("wchar:")?);
    Some(WrittenBytes { by_pages, by_calls: (!is_direct).then_some(by_calls) })
}

/// The images that a process has open for writing.
#[derive(Default)]
struct WrittenImages {
    images: BTreeSet<FileHandle>,
    /// Whether one of the images is open with `O_DIRECT`.
    is_direct: bool,
}

/// Adds the images that a process has open for writing.
fn look_at(process: &Path, images: &ImageInodes, found: &mut WrittenImages) -> io::Result<()> {
    for descriptor in fs::read_dir(process.join("fdinfo"))? {
        let descriptor = descriptor?;
        match image_at(process, &descriptor, images) {
            Ok(None) => {}
            Ok(Some((handle, is_direct))) => {
                found.images.insert(handle.clone());
                found.is_direct |= is_direct;
            }
            // Closed since.
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the image that a descriptor writes to, and whether it uses `O_DIRECT`. Touches only descriptors that may be
/// an image: `stat` of a file on a hanging file system may hang as well.
fn image_at<'a>(
    process: &Path,
    descriptor: &DirEntry,
    images: &'a ImageInodes,
) -> io::Result<Option<(&'a FileHandle, bool)>> {
    let info = DescriptorInfo::parse(&fs::read_to_string(descriptor.path())?);
    if !info.is_for_writing || info.inode.is_some_and(|number| !images.numbers.contains(&number)) {
        return Ok(None);
    }
    let path: PathBuf = [process, Path::new("fd"), Path::new(&descriptor.file_name())].iter().collect();
    Ok(images.by_inode.get(&inode_of(CWD, &path)?).map(|handle| (handle, info.is_direct)))
}

/// The fields of `/proc/PID/fdinfo/FD`.
#[derive(Debug, PartialEq, Eq)]
struct DescriptorInfo {
    is_for_writing: bool,
    is_direct: bool,
    /// `None` from kernels before 5.14.
    inode: Option<u64>,
}

impl DescriptorInfo {
    fn parse(text: &str) -> DescriptorInfo {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let flags = value("flags:").and_then(|flags| u32::from_str_radix(flags, 8).ok()).unwrap_or(0);
        let is_path = flags & OFlags::PATH.bits() != 0;
        DescriptorInfo {
            is_for_writing: flags & OFlags::ACCMODE.bits() & !OFlags::PATH.bits() != OFlags::RDONLY.bits() && !is_path,
            is_direct: flags & OFlags::DIRECT.bits() != 0 && !is_path,
            inode: value("ino:").and_then(|number| number.parse().ok()),
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_tell_what_they_are_for() {
        let told = |flags: &str| DescriptorInfo::parse(&format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t24\nino:\t37\n"));
        let direct = OFlags::DIRECT.bits();
        for (flags, is_for_writing, is_direct) in [
            ("0100000", false, false),
            ("0100001", true, false),
            ("0102002", true, false),
            (&format!("{:#o}", 0o2_100_002 | direct).replace("0o", "0"), true, true),
            ("010000002", false, false),
        ] {
            assert_eq!(told(flags), DescriptorInfo { is_for_writing, is_direct, inode: Some(37) }, "{flags}");
        }
        for text in ["", "flags:\t\nino:\tx\n", "flags:\t9\n", "lock:\t1: FLOCK\n"] {
            assert_eq!(
                DescriptorInfo::parse(text),
                DescriptorInfo { is_for_writing: false, is_direct: false, inode: None },
                "{text}"
            );
        }
    }

    #[test]
    fn buffered_writes_count_by_their_length_and_direct_ones_of_any_thread() {
        let told = |wchar: u64, written: u64| format!("rchar: 9\nwchar: {wchar}\nwrite_bytes: {written}\n");
        let buffered = |wchar, written| written_of(&told(wchar, written), false).unwrap();
        assert_eq!(buffered(4096, 2 << 20).since(buffered(0, 0)), 4096, "a folio for each block");
        let other = buffered(2 << 20, 4096).since(buffered(0, 0));
        assert_eq!(other, 4096, "what is written elsewhere, such as to a socket");
        let after_a_socket = buffered((1 << 30) + 4096, 2 << 20).since(buffered(1 << 30, 0));
        assert_eq!(after_a_socket, 4096, "a folio for a block, by a process that has written to a socket before");
        assert_eq!(buffered(8, 9).since(buffered(1 << 30, 1 << 30)), 8, "another process with the same number");
        let direct = |wchar, written| written_of(&told(wchar, written), true).unwrap();
        assert_eq!(direct(8, 2 << 20).since(direct(0, 0)), 2 << 20, "asynchronous writes");
        assert_eq!(direct(8, 2 << 20).since(buffered(0, 0)), 2 << 20, "the first direct ones");
        assert_eq!(written_of("wchar: 1\n", false), None);
        assert_eq!(written_of("write_bytes: 1\n", true), None);
    }

    #[test]
    fn the_clock_on_the_wall_is_that_of_the_system() {
        let before = sys::local_time();
        let told = std::process::Command::new("date").arg("+%H:%M").output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let now = [before, sys::local_time()].map(|time| {
            let (hour, minute) = time.unwrap();
            MinuteOfDay::new(hour, minute).unwrap().to_string()
        });
        assert!(now.iter().any(|now| now == told.trim()), "{told} is none of {now:?}");
    }
}
