//! Places share with slots: in the order of the places, as long ranges as there are.
//!
//! What the kernel's call is bad at is done before it: ranges that lie at one place already are seen in the maps and left
//! alone, as the kernel would compare them in full; and both ranges are brought into memory first, as it reads page by page
//! with both files locked. Where it says that they differ, it is found by reading, without locks, in which blocks, and it is
//! asked once more about the others. That is seldom: the bytes were read a short while ago.
//!
//! Where a share may leave a hole, all is compared first, and what is equal is gathered, and shared by `declared`.

mod declared;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_sort::{Batch, Row};
use onefold_substrate::{Access, At, Compared, Files, ShareError, Slice, Substrate};

use self::declared::Declaring;
use super::again::Because;
use super::elsewhere::Elsewhere;
use super::images::{Hold, Images};
use super::pinned::{Loss, Remnants};
use super::room::RecordsRoom;
use super::rows::{Source, Target};
use super::slots::SlotSet;
use super::{PassError, PassOptions, PassProgress, Trouble};
use crate::extents::Extents;
use crate::format::mark::Stamp;
use crate::format::{FileBlock, FileNo, Slot};
use crate::pace::CallKind;
use crate::slices::Slices;
use crate::state::maps::Moved;
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
pub(super) struct Sinks<'a, 'l, 'e> {
    /// Blocks that were taken from whole extents.
    pub(super) losses: &'a mut Batch<'l>,
    /// Places that another host has.
    pub(super) elsewhere: &'a mut Elsewhere<'e>,
    pub(super) noted: &'a mut Noted,
    pub(super) trouble: &'a mut Trouble,
    /// What came of all targets so far.
    pub(super) shared: &'a mut Shared,
}

/// Has targets share with their sources; they come in order of their places.
pub(super) fn share<'b, S: Substrate>(
    state: &State<'b, S>,
    images: &mut Images<'_, 'b, S>,
    targets: impl Iterator<Item = io::Result<Row>>,
    options: &PassOptions<'_>,
    sinks: Sinks<'_, '_, '_>,
) -> Result<(), PassError> {
    let Sinks { losses, elsewhere, noted, trouble, shared } = sinks;
    let call_bytes = options.call_bytes.min(state.substrate().abilities().share_bytes_max);
    let call_blocks = (call_bytes / BLOCK_BYTES_U64).max(1);
    let zeros = state.zeros(call_blocks * BLOCK_BYTES_U64)?;
    let shares_in_two_steps = state.substrate().abilities().shares_in_two_steps;
    let mut sharer = Sharer {
        state,
        images,
        options,
        losses,
        elsewhere,
        noted,
        trouble,
        call_blocks,
        zeros,
        arenas: BTreeMap::new(),
        file: None,
        unopened: None,
        moved: Vec::new(),
        hold: None,
        unsynced: Vec::new(),
        shared,
        slices: Slices::default(),
        room: RecordsRoom::new(state.substrate()),
        shares_in_two_steps,
        declaring: shares_in_two_steps.then(Declaring::default),
        buffers: [Vec::new(), Vec::new()],
    };
    let worked = sharer.share_each(targets);
    if worked.is_err() {
        // What this has moved must not look changed to the next scan. Where that cannot be written, the scan reads it again.
        let _ = sharer.note_moved_of_file();
    }
    worked
}

/// Takes note of blocks that are not as their source.
fn note_differing(shared: &mut Shared, trouble: &mut Trouble, noted: &mut Noted, part: Run) {
    shared.differed += part.count * BLOCK_BYTES_U64;
    trouble.again.add(part.file, FileBlock(part.first), part.count, Because::Changed);
    if let Source::Slot(first) = part.source {
        let slots = (first.number()..first.number() + part.count).filter_map(Slot::from_number);
        slots.for_each(|slot| noted.suspects.insert(slot));
    }
}

/// Consecutive blocks that are to share with consecutive slots, or to become a hole.
#[derive(Clone, Copy, Debug)]
struct Run {
    file: FileNo,
    first: u64,
    source: Source,
    count: u64,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.count
    }

    fn goes_on_with(&self, target: &Target) -> bool {
        let source_goes_on = match (self.source, target.source) {
            (Source::Zeros, Source::Zeros) => true,
            (Source::Slot(first), Source::Slot(next)) => {
                first.arena() == next.arena() && first.number() + self.count == next.number()
            }
            _ => false,
        };
        self.file == target.file && self.end() == target.block.0 && source_goes_on
    }

    /// Returns a part of the run.
    fn part(&self, from: u64, count: u64) -> Run {
        let source = match self.source {
            Source::Zeros => Source::Zeros,
            Source::Slot(slot) => Source::Slot(Slot::from_number(slot.number() + from).expect("within the run's file")),
        };
        Run { file: self.file, first: self.first + from, source, count }
    }
}

