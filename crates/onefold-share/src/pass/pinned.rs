//! Where room comes free only by whole extents: what still pins those that a pass has taken blocks from is moved away.
//!
//! On Btrfs an extent lives until none of its blocks is referred to. Of an image that shares most of its blocks, the few
//! that it has for itself keep all the old extents, and nothing comes free. So for each extent that lost blocks in this pass
//! it is asked who still refers to it, unless an image that lost some is seen to keep too much of it. Where that is little of
//! it, and all who do are arena files, or images that this host may share in, what they refer to is copied into a new file
//! without a name, made durable, and each of them is had to share with the copy: by compare-and-share, like everything
//! else. Whoever writes meanwhile differs, and has given up his reference by that. Then the file goes, and the extent with
//! it.
//!
//! The order of steps: the arena first, as a slot that stays behind would leave its block there twice; then the images. One
//! host at a time does so, from asking who refers to the extent until all are moved. Hosts go on sharing images with slots
//! meanwhile: so it is asked once more afterwards, and who refers to the extent still is read again by the next scan, and
//! finds the slot. So is an image that could not be moved.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_sort::{Merge, Row};
use onefold_substrate::{Access, At, Compared, FileHandle, Reference, ShareError, Slice, Substrate, WholeExtent};

use super::again::Because;
use super::images::{Hold, Images};
use super::publish::{LOCK_PAUSE, LOCK_TRIES};
use super::share::Shared;
use super::{PassError, PassOptions, Trouble};
use crate::format::{FileBlock, FileNo};
use crate::pace::CallKind;
use crate::state::locks::{Held, Subject};
use crate::state::{State, StateError};

/// What is copied before it is made durable once, in bytes: so much more room is taken for a moment.
const BATCH_BYTES: u64 = 32 << 20;
/// Extents that are asked about, and worked on, while this host alone does so.
const BATCH_EXTENTS: usize = 1024;
/// Files that are kept open.
const OPEN_MAX: usize = 64;
/// Images that are held at once. What more of them refer to is left as it is.
const HELD_MAX: usize = 64;
/// Of all room, the part that is left free whatever is copied.
const ROOM_LEFT_PART: u64 = 50;

/// Blocks that were taken from an extent; in order of the extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) extent: WholeExtent,
    pub(super) bytes: u64,
}

impl Loss {
    pub(super) fn row(self) -> Row {
        [self.extent.place, self.extent.length, self.bytes]
    }

    fn of(row: Row) -> Loss {
        Loss { extent: WholeExtent { place: row[0], length: row[1] }, bytes: row[2] }
    }
}

/// Extents of which it is remembered where they lie, at most.
const REMNANTS_MAX: usize = 1 << 16;
/// Of shorter extents it is as cheap to ask the kernel, in bytes.
const REMNANT_EXTENT_BYTES: u64 = 1 << 20;

/// Where extents that lost blocks lie in the images that lost them: what such an image still refers to is cheap to see.
///
/// The kernel's answer to who refers to an extent takes a time that grows with the square of their number: 0.4 s were seen
/// for one of 128 MiB of which half the blocks are shared, and all who write to it wait. Such an extent is not worth asking about.
#[derive(Debug, Default)]
pub(super) struct Remnants {
    /// By the places of extents: an image, and where in it the extent begins, or would.
    images: BTreeMap<u64, (FileNo, u64)>,
}

impl Remnants {
    /// Takes note of a part of an image that is about to lose blocks.
    pub(super) fn note(&mut self, file: FileNo, slice: &Slice) {
        let is_worth_it = slice.extent.length >= REMNANT_EXTENT_BYTES && self.images.len() < REMNANTS_MAX;
        if let Some(start) = slice.offset.checked_sub(slice.within).filter(|_| is_worth_it) {
            self.images.entry(slice.extent.place).or_insert((file, start));
        }
    }
}

/// Who refers to a part of an extent; the arena first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Arena(u32),
    Image(FileNo),
}

/// A part of an extent that a file refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    holder: Holder,
    /// Offset in the file.
    offset: u64,
    /// Offset in the extent.
    within: u64,
    length: u64,
}

