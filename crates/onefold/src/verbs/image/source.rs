//! Disks that are captured: a clone of the file where its file system can clone, else the file or device itself,
//! watched.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_disk::{
    Disk, DiskError, DiskPart, FileDisk, FileIdentity, ImageError, ImageFile, ImageFormat, NamedFile, format_of,
};
use onefold_export::control::{ControlClient, hand_over};
use onefold_guest::partition_table;
use onefold_image::capture::FileState;
use onefold_image::{FileUser, device_above, writer_of};
use rustix::fs::{IFlags, Mode, OFlags, ioctl_ficlone, ioctl_getflags, ioctl_setflags, open};
use rustix::io::Errno;

use crate::cli::image::CaptureArgs;
use crate::failure::{Failure, Outcome};
use crate::mounts;
use crate::progress::Meter;
use crate::verbs::images::{FoundFile, FoundImage, archived};
use crate::verbs::in_use;

/// Both ways out where a source may change while it is captured.
const WAYS_OUT: &str =
    "stop the machine that uses it, or keep the image on a file system with clones (a pool, XFS, Btrfs)";

/// Divisor of `--memory`: this share is for an archived image that is captured.
const ARCHIVED_SHARE: u64 = 8;

/// A disk that is captured.
pub(super) struct Source {
    pub(super) disk: Box<dyn Disk>,
    /// The name of its format.
    pub(super) format: &'static str,
    /// Whether capture reads a clone of the image's file.
    pub(super) is_clone: bool,
    /// Memory that the disk takes for itself.
    pub(super) memory_bytes: u64,
    /// Tells whether the source has changed; `None` if it cannot change.
    watch: Option<Watch>,
}

/// The files of a source that is no clone.
struct Watch {
    files: Vec<WatchedFile>,
    /// Why there is no clone.
    not_cloned: String,
}

/// One of the files, as it was when it was opened.
struct WatchedFile {
    path: PathBuf,
    state: State,
    /// Keeps others from mounting a device meanwhile.
    _exclusive: Option<File>,
}

/// State of a source that changes when a program writes to it.
#[derive(Debug)]
enum State {
    File(FileState),
    /// Number of sectors that were written to a device since the machine started, if the kernel counts them.
    Device(Option<u64>),
}

impl Source {
    /// Opens an image, or a clone of it.
    pub(super) fn open(found: &FoundImage, arguments: &CaptureArgs, meter: &Meter) -> Outcome<Source> {
        let source = match found {
            FoundImage::File(found) => Source::open_file(found, arguments, meter)?,
            FoundImage::Archived(image) => {
                // The copy is another image, so nobody can check the signature of this one later.
                image.require(arguments.acceptance)?;
                let memory_bytes = arguments.memory.0 / ARCHIVED_SHARE;
                let disk = Box::new(image.disk(memory_bytes));
                Source { disk, format: archived::FORMAT, is_clone: false, memory_bytes, watch: None }
            }
        };
        match arguments.partition {
            None => Ok(source),
            Some(number) => Ok(Source { disk: partition_of(source.disk, number)?, ..source }),
        }
    }

    fn open_file(found: &FoundFile, arguments: &CaptureArgs, meter: &Meter) -> Outcome<Source> {
        let cannot = || format!("cannot open the image `{}`", found.path.shown());
        let file = found.open().map_err(|error| Failure::of_io(cannot(), &error))?;
        let probed = if arguments.format.is_some() { None } else { format_of(&file) };
        if let (Some(probed), Some(_)) = (probed, &arguments.each) {
            refuse_as_raw(&found.path, probed)?;
        }
        let format = arguments.format.map(Into::into).or(probed).unwrap_or(ImageFormat::Raw);
        let not_cloned = match open_clone(&file, &found.path, format)? {
            CloneResult::Made(disk) => {
                return Ok(Source { disk, format: format.name(), is_clone: true, memory_bytes: 0, watch: None });
            }
            CloneResult::None(why) => why,
        };
        let explained = |failure: Failure| failure.because_of(not_cloned.clone());
        let mut files = vec![watched(&file, &found.path).map_err(explained)?];
        let image = onefold_disk::open(file, Some(format), &arguments.backing_from, &meter.on_progress());
        let image = image.map_err(|error| Failure::of_disk(&error))?;
        for other in &image.others {
            files.push(watched_other(other).map_err(explained)?);
        }
        let watch = Some(Watch { files, not_cloned });
        Ok(Source { disk: image.disk, format: image.format.name(), is_clone: false, memory_bytes: 0, watch })
    }

