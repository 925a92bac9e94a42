//! A pool that a daemon serves: files through its mount, everything else through its control socket.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::Show;
use onefold_disk::{Disk, DiskError, FileDisk, Sink};
use onefold_export::control::{ControlClient, ControlError, FailureKind, ScrubReport, hand_over};
use onefold_pool::{FileStat, PoolStat};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, open, openat2, renameat_with, statat,
};
use rustix::io::Errno;

use super::names::PoolPath;
use super::{COPY_MODE_MAX, Draft, PoolEntry, PoolFileKind, PoolProblem, PoolProblems, Store};
use crate::failure::{Exit, Failure, Outcome};
use crate::mounts::PoolMount;
use crate::progress::Meter;

/// See the module.
pub(super) struct MountedStore {
    mount: PoolMount,
    /// The directory of the mount that the user named. Names are relative to it.
    base: PathBuf,
}

/// Returns the failure for a daemon's refusal. No other function decides this.
pub(crate) fn refused(what: &str, mount: &PoolMount, error: &ControlError) -> Failure {
    let mountpoint = mount.mountpoint.shown();
    let failure = Failure::new(format!("cannot {what} the pool mounted at `{mountpoint}`")).because(error);
    match error {
        ControlError::NotAMount { .. } | ControlError::HandOver(_) => failure,
        ControlError::NotTheDaemon { .. } | ControlError::NotOfItsUser { .. } => {
            failure.hint("no request was sent: that mount may pretend to be another one. `umount` removes it")
        }
        ControlError::Unreachable { .. } | ControlError::Broken(_) => {
            failure.hint(format!("if its daemon has died, `onefold pool umount {mountpoint}` and mount it again"))
        }
        ControlError::Silent { .. } => failure.hint("try again in a moment; a daemon that hangs has to be killed"),
        ControlError::UnknownAnswer => failure.hint("use the same version of Onefold as the daemon"),
        ControlError::Refused { kind, .. } => match kind {
            FailureKind::Busy => failure.hint(format!("`fuser -vm {mountpoint}` shows who uses it")),
            FailureKind::Held => failure.hint(
                "unmount it there first, with `umount`; where a process has it, end that process; all that was \
                 written is on disk",
            ),
            FailureKind::NotPermitted => failure.hint("run the command as root, or as the user who mounted the pool"),
            FailureKind::NoSpace => {
                failure.hint("delete files, or enlarge the pool's file or partition and run `onefold pool grow`")
            }
            FailureKind::Damaged => Failure {
                exit: Exit::Damage,
                ..failure
                    .hint("`onefold pool scrub` names the files hit; `onefold pool check` needs the pool unmounted")
            },
            FailureKind::TooManyClients => failure.hint("try again in a moment"),
            FailureKind::BadRequest => failure.hint("use the same version of Onefold as the daemon"),
            FailureKind::Failed => failure,
        },
    }
}

/// Maximum number of attempts to open a path while concurrent renames disturb it.
const OPEN_TRIES: u32 = 100;

impl MountedStore {
    pub(super) fn connect(mount: PoolMount, base: PathBuf) -> Outcome<MountedStore> {
        let store = MountedStore { mount, base };
        store.ask("reach", |_| Ok(()))?;
        Ok(store)
    }

    /// Sends a request to the daemon over a new connection: a daemon does not wait long for the next request, and an
    /// import may take hours between two of them.
    fn ask<T>(&self, what: &str, request: impl FnOnce(&mut ControlClient) -> Result<T, ControlError>) -> Outcome<T> {
        let answer = ControlClient::connect(&self.mount.mountpoint).and_then(|mut client| request(&mut client));
        answer.map_err(|error| refused(what, &self.mount, &error))
    }

    /// Returns the path of a file of the pool in the mount.
    fn outside(&self, path: &PoolPath) -> PathBuf {
        self.mount.mountpoint.join(path.as_path())
    }

    /// Opens a path beneath the mount point. A user of the mount may replace any part of the path at any time, so no
    /// link is followed, and no other file system is entered.
    fn open_beneath(&self, path: &PoolPath, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = open(&self.mount.mountpoint, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let inside = if path.as_path().as_os_str().is_empty() { Path::new(".") } else { path.as_path() };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..OPEN_TRIES {
            opened = openat2(&root, inside, flags, Mode::empty(), resolve);
            if !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
        }
        Ok(File::from(opened?))
    }

    fn open_regular(&self, file: &PoolPath) -> io::Result<File> {
        // Opening a pipe could wait for ever. So this checks a descriptor of the path first, and then opens the file
        // behind it.
        let handle = self.open_beneath(file, OFlags::PATH)?;
        if !handle.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
    }
}

/// Returns the permissions that a copy of an open file may have.
fn copy_mode_of(file: &File) -> io::Result<u16> {
    let mode = u16::try_from(file.metadata()?.mode() & 0o777).expect("nine bits");
    Ok(mode & COPY_MODE_MAX)
}

impl Store for MountedStore {
    fn is_served(&self) -> bool {
        true
    }

