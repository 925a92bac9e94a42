//! A pass: takes in the logs that there are, has the file system share what is equal, and publishes the index anew.
//!
//! The order of its steps, each of which may be the last one that a host does:
//!
//! 1. `plan`: index and logs side by side; says what is to be done and changes nothing.
//! 2. `promote`: blocks that are at several places are cloned into arena slots, and the slots read.
//! 3. `share`: the other places share with the slots. The kernel compares.
//! 4. The new generation of the index is published. Only now do entries name the slots; a pass that ended before leaves
//!    slots that nobody names, which a later one empties.
//! 5. The logs go. Whoever takes them in twice finds all of it shared already.

mod images;
mod join;
mod plan;
mod promote;
mod rows;
mod share;
mod slots;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use onefold_block::substrate::{Access, Refusal, ShareError};
use onefold_block::{BLOCK_BYTES_U64, Substrate};
use onefold_sort::{Batch, Merge, Ordered, Row, Sorter};

use self::images::Images;
use self::plan::{Plan, Sinks, Sources, plan};
use self::rows::{Seen, Source, Target, row_entry};
use self::slots::SlotSet;
use self::written::WrittenRanges;
use crate::extents::Extents;
use crate::format::entry::Place;
use crate::format::shard::{EntryCounts, ShardWriter};
use crate::format::{FileNo, FormatError, Slot};
use crate::pace::Pace;
use crate::state::arena::ArenaWriter;
use crate::state::files::Files;
use crate::state::locks::Subject;
use crate::state::logs::{LogError, LogName};
use crate::state::{State, StateError};

pub use self::plan::PlanCounts;
pub use self::share::Shared;

/// As many places of a content are tried as candidates. Whoever is overwritten that fast is left for another time.
const PROMOTE_ROUNDS: u32 = 8;

/// How a pass goes about it.
pub struct PassOptions<'a> {
    /// For what does not fit into memory; best on another disk than the images.
    pub temporary_folder: &'a Path,
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
    /// The longest range that the file system is asked about at once, in bytes: files are locked meanwhile.
    pub call_bytes: u64,
    /// Shorter runs are left alone, in bytes: they cost a file more seeks than they save room.
    pub min_run_bytes: u64,
    /// How hard it works.
    pub pace: &'a Pace<'a>,
    /// Ends after the plan.
    pub is_dry_run: bool,
    /// Told how far the pass is; `Break` ends it.
    pub progress: &'a dyn Fn(PassProgress) -> ControlFlow<()>,
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

/// What a pass did.
#[derive(Debug, Default)]
pub struct Passed {
    /// Logs that were taken in.
    pub logs: u64,
    /// Logs left to other hosts, which have the files.
    pub logs_elsewhere: u64,
    /// What was decided.
    pub planned: PlanCounts,
    /// What came of it.
    pub shared: Shared,
    /// The index as published; none where there was nothing to do, or another host was first.
    pub index: Option<(EntryCounts, u64)>,
    /// Slots that were emptied.
    pub swept_slots: u64,
    /// What went wrong, with files.
    pub trouble: Trouble,
}

/// What went wrong with files, and how often. The pass goes on.
#[derive(Debug, Default)]
pub struct Trouble {
    /// Files that the file system refuses, and why.
    pub refused: BTreeMap<PathBuf, Refusal>,
    /// Files whose reading or sharing failed, with the first reason.
    pub failed: BTreeMap<PathBuf, io::Error>,
    /// Files that were busy.
    pub busy: BTreeMap<PathBuf, u64>,
    /// The file system is full: nothing more was tried.
    pub is_full: bool,
    /// Blocks that were overwritten between their reading and their sharing.
    pub changed: u64,
    /// Files of which something was left undone that may succeed another time: they are read again then.
    again: BTreeSet<FileNo>,
}

impl Trouble {
    fn note(&mut self, file: FileNo, path: PathBuf, why: ShareError) {
        if !matches!(why, ShareError::Refused(_)) {
            self.again.insert(file);
        }
        match why {
            ShareError::Refused(refusal) => drop(self.refused.insert(path, refusal)),
            ShareError::Full => self.is_full = true,
            ShareError::Busy => *self.busy.entry(path).or_default() += 1,
            ShareError::Io(error) => drop(self.failed.entry(path).or_insert(error)),
        }
    }
}

/// Why a pass did not come to its end. Nothing is lost but its work.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Another host works on the index.
    #[error("another host works on the index")]
    Busy,
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// Temporary files, mostly: no space.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The index turned out to be damaged. It was dropped; the next pass begins with an empty one.
    #[error("generation {generation} of the index cannot be read: {why}")]
    Index {
        /// Which.
        generation: u64,
        /// Why.
        why: FormatError,
    },
}