    /// Returns whether the source is what it was when it was opened.
    pub(super) fn is_unchanged(&self) -> bool {
        self.watch.as_ref().is_none_or(|watch| watch.files.iter().all(WatchedFile::is_unchanged))
    }

    /// Returns the failure of a source that has changed while it was captured.
    pub(super) fn has_changed(&self, path: &Path) -> Failure {
        let failure = Failure::new(format!("`{}` has changed while it was captured", path.shown()))
            .because_of("the image would mix two states of the disk; it was not added to the archive");
        let why = self.watch.as_ref().map(|watch| watch.not_cloned.clone());
        why.into_iter().fold(failure, Failure::because_of).hint(WAYS_OUT)
    }
}

/// Returns the partition with a number of a disk as a disk of its own.
fn partition_of(disk: Box<dyn Disk>, number: u32) -> Outcome<Box<dyn Disk>> {
    let cannot = || Failure::new(format!("cannot take partition {number}"));
    let table = partition_table(disk.as_ref()).map_err(|error| Failure::of_disk(&error).wrap(cannot().error))?;
    let Some(table) = table else { return Err(cannot().because_of("the disk has no partition table")) };
    let place = match table.entries.iter().find(|entry| entry.number == number) {
        Some(entry) => entry.place,
        None => {
            let numbers: Vec<String> = table.entries.iter().map(|entry| entry.number.to_string()).collect();
            let failure = cannot().because_of("there is no such partition");
            return Err(match numbers.is_empty() {
                true => failure.hint("the partition table is empty"),
                false => failure.hint(format!("the disk has partitions {}", numbers.join(", "))),
            });
        }
    };
    Ok(Box::new(DiskPart::new(disk, place.start_bytes..place.end_bytes())))
}

/// Fails if a file whose name says that it is raw has the signature of another format. Its guest may have written that,
/// to have another file captured as a backing file. Of many files, the user cannot tell the format of each.
fn refuse_as_raw(path: &Path, probed: ImageFormat) -> Outcome<()> {
    let is_named_raw =
        path.extension().is_some_and(|ending| ["raw", "img"].iter().any(|raw| ending.eq_ignore_ascii_case(raw)));
    if !is_named_raw || probed == ImageFormat::Raw {
        return Ok(());
    }
    Err(Failure::new(format!("`{}` has the name of a raw image and the content of {}", path.shown(), probed.name()))
        .hint("capture it by itself, with --format"))
}

impl WatchedFile {
    fn is_unchanged(&self) -> bool {
        // NFS promises to show changes of other hosts to a process that opens the file after them. The times that
        // `stat` returns may be old ones.
        let metadata = File::open(&self.path).and_then(|file| file.metadata());
        metadata.is_ok_and(|metadata| State::of(&metadata).is_surely(&self.state))
    }
}

impl State {
    fn of(metadata: &fs::Metadata) -> State {
        match metadata.file_type().is_block_device() {
            false => State::File(FileState::of(metadata)),
            true => State::Device(written_sectors(metadata.rdev())),
        }
    }

    /// Tells whether this state is certain to be another one: what the kernel does not count is not.
    fn is_surely(&self, other: &State) -> bool {
        match (self, other) {
            (State::File(one), State::File(other)) => one == other,
            (State::Device(Some(one)), State::Device(Some(other))) => one == other,
            _ => false,
        }
    }
}

/// Returns the number of sectors written to a device: the seventh number of its `stat` in `/sys`.
fn written_sectors(device: u64) -> Option<u64> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{number}/stat")).ok()?;
    stat.split_ascii_whitespace().nth(6)?.parse().ok()
}

fn refused(path: &Path, cause: impl Into<String>) -> Failure {
    Failure::new(format!("cannot capture `{}`", path.shown())).because_of(cause).hint(WAYS_OUT)
}

