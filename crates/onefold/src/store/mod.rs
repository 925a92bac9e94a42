//! A pool in the form that commands use, whether a daemon serves it or the command has opened it itself.

mod host_room;
mod mounted;
mod names;
mod offline;
mod served;

use std::ffi::OsString;
use std::path::Path;

use onefold_disk::{Disk, Sink};
use onefold_pool::{FileStat, OpenOptions, PoolStat};

pub(crate) use host_room::HostRoom;
pub(crate) use mounted::refused;
pub(crate) use names::PoolPath;
pub(crate) use offline::{open_device, open_pool};
pub(crate) use served::refused_without_mount;

use crate::failure::Outcome;
use crate::interrupt::Interrupt;
use crate::locate::{self, PoolTarget};
use crate::progress::Meter;

/// Operations on a pool.
pub(crate) trait Store {
    /// Returns whether a daemon serves the pool.
    fn is_served(&self) -> bool;
    /// Returns the pool's file or partition.
    fn pool(&self) -> &Path;
    /// Returns the path inside the pool of the file that the user named `path`.
    fn path(&self, path: &Path) -> Outcome<PoolPath>;
    /// Returns the pool's numbers.
    fn stat(&mut self) -> Outcome<PoolStat>;
    /// Returns one file's numbers.
    fn file_stat(&mut self, file: &PoolPath, meter: &Meter) -> Outcome<FileStat>;
    /// Returns the kind of file at a path.
    fn kind(&self, path: &PoolPath) -> Outcome<PoolFileKind>;
    /// Returns the entries of a directory, in the order of their names.
    fn list(&self, directory: &PoolPath) -> Outcome<Vec<PoolEntry>>;
    /// Opens a file for reading.
    fn open(&self, file: &PoolPath) -> Outcome<Box<dyn Disk + '_>>;
    /// Returns the permissions that a copy of a file may have, derived from those of the file: at most
    /// [`COPY_MODE_MAX`].
    fn copy_mode(&self, file: &PoolPath) -> Outcome<u16>;
    /// Starts a file without a name, `size_bytes` long and all zeros, with the permissions `mode`.
    fn draft(&self, beside: &PoolPath, size_bytes: u64, mode: u16) -> Outcome<Box<dyn Draft + '_>>;
    /// Hands over all changes of a file by processes, so that [`Store::clone_file`] clones them too.
    fn hand_over(&self, file: &PoolPath) -> Outcome<()>;
    /// Makes `destination`, which must not exist, an instant copy of `source`. Users who could not read the source
    /// cannot read the copy.
    fn clone_file(&mut self, source: &PoolPath, destination: &PoolPath) -> Outcome<()>;
    /// Extends the pool to the present size of its device. Returns the new size in bytes.
    fn grow(&mut self) -> Outcome<u64>;
    /// Discards free blocks on the device. Returns the number of bytes.
    fn trim(&mut self, meter: &Meter) -> Outcome<u64>;
    /// Reads all data and compares it with its fingerprints.
    fn scrub(&mut self, bytes_per_second: Option<u64>, meter: &Meter) -> Outcome<PoolProblems>;
    /// Makes everything durable, and ends the use of the pool.
    fn close(self: Box<Self>) -> Outcome<()>;
}

/// Maximum permissions of a file that a verb makes. If its source allows less, so does the file: a copy of an image
/// that only its owner may read stays private, no matter which user copies it.
pub(crate) const COPY_MODE_MAX: u16 = 0o644;

/// A file that is invisible until it is published. Dropping it unpublished removes it.
pub(crate) trait Draft: Sink {
    /// Gives the file its name, which must be free, once its data is durable.
    fn publish(self: Box<Self>, name: &PoolPath) -> Outcome<()>;
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolEntry {
    /// Its name in the directory.
    pub(crate) name: OsString,
    /// Its kind.
    pub(crate) kind: PoolFileKind,
    /// Its length in bytes.
    pub(crate) size_bytes: u64,
    /// Time of the last change of its content, in seconds since 1970.
    pub(crate) modified_seconds: i64,
}

/// The kind of file at a path of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolFileKind {
    Missing,
    Directory,
    Regular,
    Other,
}

/// One problem of a pool.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct PoolProblem {
    /// The damaged structure.
    pub(crate) structure: String,
    /// Its block, if it has one.
    pub(crate) block: Option<u64>,
    /// Paths of the affected files, as far as known.
    pub(crate) files: Vec<String>,
    /// Places of the block in affected files, if a check found it to be damaged data.
    pub(crate) places: Vec<ProblemPlace>,
    /// Whether the block has, or may have, more places.
    pub(crate) has_more_places: bool,
    /// Whether a repair has nothing left to do about it.
    pub(crate) is_settled: bool,
    /// Description of the problem.
    pub(crate) what: String,
}

/// A place in a file of a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct ProblemPlace {
    /// The file's path.
    pub(crate) file: String,
    /// The offset in the file, in bytes.
    pub(crate) offset: u64,
}

/// All problems of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolProblems {
    /// The first problems, in full.
    pub(crate) problems: Vec<PoolProblem>,
    /// Number of problems in all.
    pub(crate) problems_total: u64,
    /// Number of data blocks that were read and compared.
    pub(crate) data_blocks_hashed: u64,
    /// Whether the work was stopped before its end.
    pub(crate) stopped: bool,
}

/// Whether a command changes the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    Change,
}

/// An open pool, and the user's way to interrupt work on it.
pub(crate) struct OpenStore {
    /// The pool.
    pub(crate) store: Box<dyn Store>,
    /// Checked between the steps of long work.
    pub(crate) interrupt: Interrupt,
}

/// Finds the pool at `target`, and opens it or connects to its daemon.
pub(crate) fn open(target: &Path, memory_bytes: u64, intent: Intent) -> Outcome<OpenStore> {
    match locate::locate(target)? {
        PoolTarget::Mounted { mount, base } => {
            let store = Box::new(mounted::MountedStore::connect(mount, base)?);
            Ok(OpenStore { store, interrupt: Interrupt::watch() })
        }
        PoolTarget::Served(path) => {
            let store = Box::new(served::ServedStore::connect(path)?);
            Ok(OpenStore { store, interrupt: Interrupt::watch() })
        }
        PoolTarget::Offline(path) => {
            let options = OpenOptions { memory_bytes, read_only: intent == Intent::Read, ..OpenOptions::default() };
            let store = Box::new(offline::OfflineStore::open(&path, options)?);
            Ok(OpenStore { store, interrupt: Interrupt::watch() })
        }
        PoolTarget::Stale(mount) => Err(locate::stale(&mount)),
    }
}