/// A file and its map.
type Mapped<S> = (<S as Files>::File, Extents);

struct Sharer<'a, 'b, 'i, 'l, 'e, S: Substrate> {
    state: &'a State<'b, S>,
    images: &'a mut Images<'i, 'b, S>,
    options: &'a PassOptions<'a>,
    /// Blocks that were taken from whole extents.
    losses: &'a mut Batch<'l>,
    /// Places that another host has.
    elsewhere: &'a mut Elsewhere<'e>,
    noted: &'a mut Noted,
    trouble: &'a mut Trouble,
    call_blocks: u64,
    /// A file that is one hole.
    zeros: S::File,
    arenas: BTreeMap<u32, Mapped<S>>,
    /// The file whose targets are on; nothing of it where it cannot be opened, or shares nothing.
    file: Option<(FileNo, Option<Mapped<S>>)>,
    /// The file that is on, where it could not be opened for now.
    unopened: Option<FileNo>,
    /// Where what this shared of that file lies now.
    moved: Vec<Moved>,
    /// That file, as long as it is this host's; none where another one has it.
    hold: Option<Hold<S>>,
    /// Files that were left, and share what is not durable yet.
    unsynced: Vec<FileNo>,
    shared: &'a mut Shared,
    /// In which whole extents the data of that file lies, where that counts.
    slices: Slices,
    room: RecordsRoom,
    /// Whether hosts declare what they share.
    shares_in_two_steps: bool,
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