/// Watches an open file of a source, which nobody may write to.
fn watched(file: &ImageFile, path: &Path) -> Outcome<WatchedFile> {
    refuse_if_used(file, path)?;
    let exclusive = hold(file, path)?;
    let state = State::of(file.metadata());
    if matches!(state, State::Device(None)) {
        return Err(refused(path, "the kernel does not count what is written to the device"));
    }
    Ok(WatchedFile { path: path.to_owned(), state, _exclusive: exclusive })
}

/// Watches a file that the image refers to, since it was opened.
fn watched_other(other: &NamedFile) -> Outcome<WatchedFile> {
    let path = &other.path;
    let file = ImageFile::named(path).map_err(|error| {
        Failure::of_io(format!("cannot open `{}`, which the image refers to", path.shown()), &error)
    })?;
    let watched = watched(&file, path)?;
    if file.identity() != FileIdentity::of(&other.metadata) {
        return Err(refused(path, "another file has taken its place"));
    }
    // Of a device, nothing is known of the time before.
    let is_file = other.metadata.is_file();
    Ok(if is_file { WatchedFile { state: State::of(&other.metadata), ..watched } } else { watched })
}

/// Fails if a machine or this host may write to a source that cannot be cloned.
fn refuse_if_used(file: &ImageFile, path: &Path) -> Outcome<()> {
    if in_use::has_writer(file) {
        return Err(refused(path, "a virtual machine has it open for writing"));
    }
    match writer_of(file.metadata()) {
        Some(writer) => Err(refused(path, writer.to_string())),
        None => Ok(()),
    }
}

/// Opens a block device so that nobody mounts it or gives it to another device meanwhile. `None` for a file, and for a
/// device that is mounted, but not for writing.
fn hold(file: &ImageFile, path: &Path) -> Outcome<Option<File>> {
    if !file.metadata().file_type().is_block_device() {
        return Ok(None);
    }
    let own = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    match open(own, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(exclusive) => Ok(Some(exclusive.into())),
        // A read-only mount of one partition says nothing about the others, on which a device may lie.
        Err(Errno::BUSY) if is_mounted(file.metadata().rdev()) => match device_above(file.metadata()) {
            Some(above) => Err(refused(path, above.to_string())),
            None => Ok(None),
        },
        Err(Errno::BUSY) => Err(refused(path, FileUser::Unknown.to_string())),
        Err(errno) => Err(Failure::of_io(format!("cannot open `{}` exclusively", path.shown()), &errno.into())),
    }
}

/// Tells whether this process sees a mount of a device or of one of its partitions.
fn is_mounted(device: u64) -> bool {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let partitions = fs::read_dir(format!("/sys/dev/block/{number}")).into_iter().flatten().flatten();
    let partitions = partitions.map(|entry| entry.path()).filter(|path| path.join("partition").exists());
    let mut numbers: Vec<String> = partitions.filter_map(|path| fs::read_to_string(path.join("dev")).ok()).collect();
    numbers.push(number);
    // Any user may have made a mount whose name is no UTF-8.
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = String::from_utf8_lossy(&mounts);
    let mut mounted = mounts.lines().filter_map(|line| line.split(' ').nth(2));
    mounted.any(|mounted| numbers.iter().any(|number| number.trim() == mounted))
}

/// A clone of an image.
enum CloneResult {
    Made(Box<dyn Disk>),
    /// There is none, for this reason.
    None(String),
}

/// Opens a clone of an image that consists of one file.
fn open_clone(file: &ImageFile, path: &Path, format: ImageFormat) -> Outcome<CloneResult> {
    let none = |why: &str| Ok(CloneResult::None(format!("it is not cloned: {why}")));
    if !file.metadata().is_file() {
        return none("it is a device");
    }
    if !matches!(format, ImageFormat::Raw | ImageFormat::Qcow2) {
        return none("only raw and qcow2 images are");
    }
    // Without the right to write into the folder, or on a file system that cannot clone, the file itself is read.
    let clone = match clone_of(file) {
        Ok(clone) => clone,
        Err(error) => return none(&error.to_string()),
    };
    let opened = match format {
        ImageFormat::Qcow2 => onefold_disk::open_alone(clone, path),
        _ => FileDisk::new(clone, path).map(|disk| Box::new(disk) as Box<dyn Disk>),
    };
    match opened {
        Ok(disk) => Ok(CloneResult::Made(disk)),
        Err(DiskError::Image { source: ImageError::OtherFiles, .. }) => none("it refers to other files"),
        Err(error) => Err(Failure::of_disk(&error)),
    }
}

