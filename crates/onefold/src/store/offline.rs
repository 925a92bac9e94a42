//! A pool without a daemon: the command opens it itself, and thereby locks all other processes out.

use std::ffi::OsString;
use std::ops::{ControlFlow, Range};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_block::Show;
use onefold_block::device::{DeviceError, FileDevice, OpenMode};
use onefold_disk::{Disk, DiskError, Sink};
use onefold_pool::check::{CheckProblem, CheckReport, FilePlace, ScrubOptions};
use onefold_pool::{
    Attr, Durability, Environment, FileKind, FileStat, Ino, NewFile, OpenOptions, Pool, PoolError, PoolStat,
    SeekTarget, SetAttr,
};

use super::names::PoolPath;
use super::{COPY_MODE_MAX, Draft, PoolEntry, PoolFileKind, PoolProblem, PoolProblems, ProblemPlace, Store};
use crate::failure::{Failure, Outcome};
use crate::progress::Meter;

/// The cookie of `..`, after which the entries of a directory follow.
const COOKIE_OF_PARENT: u64 = 2;

/// Opens the file or partition that holds a pool.
pub(crate) fn open_device(path: &Path, mode: OpenMode) -> Outcome<FileDevice> {
    FileDevice::open(path, mode).map_err(|error| {
        let cannot = format!("cannot open `{}`", path.shown());
        let failure = match &error {
            // The error's own words would say the same again.
            DeviceError::Io { op: "open", source, .. } => Failure::of_io(cannot, source),
            _ => Failure::new(cannot).because(&error),
        };
        match error {
            DeviceError::InUse { .. } => {
                failure.hint("another command or a mount uses it: wait for it, or use the mount point instead")
            }
            DeviceError::Unsuitable { .. } => failure.hint("a pool lies in a regular file or on a partition"),
            DeviceError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                failure.hint("`onefold pool create --size 100G` makes a new pool in a new file")
            }
            DeviceError::Io { .. } => failure,
        }
    })
}

/// Opens the pool at `path`.
pub(crate) fn open_pool(path: &Path, mut options: OpenOptions) -> Outcome<Pool> {
    let mode = if options.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
    let device = Arc::new(open_device(path, mode)?);
    options.host = crate::host::identity();
    Pool::open(device, options, Environment::system())
        .map_err(|error| Failure::of_pool(format!("cannot open the pool `{}`", path.shown()), &error))
}

/// See the module.
pub(super) struct OfflineStore {
    pool: Pool,
    path: PathBuf,
}

impl OfflineStore {
    pub(super) fn open(path: &Path, options: OpenOptions) -> Outcome<OfflineStore> {
        Ok(OfflineStore { pool: open_pool(path, options)?, path: path.to_owned() })
    }

    fn failure(&self, what: &str, error: &PoolError) -> Failure {
        Failure::of_pool(format!("cannot {what} the pool `{}`", self.path.shown()), error)
    }

    /// Returns the attributes of the file at `path`, with a hold on it.
    fn find(&self, path: &PoolPath) -> Result<(Attr, PoolHold<'_>), PoolError> {
        let mut attr = self.pool.attr(Ino::ROOT)?;
        let mut hold = PoolHold { pool: &self.pool, ino: Ino::ROOT, holds: 0 };
        for name in path.components() {
            attr = self.pool.lookup(attr.ino, name)?;
            hold = PoolHold { pool: &self.pool, ino: attr.ino, holds: 1 };
        }
        Ok((attr, hold))
    }

    fn find_regular(&self, path: &PoolPath) -> Result<(Attr, PoolHold<'_>), PoolError> {
        let found = self.find(path)?;
        match found.0.kind {
            FileKind::Regular => Ok(found),
            FileKind::Directory => Err(PoolError::IsADirectory),
            _ => Err(PoolError::Invalid("not a regular file")),
        }
    }