/// Does a pass over all logs of files that this host has, or can have.
///
/// # Errors
/// As [`PassError`] says.
pub fn pass<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Files,
    options: &PassOptions<'_>,
) -> Result<Passed, PassError> {
    let Some(_lock) = state.try_lock(&Subject::Index)? else { return Err(PassError::Busy) };
    let result = Pass { state, options, images: Images::new(state, files) }.run();
    if let Err(PassError::Index { generation, why }) = result {
        // Damaged in the middle: what lay there is found again, but only by reading everything.
        state.refuse_index(generation, FormatError::Damaged("its entries cannot be read"))?;
        files.forget_scans(state)?;
        return Err(PassError::Index { generation, why });
    }
    let passed = result?;
    for number in &passed.trouble.again {
        files.forget_scan(state, *number)?;
    }
    Ok(passed)
}

struct Pass<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    options: &'a PassOptions<'a>,
    images: Images<'a, 'b, S>,
}

/// Which slots hold a block, and which of these are referred to by others, too.
#[derive(Default)]
struct Arenas {
    filled: SlotSet,
    wanted: SlotSet,
}

impl<'b, S: Substrate> Pass<'_, 'b, S> {
    fn run(mut self) -> Result<Passed, PassError> {
        let mut passed = Passed::default();
        // Read, sorted, sorted again: three sorts are never at their most at once, two may be.
        let part = self.options.memory_bytes / 4;
        let seen = Sorter::new(self.options.temporary_folder);
        let targets = Sorter::new(self.options.temporary_folder);
        let (mut seen_batch, mut targets_batch) = (seen.batch(part), targets.batch(part));
        let mut written = WrittenRanges::default();
        let logs = self.read_logs(&mut seen_batch, &mut targets_batch, &mut written, &mut passed)?;
        if logs.is_empty() {
            return Ok(passed);
        }
        let arenas = self.look_at_arenas()?;
        let index = self.state.open_index()?;
        let generation = index.generation;
        let candidates = Sorter::new(self.options.temporary_folder);
        let mut candidates_batch = candidates.batch(part);
        let sources = Sources {
            index,
            seen: seen.merged(vec![seen_batch.finish()])?,
            written: &written,
            filled: &arenas.filled,
            wanted: &arenas.wanted,
        };
        let sinks = Sinks {
            folder: self.options.temporary_folder,
            memory_bytes: part / 8,
            candidates: &mut candidates_batch,
            targets: &mut targets_batch,
        };
        let Plan { kept, others, counts } = plan(&mut self.images, sources, sinks, self.options.pace)?;
        passed.planned = counts;
        let targets_bytes = counts.targets * BLOCK_BYTES_U64;
        if (self.options.progress)(PassProgress::Planned { targets: targets_bytes }).is_break() {
            return Err(StateError::Interrupted.into());
        }
        if self.options.is_dry_run {
            return Ok(passed);
        }

        let mut arena = ArenaWriter::new(self.state);
        let entered = Sorter::new(self.options.temporary_folder);
        let mut entered_batch = entered.batch(part / 2);
        let waiting = Waiting { candidates: candidates.merged(vec![candidates_batch.finish()])?, others };
        self.promote(&mut arena, waiting, &mut targets_batch, &mut entered_batch, part / 2, &mut passed.trouble)?;
        arena.sync()?;
        let targets = targets.merged(vec![targets_batch.finish()])?;
        passed.shared = share::share(self.state, &self.images, targets, self.options, &mut passed.trouble)?;

        let entered = entered.merged(vec![entered_batch.finish()])?;
        let mut named = SlotSet::default();
        passed.index = self.state.publish_index(generation + 1, |writer| {
            merge_entries(kept, entered, writer, &mut named, self.options.pace)
        })?;
        drop(arena);
        if passed.index.is_some() {
            for log in &logs {
                self.state.remove_log(log)?;
            }
            for number in self.state.arenas()? {
                passed.swept_slots += self.state.sweep_arena(number, |slot| named.contains(slot))?;
            }
        }
        Ok(passed)
    }

    /// Has candidates put into the arena, and the next place of a content where that failed, until none is left.
    fn promote(
        &self,
        arena: &mut ArenaWriter<'_, 'b, S>,
        mut waiting: Waiting,
        targets: &mut Batch<'_>,
        entries: &mut Batch<'_>,
        memory_bytes: usize,
        trouble: &mut Trouble,
    ) -> Result<(), PassError> {
        let folder = self.options.temporary_folder;
        for round in 1.. {
            let promoted = Sorter::new(folder);
            let mut promoted_batch = promoted.batch(memory_bytes);
            let pace = self.options.pace;
            promote::promote(self.state, &self.images, arena, waiting.candidates, &mut promoted_batch, trouble, pace)?;
            let promoted = promoted.merged(vec![promoted_batch.finish()])?;
            let next = Sorter::new(folder);
            let mut next_batch = next.batch(memory_bytes);
            let is_last = trouble.is_full || round == PROMOTE_ROUNDS;
            let given_up = is_last.then_some(&mut trouble.again);
            let sinks = join::Sinks { targets, entries, candidates: &mut next_batch, given_up, folder, memory_bytes };
            let (others, count) = join::join(promoted, waiting.others, sinks)?;
            if count == 0 {
                break;
            }
            waiting = Waiting { candidates: next.merged(vec![next_batch.finish()])?, others };
        }
        Ok(())
    }

    /// Reads the logs of all files that are this host's, or can be. Returns those that may go once the index is published.
    fn read_logs(
        &mut self,
        seen: &mut Batch<'_>,
        targets: &mut Batch<'_>,
        written: &mut WrittenRanges,
        passed: &mut Passed,
    ) -> Result<Vec<LogName>, PassError> {
        let mut done = Vec::new();
        for log in self.state.logs()? {
            self.options.pace.boundary()?;
            match self.images.get(log.file)? {
                images::Image::Owned(_) => {}
                images::Image::Elsewhere { .. } => {
                    passed.logs_elsewhere += 1;
                    continue;
                }
                images::Image::Gone => {
                    self.state.remove_log(&log)?;
                    continue;
                }
            }
            let file = log.file;
            let read = self.state.read_log(&log, |block| -> Result<(), PassError> {
                self.options.pace.boundary()?;
                written.insert(file, block.block);
                match block.digest {
                    Some(digest) => seen.push(Seen { digest, file, block: block.block }.row())?,
                    None => targets.push(Target { file, block: block.block, source: Source::Zeros }.row())?,
                }
                Ok(())
            });
            match read {
                Ok(()) => done.push(log),
                Err(LogError::Each(error)) => return Err(error),
                // What was read of it counts; the rest is found when the file is read again.
                Err(LogError::Log(why)) => {
                    passed.trouble.again.insert(file);
                    self.state.refuse_log(&log, why)?;
                }
            }
            passed.logs += 1;
        }
        written.seal();
        Ok(done)
    }

    fn look_at_arenas(&self) -> Result<Arenas, PassError> {
        let tells = self.state.substrate().abilities().tells_last_reference;
        let mut arenas = Arenas::default();
        for number in self.state.arenas()? {
            self.options.pace.boundary()?;
            let Some(file) = self.state.open_arena(number, Access::Read)? else { continue };
            let extents = Extents::load(self.state.substrate(), &file)?;
            for extent in extents.iter().filter(|extent| !extent.is_unwritten) {
                let (first, end) = (extent.offset / BLOCK_BYTES_U64, extent.end().div_ceil(BLOCK_BYTES_U64));
                for slot in (first..end).map_while(|index| Slot::new(number, index)) {
                    arenas.filled.insert(slot);
                    if extent.is_shared || !tells {
                        arenas.wanted.insert(slot);
                    }
                }
            }
        }
        Ok(arenas)
    }
}

/// What is to be put into the arena, and the places that wait for it.
struct Waiting {
    candidates: Merge,
    others: Ordered,
}

/// Writes the entries of two lists, both in order of their digests, into a generation of the index.
fn merge_entries<S: Substrate>(
    kept: Ordered,
    entered: Merge,
    writer: &mut ShardWriter<'_, S>,
    named: &mut SlotSet,
    pace: &Pace<'_>,
) -> io::Result<()> {
    let entry = |row: io::Result<Row>| row.map(row_entry);
    let (mut kept, mut entered) = (kept.map(entry).peekable(), entered.map(entry).peekable());
    loop {
        pace.go_on().map_err(|_| io::ErrorKind::Interrupted)?;
        let next = match (kept.peek(), entered.peek()) {
            (None, None) => return Ok(()),
            (Some(Ok(one)), Some(Ok(other))) if one.digest > other.digest => entered.next(),
            (None, Some(_)) | (_, Some(Err(_))) => entered.next(),
            (Some(_), _) => kept.next(),
        };
        let Some(entry) = next.transpose()? else { return Ok(()) };
        if let Place::Shared(slot) = entry.place {
            named.insert(slot);
        }
        writer.push(&entry)?;
    }
}