impl Part {
    fn first_block(&self) -> FileBlock {
        FileBlock(self.offset / BLOCK_BYTES_U64)
    }
}

/// A part of an extent that anybody refers to, and where its copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    within: u64,
    length: u64,
    offset: u64,
}

/// What is left of an extent.
struct Remainder {
    loss: Loss,
    parts: Vec<Part>,
    /// Apart and in order; their copies are not made yet.
    runs: Vec<Copied>,
}

impl Remainder {
    fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.length).sum()
    }

    /// Returns the blocks of images that are parts of it.
    fn image_parts(&self) -> impl Iterator<Item = (FileNo, FileBlock, u64)> {
        self.parts.iter().filter_map(|part| match part.holder {
            Holder::Image(number) => Some((number, part.first_block(), part.length.div_ceil(BLOCK_BYTES_U64))),
            Holder::Arena(_) => None,
        })
    }
}

/// Says of all extents that lost blocks what became of them, and has those go that are worth it.
pub(super) fn release<S: Substrate>(
    state: &State<'_, S>,
    images: &mut Images<'_, '_, S>,
    losses: Merge,
    remnants: Remnants,
    options: &PassOptions<'_>,
    shared: &mut Shared,
    trouble: &mut Trouble,
) -> Result<(), PassError> {
    // Nothing is declared here: no file system that shares in two steps keeps room for whole extents.
    let may_move = !trouble.is_full && options.space.rewrite_percent > 0 && !state.policy().is_declared();
    let mut releaser = Releaser {
        state,
        images,
        options,
        shared,
        trouble,
        remnants,
        arenas: None,
        open: BTreeMap::new(),
        holds: BTreeMap::new(),
        held: None,
        looked_at: 0,
        batch: Vec::new(),
        batch_bytes: 0,
        moved: BTreeSet::new(),
        may_move,
    };
    let mut losses = losses.map(|row| row.map(Loss::of)).peekable();
    while let Some(loss) = losses.next() {
        let mut loss = loss?;
        while let Some(more) = losses.next_if(|next| next.as_ref().map_or(true, |next| next.extent == loss.extent)) {
            loss.bytes += more?.bytes;
        }
        options.pace.boundary()?;
        releaser.see_to(loss)?;
    }
    releaser.rewrite()?;
    releaser.leave();
    Ok(())
}

struct Releaser<'a, 'b, 'i, 'c, S: Substrate> {
    state: &'a State<'b, S>,
    images: &'a mut Images<'i, 'c, S>,
    options: &'a PassOptions<'a>,
    shared: &'a mut Shared,
    trouble: &'a mut Trouble,
    remnants: Remnants,
    /// The arena files by their handles, once somebody wanted to know.
    arenas: Option<BTreeMap<FileHandle, u32>>,
    /// Files and how many whole blocks they have, in bytes.
    open: BTreeMap<Holder, (S::File, u64)>,
    /// Images that are this host's until all of the batch is moved.
    holds: BTreeMap<FileNo, Hold<S>>,
    /// That no other host moves slots, while this one looks for what to move.
    held: Option<Held<S>>,
    /// Extents that were asked about meanwhile.
    looked_at: usize,
    batch: Vec<Remainder>,
    batch_bytes: u64,
    /// Who shares with copies now.
    moved: BTreeSet<Holder>,
    /// Whether anything is to be moved, there is room for it, and other hosts let this one.
    may_move: bool,
}

impl<S: Substrate> Releaser<'_, '_, '_, '_, S> {
    fn see_to(&mut self, loss: Loss) -> Result<(), PassError> {
        if self.may_move && self.held.is_none() {
            self.held = self.lock()?;
            self.may_move = self.held.is_some();
        }
        self.looked_at += 1;
        self.look_at(loss)?;
        if self.batch_bytes >= BATCH_BYTES || self.looked_at == BATCH_EXTENTS {
            self.rewrite()?;
        }
        Ok(())
    }

    /// Waits until no other host moves slots. None where that takes too long: then extents are left as they are.
    fn lock(&self) -> Result<Option<Held<S>>, PassError> {
        for _ in 0..LOCK_TRIES {
            let held = self.state.try_lock(&Subject::Moves)?;
            if held.is_some() {
                return Ok(held);
            }
            self.options.clock.sleep(LOCK_PAUSE);
            self.options.pace.waited();
            self.options.pace.boundary()?;
        }
        Ok(None)
    }

