//! A pool as the commands see it, whether a daemon serves it or the command has opened it itself.

mod mounted;
mod names;
mod offline;
mod served;

use std::path::Path;

use onefold_disk::{Disk, Sink};
use onefold_pool::{FileStat, OpenOptions, PoolStat};

pub(crate) use mounted::refused;
pub(crate) use names::PoolPath;
pub(crate) use offline::{open_device, open_pool};
pub(crate) use served::refused_without_mount;

use crate::failure::Outcome;
use crate::interrupt::Interrupt;
use crate::locate::{self, Located};
use crate::progress::Meter;

/// What may be done with a pool.
pub(crate) trait Store {
    /// Tells whether a daemon serves the pool.
    fn is_served(&self) -> bool;
    /// Returns where a file lies in the pool that the user named by `path`.
    fn path(&self, path: &Path) -> Outcome<PoolPath>;
    /// Returns the pool's numbers.
    fn stat(&mut self) -> Outcome<PoolStat>;
    /// Returns one file's numbers.
    fn file_stat(&mut self, file: &PoolPath, meter: &Meter) -> Outcome<FileStat>;
    /// Returns what lies at a path.
    fn kind(&self, path: &PoolPath) -> Outcome<Kind>;
    /// Opens a file for reading.
    fn open(&self, file: &PoolPath) -> Outcome<Box<dyn Disk + '_>>;
    /// Returns who may read and write a file, as far as a copy of it may let them: never more than [`COPY_MODE_MAX`].
    fn copy_mode(&self, file: &PoolPath) -> Outcome<u16>;
    /// Starts a file without a name, `size_bytes` long and all zeros, with the permissions `mode`.
    fn draft(&self, beside: &PoolPath, size_bytes: u64, mode: u16) -> Outcome<Box<dyn Draft + '_>>;
    /// Makes all that processes have changed of a file part of what [`Store::clone_file`] clones.
    fn hand_over(&self, file: &PoolPath) -> Outcome<()>;
    /// Makes `destination`, which must not exist, an instant copy of `source`, which nobody may read who could not
    /// read that.
    fn clone_file(&mut self, source: &PoolPath, destination: &PoolPath) -> Outcome<()>;
    /// Takes in what the device has gained; returns the new size in bytes.
    fn grow(&mut self) -> Outcome<u64>;
    /// Tells the device which blocks are free; returns how many bytes.
    fn trim(&mut self, meter: &Meter) -> Outcome<u64>;
    /// Reads all data and compares it with its fingerprints.
    fn scrub(&mut self, bytes_per_second: Option<u64>, meter: &Meter) -> Outcome<Findings>;
    /// Makes everything durable and ends the use of the pool.
    fn close(self: Box<Self>) -> Outcome<()>;
}

/// The most that a file made by a verb lets others do. What it was copied from may allow less, and then so does it:
/// an image that only its owner reads stays one, whoever copies it.
pub(crate) const COPY_MODE_MAX: u16 = 0o644;

/// A file that nobody sees until it is published; dropped unpublished, it is gone.
pub(crate) trait Draft: Sink {
    /// Gives the file its name, which must be free, once its data is durable.
    fn publish(self: Box<Self>, name: &PoolPath) -> Outcome<()>;
}

/// What lies at a path of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Missing,
    Directory,
    Regular,
    Other,
}

/// One thing that is wrong with a pool.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Finding {
    /// Which structure.
    pub(crate) structure: String,
    /// The block where it lies, if it has a place.
    pub(crate) block: Option<u64>,
    /// Paths of the files hit, as far as known.
    pub(crate) files: Vec<String>,
    /// What is wrong.
    pub(crate) what: String,
}

/// All that is wrong with a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// The first ones, in full.
    pub(crate) problems: Vec<Finding>,
    /// How many there are in all.
    pub(crate) problems_total: u64,
    /// Data blocks that were read and compared.
    pub(crate) data_blocks_hashed: u64,
    /// Whether the work was stopped before its end.
    pub(crate) stopped: bool,
}

/// Whether a command means to change the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    Change,
}

/// A pool that was found, and how the user's Ctrl-C reaches the work on it.
pub(crate) struct OpenStore {
    /// The pool.
    pub(crate) store: Box<dyn Store>,
    /// Asked between the steps of long work.
    pub(crate) interrupt: Interrupt,
}

/// Finds the pool that `target` means and opens it, or connects to its daemon.
pub(crate) fn open(target: &Path, memory_bytes: u64, intent: Intent) -> Outcome<OpenStore> {
    match locate::locate(target)? {
        Located::Mounted { mount, base } => {
            let store = Box::new(mounted::MountedStore::connect(mount, base)?);
            Ok(OpenStore { store, interrupt: Interrupt::watch() })
        }
        Located::Served(path) => {
            let store = Box::new(served::ServedStore::connect(path)?);
            Ok(OpenStore { store, interrupt: Interrupt::watch() })
        }
        Located::Offline(path) => {
            let options = OpenOptions { memory_bytes, read_only: intent == Intent::Read, ..OpenOptions::default() };
            let store = Box::new(offline::OfflineStore::open(&path, options)?);
            Ok(OpenStore { store, interrupt: Interrupt::watch() })
        }
        Located::Stale(mount) => Err(locate::stale(&mount)),
    }
}
