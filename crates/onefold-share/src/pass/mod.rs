//! A pass: takes in the logs that there are, has the file system share what is equal, and brings the index up to date.
//!
//! The order of its steps, each of which may be the last one that a host does, and is one function of `run`:
//!
//! 1. `intake`: which files are this pass's is settled, and their logs are read.
//! 2. `plan`: index and logs side by side; says what is to be done and changes nothing. No lock is held on the index.
//! 3. Slots that no entry names are emptied: a pass that was killed has left them.
//! 4. The scan's finder (`batch`) yields runs, and the `engine` shares them (`share`): first those between places and
//!    slots that the index knows.
//! 5. Then batches, one after the other. Each is a stretch of candidates in the order of their files, with all places
//!    that wait for them:
//!    - `promote`: blocks that are at several places are cloned into arena slots, and the slots read;
//!    - `share`: the other places share with the slots. The kernel compares. Where a share may leave a hole, it is
//!      declared. Where room comes free by whole extents only, `pinned` moves away what keeps those that lost blocks;
//!    - `requests`: who has the other places that this host may not touch is told of them;
//!    - `publish_batch`: entries name the slots from now on.
//! 6. `publish`: new generations of the shards, with all else that has changed and what batches hold. Then batches go.
//! 7. The logs go. Whoever takes them in twice finds all of it shared already.
//! 8. `collect`, where maps do not tell what only the arena refers to: that is found out now and then, and dropped of
//!    the index.
//! 9. Slots that no entry names are emptied.
//!
//! What is cut off keeps the batches that were published, and its logs: the next pass plans anew, and finds by the maps
//! what is shared. A pass that is told to end publishes those slots of its batch that were read, and empties the
//! others. After an error it empties all slots of the batch.

mod again;
mod arenas;
mod batch;
mod collect;
mod copies;
mod elsewhere;
mod engine;
mod images;
mod indexing;
mod intake;
mod lists;
mod outcome;
mod pinned;
mod plan;
mod promote;
mod publish;
mod publish_batch;
mod requests;
mod room;
mod rows;
mod run;
mod runs;
mod share;
mod since;
pub(crate) mod slots;
mod stop_watch;
mod stretches;
mod sweep;
#[cfg(test)]
mod tests;
mod written;

use std::ops::ControlFlow;
use std::path::Path;

use onefold_block::{BLOCK_BYTES_U64, Clock};
use onefold_substrate::Substrate;

use self::run::Pass;
use crate::format::Slot;
use crate::pace::Pace;
use crate::selection::Selection;
use crate::state::State;
use crate::state::files::Marks;

pub use self::engine::{Engine, Finder, share_found};
pub use self::outcome::{PassError, PassTimes, Passed, Trouble};
pub use self::plan::PlanCounts;
pub use self::runs::{ContentKey, FilePlace, Outcome, Run, RunBatch, RunSorter, SortedRuns, Source};
pub use self::share::Shared;

/// A shard of the index with more entries is split, unless somebody wants it otherwise: 64 GiB of distinct blocks,
/// whose entries take about 300 MiB. Chosen by reasoning, not by measurement.
pub const SHARD_ENTRIES_MAX: u64 = 1 << 24;
/// What the file system is asked about at once, unless somebody wants it otherwise, in bytes. Both files are locked
/// meanwhile: a millisecond, once both are read.
const CALL_BYTES: u64 = 1 << 20;
/// Memory for sorting, unless somebody wants it otherwise, in bytes.
const MEMORY_BYTES: usize = 32 << 20;

/// How a pass goes about it.
#[derive(Clone, Copy)]
pub struct PassOptions<'a> {
    /// Which files may be shared in. Of others neither logs nor entries are touched.
    pub selection: Selection<'a>,
    /// For what does not fit into memory; best on another disk than the images.
    pub temporary_folder: &'a Path,
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
    /// The longest range that the file system is asked about at once, in bytes: files are locked meanwhile.
    pub call_bytes: u64,
    /// Shorter runs are left alone, in bytes: they cost a file more seeks than they save room.
    pub min_run_bytes: u64,
    /// Whether runs that follow on each other are shared by one call. Only experiments do without.
    pub joins_runs: bool,
    /// What it does beside sharing, so that room really comes free.
    pub space: SpaceOptions,
    /// How much is done in one step.
    pub batch: BatchOptions,
    /// How hard it works.
    pub pace: &'a Pace<'a>,
    /// Threads that read and digest slots; none if the caller does that.
    pub threads: usize,
    /// Ends after the plan.
    pub is_dry_run: bool,
    /// A shard of the index with more entries is split: it is how long one host has to be waited for.
    pub shard_entries_max: u64,
    /// For waiting.
    pub clock: &'a dyn Clock,
    /// Told how far the pass is; `Break` ends it.
    pub progress: &'a dyn Fn(PassProgress) -> ControlFlow<()>,
}

impl<'a> PassOptions<'a> {
    /// Returns the usual options: all files, every run, and the caller's thread alone. What does not fit into memory
    /// goes into files in `temporary_folder`.
    #[must_use]
    pub fn new(temporary_folder: &'a Path, pace: &'a Pace<'a>, clock: &'a dyn Clock) -> PassOptions<'a> {
        PassOptions {
            selection: Selection::all(),
            temporary_folder,
            memory_bytes: MEMORY_BYTES,
            call_bytes: CALL_BYTES,
            min_run_bytes: BLOCK_BYTES_U64,
            joins_runs: true,
            space: SpaceOptions::default(),
            batch: BatchOptions::default(),
            pace,
            threads: 0,
            is_dry_run: false,
            shard_entries_max: SHARD_ENTRIES_MAX,
            clock,
            progress: &|_| ControlFlow::Continue(()),
        }
    }
}

/// What a pass does so that room really comes free, and stays free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceOptions {
    /// Where room comes free only by whole extents (Btrfs): what is left of an extent that lost blocks is copied if it
    /// is at most so much of it, in percent. With 50, at least as much comes free as is written. 0 never copies.
    pub rewrite_percent: u32,
    /// Where a small write into shared blocks has room set aside around it (XFS): files that share are told to do
    /// without ([`CopyHints::keep_copies_small`](onefold_substrate::CopyHints::keep_copies_small)).
    pub keeps_copies_small: bool,
}

impl Default for SpaceOptions {
    fn default() -> SpaceOptions {
        SpaceOptions { rewrite_percent: 50, keeps_copies_small: true }
    }
}

/// How much of a pass is done in one step. An interruption costs the plan and one step, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// Slots that are filled, at most. Memory may allow less.
    pub slots: u64,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions { slots: Slot::IN_FILE }
    }
}

/// How far a pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassProgress {
    /// The plan is made.
    Planned {
        /// Bytes that are to be shared, or are shared already.
        targets: u64,
    },
    /// Places share with slots.
    Sharing {
        /// Bytes done.
        bytes: u64,
    },
}

/// Does a pass over all logs of files that this host has, or can have. Other hosts may do theirs at the same time.
///
/// # Errors
/// See [`PassError`].
pub fn pass<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Marks,
    options: &PassOptions<'_>,
) -> Result<Passed, PassError> {
    let mut pass = Pass::new(state, files, options)?;
    let result = pass.run();
    let passed = pass.end();
    match result {
        Err(PassError::Index { prefix, why }) => {
            // What lay there is found again, but only by reading everything.
            state.take_loss();
            files.forget_scans(state)?;
            return Err(PassError::Index { prefix, why });
        }
        result => result?,
    }
    if state.take_loss() {
        files.forget_scans(state)?;
    }
    state.leave();
    Ok(passed)
}
