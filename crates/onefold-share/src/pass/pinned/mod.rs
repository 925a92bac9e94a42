//! Frees extents on file systems that free space only by whole extents: moves away the last blocks of extents from
//! which a pass has taken blocks.
//!
//! On Btrfs an extent lives until none of its blocks is referred to. If an image shares most of its blocks, the few
//! that it does not share keep all the old extents, and no space is freed. So this module asks for the references to
//! each extent that lost blocks in this pass, unless it is seen that an image keeps too much of the extent. The rest
//! can be moved if it is small, and if only arena files, or images that this host may share in, refer to it. It is
//! copied into a new file without a name, which is made durable. Then each of these files shares with the copy: by
//! compare-and-share, like everything else. A file that is written to meanwhile differs, and the write has removed its
//! reference. Then the new file is removed, and the old extent with it.
//!
//! The arena is moved first, because a slot that stays behind would leave its block there twice; then the images. One
//! host at a time does so, from asking for the references until all are moved. Other hosts go on sharing images with
//! slots meanwhile. So the references are asked for once more afterwards. An image that still refers to the extent is
//! read again by the next scan, and finds the slot. So is an image that could not be moved, or whose turn did not come
//! because the work was told to end.

mod remainder;
mod rewrite;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::{Merge, Row};
use onefold_substrate::{Access, FileHandle, Reference, Slice, Substrate, WholeExtent};

use self::remainder::{Holder, Part, Remainder, runs_of};
use super::images::{Hold, Images};
use super::publish::{LOCK_PAUSE, LOCK_TRIES};
use super::share::ShareReport;
use super::{PassError, PassOptions, Trouble};
use crate::format::FileNo;
use crate::state::State;
use crate::state::locks::{LockGuard, Subject};

/// Amount that is copied before it is made durable once, in bytes: this much more space is used for a moment.
const BATCH_BYTES: u64 = 32 << 20;
/// Number of extents that are examined and moved while this host holds the lock.
const BATCH_EXTENTS: usize = 1024;
/// Maximum number of files that are kept open.
const OPEN_MAX: usize = 64;
/// Maximum number of images that are held at once. Extents to which further images refer are left as they are.
const HELD_MAX: usize = 64;
/// Fraction of all space that is left free whatever is copied.
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

/// Maximum number of extents whose places in images are remembered.
const REMNANTS_MAX: usize = 1 << 16;
/// Minimum length of such an extent, in bytes. For shorter extents, asking the kernel is as cheap.
const REMNANT_EXTENT_BYTES: u64 = 1 << 20;

/// Places of extents that lost blocks, in the images that lost them. They show cheaply what such an image still refers
/// to.
///
/// The kernel takes a time that grows with the square of the number of references to list those of an extent. For one
/// extent of 128 MiB with half of its blocks shared, 0.4 s were seen, and all processes that write to it wait. Such an
/// extent is not worth asking about.
#[derive(Debug, Default)]
pub(super) struct Remnants {
    /// By the places of extents: an image, and the offset in it at which the extent begins, or would begin.
    images: BTreeMap<u64, (FileNo, u64)>,
}

impl Remnants {
    /// Notes a part of an image that is about to lose blocks.
    pub(super) fn note(&mut self, file: FileNo, slice: &Slice) {
        let is_worth_it = slice.extent.length >= REMNANT_EXTENT_BYTES && self.images.len() < REMNANTS_MAX;
        if let Some(start) = slice.offset.checked_sub(slice.within).filter(|_| is_worth_it) {
            self.images.entry(slice.extent.place).or_insert((file, start));
        }
    }
}

/// Reports what became of all extents that lost blocks, and frees those that are worth it.
pub(super) fn release<S: Substrate>(
    state: &State<'_, S>,
    images: &mut Images<'_, '_, S>,
    losses: Merge,
    remnants: Remnants,
    options: &PassOptions<'_>,
    shared: &mut ShareReport,
    trouble: &mut Trouble,
) -> Result<(), PassError> {
    // Nothing is declared here: no file system that shares in two steps frees space by whole extents.
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
    let released = releaser.release(losses);
    // Moved parts stay moved, whatever ended the work.
    releaser.leave();
    released
}

struct Releaser<'a, 'b, 'i, 'c, S: Substrate> {
    state: &'a State<'b, S>,
    images: &'a mut Images<'i, 'c, S>,
    options: &'a PassOptions<'a>,
    shared: &'a mut ShareReport,
    trouble: &'a mut Trouble,
    remnants: Remnants,
    /// The arena files by their handles, loaded at first use.
    arenas: Option<BTreeMap<FileHandle, u32>>,
    /// Open files, and the length of their whole blocks in bytes.
    open: BTreeMap<Holder, (S::File, u64)>,
    /// Locks of images, held until all of the batch is moved.
    holds: BTreeMap<FileNo, Hold<S>>,
    /// The lock that keeps other hosts from moving slots, while this one looks for parts to move.
    held: Option<LockGuard<S>>,
    /// Number of extents that were examined under the lock.
    looked_at: usize,
    batch: Vec<Remainder>,
    batch_bytes: u64,
    /// Files that share with copies now.
    moved: BTreeSet<Holder>,
    /// Whether anything may be moved: it is wanted, there is space for it, and other hosts allow it.
    may_move: bool,
}

impl<S: Substrate> Releaser<'_, '_, '_, '_, S> {
    fn release(&mut self, losses: Merge) -> Result<(), PassError> {
        let mut losses = losses.map(|row| row.map(Loss::of)).peekable();
        while let Some(loss) = losses.next() {
            let mut loss = loss?;
            while let Some(more) = losses.next_if(|next| next.as_ref().map_or(true, |next| next.extent == loss.extent))
            {
                loss.bytes += more?.bytes;
            }
            self.options.pace.boundary()?;
            self.see_to(loss)?;
        }
        self.rewrite()
    }

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

    /// Waits until no other host moves slots. `None` if that takes too long: then extents are left as they are.
    fn lock(&self) -> Result<Option<LockGuard<S>>, PassError> {
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
            // References are not asked for.
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

    /// Returns whether this many bytes of an extent are more than is copied to free it.
    fn is_too_much(&self, extent: &WholeExtent, bytes: u64) -> bool {
        let percent = if self.may_move { self.options.space.rewrite_percent } else { 0 };
        u128::from(bytes) * 100 > u128::from(extent.length) * u128::from(percent)
    }

    /// Returns a lower bound of the bytes of an extent that are still referred to, by an image that lost some of it.
    fn remnant(&mut self, extent: &WholeExtent) -> u64 {
        let Some((number, start)) = self.remnants.images.remove(&extent.place) else { return 0 };
        let substrate = self.state.substrate();
        let Some((file, _)) = self.file(Holder::Image(number)) else { return 0 };
        let (mut at, end) = (start, start.saturating_add(extent.length));
        let mut parts = Vec::new();
        while at < end
            // An extent whose slices cannot be read is not counted.
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

    /// Returns the rest of an extent, if all of it can be moved and it is small enough.
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
                // Unwritten space cannot be compared with a copy; neither can the last block of a file that ends within
                // it.
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

    /// Returns the holder for a file, if this host may share in it.
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
}
