//! A pass: takes in the logs, has the file system share equal blocks, and updates the index.
//!
//! A host may die after any of its steps. Each step is one function of `run`:
//!
//! 1. `intake`: settles which files belong to this pass, and reads their logs.
//! 2. `plan`: merges the index and the logs, decides the work, and changes nothing. No lock is held on the index.
//! 3. Slots that no entry names are emptied: a pass that was killed has left them.
//! 4. The scan's finder (`batch`) yields runs, and the `engine` shares them (`share`): first those between places and
//!    slots in the index.
//! 5. Then batches, one after the other. Each is a stretch of candidates in the order of their files, with all places
//!    that wait for them: - `promote`: blocks that are at several places are cloned into arena slots, and the slots are
//!    read; - `share`: the other places share with the slots. The kernel compares. If a share may leave a hole, it is
//!    declared. If space is freed by whole extents only, `pinned` moves away the blocks that keep extents alive; -
//!    `requests`: the owners of places that this host may not touch get merge requests; - `publish_batch`: entries name
//!    the slots from now on.
//! 6. `publish`: writes new generations of the shards, with all other changes and the entries of batches. Then batches
//!    are removed.
//! 7. The logs are removed. A pass that takes in a log twice finds all of it shared already.
//! 8. `collect`, if maps do not show what only the arena refers to: finds this from time to time, and drops it from the
//!    index.
//! 9. Slots that no entry names are emptied.
//!
//! A pass that is cut off keeps its published batches, and its logs: the next pass plans anew, and sees in the maps
//! which blocks share (`resumption`). A pass that is told to end publishes those slots of its batch that were read, and
//! empties the others. After an error it empties all slots of the batch.

mod again;
mod arenas;
mod batch;
mod collect;
mod copies;
mod dry_run;
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
mod resumption;
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
pub use self::outcome::{PassError, PassReport, PassTimes, Trouble};
pub use self::plan::PlanCounts;
pub use self::runs::{ContentKey, FilePlace, FinderRun, Outcome, RunBatch, RunSorter, SortedRuns, Source};
pub use self::share::ShareReport;

/// Default for the maximum number of entries of a shard, beyond which it is split. The entries of 64 GiB of distinct
/// blocks take about 300 MiB. Chosen by reasoning, not by measurement.
pub const SHARD_ENTRIES_MAX: u64 = 1 << 24;
/// Default for the range of one call of the file system, in bytes. Both files are locked meanwhile: for a millisecond,
/// once both are in memory.
const CALL_BYTES: u64 = 1 << 20;
/// Default for the memory for sorting, in bytes.
const MEMORY_BYTES: usize = 32 << 20;

/// Options of a pass.
#[derive(Clone, Copy)]
pub struct PassOptions<'a> {
    /// The files that may share. The pass touches neither logs nor entries of other files.
    pub selection: Selection<'a>,
    /// Folder for data that does not fit into memory; best on another disk than the images.
    pub temporary_folder: &'a Path,
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
    /// Maximum range of one call of the file system, in bytes. Files are locked meanwhile.
    pub call_bytes: u64,
    /// Minimum length of a run, in bytes. Sharing a shorter run costs more seeks than the saved space is worth.
    pub min_run_bytes: u64,
    /// Whether consecutive runs are shared by one call. Only experiments turn this off.
    pub joins_runs: bool,
    /// Measures beside sharing that free space, and keep it free.
    pub space: SpaceOptions,
    /// Size of one step.
    pub batch: BatchOptions,
    /// Limits on the effort.
    pub pace: &'a Pace<'a>,
    /// Threads that read and digest slots, and examine images; none where the caller does that.
    pub threads: usize,
    /// Whether the pass ends after the plan.
    pub is_dry_run: bool,
    /// Maximum number of entries of a shard, beyond which it is split. It bounds how long one host waits for another.
    pub shard_entries_max: u64,
    /// Clock for waiting.
    pub clock: &'a dyn Clock,
    /// Called with the progress of the pass; `Break` ends it.
    pub progress: &'a dyn Fn(PassProgress) -> ControlFlow<()>,
}

impl<'a> PassOptions<'a> {
    /// Returns the default options: all files, every run, and the caller's thread alone. Data that does not fit into
    /// memory goes into files in `temporary_folder`.
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

/// Measures of a pass that free space, and keep it free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceOptions {
    /// For file systems that free space only by whole extents (Btrfs): the rest of an extent that lost blocks is copied
    /// if it is at most this part of the extent, in percent. With 50, at least as much is freed as is written. 0 never
    /// copies.
    pub rewrite_percent: u32,
    /// For file systems where a small write into shared blocks allocates space around it (XFS): turns that off for
    /// files that share ([`CopyHints::keep_copies_small`](onefold_substrate::CopyHints::keep_copies_small)).
    pub keeps_copies_small: bool,
}

impl Default for SpaceOptions {
    fn default() -> SpaceOptions {
        SpaceOptions { rewrite_percent: 50, keeps_copies_small: true }
    }
}

/// Size of one step of a pass. An interruption costs at most the plan and one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// Maximum number of slots that are filled in one step. Memory may allow less.
    pub slots: u64,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions { slots: Slot::IN_FILE }
    }
}

/// Progress of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassProgress {
    /// The plan is made.
    Planned {
        /// Bytes that are to be shared, or that share already.
        targets: u64,
    },
    /// Places share with slots.
    Sharing {
        /// Bytes done.
        bytes: u64,
    },
}

/// Does a pass over all logs of files that this host has, or can have. Other hosts may do their passes at the same
/// time.
///
/// # Errors
/// See [`PassError`].
pub fn pass<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Marks,
    options: &PassOptions<'_>,
) -> Result<PassReport, PassError> {
    let mut pass = Pass::new(state, files, options)?;
    let result = pass.run();
    let passed = pass.end();
    match result {
        Err(PassError::Index { prefix, why }) => {
            // Only a full scan finds the lost contents again.
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