impl<S: Substrate> Sharer<'_, '_, '_, '_, '_, S> {
    /// Shares all targets.
    fn share_each(&mut self, targets: impl Iterator<Item = io::Result<Row>>) -> Result<(), PassError> {
        let mut run: Option<Run> = None;
        for row in targets {
            let target = Target::of(row?);
            match &mut run {
                // Two logs may tell of one block.
                Some(run) if run.file == target.file && run.end() > target.block.0 => {}
                Some(run) if run.goes_on_with(&target) => run.count += 1,
                _ => {
                    if let Some(run) = run.take() {
                        self.share_run(run)?;
                    }
                    run = Some(Run { file: target.file, first: target.block.0, source: target.source, count: 1 });
                }
            }
        }
        if let Some(run) = run {
            self.share_run(run)?;
        }
        self.leave_file()?;
        self.sync();
        Ok(())
    }

    /// Writes down where what was shared of the file that is on lies now.
    fn note_moved_of_file(&mut self) -> Result<(), StateError> {
        let moved = std::mem::take(&mut self.moved);
        match &self.file {
            Some((number, Some(_))) if !moved.is_empty() => self.state.move_kept(*number, &moved),
            _ => Ok(()),
        }
    }

    fn share_run(&mut self, run: Run) -> Result<(), PassError> {
        if self.file.as_ref().is_none_or(|(number, _)| *number != run.file) {
            self.leave_file()?;
            self.hold = Some(self.images.hold(run.file)?);
            if matches!(self.hold, Some(Hold::Others)) {
                self.file = Some((run.file, None));
                return self.leave_to_others(run);
            }
            let opened = self.images.open(run.file, Access::Write).map_err(ShareError::Io);
            let opened = opened.and_then(|file| if self.is_left(&file)? { Err(ShareError::Busy) } else { Ok(file) });
            let is_for_now = matches!(&opened, Err(why) if !matches!(why, ShareError::Refused(_)));
            let opened = opened.map_err(|why| self.trouble.note(self.images.path(run.file), why));
            self.unopened = is_for_now.then_some(run.file);
            self.file = Some((run.file, opened.ok().map(|file| (file, Extents::new()))));
            self.slices = Slices::default();
        }
        if matches!(self.hold, Some(Hold::Others)) {
            return self.leave_to_others(run);
        }
        if let Source::Slot(slot) = run.source {
            self.load_arena(slot.arena())?;
        }
        let mut at = 0;
        while at < run.count {
            self.options.pace.boundary()?;
            let rest = run.part(at, run.count - at);
            at += match self.stretch(&rest) {
                Ok(Some(Stretch::Shared(count))) => {
                    self.shared.before += count * BLOCK_BYTES_U64;
                    count
                }
                Ok(Some(Stretch::Hole(count))) => count,
                Ok(Some(Stretch::Apart(count))) => {
                    if count * BLOCK_BYTES_U64 < self.options.min_run_bytes {
                        self.shared.too_short += count * BLOCK_BYTES_U64;
                    } else {
                        self.share_stretch(rest.part(0, count))?;
                    }
                    count
                }
                Ok(None) => {
                    if self.unopened == Some(run.file) {
                        self.trouble.again.add(rest.file, FileBlock(rest.first), rest.count, Because::Failed);
                    }
                    // It could not be opened, or refuses: that was noted then. Or its arena file is gone.
                    self.shared.refused += rest.count * BLOCK_BYTES_U64;
                    rest.count
                }
                Err(why) => {
                    self.leave_out(std::iter::once(&rest), ShareError::Io(why));
                    rest.count
                }
            };
        }
        let Shared { now, before, differed, too_short, refused, .. } = *self.shared;
        let bytes = now + before + differed + too_short + refused;
        if (self.options.progress)(PassProgress::Sharing { bytes }).is_break() {
            return Err(StateError::Interrupted.into());
        }
        Ok(())
    }

    /// Leaves a run to who has its file now.
    fn leave_to_others(&mut self, run: Run) -> Result<(), PassError> {
        for block in 0..run.count {
            let slot = match run.part(block, 1).source {
                Source::Slot(slot) => Some(slot),
                Source::Zeros => None,
            };
            self.elsewhere.leave_target(run.file, FileBlock(run.first + block), slot)?;
        }
        Ok(())
    }

    /// Notes that runs of one file are not shared, for one reason.
    fn leave_out<'r>(&mut self, runs: impl Iterator<Item = &'r Run>, why: ShareError) {
        let mut file = None;
        for run in runs {
            self.shared.refused += run.count * BLOCK_BYTES_U64;
            file = Some(run.file);
            if !matches!(why, ShareError::Refused(_)) {
                self.trouble.again.add(run.file, FileBlock(run.first), run.count, Because::Failed);
            }
        }
        if let Some(file) = file {
            self.trouble.note(self.images.path(file), why);
        }
    }

    /// Has what a file shares made durable, now or together with all others, before the index says so: lost, it would be shared
    /// no more. Where the pass ends in between, nothing says so.
    fn leave_file(&mut self) -> Result<(), PassError> {
        self.share_gathered()?;
        self.note_moved_of_file()?;
        let left = self.file.take();
        if let Some((number, Some((file, _)))) = &left {
            let number = *number;
            if self.state.substrate().syncs_all_shares() {
                self.unsynced.push(number);
            } else {
                let synced = self.state.substrate().sync_shares(file);
                self.trouble.note_unsynced(&[number], self.images, synced);
            }
        }
        if let Some((number, _)) = left {
            self.note_mark(number)?;
        }
        self.hold = None;
        Ok(())
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
            let synced = self.state.substrate().sync_shares(&self.zeros);
            self.trouble.note_unsynced(&self.unsynced, self.images, synced);
        }
    }

    /// Tells whether a host has left an image with holes, perhaps, that are not mended yet. Sharing would make holes of its own,
    /// of zeros, without another time: they would be filled with what was there before.
    fn is_left(&self, file: &S::File) -> io::Result<bool> {
        if !self.shares_in_two_steps {
            return Ok(false);
        }
        // Without the owner's lock, which this host has by now, nobody declares anything of the image, nor mends it; and what this pass
        // itself declares of a file is retired before the next one is opened.
        let left = self.state.declared_images().map_err(io::Error::other)?;
        Ok(!left.is_empty() && left.contains(&self.state.substrate().stat(file)?.handle))
    }

    fn load_arena(&mut self, number: u32) -> Result<(), PassError> {
        if self.arenas.contains_key(&number) {
            return Ok(());
        }
        if self.arenas.len() == ARENAS_MAX {
            // What was gathered may be of them.
            self.share_gathered()?;
            self.arenas.clear();
        }
        if let Some(file) = self.state.open_arena(number, Access::Read)? {
            let extents = Extents::load(self.state.substrate(), &file)?;
            self.arenas.insert(number, (file, extents));
        }
        Ok(())
    }

    /// Returns how much from the beginning of a run is at one place with its source already, or is not. None where it
    /// cannot be shared at all.
    fn stretch(&mut self, run: &Run) -> io::Result<Option<Stretch>> {
        let substrate = self.state.substrate();
        let Some((_, Some((file, map)))) = &mut self.file else { return Ok(None) };
        let mut count = 0;
        let mut is_first_shared = false;
        while count < run.count {
            let offset = (run.first + count) * BLOCK_BYTES_U64;
            let target = map.at(substrate, file, offset)?;
            let (is_shared, length) = match run.source {
                // A hole, or set aside on purpose: nothing to gain.
                Source::Zeros if !target.is_data => (true, target.length),
                Source::Zeros => (false, target.length),
                Source::Slot(slot) => {
                    let Some((_, arena)) = self.arenas.get(&slot.arena()) else { return Ok(None) };
                    let source = arena.look((slot.index() + count) * BLOCK_BYTES_U64);
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
            let shared = match self.file.take() {
                Some((number, Some(mut mapped))) => {
                    let shared = self.share_part(&mut mapped, part);
                    self.file = Some((number, Some(mapped)));
                    shared
                }
                none => {
                    self.file = none;
                    Ok(())
                }
            };
            if let Err(why) = shared {
                let is_for_good = matches!(why, ShareError::Refused(_));
                let is_for_all = is_for_good || matches!(why, ShareError::Full);
                let left = if is_for_all { run.end() - part.first } else { part.count };
                self.leave_out(std::iter::once(&Run { count: left, ..part }), why);
                if is_for_good {
                    self.share_gathered()?;
                    // The same answer would come for each of its blocks.
                    self.file = Some((run.file, None));
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

    fn share_part(&mut self, mapped: &mut Mapped<S>, part: Run) -> Result<(), ShareError> {
        if self.trouble.is_short_of_records(&mut self.room, self.state.substrate()) {
            return Err(ShareError::Full);
        }
        // What is zero may well become a hole.
        let is_declared = self.declaring.is_some() && part.source != Source::Zeros;
        if !is_declared {
            self.bring_in(&mapped.0, part)?;
            if self.ask(mapped, part)? == Compared::Shared {
                return Ok(());
            }
        }
        for (part, is_equal) in self.compare(&mapped.0, part)? {
            if let Some(declaring) = self.declaring.as_mut().filter(|_| is_equal && is_declared) {
                declaring.gather(part);
            } else if !is_equal || self.ask(mapped, part)? == Compared::Differ {
                note_differing(self.shared, self.trouble, self.noted, part);
            }
        }
        Ok(())
    }

    /// Has what is to share in memory.
    fn bring_in(&self, file: &S::File, part: Run) -> io::Result<()> {
        let length = part.count * BLOCK_BYTES_U64;
        let (source, source_offset) = self.source(part.source);
        for (file, offset) in [(source, source_offset), (file, part.first * BLOCK_BYTES_U64)] {
            self.options.pace.read(length);
            self.state.substrate().bring_in(file, offset, length)?;
        }
        Ok(())
    }

    /// Reads what is to share, and returns its parts, and which of them are equal.
    fn compare(&mut self, file: &S::File, part: Run) -> io::Result<Vec<(Run, bool)>> {
        let substrate = self.state.substrate();
        let length = part.count * BLOCK_BYTES_U64;
        let [mut theirs, mut ours] = std::mem::take(&mut self.buffers);
        let (source, source_offset) = self.source(part.source);
        let bytes = usize::try_from(length).expect("at most a call");
        let offset = part.first * BLOCK_BYTES_U64;
        for (buffer, file, offset) in [(&mut theirs, source, source_offset), (&mut ours, file, offset)] {
            buffer.resize(bytes, 0);
            self.options.pace.read(length);
            let count = substrate.read_at(file, offset, buffer)?;
            // It may have become shorter; what is missing differs from whatever it is compared with.
            buffer.truncate(count / BLOCK_BYTES * BLOCK_BYTES);
        }
        let equal = |block: u64| {
            let from = usize::try_from(block).expect("within a call") * BLOCK_BYTES;
            let range = from..from + BLOCK_BYTES;
            theirs.get(range.clone()).is_some_and(|block| Some(block) == ours.get(range))
        };
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < part.count {
            let is_equal = equal(at);
            let count = (at..part.count).take_while(|block| equal(*block) == is_equal).count() as u64;
            parts.push((part.part(at, count), is_equal));
            at += count;
        }
        self.buffers = [theirs, ours];
        Ok(parts)
    }

    /// Returns the file that a source is in, and where; the arena file has been loaded.
    fn source(&self, source: Source) -> (&S::File, u64) {
        match source {
            Source::Zeros => (&self.zeros, 0),
            Source::Slot(slot) => (&self.arenas[&slot.arena()].0, slot.index() * BLOCK_BYTES_U64),
        }
    }

    /// Has the file system compare and share.
    fn ask(&mut self, (file, map): &mut Mapped<S>, part: Run) -> Result<Compared, ShareError> {
        let substrate = self.state.substrate();
        let (offset, length) = (part.first * BLOCK_BYTES_U64, part.count * BLOCK_BYTES_U64);
        let is_whole = substrate.abilities().frees_whole_extents;
        let (unshared, untold) =
            if is_whole { (0, 0) } else { Self::unshared_bytes(substrate, file, map, offset, length) };
        let range = (offset, offset + length);
        let remnants = (part.file, &mut self.noted.remnants);
        let lost =
            if is_whole { Self::losses(substrate, file, &mut self.slices, range, remnants) } else { Ok(Vec::new()) };
        let (source, source_offset) = self.source(part.source);
        let (source, into) = (At { file: source, offset: source_offset }, At { file: &*file, offset });
        let compared = self.options.pace.call(CallKind::Share, length, || substrate.share(source, into, length))?;
        if compared == Compared::Shared {
            self.shared.now += length;
            self.note_moved(part);
            self.noted.touched.insert(part.file);
            self.shared.freed += unshared;
            self.shared.untold += untold;
            match lost {
                Ok(lost) => lost.into_iter().try_for_each(|loss| self.losses.push(loss.row()))?,
                Err(_) => self.shared.untold += length,
            }
            self.shared.zeros += if part.source == Source::Zeros { length } else { 0 };
        }
        Ok(compared)
    }

    /// Takes note of where a range lies now: the next scan must not take it for changed.
    fn note_moved(&mut self, part: Run) {
        let mut at = 0;
        while at < part.count {
            let offset = (part.first + at) * BLOCK_BYTES_U64;
            let rest = (part.count - at) * BLOCK_BYTES_U64;
            let (place, length) = match part.source {
                Source::Zeros => (None, rest),
                Source::Slot(slot) => match self.arenas.get(&slot.arena()) {
                    Some((_, map)) => {
                        let placed = map.look((slot.index() + at) * BLOCK_BYTES_U64);
                        (placed.place, placed.length.min(rest))
                    }
                    None => return,
                },
            };
            let length = (length / BLOCK_BYTES_U64).max(1) * BLOCK_BYTES_U64;
            // Of a slot whose place is not told nobody can say that the range did not move.
            if place.is_some() || part.source == Source::Zeros {
                self.moved.push(Moved { offset, length, place });
            }
            at += length / BLOCK_BYTES_U64;
        }
    }

    /// Returns what a range has of whole extents.
    fn losses(
        substrate: &S,
        file: &S::File,
        slices: &mut Slices,
        (from, to): (u64, u64),
        (number, remnants): (FileNo, &mut Remnants),
    ) -> io::Result<Vec<Loss>> {
        let slices = slices.within(substrate, file, from, to)?.iter();
        let loss = |slice: &Slice| {
            remnants.note(number, slice);
            Loss { extent: slice.extent, bytes: slice.end().min(to) - slice.offset.max(from) }
        };
        Ok(slices.map(loss).collect())
    }

    /// Returns how many bytes of a range nobody else refers to, as the map tells; and of how many it does not tell.
    fn unshared_bytes(substrate: &S, file: &S::File, map: &mut Extents, offset: u64, length: u64) -> (u64, u64) {
        let tells_last_reference = substrate.abilities().tells_last_reference;
        let (mut at, mut unshared, mut untold) = (offset, 0, 0);
        while at < offset + length {
            let Ok(placed) = map.at(substrate, file, at) else { return (unshared, untold + (offset + length - at)) };
            let stretch = placed.length.min(offset + length - at);
            match (placed.is_data, placed.is_shared) {
                (true, false) => unshared += stretch,
                // It may have been shared once, and be its owner's alone now.
                (true, true) if !tells_last_reference => untold += stretch,
                _ => {}
            }
            at += stretch;
        }
        (unshared, untold)
    }
}