    fn pool(&self) -> &Path {
        &self.mount.source
    }

    fn path(&self, path: &Path) -> Outcome<PoolPath> {
        // A path that leads into the mount, as a shell completes it, means exactly that file.
        if let Some(name) = path.file_name()
            && let Some(parent) = path.parent()
            && let Ok(parent) = fs::canonicalize(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
            && let Ok(inside) = parent.strip_prefix(&self.mount.mountpoint)
        {
            return PoolPath::new(&inside.join(name));
        }
        // Any other path is a name inside the pool.
        let base = self.base.strip_prefix(&self.mount.mountpoint).unwrap_or(Path::new(""));
        let relative = path.strip_prefix("/");
        PoolPath::new(&relative.map_or_else(|_| base.join(path), Path::to_owned))
    }

    fn stat(&mut self) -> Outcome<PoolStat> {
        self.ask("read the numbers of", ControlClient::stat)
    }

    fn file_stat(&mut self, file: &PoolPath, meter: &Meter) -> Outcome<FileStat> {
        let cannot = format!("cannot read the numbers of `{file}`");
        let open = self.open_regular(file).map_err(|error| Failure::of_io(cannot, &error))?;
        self.ask(&format!("read the numbers of `{file}` in"), |client| client.file_stat(&open, &mut show(meter)))
    }

    fn kind(&self, path: &PoolPath) -> Outcome<PoolFileKind> {
        match fs::symlink_metadata(self.outside(path)) {
            Ok(metadata) if metadata.is_dir() => Ok(PoolFileKind::Directory),
            Ok(metadata) if metadata.is_file() => Ok(PoolFileKind::Regular),
            Ok(_) => Ok(PoolFileKind::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PoolFileKind::Missing),
            Err(error) => Err(Failure::of_io(format!("cannot look at `{path}`"), &error)),
        }
    }

    fn list(&self, directory: &PoolPath) -> Outcome<Vec<PoolEntry>> {
        let cannot = |error: io::Error| Failure::of_io(format!("cannot list `{directory}`"), &error);
        let folder = self.open_beneath(directory, OFlags::RDONLY | OFlags::DIRECTORY).map_err(cannot)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&folder).map_err(|errno| cannot(errno.into()))? {
            let entry = entry.map_err(|errno| cannot(errno.into()))?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Another process has removed it meanwhile.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(cannot(errno.into())),
            };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => PoolFileKind::Directory,
                FileType::RegularFile => PoolFileKind::Regular,
                _ => PoolFileKind::Other,
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
            entries.push(PoolEntry { name, kind, size_bytes, modified_seconds: stat.st_mtime });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn open(&self, file: &PoolPath) -> Outcome<Box<dyn Disk + '_>> {
        let open = self.open_regular(file).map_err(|error| Failure::of_io(format!("cannot open `{file}`"), &error))?;
        Ok(Box::new(FileDisk::new(open, &self.outside(file))?))
    }

    fn copy_mode(&self, file: &PoolPath) -> Outcome<u16> {
        let open = self.open_regular(file).map_err(|error| Failure::of_io(format!("cannot open `{file}`"), &error))?;
        copy_mode_of(&open).map_err(|error| Failure::of_io(format!("cannot look at `{file}`"), &error))
    }

    fn draft(&self, beside: &PoolPath, size_bytes: u64, mode: u16) -> Outcome<Box<dyn Draft + '_>> {
        let path = self.outside(beside);
        let directory = path.parent().unwrap_or(&self.mount.mountpoint);
        let draft = MountedDraft::create(directory, mode).and_then(|draft| {
            draft.file.set_len(size_bytes)?;
            Ok(draft)
        });
        let cannot = || format!("cannot make a file in `{}`", directory.shown());
        Ok(Box::new(draft.map_err(|error| full_or(cannot(), &error))?))
    }

    fn hand_over(&self, file: &PoolPath) -> Outcome<()> {
        let open = self.open_regular(file).map_err(|error| Failure::of_io(format!("cannot clone `{file}`"), &error))?;
        hand_over(&open).map_err(|error| refused(&format!("clone `{file}` in"), &self.mount, &error))
    }

    fn clone_file(&mut self, source: &PoolPath, destination: &PoolPath) -> Outcome<()> {
        let cannot = || format!("cannot clone `{source}` to `{destination}`");
        let from = self.open_regular(source).map_err(|error| Failure::of_io(cannot(), &error))?;
        let path = self.outside(destination);
        let directory = path.parent().unwrap_or(&self.mount.mountpoint);
        let mode = copy_mode_of(&from).map_err(|error| Failure::of_io(cannot(), &error))?;
        let draft = MountedDraft::create(directory, mode).map_err(|error| full_or(cannot(), &error))?;
        self.ask(&format!("clone `{source}` to `{destination}` in"), |client| client.clone_file(&from, &draft.file))?;
        draft.rename(&path).map_err(|error| full_or(cannot(), &error))
    }

