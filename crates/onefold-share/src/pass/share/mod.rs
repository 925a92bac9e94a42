//! Runs are shared: in the order of their targets, as long ranges as there are.
//!
//! What the kernel's call is bad at is done before it: ranges that lie at one place already are seen in the maps and left
//! alone, as the kernel would compare them in full; and both ranges are brought into memory first, as it reads page by page
//! with both files locked. Where it says that they differ, it is found by reading, without locks, in which blocks, and it is
//! asked once more about the others. That is seldom: the bytes were read a short while ago.
//!
//! Where a share may leave a hole, all is compared first, and what is equal is gathered, and shared by `declared`.

mod ask;
mod declared;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::SortWriter;
use onefold_substrate::{Access, ShareError, Substrate};

use self::declared::Declaring;
use self::target::{Mapped, Sources, TargetFile};
use super::again::Because;
use super::images::{Hold, Images};
use super::pinned::Remnants;
use super::room::RecordsRoom;
use super::runs::{Joined, Run, RunBatch, Source};
use super::slots::SlotSet;
use super::{PassError, PassOptions, PassProgress, Trouble};
use crate::extents::Extents;
use crate::format::mark::Stamp;
use crate::format::{FileNo, Slot};
use crate::pace::CallKind;
use crate::slices::Slices;
use crate::state::{State, StateError};

/// Maps of arena files that are kept at once, at most: 6 MiB each where every slot lies by itself.
const ARENAS_MAX: usize = 8;

/// What came of the targets, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Shared by this pass.
    pub now: u64,
    /// Shared already.
    pub before: u64,
    /// What came free by it, for all that maps told: of what was shared now, what nobody else referred to; or, where room
    /// comes free by whole extents, the extents that nobody refers to any more, less what was copied for it.
    pub freed: u64,
    /// Of what was shared now: its extents are still there, because something else of them is referred to.
    pub pinned: u64,
    /// Of what was shared now: whether it came free could not be told.
    pub untold: u64,
    /// Copied, so that extents came free.
    pub rewritten: u64,
    /// Of what was shared now: zeros, which are holes now.
    pub zeros: u64,
    /// Not shared because it was overwritten since it was read.
    pub differed: u64,
    /// Not shared because its run is shorter than is wanted.
    pub too_short: u64,
    /// Not shared because the file system would not.
    pub refused: u64,
}

/// What later steps want to know.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Files of which something is shared since now.
    pub(super) touched: BTreeSet<FileNo>,
    /// Slots that did not hold what was to share with them: either that was overwritten, or the slot is wrong.
    pub(super) suspects: SlotSet,
    /// Files whose times were set to what they were, so that they last: how they were seen before and after.
    pub(super) retimed: BTreeMap<FileNo, (Stamp, Stamp)>,
    /// Where it is to be seen, cheaply, whether much is left of an extent that lost blocks.
    pub(super) remnants: Remnants,
}

/// Where sharing puts what follows.
pub(super) struct Sinks<'a> {
    /// Blocks that were taken from whole extents.
    pub(super) losses: &'a mut SortWriter,
    pub(super) noted: &'a mut Noted,
    pub(super) trouble: &'a mut Trouble,
    /// What came of all targets so far.
    pub(super) shared: &'a mut Shared,
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
        sources: Sources { zeros, arenas: BTreeMap::new() },
        target: None,
        unsynced: Vec::new(),
        room: RecordsRoom::new(state.substrate()),
        declaring: state.policy().is_declared().then(Declaring::default),
        buffers: [Vec::new(), Vec::new()],
    };
    let worked = sharer.share_each();
    if worked.is_err() {
        // What this has moved must not look changed to the next scan. Where that cannot be written, the scan reads it again.
        let _ = sharer.note_moved_of_file();
    }
    worked
}

struct Sharer<'a, 'b, 'i, S: Substrate> {
    state: &'a State<'b, S>,
    images: &'a mut Images<'i, 'b, S>,
    options: &'a PassOptions<'a>,
    /// Where the runs come from.
    batch: &'a mut dyn RunBatch,
    /// Blocks that were taken from whole extents.
    losses: &'a mut SortWriter,
    noted: &'a mut Noted,
    trouble: &'a mut Trouble,
    shared: &'a mut Shared,
    call_blocks: u64,
    sources: Sources<S>,
    target: Option<TargetFile<S>>,
    /// Files that were left, and share what is not durable yet.
    unsynced: Vec<FileNo>,
    room: RecordsRoom,
    /// What waits to be shared, where that is only done after it is declared.
    declaring: Option<Declaring<'b, S>>,
    /// What is at the source and at the target.
    buffers: [Vec<u8>; 2],
}

/// How much of a run is alike.
enum Stretch {
    Shared(u64),
    Hole(u64),
    Apart(u64),
}