/// Makes an unnamed clone of a file, in the file's folder.
fn clone_of(file: &ImageFile) -> io::Result<File> {
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
        Err(errno) => match mount_of_pool(&real) {
            Some(mountpoint) => clone_in_pool(file, clone.into(), &mountpoint),
            None => Err(errno.into()),
        },
    }
}

/// Returns where the pool is mounted that holds a file; `None` if no pool does.
fn mount_of_pool(real: &Path) -> Option<PathBuf> {
    let mounts = mounts::mounted().ok()?;
    let mount = mounts::containing(&mounts, real)?;
    mount.is_believed().then(|| mount.mountpoint.clone())
}

/// Makes `clone` one of a file in a mounted pool. The daemon does so at one moment. `copy_file_range(2)`, which clones
/// there too, takes at most 1 GiB at once, so that a machine could write between two calls.
fn clone_in_pool(file: &ImageFile, clone: File, mountpoint: &Path) -> io::Result<File> {
    let source = File::from(file.as_fd().try_clone_to_owned()?);
    let cloned = hand_over(&source)
        .and_then(|()| ControlClient::connect(mountpoint))
        .and_then(|mut client| client.clone_file(&source, &clone));
    cloned.map_err(io::Error::other)?;
    Ok(clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_image_that_its_guest_calls_another_is_refused() {
        for (path, probed, is_refused) in [
            ("a.raw", ImageFormat::Qcow2, true),
            ("a.IMG", ImageFormat::Vmdk, true),
            ("a.raw", ImageFormat::Raw, false),
            ("a.qcow2", ImageFormat::Qcow2, false),
            ("a", ImageFormat::Qcow2, false),
        ] {
            assert_eq!(refuse_as_raw(Path::new(path), probed).is_err(), is_refused, "{path}");
        }
    }

    #[test]
    fn a_file_that_was_written_to_has_another_state() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let state = |file: &tempfile::NamedTempFile| State::of(&file.as_file().metadata().unwrap());
        let before = state(&file);
        assert!(before.is_surely(&state(&file)));
        file.as_file().set_len(1).unwrap();
        assert!(!before.is_surely(&state(&file)));
    }

    #[test]
    fn a_device_that_does_not_count_is_never_surely_unchanged() {
        assert!(State::Device(Some(5)).is_surely(&State::Device(Some(5))));
        assert!(!State::Device(Some(5)).is_surely(&State::Device(Some(6))));
        assert!(!State::Device(None).is_surely(&State::Device(None)));
    }

    #[test]
    fn each_file_of_an_image_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["top", "base"].map(|name| folder.path().join(name));
        files.iter().for_each(|path| fs::write(path, [1; 1000]).unwrap());
        let named = |path: &PathBuf| NamedFile { path: path.clone(), metadata: fs::metadata(path).unwrap() };
        let watch = Watch {
            files: files.iter().map(|path| watched_other(&named(path)).unwrap()).collect(),
            not_cloned: "it is not cloned".to_owned(),
        };
        let disk = FileDisk::new(File::open(&files[0]).unwrap(), &files[0]).unwrap();
        let source =
            Source { disk: Box::new(disk), format: "raw", is_clone: false, memory_bytes: 0, watch: Some(watch) };
        assert!(source.is_unchanged());
        let before = named(&files[1]);
        fs::write(&files[1], [2; 1001]).unwrap();
        assert!(!source.is_unchanged());
        assert!(!watched_other(&before).unwrap().is_unchanged(), "it was written before it was looked at");
        fs::rename(&files[0], &files[1]).unwrap();
        assert!(watched_other(&before).is_err(), "another file has its name");
    }
}
