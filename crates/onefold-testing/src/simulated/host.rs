//! Hosts: the file system's record of each, and the seams that each works with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use onefold_block::random::SeededRandom;
use onefold_substrate::{FileHandle, UserNo};

use super::clock::SimulatedClock;
use super::durability::UnsyncedNames;
use super::files::FileNo;
use super::mount::SimulatedSubstrate;

/// Index of a simulated host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostNo(pub u32);

impl fmt::Display for HostNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.0)
    }
}

/// An opening of a file; its number is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OpenNo(pub(super) u64);

/// The seams that a host's work gets when it starts.
#[derive(Debug)]
pub struct Host<'run> {
    /// The host's number.
    pub no: HostNo,
    /// Number of earlier starts.
    pub incarnation: u32,
    /// The file system. Each call is a step, and other hosts may make theirs before it.
    pub substrate: SimulatedSubstrate<'run>,
    /// Its clock. Other hosts go on while it sleeps.
    pub clock: Arc<SimulatedClock>,
    /// Its randomness.
    pub random: Arc<SeededRandom>,
}

impl Host<'_> {
    /// Returns the writes by writers through this host since the last call, for a write monitor. At most
    /// [`SeenWrite::KEPT_MAX`]: older ones are dropped, as by a monitor under load. Empty unless
    /// [`SimulationOptions::tells_writes`](super::SimulationOptions::tells_writes).
    #[must_use]
    pub fn take_writes(&self) -> Vec<SeenWrite> {
        self.substrate.take_writes()
    }
}

/// A write by a writer, as a door on its host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenWrite {
    /// The file.
    pub handle: FileHandle,
    /// Its path at the time of the write.
    pub path: PathBuf,
    /// Kind of the change.
    pub kind: SeenKind,
    /// Offset of the write, in bytes.
    pub offset: u64,
    /// Length of the write, or the new length of the file, in bytes.
    pub length: u64,
}

/// A kind of change to a file, as a door sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenKind {
    /// Bytes were written.
    Written,
    /// A range was punched out or set aside.
    Zeroed,
    /// The file's length was set.
    Truncated,
}

impl SeenWrite {
    /// Maximum number of writes that are kept for each host.
    pub const KEPT_MAX: usize = 256;
}

/// The file system's record of a host.
#[derive(Debug)]
pub(super) struct HostState {
    /// The user for whom it works.
    pub(super) user: UserNo,
    /// Number of its crashes and restarts: calls of an earlier incarnation fail.
    pub(super) incarnation: u32,
    pub(super) is_up: bool,
    pub(super) is_stalled: bool,
    pub(super) opens: BTreeMap<OpenNo, FileNo>,
    pub(super) locks: Vec<FileNo>,
    /// The files that it changed and has not synced.
    pub(super) unsynced: BTreeSet<FileNo>,
    /// Its changes of names that may still be undone, oldest first.
    pub(super) unsynced_names: VecDeque<UnsyncedNames>,
    /// Offset of its time of day, in nanoseconds.
    pub(super) skew_ns: Arc<AtomicI64>,
    pub(super) seen_writes: VecDeque<SeenWrite>,
}

impl HostState {
    pub(super) fn new(user: UserNo) -> HostState {
        HostState {
            user,
            incarnation: 0,
            is_up: false,
            is_stalled: false,
            opens: BTreeMap::new(),
            locks: Vec::new(),
            unsynced: BTreeSet::new(),
            unsynced_names: VecDeque::new(),
            skew_ns: Arc::new(AtomicI64::new(0)),
            seen_writes: VecDeque::new(),
        }
    }
}