impl<S: Substrate> Sharer<'_, '_, '_, S> {
    /// Shares all runs.
    fn share_each(&mut self) -> Result<(), PassError> {
        let mut joined = Joined::default();
        while let Some(run) = joined.next(self.batch)? {
            self.share_run(run)?;
        }
        self.leave_file()?;
        self.sync();
        Ok(())
    }

    /// Returns the file that is on, if it is open.
    fn opened(&self) -> Option<Rc<S::File>> {
        self.target.as_ref()?.opened.as_ref().map(|opened| Rc::clone(&opened.file))
    }

    /// Shares nothing more in the file that is on.
    fn close(&mut self) {
        if let Some(target) = &mut self.target {
            target.opened = None;
        }
    }

    fn share_run(&mut self, run: Run) -> Result<(), PassError> {
        if self.target.as_ref().is_none_or(|target| target.number != run.file) {
            self.leave_file()?;
            self.target = Some(self.take_up(run.file)?);
        }
        if self.target.as_ref().is_some_and(|target| matches!(target.hold, Hold::Others)) {
            return self.batch.leave(&run);
        }
        if let Source::Slot(slot) = run.source {
            self.load_arena(slot.arena())?;
        }
        let mut at = 0;
        while at < run.count {
            self.options.pace.boundary()?;
            at += self.share_beginning(run.part(at, run.count - at))?;
        }
        let Shared { now, before, differed, too_short, refused, .. } = *self.shared;
        let bytes = now + before + differed + too_short + refused;
        if (self.options.progress)(PassProgress::Sharing { bytes }).is_break() {
            return Err(StateError::Interrupted.into());
        }
        Ok(())
    }

    /// Takes a file and opens it.
    fn take_up(&mut self, number: FileNo) -> Result<TargetFile<S>, PassError> {
        let hold = self.images.hold(number)?;
        let (mut opened, mut is_failing) = (None, false);
        if !matches!(hold, Hold::Others) {
            match self.open(number) {
                Ok(file) => opened = Some(Mapped { file: Rc::new(file), map: Extents::new() }),
                Err(why) => {
                    is_failing = !matches!(why, ShareError::Refused(_));
                    self.trouble.note(self.images.path(number), why);
                }
            }
        }
        Ok(TargetFile { number, hold, opened, is_failing, moved: Vec::new(), slices: Slices::default() })
    }

    fn open(&self, number: FileNo) -> Result<S::File, ShareError> {
        let file = self.images.open(number, Access::Write)?;
        if self.is_left(&file)? { Err(ShareError::Busy) } else { Ok(file) }
    }

    /// Shares as much from the beginning of a run as is alike; returns how many blocks that is.
    fn share_beginning(&mut self, run: Run) -> Result<u64, PassError> {
        Ok(match self.stretch(&run) {
            Ok(Some(Stretch::Shared(count))) => {
                self.shared.before += count * BLOCK_BYTES_U64;
                count
            }
            Ok(Some(Stretch::Hole(count))) => count,
            Ok(Some(Stretch::Apart(count))) => {
                if count * BLOCK_BYTES_U64 < self.options.min_run_bytes {
                    self.shared.too_short += count * BLOCK_BYTES_U64;
                } else {
                    self.share_stretch(run.part(0, count))?;
                }
                count
            }
            Ok(None) => {
                if self.target.as_ref().is_some_and(|target| target.is_failing) {
                    self.trouble.again.add(run.file, run.first_block(), run.count, Because::Failed);
                }
                // It could not be opened, or refuses: that was noted then. Or its arena file is gone.
                self.shared.refused += run.bytes();
                run.count
            }
            Err(why) => {
                self.leave_out(std::iter::once(&run), ShareError::Io(why));
                run.count
            }
        })
    }

    /// Notes that runs of one file are not shared, for one reason.
    fn leave_out<'r>(&mut self, runs: impl Iterator<Item = &'r Run>, why: ShareError) {
        let mut file = None;
        for run in runs {
            self.shared.refused += run.bytes();
            file = Some(run.file);
            if !matches!(why, ShareError::Refused(_)) {
                self.trouble.again.add(run.file, run.first_block(), run.count, Because::Failed);
            }
        }
        if let Some(file) = file {
            self.trouble.note(self.images.path(file), why);
        }
    }

    /// Takes note of blocks that are not as their source.
    fn note_differing(&mut self, part: Run) {
        self.shared.differed += part.bytes();
        self.trouble.again.add(part.file, part.first_block(), part.count, Because::Changed);
        if let Source::Slot(first) = part.source {
            let slots = (first.number()..first.number() + part.count).filter_map(Slot::from_number);
            slots.for_each(|slot| self.noted.suspects.insert(slot));
        }
    }

    /// Writes down where what was shared of the file that is on lies now.
    fn note_moved_of_file(&mut self) -> Result<(), StateError> {
        let Some(target) = &mut self.target else { return Ok(()) };
        let moved = std::mem::take(&mut target.moved);
        if target.opened.is_some() && !moved.is_empty() { self.state.move_kept(target.number, &moved) } else { Ok(()) }
    }

    /// Has what a file shares made durable, now or together with all others, before the index says so: lost, it would be shared
    /// no more. Where the pass ends in between, nothing says so.
    fn leave_file(&mut self) -> Result<(), PassError> {
        self.share_gathered()?;
        self.note_moved_of_file()?;
        let Some(target) = self.target.take() else { return Ok(()) };
        if let Some(Mapped { file, .. }) = &target.opened {
            if self.state.substrate().syncs_all_shares() {
                self.unsynced.push(target.number);
            } else {
                let synced = self.state.substrate().sync_shares(file);
                self.trouble.note_unsynced(&[target.number], self.images, synced);
            }
        }
        Ok(self.note_mark(target.number)?)
    }

    /// Brings the mark of a file up to date, while it is this host's.
    fn note_mark(&mut self, number: FileNo) -> Result<(), StateError> {
        if let Some((before, after)) = self.noted.retimed.remove(&number) {
            self.images.restamp(number, before, after)?;
        }
        // Where the file system is full, the logs stay.
        if self.trouble.again.has(number) && !self.trouble.is_full {
            let now = self.state.now()?;
            self.trouble.again.note_file(self.images, number, now)?;
        }
        Ok(())
    }

    /// Makes durable what files share of which that was put off.
    fn sync(&mut self) {
        if !self.unsynced.is_empty() {
            // Any file of the file system does.
            let synced = self.state.substrate().sync_shares(&self.sources.zeros);
            self.trouble.note_unsynced(&self.unsynced, self.images, synced);
        }
    }

    fn load_arena(&mut self, number: u32) -> Result<(), PassError> {
        if self.sources.arenas.contains_key(&number) {
            return Ok(());
        }
        if self.sources.arenas.len() == ARENAS_MAX {
            // What was gathered may be of them.
            self.share_gathered()?;
            self.sources.arenas.clear();
        }
        if let Some(file) = self.state.open_arena(number, Access::Read)? {
            let map = Extents::load(self.state.substrate(), &file)?;
            self.sources.arenas.insert(number, Mapped { file: Rc::new(file), map });
        }
        Ok(())
    }

    /// Returns how much from the beginning of a run is at one place with its source already, or is not. None where it
    /// cannot be shared at all.
    fn stretch(&mut self, run: &Run) -> io::Result<Option<Stretch>> {
        let substrate = self.state.substrate();
        let opened = self.target.as_mut().and_then(|target| target.opened.as_mut());
        let Some(Mapped { file, map }) = opened else { return Ok(None) };
        let mut count = 0;
        let mut is_first_shared = false;
        while count < run.count {
            let target = map.at(substrate, file, (run.first + count) * BLOCK_BYTES_U64)?;
            let (is_shared, length) = match run.source {
                // A hole, or set aside on purpose: nothing to gain.
                Source::Zeros if !target.is_data => (true, target.length),
                Source::Zeros => (false, target.length),
                Source::Slot(slot) => {
                    let Some(arena) = self.sources.arenas.get(&slot.arena()) else { return Ok(None) };
                    let source = arena.map.look((slot.index() + count) * BLOCK_BYTES_U64);
                    let is_shared = source.place.is_some() && source.place == target.place;
                    (is_shared, source.length.min(target.length))
                }
            };
            if count > 0 && is_shared != is_first_shared {
                break;
            }
            is_first_shared = is_shared;
            count += (length / BLOCK_BYTES_U64).max(1);
        }
        let count = count.min(run.count);
        Ok(Some(match (is_first_shared, run.source) {
            (true, Source::Slot(_)) => Stretch::Shared(count),
            (true, Source::Zeros) => Stretch::Hole(count),
            (false, _) => Stretch::Apart(count),
        }))
    }

    /// Shares a run of which nothing is shared yet, in calls of bounded size.
    fn share_stretch(&mut self, run: Run) -> Result<(), PassError> {
        let mut at = 0;
        while at < run.count {
            self.options.pace.boundary()?;
            let at_once = self.options.pace.call_bytes(CallKind::Share, self.call_blocks * BLOCK_BYTES_U64);
            let part = run.part(at, (at_once / BLOCK_BYTES_U64).min(run.count - at));
            at += part.count;
            let shared = match self.opened() {
                Some(file) => self.share_part(&file, part),
                None => Ok(()),
            };
            if let Err(why) = shared {
                let is_for_good = matches!(why, ShareError::Refused(_));
                let is_for_all = is_for_good || matches!(why, ShareError::Full);
                let left = if is_for_all { run.end() - part.first } else { part.count };
                self.leave_out(std::iter::once(&Run { count: left, ..part }), why);
                if is_for_good {
                    self.share_gathered()?;
                    // The same answer would come for each of its blocks.
                    self.close();
                }
                if is_for_all {
                    return Ok(());
                }
            }
            if self.declaring.as_ref().is_some_and(Declaring::is_full) {
                self.share_gathered()?;
            }
        }
        Ok(())
    }
}