    fn start_draft(&self, directory: &PoolPath, size_bytes: u64, mode: u16) -> Result<OfflineDraft<'_>, PoolError> {
        let (parent, parent_hold) = self.find(directory)?;
        let new = NewFile {
            kind: FileKind::Regular,
            mode,
            umask: 0,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
        };
        let file = self.pool.create_unnamed(parent.ino, &new)?;
        drop(parent_hold);
        let hold = PoolHold { pool: &self.pool, ino: file.ino, holds: 1 };
        self.pool.set_attr(file.ino, &SetAttr { size_bytes: Some(size_bytes), ..SetAttr::default() })?;
        Ok(OfflineDraft { store: self, hold })
    }

    fn entries(&self, directory: &PoolPath) -> Result<Vec<PoolEntry>, PoolError> {
        let (directory, _hold) = self.find(directory)?;
        let mut names = Vec::new();
        self.pool.read_directory(directory.ino, COOKIE_OF_PARENT, &mut |entry| {
            names.push(entry.name.clone());
            ControlFlow::Continue(())
        })?;
        names.sort_unstable();
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let attr = self.pool.lookup(directory.ino, &name)?;
            let _hold = PoolHold { pool: &self.pool, ino: attr.ino, holds: 1 };
            entries.push(PoolEntry {
                name: OsString::from_vec(name),
                kind: kind_of(&attr),
                size_bytes: attr.size_bytes,
                modified_seconds: attr.modified.seconds,
            });
        }
        Ok(entries)
    }

    fn copy_instantly(&self, source: &PoolPath, destination: &PoolPath) -> Result<(), PoolError> {
        let (source, _hold) = self.find_regular(source)?;
        let (directory, _) = destination.split().ok_or(PoolError::Exists)?;
        let draft = self.start_draft(&directory, 0, source.mode & COPY_MODE_MAX)?;
        self.pool.clone_file(source.ino, draft.hold.ino)?;
        draft.link(destination)
    }
}

impl Store for OfflineStore {
    fn is_served(&self) -> bool {
        false
    }

    fn pool(&self) -> &Path {
        &self.path
    }

    fn path(&self, path: &Path) -> Outcome<PoolPath> {
        PoolPath::new(path)
    }

    fn stat(&mut self) -> Outcome<PoolStat> {
        self.pool.stat().map_err(|error| self.failure("read the numbers of", &error))
    }

    fn file_stat(&mut self, file: &PoolPath, meter: &Meter) -> Outcome<FileStat> {
        self.find_regular(file)
            .and_then(|(attr, _hold)| self.pool.file_stat(attr.ino, meter))
            .map_err(|error| Failure::of_pool(format!("cannot read the numbers of `{file}`"), &error))
    }

    fn kind(&self, path: &PoolPath) -> Outcome<PoolFileKind> {
        match self.find(path) {
            Ok((attr, _hold)) => Ok(kind_of(&attr)),
            Err(PoolError::NotFound) => Ok(PoolFileKind::Missing),
            Err(error) => Err(Failure::of_pool(format!("cannot look at `{path}`"), &error)),
        }
    }

    fn list(&self, directory: &PoolPath) -> Outcome<Vec<PoolEntry>> {
        self.entries(directory).map_err(|error| Failure::of_pool(format!("cannot list `{directory}`"), &error))
    }

    fn open(&self, file: &PoolPath) -> Outcome<Box<dyn Disk + '_>> {
        let (attr, hold) =
            self.find_regular(file).map_err(|error| Failure::of_pool(format!("cannot open `{file}`"), &error))?;
        Ok(Box::new(OfflineDisk { hold, size_bytes: attr.size_bytes, name: file.to_string() }))
    }

    fn copy_mode(&self, file: &PoolPath) -> Outcome<u16> {
        self.find_regular(file)
            .map(|(attr, _hold)| attr.mode & COPY_MODE_MAX)
            .map_err(|error| Failure::of_pool(format!("cannot look at `{file}`"), &error))
    }

    fn draft(&self, beside: &PoolPath, size_bytes: u64, mode: u16) -> Outcome<Box<dyn Draft + '_>> {
        let directory = beside.split().map_or_else(|| beside.clone(), |(directory, _)| directory);
        let draft = self
            .start_draft(&directory, size_bytes, mode)
            .map_err(|error| Failure::of_pool(format!("cannot make a file in `{directory}`"), &error))?;
        Ok(Box::new(draft))
    }

    fn hand_over(&self, _file: &PoolPath) -> Outcome<()> {
        // No other process uses the pool.
        Ok(())
    }

    fn clone_file(&mut self, source: &PoolPath, destination: &PoolPath) -> Outcome<()> {
        self.copy_instantly(source, destination)
            .map_err(|error| Failure::of_pool(format!("cannot clone `{source}` to `{destination}`"), &error))
    }

    fn grow(&mut self) -> Outcome<u64> {
        self.pool.grow().map_err(|error| self.failure("grow", &error))
    }

    fn trim(&mut self, meter: &Meter) -> Outcome<u64> {
        self.pool.trim(meter).map_err(|error| self.failure("trim", &error))
    }

    fn scrub(&mut self, bytes_per_second: Option<u64>, meter: &Meter) -> Outcome<PoolProblems> {
        let report = self.pool.scrub(&ScrubOptions { bytes_per_second }, meter);
        if report.as_ref().is_ok_and(|report| !report.stopped) {
            // The findings matter more than a failure to note the time, which a damaged or full pool may cause.
            let _ = self.pool.note_scrub();
        }
        report.map(PoolProblems::from).map_err(|error| self.failure("scrub", &error))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.pool.close().map_err(|error| self.failure("close", &error))
    }
}

