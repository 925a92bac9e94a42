//! Disks that are captured: a clone of the file where its file system can clone, else the file or device itself, watched.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_disk::{Disk, DiskError, FileDisk, ImageError, ImageFile, ImageFormat, format_of};
use onefold_image::writer_of;
use rustix::fs::{IFlags, Mode, OFlags, ioctl_ficlone, ioctl_getflags, ioctl_setflags, open};

use crate::cli::image::CaptureArgs;
use crate::failure::{Failure, Outcome};
use crate::mounts;
use crate::progress::Meter;
use crate::verbs::images::{FileState, FoundImage};
use crate::verbs::in_use;

/// Both ways out where a source may change while it is captured.
const WAYS_OUT: &str =
    "stop the machine that uses it, or keep the image on a file system with clones (a pool, XFS, Btrfs)";

/// A disk that is captured.
pub(super) struct Source {
    pub(super) disk: Box<dyn Disk>,
    pub(super) format: ImageFormat,
    /// What tells whether the source has changed; `None` for a clone, which does not change.
    watch: Option<Watch>,
}

/// The state of a source when it was opened.
struct Watch {
    path: PathBuf,
    state: State,
}

/// What changes when somebody writes to a source.
#[derive(Debug, PartialEq, Eq)]
enum State {
    File(FileState),
    /// Number of sectors that were written to a device since the machine started, if the kernel counts them.
    Device(Option<u64>),
}

impl Source {
    /// Opens an image, or a clone of it.
    pub(super) fn open(found: &FoundImage, arguments: &CaptureArgs, meter: &Meter) -> Outcome<Source> {
        let cannot = || format!("cannot open the image `{}`", found.path.shown());
        let file = found.open().map_err(|error| Failure::of_io(cannot(), &error))?;
        let format = arguments.format.map(Into::into).or_else(|| format_of(&file)).unwrap_or(ImageFormat::Raw);
        if let Some(disk) = open_clone(&file, &found.path, format)? {
            return Ok(Source { disk, format, watch: None });
        }
        refuse_if_used(&file, &found.path)?;
        let watch = Watch { path: found.path.clone(), state: State::of(file.metadata()) };
        let image = onefold_disk::open(file, Some(format), &arguments.backing_from, &meter.on_progress());
        let image = image.map_err(|error| Failure::of_disk(&error))?;
        Ok(Source { disk: image.disk, format: image.format, watch: Some(watch) })
    }

    /// Returns whether capture reads a clone.
    pub(super) fn is_clone(&self) -> bool {
        self.watch.is_none()
    }

    /// Returns whether the source is what it was when it was opened.
    pub(super) fn is_unchanged(&self) -> bool {
        self.watch
            .as_ref()
            .is_none_or(|watch| fs::metadata(&watch.path).is_ok_and(|metadata| State::of(&metadata) == watch.state))
    }
}

/// Returns the failure of a source that has changed while it was captured.
pub(super) fn has_changed(path: &Path) -> Failure {
    Failure::new(format!("`{}` has changed while it was captured", path.shown()))
        .because_of("the image would mix two states of the disk; it was not added to the archive")
        .hint(WAYS_OUT)
}

impl State {
    fn of(metadata: &fs::Metadata) -> State {
        match metadata.file_type().is_block_device() {
            false => State::File(FileState::of(metadata)),
            true => State::Device(written_sectors(metadata.rdev())),
        }
    }
}

/// Returns the number of sectors written to a device: the seventh number of its `stat` in `/sys`.
fn written_sectors(device: u64) -> Option<u64> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{number}/stat")).ok()?;
    stat.split_ascii_whitespace().nth(6)?.parse().ok()
}

/// Fails if a machine or this host may write to a source that cannot be cloned.
fn refuse_if_used(file: &ImageFile, path: &Path) -> Outcome<()> {
    let refused =
        |cause: String| Failure::new(format!("cannot capture `{}`", path.shown())).because_of(cause).hint(WAYS_OUT);
    if in_use::has_writer(file) {
        return Err(refused("a virtual machine has it open for writing".to_owned()));
    }
    match writer_of(file.metadata()) {
        Some(writer) => Err(refused(writer.to_string())),
        None => Ok(()),
    }
}

/// Opens a clone of an image that consists of one file; `None` where there is none.
fn open_clone(file: &ImageFile, path: &Path, format: ImageFormat) -> Outcome<Option<Box<dyn Disk>>> {
    if !file.metadata().is_file() || !matches!(format, ImageFormat::Raw | ImageFormat::Qcow2) {
        return Ok(None);
    }
    // Without the right to write into the folder, or on a file system that cannot clone, the file itself is read.
    let Ok(clone) = clone_of(file, path) else { return Ok(None) };
    let opened = match format {
        ImageFormat::Qcow2 => onefold_disk::open_alone(clone, path),
        _ => FileDisk::new(clone, path).map(|disk| Box::new(disk) as Box<dyn Disk>),
    };
    match opened {
        Ok(disk) => Ok(Some(disk)),
        Err(DiskError::Image { source: ImageError::OtherFiles, .. }) => Ok(None),
        Err(error) => Err(Failure::of_disk(&error)),
    }
}

/// Makes an unnamed clone of a file, in the file's folder.
fn clone_of(file: &ImageFile, path: &Path) -> io::Result<File> {
    // The kernel's own name of the open file, whichever links led to it.
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))?;
    let folder = real.parent().ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let clone = open(folder, flags, Mode::RUSR | Mode::WUSR)?;
    // On Btrfs a file without copy-on-write shares its blocks only with another one.
    if let Ok(flags) = ioctl_getflags(file)
        && flags.contains(IFlags::NOCOW)
    {
        let own = ioctl_getflags(&clone).unwrap_or(IFlags::empty());
        // If this fails, cloning fails, too.
        let _ = ioctl_setflags(&clone, own | IFlags::NOCOW);
    }
    match ioctl_ficlone(&clone, file) {
        Ok(()) => Ok(clone.into()),
        Err(errno) if is_in_pool(path) => clone_in_pool(file, clone.into(), errno.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Tells whether a file lies in a mounted pool. There `copy_file_range` is a clone.
fn is_in_pool(path: &Path) -> bool {
    let (Ok(mounts), Ok(path)) = (mounts::mounted(), fs::canonicalize(path)) else { return false };
    mounts::containing(&mounts, &path).is_some_and(|mount| mount.is_believed())
}

fn clone_in_pool(file: &ImageFile, clone: File, refused: io::Error) -> io::Result<File> {
    let length = file.length();
    let (mut from, mut to) = (0, 0);
    while from < length {
        let rest = usize::try_from(length - from).unwrap_or(usize::MAX).min(1 << 40);
        if rustix::fs::copy_file_range(file, Some(&mut from), &clone, Some(&mut to), rest)? == 0 {
            return Err(refused);
        }
    }
    Ok(clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_written_to_has_another_state() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let state = |file: &tempfile::NamedTempFile| State::of(&file.as_file().metadata().unwrap());
        let before = state(&file);
        assert_eq!(before, state(&file));
        file.as_file().set_len(1).unwrap();
        assert_ne!(before, state(&file));
    }
}