    fn look_at(&mut self, loss: Loss) -> Result<(), PassError> {
        let remnant = self.remnant(&loss.extent);
        if self.is_too_much(&loss.extent, remnant) {
            // Nobody is asked.
            self.shared.pinned += loss.bytes;
            return Ok(());
        }
        let references = match self.state.substrate().references(loss.extent) {
            Ok(references) => references,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.shared.pinned += loss.bytes;
                return Ok(());
            }
            Err(_) => {
                self.shared.untold += loss.bytes;
                return Ok(());
            }
        };
        if references.is_empty() {
            self.shared.freed += loss.extent.length;
            return Ok(());
        }
        let remainder = if self.may_move { self.remainder(loss, &references)? } else { None };
        match remainder {
            Some(remainder) => {
                self.batch_bytes += remainder.bytes();
                self.batch.push(remainder);
            }
            None => self.shared.pinned += loss.bytes,
        }
        Ok(())
    }

    /// Tells whether so many bytes of an extent are more than is copied for its sake.
    fn is_too_much(&self, extent: &WholeExtent, bytes: u64) -> bool {
        let percent = if self.may_move { self.options.space.rewrite_percent } else { 0 };
        u128::from(bytes) * 100 > u128::from(extent.length) * u128::from(percent)
    }

    /// Returns how much of an extent is still referred to, at least, in bytes: by an image that lost some of it.
    fn remnant(&mut self, extent: &WholeExtent) -> u64 {
        let Some((number, start)) = self.remnants.images.remove(&extent.place) else { return 0 };
        let substrate = self.state.substrate();
        let Some((file, _)) = self.file(Holder::Image(number)) else { return 0 };
        let (mut at, end) = (start, start.saturating_add(extent.length));
        let mut parts = Vec::new();
        while at < end
            // What cannot be told is not counted.
            && let Ok(slices) = substrate.slices(file, at)
            && let Some(next) = slices.last().map(Slice::end).filter(|next| *next > at)
        {
            parts.extend(slices.iter().filter(|slice| slice.extent == *extent).map(|slice| Part {
                holder: Holder::Image(number),
                offset: slice.offset,
                within: slice.within,
                length: slice.length,
            }));
            at = next;
        }
        runs_of(&mut parts).iter().map(|run| run.length).sum()
    }

    /// Returns what is left of an extent, if all of it can be moved and is little enough.
    fn remainder(&mut self, loss: Loss, references: &[Reference]) -> Result<Option<Remainder>, PassError> {
        let mut by_file: BTreeMap<&FileHandle, Vec<u64>> = BTreeMap::new();
        for reference in references {
            let Some(handle) = &reference.handle else { return Ok(None) };
            by_file.entry(handle).or_default().push(reference.offset);
        }
        let substrate = self.state.substrate();
        let mut parts = Vec::with_capacity(references.len());
        for (handle, mut offsets) in by_file {
            let Some(holder) = self.holder(handle)? else { return Ok(None) };
            offsets.sort_unstable();
            let Some((file, whole_bytes)) = self.file(holder) else { return Ok(None) };
            let mut slices: Vec<Slice> = Vec::new();
            for offset in offsets {
                if slices.binary_search_by_key(&offset, |slice| slice.offset).is_err() {
                    let Ok(more) = substrate.slices(file, offset) else { return Ok(None) };
                    slices = more;
                }
                let slice = slices.iter().find(|slice| slice.offset == offset && slice.extent == loss.extent);
                // What is set aside cannot be compared with a copy; the last block of a file that ends in it neither.
                let Some(slice) = slice.filter(|slice| !slice.is_unwritten && slice.end() <= *whole_bytes) else {
                    return Ok(None);
                };
                parts.push(Part { holder, offset, within: slice.within, length: slice.length });
            }
        }
        let mut remainder = Remainder { loss, runs: runs_of(&mut parts), parts };
        if self.is_too_much(&loss.extent, remainder.bytes()) {
            return Ok(None);
        }
        remainder.parts.sort_by_key(|part| (part.holder, part.offset));
        Ok(Some(remainder))
    }

    /// Returns who a file is, if this host may share in it.
    fn holder(&mut self, handle: &FileHandle) -> Result<Option<Holder>, PassError> {
        if self.arenas.is_none() {
            let mut arenas = BTreeMap::new();
            for number in self.state.arenas()? {
                let Some(file) = self.state.open_arena(number, Access::Read)? else { continue };
                arenas.insert(self.state.substrate().stat(&file)?.handle, number);
            }
            self.arenas = Some(arenas);
        }
        if let Some(number) = self.arenas.as_ref().and_then(|arenas| arenas.get(handle)) {
            return Ok(Some(Holder::Arena(*number)));
        }
        let Some(number) = self.images.number_of(handle) else { return Ok(None) };
        if !self.holds.contains_key(&number) {
            if self.holds.len() == HELD_MAX || !self.images.is_selected(number) || !self.images.is_there(number)? {
                return Ok(None);
            }
            let hold = self.images.hold(number)?;
            if matches!(hold, Hold::Others) {
                return Ok(None);
            }
            self.holds.insert(number, hold);
        }
        Ok(self.images.is_there(number)?.then_some(Holder::Image(number)))
    }

    /// Returns a file, if blocks can be shared into it.
    fn file(&mut self, holder: Holder) -> Option<&(S::File, u64)> {
        if !self.open.contains_key(&holder) {
            let substrate = self.state.substrate();
            let file = match holder {
                Holder::Arena(number) => self.state.open_arena(number, Access::Write).ok()??,
                Holder::Image(number) => self.images.open(number, Access::Write).ok()?,
            };
            let length = substrate.stat(&file).ok()?.length;
            if substrate.refusal(&file).ok()?.is_some() {
                return None;
            }
            if self.open.len() == OPEN_MAX {
                self.open.clear();
            }
            self.open.insert(holder, (file, length - length % BLOCK_BYTES_U64));
        }
        self.open.get(&holder)
    }

    /// Copies what is left of the extents of the batch, and has everybody share with the copies. Other hosts may then.
    fn rewrite(&mut self) -> Result<(), PassError> {
        let held = self.held.take();
        self.looked_at = 0;
        let rewritten = self.rewrite_batch();
        self.holds.clear();
        drop(held);
        rewritten
    }

    fn rewrite_batch(&mut self) -> Result<(), PassError> {
        let mut batch = std::mem::take(&mut self.batch);
        let bytes = std::mem::take(&mut self.batch_bytes);
        if batch.is_empty() {
            return Ok(());
        }
        let substrate = self.state.substrate();
        self.may_move &= substrate.room().is_ok_and(|room| room.free >= 2 * bytes + room.total / ROOM_LEFT_PART);
        let copies = if self.may_move { self.copy(&mut batch)? } else { None };
        let Some(copies) = copies else {
            self.shared.pinned += batch.iter().map(|remainder| remainder.loss.bytes).sum::<u64>();
            return Ok(());
        };
        for remainder in &batch {
            self.shared.rewritten += remainder.bytes();
            for part in &remainder.parts {
                self.options.pace.go_on()?;
                let moved = match part.holder {
                    // Who was suspended for so long that others could take the lock may find it moved.
                    Holder::Arena(_) if !self.is_still_there(remainder, *part) => Err(ShareError::Busy),
                    _ => self.move_part(&copies, remainder, *part),
                };
                if let Err(why) = moved {
                    match part.holder {
                        // Other slots may have been moved already: whoever shares with them looks for them again.
                        Holder::Arena(_) => {
                            remainder.image_parts().for_each(|(file, first, count)| {
                                self.trouble.again.add(file, first, count, Because::Changed);
                            });
                            break;
                        }
                        Holder::Image(number) => {
                            let (first, count) = (part.first_block(), part.length.div_ceil(BLOCK_BYTES_U64));
                            self.trouble.note_blocks(number, first, count, self.images.path(number), why);
                        }
                    }
                }
            }
        }
        drop(copies);
        for remainder in &batch {
            match substrate.references(remainder.loss.extent) {
                Ok(references) if references.is_empty() => {
                    self.shared.freed += remainder.loss.extent.length.saturating_sub(remainder.bytes());
                    continue;
                }
                Ok(references) => {
                    let blocks = remainder.loss.extent.length.div_ceil(BLOCK_BYTES_U64);
                    let at = |one: Reference| Some((one.handle?, FileBlock(one.offset / BLOCK_BYTES_U64)));
                    let places: BTreeSet<(FileHandle, FileBlock)> = references.into_iter().filter_map(at).collect();
                    let is_image =
                        |handle: &FileHandle| !self.arenas.as_ref().is_some_and(|all| all.contains_key(handle));
                    for (handle, first) in places.into_iter().filter(|(handle, _)| is_image(handle)) {
                        if let Some(number) = self.images.latest_number_of(&handle)? {
                            self.trouble.again.add(number, first, blocks, Because::Changed);
                        }
                    }
                }
                // Nobody knows who does; those of whom it was known have been moved.
                Err(_) => {}
            }
            self.shared.pinned += remainder.loss.bytes;
        }
        Ok(())
    }

    /// Tells whether a part of a file still refers to the extent.
    fn is_still_there(&mut self, remainder: &Remainder, part: Part) -> bool {
        let substrate = self.state.substrate();
        let Some((file, _)) = self.file(part.holder) else { return false };
        let Ok(slices) = substrate.slices(file, part.offset) else { return false };
        slices.first().is_some_and(|slice| slice.offset == part.offset && slice.extent == remainder.loss.extent)
    }

    /// Copies what is left of extents into a file without a name, and makes it durable. None where there is no room.
    fn copy(&mut self, batch: &mut [Remainder]) -> Result<Option<S::File>, PassError> {
        let substrate = self.state.substrate();
        let copies = match self.state.nameless() {
            Ok(copies) => copies,
            Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
                return Ok(self.out_of_room());
            }
            Err(error) => return Err(error.into()),
        };
        let (mut end, mut buffer) = (0, Vec::new());
        for remainder in batch {
            for run in &mut remainder.runs {
                run.offset = end;
                end += run.length;
            }
            // In order of the extent, each byte from the first who has it.
            let mut parts = remainder.parts.clone();
            parts.sort_by_key(|part| part.within);
            let mut done = 0;
            for part in parts {
                let skipped = done.max(part.within) - part.within;
                if skipped >= part.length {
                    continue;
                }
                let offset = copy_of(&remainder.runs, part.within).expect("a run covers each part") + skipped;
                let mut at = 0;
                while at < part.length - skipped {
                    self.options.pace.boundary()?;
                    let count = (part.length - skipped - at).min(self.options.call_bytes.max(BLOCK_BYTES_U64));
                    buffer.resize(usize::try_from(count).expect("at most a call"), 0);
                    self.options.pace.read(count);
                    let Some((file, _)) = self.file(part.holder) else { break };
                    // What cannot be read is left as zeros, and differs.
                    if substrate.read_at(file, part.offset + skipped + at, &mut buffer).is_err() {
                        break;
                    }
                    match substrate.write_at(&copies, offset + at, &buffer) {
                        Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(self.out_of_room()),
                        written => written?,
                    }
                    at += count;
                }
                done = part.within + part.length;
            }
        }
        match substrate.sync(&copies) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(self.out_of_room()),
            synced => Ok(synced.map(|()| Some(copies))?),
        }
    }

    /// Nothing more is copied.
    fn out_of_room<T>(&mut self) -> Option<T> {
        self.may_move = false;
        None
    }

    /// Has a part of a file share with its copy, where it is still equal.
    fn move_part(&mut self, copies: &S::File, remainder: &Remainder, part: Part) -> Result<(), ShareError> {
        let substrate = self.state.substrate();
        let (pace, most) = (self.options.pace, self.options.call_bytes.min(substrate.abilities().share_bytes_max));
        let Some(first) = copy_of(&remainder.runs, part.within) else { return Ok(()) };
        let Some((file, _)) = self.file(part.holder) else { return Ok(()) };
        let [mut theirs, mut ours] = [Vec::new(), Vec::new()];
        let mut at = 0;
        while at < part.length {
            let length = pace.call_bytes(CallKind::Share, (part.length - at).min(most.max(BLOCK_BYTES_U64)));
            let bytes = usize::try_from(length).expect("at most a call");
            for (buffer, file, offset) in [(&mut theirs, copies, first), (&mut ours, file, part.offset)] {
                buffer.resize(bytes, 0);
                pace.read(length);
                let count = substrate.read_at(file, offset + at, buffer)?;
                buffer.truncate(count / BLOCK_BYTES * BLOCK_BYTES);
            }
            let equal: Vec<bool> =
                theirs.chunks(BLOCK_BYTES).zip(ours.chunks(BLOCK_BYTES)).map(|(one, other)| one == other).collect();
            let mut block = 0;
            for run in equal.chunk_by(|one, other| one == other) {
                let (from, bytes) = (at + block * BLOCK_BYTES_U64, run.len() as u64 * BLOCK_BYTES_U64);
                block += run.len() as u64;
                if !run[0] {
                    continue;
                }
                let (source, into) =
                    (At { file: copies, offset: first + from }, At { file, offset: part.offset + from });
                match pace.call(CallKind::Share, bytes, || substrate.share(source, into, bytes))? {
                    // Written to since, so that it refers to the extent no more.
                    Compared::Shared | Compared::Differ => {}
                }
            }
            at += length;
        }
        self.moved.insert(part.holder);
        Ok(())
    }

    /// Makes durable who refers to copies now. Lost, blocks that are shared would be there twice.
    fn leave(&mut self) {
        let substrate = self.state.substrate();
        let mut images: Vec<FileNo> = Vec::new();
        for holder in std::mem::take(&mut self.moved) {
            match holder {
                Holder::Image(number) => images.push(number),
                // Nobody waits to write to it.
                Holder::Arena(_) => drop(self.file(holder).map(|(file, _)| substrate.sync(file))),
            }
        }
        // One is enough where that makes all durable.
        let together = if substrate.syncs_all_shares() { images.len().max(1) } else { 1 };
        for numbers in images.chunks(together) {
            let synced = numbers.iter().find_map(|number| {
                let (file, _) = self.file(Holder::Image(*number))?;
                Some(substrate.sync_shares(file))
            });
            self.trouble.note_unsynced(numbers, self.images, synced.unwrap_or(Ok(())));
        }
    }
}

