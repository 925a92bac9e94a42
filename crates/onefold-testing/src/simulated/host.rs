//! Hosts: what the file system knows of each, and what each has at hand.

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

/// An opening of a file, never given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OpenNo(pub(super) u64);

/// What a host's work is given when it starts.
#[derive(Debug)]
pub struct Host<'run> {
    /// Which host it is.
    pub no: HostNo,
    /// How often it was started before.
    pub incarnation: u32,
    /// The file system. Each call is a step, before which others may make theirs.
    pub substrate: SimulatedSubstrate<'run>,
    /// Its clock. Sleeping lets the others go on.
    pub clock: Arc<SimulatedClock>,
    /// Its randomness.
    pub random: Arc<SeededRandom>,
}

impl Host<'_> {
    /// Returns what writers wrote through this host since this was last asked, for a write monitor. At most
    /// [`SeenWrite::KEPT_MAX`]: older ones are dropped, as a monitor under load drops them. Empty unless
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
    /// Its path at that time.
    pub path: PathBuf,
    /// What was done.
    pub kind: SeenKind,
    /// Where it was written to, in bytes.
    pub offset: u64,
    /// How much was written, or how long the file is now.
    pub length: u64,
}

/// What a door sees done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenKind {
    /// Something was written.
    Written,
    /// A range was punched out or set aside.
    Zeroed,
    /// It was given another length.
    Truncated,
}

impl SeenWrite {
    /// How many are kept for each host.
    pub const KEPT_MAX: usize = 256;
}

/// What the file system knows of a host.
#[derive(Debug)]
pub(super) struct Machine {
    /// For whom it works.
    pub(super) user: UserNo,
    /// How often it crashed or was started anew: calls of an earlier incarnation fail.
    pub(super) incarnation: u32,
    pub(super) is_up: bool,
    pub(super) is_stalled: bool,
    pub(super) opens: BTreeMap<OpenNo, FileNo>,
    pub(super) locks: Vec<FileNo>,
    /// The files that it changed and did not sync.
    pub(super) unsynced: BTreeSet<FileNo>,
    /// The names that it changed and that may still be undone, oldest first.
    pub(super) unsynced_names: VecDeque<UnsyncedNames>,
    /// How far its time of day is off.
    pub(super) skew_ns: Arc<AtomicI64>,
    pub(super) seen_writes: VecDeque<SeenWrite>,
}

impl Machine {
    pub(super) fn new(user: UserNo) -> Machine {
        Machine {
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