    fn grow(&mut self) -> Outcome<u64> {
        self.ask("grow", ControlClient::grow)
    }

    fn trim(&mut self, meter: &Meter) -> Outcome<u64> {
        self.ask("trim", |client| client.trim(&mut show(meter)))
    }

    fn scrub(&mut self, bytes_per_second: Option<u64>, meter: &Meter) -> Outcome<PoolProblems> {
        self.ask("scrub", |client| client.scrub(bytes_per_second, &mut show(meter))).map(PoolProblems::from)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        // A renamed file is durable when its directory is. Unlike a request to the daemon, every user may sync a
        // directory.
        let synced = File::open(&self.base).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Failure::of_io(format!("cannot sync `{}`", self.base.shown()), &error))
    }
}

/// Shows a daemon's progress. When the user wants to stop, the process ends. The daemon then notices the closed
/// connection and stops at a sound point.
pub(super) fn show(meter: &Meter) -> impl FnMut(u64, u64) {
    |done, total| {
        if onefold_pool::Progress::update(meter, done, total).is_break() {
            meter.finish();
            eprintln!("error: interrupted");
            std::process::exit(1);
        }
    }
}

impl From<ScrubReport> for PoolProblems {
    fn from(report: ScrubReport) -> PoolProblems {
        let finding = |problem: onefold_export::control::ScrubProblem| PoolProblem {
            structure: problem.structure,
            block: problem.block,
            files: problem.files,
            places: Vec::new(),
            has_more_places: false,
            is_settled: false,
            what: problem.what,
        };
        PoolProblems {
            problems: report.problems.into_iter().map(finding).collect(),
            problems_total: report.problems_total,
            data_blocks_hashed: report.data_blocks_hashed,
            stopped: report.stopped,
        }
    }
}

fn full_or(cannot: String, error: &io::Error) -> Failure {
    let failure = Failure::of_io(cannot, error);
    match error.kind() {
        io::ErrorKind::StorageFull => {
            failure.hint("delete files, or enlarge the pool's file or partition and run `onefold pool grow`")
        }
        io::ErrorKind::AlreadyExists => failure.hint("choose another name, or remove the file first"),
        io::ErrorKind::InvalidFilename => failure.hint("a name has at most 255 bytes"),
        io::ErrorKind::FileTooLarge => failure.hint("a file in a pool has at most 16 TiB"),
        io::ErrorKind::ReadOnlyFilesystem => failure.hint("mount the pool without --read-only"),
        _ => failure,
    }
}

/// Number of files that this process has started, part of their temporary names.
static DRAFT_COUNT: AtomicU64 = AtomicU64::new(0);

/// A file under a temporary, hidden name, removed when dropped. (A mount may not support files without a name.)
struct MountedDraft {
    file: File,
    path: Option<PathBuf>,
}

impl MountedDraft {
    fn create(directory: &Path, mode: u16) -> io::Result<MountedDraft> {
        let number = DRAFT_COUNT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".onefold-new-{}-{number}", std::process::id()));
        // A copy through the kernel's page cache costs more than storing content that already exists. FUSE accepts any
        // offset and length for direct I/O.
        let direct = i32::try_from(OFlags::DIRECT.bits()).expect("a flag of open(2)");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(u32::from(mode)).custom_flags(direct);
        let file = options.open(&path)?;
        Ok(MountedDraft { file, path: Some(path) })
    }

    fn rename(mut self, name: &Path) -> io::Result<()> {
        if let Some(path) = &self.path {
            renameat_with(CWD, path, CWD, name, RenameFlags::NOREPLACE)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for MountedDraft {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // If it cannot be removed, its name says what it is.
            let _ = fs::remove_file(path);
        }
    }
}

impl Sink for MountedDraft {
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        let written = self.file.write_all_at(from, offset);
        Ok(written.map_err(|error| full_or("cannot write to the pool".to_owned(), &error))?)
    }
}

impl Draft for MountedDraft {
    fn publish(self: Box<Self>, name: &PoolPath) -> Outcome<()> {
        let cannot = || format!("cannot give the new file its name `{name}`");
        // The name must not be durable before the data is.
        self.file.sync_all().map_err(|error| full_or(cannot(), &error))?;
        let directory = self.path.as_deref().and_then(Path::parent).map(Path::to_owned);
        let path = match (directory, name.split()) {
            (Some(directory), Some((_, file_name))) => directory.join(file_name),
            _ => return Err(Failure::new(cannot())),
        };
        self.rename(&path).map_err(|error| full_or(cannot(), &error))
    }
}