/// Sorts parts by their place in the extent, and returns what they cover.
fn runs_of(parts: &mut [Part]) -> Vec<Copied> {
    parts.sort_by_key(|part| part.within);
    let mut runs: Vec<Copied> = Vec::new();
    for part in parts {
        match runs.last_mut() {
            Some(last) if part.within <= last.within + last.length => {
                last.length = last.length.max(part.within + part.length - last.within);
            }
            _ => runs.push(Copied { within: part.within, length: part.length, offset: 0 }),
        }
    }
    runs
}

/// Returns where the copy of a place in the extent is.
fn copy_of(runs: &[Copied], within: u64) -> Option<u64> {
    let run = runs[..runs.partition_point(|run| run.within <= within)].last()?;
    (within < run.within + run.length).then(|| run.offset + (within - run.within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_an_extent_is_told_once_and_found_again() {
        const K: u64 = BLOCK_BYTES_U64;
        let part =
            |within, length| Part { holder: Holder::Arena(0), offset: 0, within: within * K, length: length * K };
        let mut parts = [part(8, 2), part(0, 3), part(1, 1), part(2, 2), part(4, 1), part(20, 1)];
        let mut runs = runs_of(&mut parts);
        let found: Vec<_> = runs.iter().map(|run| (run.within / K, run.length / K)).collect();
        assert_eq!(found, [(0, 5), (8, 2), (20, 1)]);
        let mut offset = 0;
        for run in &mut runs {
            run.offset = offset;
            offset += run.length;
        }
        let at = |within: u64| copy_of(&runs, within * K).map(|offset| offset / K);
        assert_eq!(
            [0, 4, 5, 8, 9, 10, 20, 21].map(at),
            [Some(0), Some(4), None, Some(5), Some(6), None, Some(7), None]
        );
    }
}