fn kind_of(attr: &Attr) -> PoolFileKind {
    match attr.kind {
        FileKind::Directory => PoolFileKind::Directory,
        FileKind::Regular => PoolFileKind::Regular,
        _ => PoolFileKind::Other,
    }
}

impl From<CheckReport> for PoolProblems {
    fn from(report: CheckReport) -> PoolProblems {
        let finding = |problem: CheckProblem| PoolProblem {
            structure: problem.structure.to_owned(),
            block: problem.block.map(|block| block.0),
            files: problem.files,
            places: problem
                .places
                .into_iter()
                .map(|FilePlace { file, offset }| ProblemPlace { file, offset })
                .collect(),
            has_more_places: problem.has_more_places,
            is_settled: problem.is_settled,
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

/// Holds on an inode, released when dropped.
struct PoolHold<'a> {
    pool: &'a Pool,
    ino: Ino,
    holds: u64,
}

impl Drop for PoolHold<'_> {
    fn drop(&mut self) {
        if self.holds > 0 {
            self.pool.release(self.ino, self.holds);
        }
    }
}

/// A file of the pool that is read as a disk.
struct OfflineDisk<'a> {
    hold: PoolHold<'a>,
    size_bytes: u64,
    name: String,
}

impl OfflineDisk<'_> {
    fn error(&self, error: &PoolError) -> DiskError {
        Failure::of_pool(format!("cannot read `{}`", self.name), error).into()
    }
}

impl Disk for OfflineDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let PoolHold { pool, ino, .. } = self.hold;
        let start = match pool.seek(ino, offset, SeekTarget::Data) {
            Ok(start) => start,
            Err(PoolError::NoSuchOffset) => return Ok(None),
            Err(error) => return Err(self.error(&error)),
        };
        let end = pool.seek(ino, start, SeekTarget::Hole).map_err(|error| self.error(&error))?;
        Ok((start < end).then_some(start..end))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let count = self.hold.pool.read(self.hold.ino, offset, into).map_err(|error| self.error(&error))?;
        into[count..].fill(0);
        Ok(())
    }
}

/// A file without a name. The pool removes it when its last hold is gone.
struct OfflineDraft<'a> {
    store: &'a OfflineStore,
    hold: PoolHold<'a>,
}

impl OfflineDraft<'_> {
    fn link(mut self, name: &PoolPath) -> Result<(), PoolError> {
        let (directory, file_name) = name.split().ok_or(PoolError::Exists)?;
        let (parent, _hold) = self.store.find(&directory)?;
        let file_name = std::os::unix::ffi::OsStrExt::as_bytes(file_name);
        self.store.pool.link(self.hold.ino, parent.ino, file_name)?;
        self.hold.holds += 1;
        Ok(())
    }
}

impl Sink for OfflineDraft<'_> {
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        let written = self.store.pool.write(self.hold.ino, offset, from, Durability::Later);
        Ok(written.map_err(|error| self.store.failure("write to", &error))?)
    }
}

impl Draft for OfflineDraft<'_> {
    fn publish(self: Box<Self>, name: &PoolPath) -> Outcome<()> {
        // The name must not be durable before the data is.
        let synced = self.store.pool.fsync(self.hold.ino);
        synced
            .and_then(|()| self.link(name))
            .map_err(|error| Failure::of_pool(format!("cannot give the new file its name `{name}`"), &error))
    }
}
