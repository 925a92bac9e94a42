//! Sharing of runs: in the order of their targets, as ranges of maximum length.
//!
//! This module does beforehand what the kernel's call is bad at. Ranges that are already at one place are found in the
//! maps and skipped, because the kernel would compare them in full. Both ranges are brought into memory first, because
//! the kernel reads page by page with both files locked. If the kernel reports a difference, the differing blocks are
//! found by reading, without locks, and the kernel is asked once more about the others. That is rare: the bytes were
//! read a short while ago.
//!
//! If a share may leave a hole, everything is compared first. The equal runs are gathered, and `declared` shares them.

mod ask;
mod between;
mod counted;
mod declared;
mod done;
mod mapped_file;
mod sources;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::SortWriter;
use onefold_substrate::{ShareError, Substrate};

use self::declared::DeclaredRuns;
use self::mapped_file::MappedFile;
use self::sources::Sources;
use self::target::TargetFile;
use super::again::RereadCause;
use super::images::{Hold, Images};
use super::pinned::Remnants;
use super::room::RecordsRoom;
use super::runs::{FinderRun, Outcome, RunBatch, RunJoiner, Source};
use super::slots::SlotSet;
use super::{PassError, PassOptions, PassProgress, Trouble};
use crate::format::FileNo;
use crate::pace::CallKind;
use crate::state::files::StampChange;
use crate::state::{State, StateError};

/// Results for the targets, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareReport {
    /// Shared by this pass.
    pub now: u64,
    /// Shared before this pass. Each block counts once, however many runs lead into it.
    pub before: u64,
    /// Of runs from file to file: into blocks that an earlier run of the batch has counted, as shared now or before.
    /// They add nothing to `before`, even if the outcome for their finder is that they share with this source, too.
    pub repeated: u64,
    /// Freed by sharing, as far as maps show it: of the blocks shared now, those to which nothing else referred. If the
    /// file system frees whole extents: the extents to which nothing refers any more, less the bytes copied to free
    /// them.
    pub freed: u64,
    /// Shared now, but not freed: other parts of its extents are still referred to.
    pub pinned: u64,
    /// Shared now, but maps do not show whether it was freed.
    pub untold: u64,
    /// Copied to free extents.
    pub rewritten: u64,
    /// Shared now: zeros, which are holes now.
    pub zeros: u64,
    /// Not shared because it was overwritten since it was read.
    pub differed: u64,
    /// Not shared because its run is shorter than the wanted minimum.
    pub too_short: u64,
    /// Not shared because the file system refused.
    pub refused: u64,
    /// Not shared because another host had the file at the moment.
    pub elsewhere: u64,
    /// Of runs from file to file: not shared because this pass may not read or change one of the two files, or because
    /// they belong to two sharing domains.
    pub barred: u64,
}

/// Results for later steps.
#[derive(Debug, Default)]
pub(super) struct ShareNotes {
    /// Files that have come to share some blocks in this pass.
    pub(super) touched: BTreeSet<FileNo>,
    /// Slots that differed from a block that was to share with them: either the block was overwritten, or the slot is
    /// wrong.
    pub(super) suspects: SlotSet,
    /// Files whose times were set to their current values to make these durable: their stamps before and after.
    pub(super) retimed: BTreeMap<FileNo, StampChange>,
    /// Places at which the rest of an extent that lost blocks can be measured cheaply.
    pub(super) remnants: Remnants,
}

/// Destinations for the results of sharing.
pub(super) struct Sinks<'a> {
    /// Blocks that were taken from whole extents.
    pub(super) losses: &'a mut SortWriter,
    pub(super) noted: &'a mut ShareNotes,
    pub(super) trouble: &'a mut Trouble,
    /// Results for all targets so far.
    pub(super) shared: &'a mut ShareReport,
}

/// Shares the runs of a batch.
pub(super) fn share<'b, S: Substrate>(
    state: &State<'b, S>,
    images: &mut Images<'_, 'b, S>,
    batch: &mut dyn RunBatch,
    options: &PassOptions<'_>,
    sinks: Sinks<'_>,
) -> Result<(), PassError> {
    let Sinks { losses, noted, trouble, shared } = sinks;
    let call_bytes = options.call_bytes.min(state.substrate().abilities().share_bytes_max);
    let call_blocks = (call_bytes / BLOCK_BYTES_U64).max(1);
    let zeros = state.zeros(call_blocks * BLOCK_BYTES_U64)?;
    let mut sharer = Sharer {
        state,
        images,
        options,
        batch,
        losses,
        noted,
        trouble,
        shared,
        call_blocks,
        sources: Sources::new(zeros),
        joined: RunJoiner::new(options.joins_runs),
        target: None,
        unsynced: Vec::new(),
        room: RecordsRoom::new(state.substrate()),
        declaring: state.policy().is_declared().then(DeclaredRuns::default),
        buffers: [Vec::new(), Vec::new()],
    };
    let worked = sharer.share_each();
    if worked.is_err() {
        // The next scan must not take the moved ranges for changed. If this cannot be noted, the scan reads them again.
        let _ = sharer.note_moved_of_file();
    }
    worked
}

