//! Options for creating and opening a pool.

use std::sync::Arc;

use onefold_block::{Clock, Processors, Random};

use crate::host::HostId;

/// The seams besides the device, given at construction.
#[derive(Clone)]
pub struct Environment {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Provides identities and keys.
    pub random: Arc<dyn Random>,
}

impl Environment {
    /// The machine's own clock and randomness.
    #[must_use]
    pub fn system() -> Environment {
        Environment {
            clock: Arc::new(onefold_block::clock::SystemClock),
            random: Arc::new(onefold_block::random::SystemRandom),
        }
    }
}

/// A kind of allocation from the pool's room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// Blocks for the data of one write.
    Data,
    /// A node of a file map.
    MapNode,
    /// A page of the names tree.
    TreePage,
    /// A run of blocks from which nodes and pages are taken.
    MetadataRun,
    /// The structures of a block group that is used for the first time.
    BlockGroup,
    /// Room in the journal for an operation's changes.
    JournalRoom,
    /// Space promised to a part of a file that is not written yet.
    Reservation,
}

/// Refuses allocations, so that tests see each kind fail. A refused allocation fails as on a full pool.
pub trait AllocationSeam: std::fmt::Debug + Send + Sync {
    /// Returns whether an allocation is permitted. Called under the pool's metadata lock: it must not call the pool.
    fn permits(&self, what: Allocation) -> bool;
}

/// Where fingerprint stores lie (paper, Table 1: "spatial locality").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePlacement {
    /// At the front of each block group.
    InGroups,
    /// All together at the end of the device. Such a pool can't grow.
    AtEnd,
}

/// Options fixed when a pool is created.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// A name for people, at most 64 bytes.
    pub label: String,
    /// Journal size in bytes; `None` chooses by the size of the device, at most 64 MiB.
    pub journal_bytes: Option<u64>,
    /// Also accepts a journal that is too small for the largest operation of a pool of this size: for tests of how such
    /// an operation fails.
    #[doc(hidden)]
    pub any_journal: bool,
    /// Where fingerprint stores lie.
    pub store_placement: StorePlacement,
    /// Whether new files share blocks unless told otherwise.
    pub dedup: crate::Dedup,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions {
            label: String::new(),
            journal_bytes: None,
            any_journal: false,
            store_placement: StorePlacement::InGroups,
            dedup: crate::Dedup::On,
            root_uid: 0,
            root_gid: 0,
        }
    }
}

/// How a candidate with an equal fingerprint is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Equal keyed fingerprints count as equal blocks.
    Fingerprint,
    /// The bytes are compared before blocks are shared.
    Value,
}

/// How much of a fingerprint store a look-up reads (paper, section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// One page first, the whole store on a second hit in the same store.
    Adaptive,
    /// The whole store at the first access, as in the paper.
    Always,
    /// Only the requested page.
    Never,
}

/// Whether metadata changes go through the journal (paper, section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journaling {
    /// They do.
    On,
    /// Metadata is written in place at each commit. A crash may damage the pool: for experiments only.
    Off,
}

/// Whether the device reports when it runs out of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioning {
    /// Each block of the device has its place, or the device reports its free room: disks, partitions, files.
    Told,
    /// The device can run out of room without a warning: thin volumes. Writes are answered only once the device has
    /// them.
    Thin,
}

/// Limits made small, so that tests constantly meet what a real pool meets never or once in years. For tests only: a
/// pool that was written with short fingerprints must not be opened without them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestLimits {
    /// Bits of each fingerprint that are kept: a few bits make different blocks look equal, and zero bits make all of
    /// them.
    pub fingerprint_bits: u8,
    /// Maximum reference count of a block, at least one; beyond it, equal content is stored again.
    pub references_max: u32,
    /// Whether data goes to the lowest free block, so that a freed block is reused at once.
    pub lowest_first: bool,
    /// Whether only calls of [`crate::Pool::reclaim`] fill the filter, in small steps, so that tests can act in
    /// between.
    pub index_in_steps: bool,
    /// Maximum memory of the filter in bytes, whatever the `memory` setting would give it. Writes do not find blocks
    /// that the filter has no room for.
    pub filter_bytes_max: u64,
    /// Small writes without a sync after which new blocks of such writes are kept in memory until the next commit.
    pub late_after: u32,
    /// Number of block groups from which on a pool keeps the summaries of its groups up to date while it is open.
    pub summaries_from_groups: u64,
}

/// A search for free blocks reads the bitmaps of that many groups at once.
const SUMMARIES_FROM_GROUPS: u64 = 64;

/// Small writes without a sync after which a sync is not likely to come soon.
const LATE_AFTER: u32 = 32;

impl Default for TestLimits {
    fn default() -> TestLimits {
        TestLimits {
            fingerprint_bits: 128,
            references_max: u32::MAX,
            lowest_first: false,
            index_in_steps: false,
            filter_bytes_max: u64::MAX,
            late_after: LATE_AFTER,
            summaries_from_groups: SUMMARIES_FROM_GROUPS,
        }
    }
}

/// The threads that carry out accepted writes ([`crate::Pool::write_behind`]).
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// The pool's own threads; without [`OpenOptions::background`] no writes are accepted.
    Own,
    /// The callers: a single thread that settles its own writes, or a test's threads in [`crate::Pool::work`].
    Callers,
}

/// Options for each opening of a pool.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Upper limit of filter, caches and buffers together, in bytes; at least [`crate::MEMORY_BYTES_MIN`].
    pub memory_bytes: u64,
    /// Refuses all changes and writes nothing, not even for recovery.
    pub read_only: bool,
    /// How candidates are verified.
    pub verify: Verification,
    /// How fingerprint stores are read.
    pub prefetch: Prefetch,
    /// Whether metadata goes through the journal.
    pub journaling: Journaling,
    /// Whether files with `Dedup::On` are shared at all in this opening.
    pub dedup: crate::Dedup,
    /// Maximum time in milliseconds from a change to its commit.
    pub commit_interval_ms: u32,
    /// Paper's n: bits of the fingerprint that choose a place in the filter; `None` chooses by size.
    pub filter_index_bits: Option<u8>,
    /// Paper's k: bits of the fingerprint kept in the filter; `None` chooses by size.
    pub filter_tag_bits: Option<u8>,
    /// Whether the device reports when it runs out of room.
    pub provisioning: Provisioning,
    /// Identity of this host, for other hosts that reach the same storage; `None` if there are none. Background threads
    /// write the heartbeats.
    pub host: Option<HostId>,
    /// Refuses allocations; `None` except in tests.
    #[doc(hidden)]
    pub allocations: Option<Arc<dyn AllocationSeam>>,
    /// Reports whether a processor is idle: threads that wait for writes or for a commit then poll for a moment before
    /// they sleep. With `None` they sleep at once.
    pub processors: Option<Arc<dyn Processors>>,
    /// Whether threads commit, checkpoint and reclaim in the background. Tests that replay call [`crate::Pool::commit`]
    /// and [`crate::Pool::reclaim`] instead.
    pub background: bool,
    /// The threads that carry out accepted writes.
    #[doc(hidden)]
    pub workers: Workers,
    /// Limits by which tests make rare events happen.
    #[doc(hidden)]
    pub test_limits: TestLimits,
}

impl OpenOptions {
    /// Returns whether writes may be accepted before they take effect, because other threads carry them out.
    pub(crate) fn accepts_writes(&self) -> bool {
        (self.background || self.workers == Workers::Callers) && !self.read_only
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            memory_bytes: 1 << 30,
            read_only: false,
            verify: Verification::Fingerprint,
            prefetch: Prefetch::Adaptive,
            journaling: Journaling::On,
            dedup: crate::Dedup::On,
            commit_interval_ms: 5000,
            filter_index_bits: None,
            filter_tag_bits: None,
            provisioning: Provisioning::Told,
            host: None,
            allocations: None,
            processors: None,
            background: true,
            workers: Workers::Own,
            test_limits: TestLimits::default(),
        }
    }
}