struct Sharer<'a, 'b, 'i, S: Substrate> {
    state: &'a State<'b, S>,
    images: &'a mut Images<'i, 'b, S>,
    options: &'a PassOptions<'a>,
    /// The batch that yields the runs.
    batch: &'a mut dyn RunBatch,
    joined: RunJoiner,
    /// Blocks that were taken from whole extents.
    losses: &'a mut SortWriter,
    noted: &'a mut ShareNotes,
    trouble: &'a mut Trouble,
    shared: &'a mut ShareReport,
    call_blocks: u64,
    sources: Sources<S>,
    target: Option<TargetFile<S>>,
    /// Closed files with shares that are not durable yet.
    unsynced: Vec<FileNo>,
    room: RecordsRoom,
    /// Gathered runs, if shares have to be declared first.
    declaring: Option<DeclaredRuns<'b, S>>,
    /// Buffers for the source and the target.
    buffers: [Vec<u8>; 2],
}

/// The action that a stretch of a run needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stretch {
    /// Both sides are at one place.
    Shared,
    /// Sharing gains nothing.
    Empty,
    /// The source is empty there.
    SourceEmpty,
    /// The sides are at different places.
    Apart,
}

impl<S: Substrate> Sharer<'_, '_, '_, S> {
    /// Shares all runs.
    fn share_each(&mut self) -> Result<(), PassError> {
        while let Some(run) = self.joined.next(self.batch)? {
            self.share_run(run)?;
        }
        self.leave_file()?;
        self.sync();
        Ok(())
    }

    fn share_run(&mut self, run: FinderRun) -> Result<(), PassError> {
        let is_of_log = !matches!(run.source, Source::File(_));
        // Files named by logs were checked when the logs were taken in.
        if !is_of_log {
            self.options.pace.boundary()?;
            if !self.images.is_admitted(run.file)? {
                self.count(&run, Outcome::Barred);
                return Ok(());
            }
        }
        if self.target.as_ref().is_none_or(|target| target.number != run.file) {
            self.leave_file()?;
            self.target = Some(self.take_up(run.file)?);
            if !is_of_log && !self.images.is_admitted(run.file)? {
                self.count(&run, Outcome::Barred);
                return Ok(());
            }
        }
        if self.target.as_ref().is_some_and(|target| matches!(target.hold, Hold::Others)) {
            self.shared.elsewhere = self.shared.elsewhere.saturating_add(run.bytes());
            return self.joined.by_content(&run).try_for_each(|part| self.batch.leave(&part));
        }
        match run.source {
            Source::File(source) => self.share_between(run, source)?,
            Source::Slot(slot) => {
                self.load_arena(slot.arena())?;
                self.share_whole(run)?;
            }
            Source::Zeros => self.share_whole(run)?,
        }
        let ShareReport { now, before, repeated, differed, too_short, refused, .. } = *self.shared;
        let bytes = [now, before, repeated, differed, too_short, refused].into_iter().fold(0, u64::saturating_add);
        if (self.options.progress)(PassProgress::Sharing { bytes }).is_break() {
            return Err(StateError::Interrupted.into());
        }
        Ok(())
    }

    /// Shares a run whose target is the current file and whose source is loaded.
    fn share_whole(&mut self, run: FinderRun) -> Result<(), PassError> {
        let mut at = 0;
        while at < run.count {
            self.options.pace.boundary()?;
            at += self.share_beginning(run.part(at, run.count - at))?;
        }
        Ok(())
    }

    /// Shares the uniform beginning of a run; returns its number of blocks.
    fn share_beginning(&mut self, run: FinderRun) -> Result<u64, PassError> {
        Ok(match self.stretch(&run) {
            Ok(Some((stretch, count))) => {
                let part = run.part(0, count);
                match stretch {
                    Stretch::Shared => {
                        self.note_before(&part);
                        self.count(&part, Outcome::Before);
                    }
                    Stretch::Empty => self.count(&part, Outcome::Empty),
                    Stretch::SourceEmpty => self.count(&part, Outcome::SourceEmpty),
                    Stretch::Apart if part.bytes() < self.options.min_run_bytes => {
                        self.count(&part, Outcome::TooShort);
                    }
                    Stretch::Apart => self.share_stretch(part)?,
                }
                count
            }
            Ok(None) => {
                if self.target.as_ref().is_some_and(|target| target.is_failing) {
                    self.read_again(&run, RereadCause::Failed);
                }
                // It could not be opened, or refuses, which was noted then. Or its arena file is gone.
                self.count(&run, Outcome::Refused);
                run.count
            }
            Err(why) => {
                self.leave_out(std::iter::once(&run), ShareError::Io(why));
                run.count
            }
        })
    }

    /// Returns the action for the beginning of a run, and how many blocks of it. `None` if it cannot be shared at all.
    fn stretch(&mut self, run: &FinderRun) -> io::Result<Option<(Stretch, u64)>> {
        if self.is_apart(run) {
            return Ok(None);
        }
        let substrate = self.state.substrate();
        let opened = self.target.as_mut().and_then(|target| target.opened.as_mut());
        let Some(MappedFile { file, map }) = opened else { return Ok(None) };
        let mut count = 0;
        let mut first = None;
        while count < run.count {
            let target = map.at(substrate, file, (run.first + count) * BLOCK_BYTES_U64)?;
            // A hole or preallocated space: sharing gains nothing.
            let emptied = |is_data| if is_data { Stretch::Apart } else { Stretch::Empty };
            let of_hole = |is_data| if is_data { Stretch::SourceEmpty } else { Stretch::Empty };
            let (stretch, length) = match run.source {
                Source::Zeros => (emptied(target.is_data), target.length),
                Source::Slot(slot) => {
                    let Some(arena) = self.sources.arenas.get(&slot.arena()) else { return Ok(None) };
                    let source = arena.map.look((slot.index() + count) * BLOCK_BYTES_U64);
                    let is_shared = source.place.is_some() && source.place == target.place;
                    (if is_shared { Stretch::Shared } else { Stretch::Apart }, source.length.min(target.length))
                }
                Source::File(_) => {
                    let Some((image, offset)) = self.sources.image(run.source) else { return Ok(None) };
                    let source = image.map.at(substrate, &image.file, offset + count * BLOCK_BYTES_U64)?;
                    let is_shared = source.place.is_some() && source.place == target.place;
                    let apart = if source.is_data { emptied(target.is_data) } else { of_hole(target.is_data) };
                    (if is_shared { Stretch::Shared } else { apart }, source.length.min(target.length))
                }
            };
            if *first.get_or_insert(stretch) != stretch {
                break;
            }
            count += (length / BLOCK_BYTES_U64).max(1);
        }
        Ok(first.map(|stretch| (stretch, count.min(run.count))))
    }

    /// Shares a run of which nothing is shared yet, in calls of bounded size.
    fn share_stretch(&mut self, run: FinderRun) -> Result<(), PassError> {
        let mut at = 0;
        while at < run.count {
            self.options.pace.boundary()?;
            let at_once = self.options.pace.call_bytes(CallKind::Share, self.call_blocks * BLOCK_BYTES_U64);
            // Within one file, both sides are disjoint.
            let at_once = (at_once / BLOCK_BYTES_U64).min(self.distance(&run).unwrap_or(u64::MAX));
            let (part, is_compared) = self.compared_beginning(run.part(at, at_once.min(run.count - at)));
            at += part.count;
            if !is_compared {
                self.count(&part, Outcome::Declined);
                continue;
            }
            let shared = match self.opened() {
                Some(file) => self.share_part(&file, part, &run),
                None => Ok(()),
            };
            if let Err(why) = shared {
                let is_for_good = matches!(why, ShareError::Refused(_));
                let is_for_all = is_for_good || matches!(why, ShareError::Full);
                let left = if is_for_all { run.end() - part.first } else { part.count };
                self.leave_out(std::iter::once(&FinderRun { count: left, ..part }), why);
                if is_for_good && !self.note_apart(&run) {
                    self.share_gathered()?;
                    // Each of its blocks would get the same answer.
                    self.close();
                }
                if is_for_all {
                    return Ok(());
                }
            }
            if self.declaring.as_ref().is_some_and(DeclaredRuns::is_full) {
                self.share_gathered()?;
            }
        }
        Ok(())
    }
}
