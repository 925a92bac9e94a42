//! One operation on the metadata: all of it happens, or none.
//!
//! Every change of a block goes through [`Op::edit`], which keeps the old bytes; everything else that an operation
//! wants done (filter entries, freed blocks) waits in `effects` until it has succeeded. So an operation can be rolled
//! back at any point: when a block is missing in memory, when space runs out, when damage is found.

use std::ops::Range;
use std::sync::Arc;

use onefold_block::{BlockNo, Fingerprint};

use super::Meta;
use super::allocate::Run;
use super::free_runs::Known;
use super::groups::Cursor;
use super::hash::PlainMap;
use super::indexing::Leave;
use super::ranges::DirtyRanges;
use super::shared_filter::FilterChange;
use crate::attr::Ino;
use crate::error::PoolError;
use crate::filter::StorePageNo;
use crate::format::BlockBytes;
use crate::format::geometry::STATE;
use crate::format::header::{self, BlockKind};
use crate::format::journal;
use crate::format::state::{FIELD_COUNT, Field};
use crate::options::Allocation;
use crate::tree::TreeError;

/// Why an operation was rolled back.
#[derive(Debug)]
pub(crate) enum OpError {
    /// Blocks are missing in memory (noted in the operation); read them and try again.
    Fault,
    /// Allocation needs this block group, which has not been initialised.
    NeedGroup(u64),
    /// Metadata is to take some of these free blocks, which must be written before: the backing file may have no room.
    NeedWritten(Vec<Run>),
    /// The running transaction has no room for it; commit and try again.
    TransactionFull,
    /// This data block has as many references as it can have: make a copy of it and try again.
    CountFull(BlockNo),
    /// It can't be done.
    Fail(PoolError),
}

/// Result of a step of an operation.
pub(crate) type OpResult<T> = Result<T, OpError>;

impl From<PoolError> for OpError {
    fn from(error: PoolError) -> OpError {
        OpError::Fail(error)
    }
}

impl From<TreeError> for OpError {
    fn from(error: TreeError) -> OpError {
        let (block, what) = match error {
            TreeError::Corrupt { page, what } => (page, what.to_string()),
            TreeError::ValueTooLong { bytes } => (BlockNo(0), format!("a value of {bytes} bytes does not fit")),
        };
        OpError::Fail(PoolError::Damaged { structure: BlockKind::TreePage.name(), block, what })
    }
}

/// Whether an operation may use the last blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// It leaves the emergency reserve alone.
    Normal,
    /// It may turn out to free space (truncate, punch): it may use all there is if it frees at least as much as it
    /// takes.
    Shrinking,
    /// It frees space (unlink, reclaim): it may use all there is.
    Freeing,
}

/// A block that must be read before the operation can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) block: BlockNo,
    pub(crate) kind: BlockKind,
}

#[derive(Debug)]
enum Undo {
    Bytes { block: BlockNo, offset: usize, saved: Range<usize> },
    Created(BlockNo),
    Busy(BlockNo),
    BusyRun(Run),
    Stock(BlockNo),
}

/// What is done once the operation has succeeded.
#[derive(Debug)]
enum Effect {
    Index(Fingerprint, BlockNo),
    Unindex(Fingerprint, BlockNo),
    UnbusyRun(Run),
    FreedData(BlockNo),
    FreedMetadata(BlockNo),
    Initialised(BlockNo),
    Hold(Ino),
    LostName(Ino),
    GotName(Ino),
}

/// An operation under way.
pub(crate) struct Op<'a> {
    pub(crate) meta: &'a mut Meta,
    pub(crate) privilege: Privilege,
    undo: Vec<Undo>,
    saved: Vec<u8>,
    effects: Vec<Effect>,
    faults: Vec<Fault>,
    deltas: [i64; FIELD_COUNT],
    /// Blocks that are both busy and used until the operation succeeds.
    claimed: u64,
    /// Map nodes that it has put on the reclaim list, which frees them.
    detached: u64,
    /// Dirty blocks of the running transaction when the operation began.
    dirty_before: usize,
    /// Nothing else is in the running transaction.
    is_alone: bool,
    metadata_run_before: (u64, u64),
    data_cursor_before: Cursor,
    /// What was known of the groups that it has taken blocks of, before it did.
    known_before: PlainMap<u64, Option<Known>>,
    leave: Leave,
    wrote_data: bool,
    edited: bool,
    ended: bool,
}

impl<'a> Op<'a> {
    pub(crate) fn new(meta: &'a mut Meta, privilege: Privilege) -> Op<'a> {
        let dirty_before = meta.running.dirty.len();
        let is_alone = meta.running.has_no_records();
        let metadata_run_before = meta.groups.metadata_run;
        let data_cursor_before = meta.groups.data_cursor;
        Op {
            meta,
            privilege,
            undo: Vec::new(),
            saved: Vec::new(),
            effects: Vec::new(),
            faults: Vec::new(),
            deltas: [0; FIELD_COUNT],
            claimed: 0,
            detached: 0,
            dirty_before,
            is_alone,
            metadata_run_before,
            data_cursor_before,
            known_before: PlainMap::default(),
            leave: Leave::Now,
            wrote_data: false,
            edited: false,
            ended: false,
        }
    }

    /// Returns a metadata block's content.
    ///
    /// # Errors
    /// [`OpError::Fault`] if it is not in memory; damage if it is something else there.
    pub(crate) fn block(&mut self, block: BlockNo, kind: BlockKind) -> OpResult<&BlockBytes> {
        if !self.want(block, kind)? {
            return Err(OpError::Fault);
        }
        Ok(self.meta.cache.peek(block).expect("`want` found it"))
    }

    /// Notes that a block will be needed; false if it has to be read first. A caller that needs many blocks asks for
    /// all of them before it gives up, so that they are read together.
    ///
    /// # Errors
    /// Damage if the block is something else.
    pub(crate) fn want(&mut self, block: BlockNo, kind: BlockKind) -> OpResult<bool> {
        match self.meta.cache.get(block) {
            Some(slot) if slot.kind == kind => Ok(true),
            Some(slot) => Err(damaged(kind.name(), block, format!("is used as {} too", slot.kind.name()))),
            None => {
                self.faults.push(Fault { block, kind });
                Ok(false)
            }
        }
    }

    /// Gives up if anything wanted was missing.
    ///
    /// # Errors
    /// [`OpError::Fault`].
    pub(crate) fn settle(&self) -> OpResult<()> {
        if self.faults.is_empty() { Ok(()) } else { Err(OpError::Fault) }
    }

    /// Returns bytes `range` of a block for changing.
    ///
    /// # Errors
    /// As [`Op::block`].
    pub(crate) fn edit(&mut self, block: BlockNo, kind: BlockKind, range: Range<usize>) -> OpResult<&mut [u8]> {
        if !self.want(block, kind)? {
            return Err(OpError::Fault);
        }
        self.edited = true;
        let running = &mut self.meta.running;
        let slot = self.meta.cache.get(block).expect("`want` found it");
        let saved_first = self.saved.len();
        self.saved.extend_from_slice(&slot.bytes[range.clone()]);
        self.undo.push(Undo::Bytes { block, offset: range.start, saved: saved_first..self.saved.len() });
        let dirty = slot.dirty.get_or_insert_with(|| {
            running.dirty.push(block);
            running.bytes_bound += if slot.logged_epoch == running.epoch {
                journal::RANGES_RECORD_BYTES
            } else {
                journal::WHOLE_RECORD_BYTES
            };
            DirtyRanges::default()
        });
        if slot.logged_epoch == running.epoch {
            let before = dirty.byte_count();
            dirty.add(range.start, range.end);
            running.bytes_bound += dirty.byte_count().saturating_sub(before) + journal::RANGE_BYTES;
        } else {
            dirty.add(range.start, range.end);
        }
        Ok(&mut Arc::make_mut(&mut slot.bytes)[range])
    }

    /// Makes a block with nothing but its header, in memory.
    pub(crate) fn create_block(&mut self, block: BlockNo, kind: BlockKind) {
        let bytes = Arc::new(header::blank(self.meta.pool_tag, kind, block));
        let running = &mut self.meta.running;
        let slot = self.meta.cache.insert(block, kind, bytes);
        let mut dirty = DirtyRanges::default();
        dirty.add(4, onefold_block::BLOCK_BYTES);
        slot.dirty = Some(dirty);
        running.dirty.push(block);
        running.bytes_bound += journal::WHOLE_RECORD_BYTES;
        self.undo.push(Undo::Created(block));
    }

    /// Changes a counter of the pool state by `delta` when the operation succeeds.
    pub(crate) fn count(&mut self, field: Field, delta: i64) {
        self.deltas[field as usize] += delta;
    }

    /// Reads a number of the pool state, this operation's changes included.
    pub(crate) fn state(&self, field: Field) -> u64 {
        self.meta.state(field).saturating_add_signed(self.deltas[field as usize])
    }

    /// Fails where an allocation is refused by the seam that tests use.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`].
    pub(crate) fn permit(&self, what: Allocation) -> OpResult<()> {
        if self.meta.permits(what) { Ok(()) } else { Err(PoolError::NoSpace.into()) }
    }

    /// Returns how many blocks are free and may be handed out now, this operation's changes included: what it has freed
    /// waits for the commit, what it has claimed was busy before and is counted once.
    pub(crate) fn blocks_available(&self) -> u64 {
        let used = self.state(Field::DataBlocks) + self.state(Field::MetadataBlocks);
        let busy = self.meta.groups.busy.count().saturating_sub(self.claimed);
        self.meta.geometry.allocatable_blocks().saturating_sub(used + busy)
    }

    /// Marks a block busy until the operation is rolled back or the busy mark is taken away.
    pub(crate) fn set_busy(&mut self, block: BlockNo) {
        if self.meta.groups.busy.set(block) {
            self.undo.push(Undo::Busy(block));
        }
    }

    /// Notes that a map node comes free by way of the reclaim list.
    pub(crate) fn note_detached(&mut self) {
        self.detached += 1;
    }

    /// Refuses an operation that had hoped to free space and has taken some of the emergency reserve instead.
    fn refuse_growth(&self) -> OpResult<()> {
        let delta = |field| self.deltas[field as usize];
        let taken = delta(Field::DataBlocks) + delta(Field::MetadataBlocks) + delta(Field::ReservedBlocks);
        let is_growth = taken > i64::try_from(self.detached).unwrap_or(i64::MAX);
        if self.privilege == Privilege::Shrinking && is_growth && self.blocks_available() < self.metadata_blocks_kept()
        {
            return Err(PoolError::NoSpace.into());
        }
        Ok(())
    }

    /// Makes free blocks busy, a run within one group.
    pub(crate) fn reserve(&mut self, run: Run) {
        self.take(run);
        if self.meta.groups.busy.set_run(run.first, run.count) {
            self.undo.push(Undo::BusyRun(run));
            return;
        }
        for offset in 0..run.count {
            self.set_busy(run.first.plus(offset));
        }
    }

    /// Takes a block out of the stock for metadata until the operation is rolled back.
    pub(crate) fn take_from_stock(&mut self) -> Option<BlockNo> {
        let block = self.meta.groups.stock.take()?;
        self.undo.push(Undo::Stock(block));
        Some(block)
    }

    /// Notes that free blocks of a group are about to be used, or busy, until the operation is rolled back.
    pub(crate) fn take(&mut self, run: Run) {
        let group = self.meta.geometry.group_of(run.first);
        let free_runs = &mut self.meta.groups.free_runs;
        self.known_before.entry(group).or_insert_with(|| free_runs.get(group));
        free_runs.take(group, run.count);
    }

    /// On success: enters a block into the filter.
    pub(crate) fn index(&mut self, fingerprint: Fingerprint, block: BlockNo) {
        self.effects.push(Effect::Index(fingerprint, block));
    }

    /// On success: takes a block out of the filter.
    pub(crate) fn unindex(&mut self, fingerprint: Fingerprint, block: BlockNo) {
        self.effects.push(Effect::Unindex(fingerprint, block));
    }

    /// What is taken out of the filter leaves it later, when the caller sees to that.
    pub(crate) fn unindex_later(&mut self) {
        self.leave = Leave::Later;
    }

    /// On success: ends the being busy of a run within one group, because its bitmap bits now say that it is used.
    pub(crate) fn unbusy(&mut self, run: Run) {
        self.claimed += run.count;
        self.effects.push(Effect::UnbusyRun(run));
    }

    /// On success: a data block's free waits for the commit.
    pub(crate) fn freed_data(&mut self, block: BlockNo) {
        self.effects.push(Effect::FreedData(block));
    }

    /// On success: a metadata block's free waits until the journal no longer names it.
    pub(crate) fn freed_metadata(&mut self, block: BlockNo) {
        self.effects.push(Effect::FreedMetadata(block));
    }

    /// On success: the fingerprint store has a block that was under way.
    pub(crate) fn initialised(&mut self, block: BlockNo) {
        self.effects.push(Effect::Initialised(block));
        self.wrote_data = true;
    }

    /// On success: a door holds an inode. In the operation that makes it visible, or reclaim might come first.
    pub(crate) fn hold_on_success(&mut self, ino: Ino) {
        self.effects.push(Effect::Hold(ino));
    }

    /// On success: an inode has lost its last name.
    pub(crate) fn lost_name(&mut self, ino: Ino) {
        self.effects.push(Effect::LostName(ino));
    }

    /// On success: an inode without a name has one again.
    pub(crate) fn got_name(&mut self, ino: Ino) {
        self.effects.push(Effect::GotName(ino));
    }

    /// The commit must flush the device before it writes the journal: metadata of this operation names data or blocks
    /// written outside the journal.
    pub(crate) fn wrote_data(&mut self) {
        self.wrote_data = true;
    }

    /// Ends the operation with success; it joins the running transaction.
    ///
    /// # Errors
    /// [`OpError::TransactionFull`], or [`PoolError::TooLargeForJournal`] where a commit would not help;
    /// [`PoolError::NoSpace`]. The operation is rolled back then.
    pub(crate) fn finish(mut self) -> OpResult<()> {
        if let Err(error) = self.refuse_growth().and_then(|()| self.flush_deltas()) {
            self.roll_back();
            return Err(error);
        }
        // An operation that only reserved blocks adds nothing to the transaction, and can't fail here.
        let fits = |meta: &Meta| !meta.running.is_too_large() && meta.permits(Allocation::JournalRoom);
        if self.edited && !fits(self.meta) {
            let is_alone = self.is_alone;
            self.roll_back();
            return Err(if is_alone { PoolError::TooLargeForJournal.into() } else { OpError::TransactionFull });
        }
        self.ended = true;
        self.meta.running.wrote_data |= self.wrote_data;
        self.apply_effects();
        Ok(())
    }

    fn flush_deltas(&mut self) -> OpResult<()> {
        for field in Field::ALL {
            let delta = std::mem::take(&mut self.deltas[field as usize]);
            if delta == 0 {
                continue;
            }
            let now = self.meta.state(field).checked_add_signed(delta).ok_or_else(|| {
                damaged(BlockKind::State.name(), STATE, format!("counter {field:?} would go below zero"))
            })?;
            self.set_state(field, now)?;
        }
        Ok(())
    }

    /// Sets a number of the pool state at once. Not for numbers that this operation also counts.
    ///
    /// # Errors
    /// None that can happen: the state block is always in memory.
    pub(crate) fn set_state(&mut self, field: Field, value: u64) -> OpResult<()> {
        self.edit(STATE, BlockKind::State, field.range())?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn apply_effects(&mut self) {
        let Meta { geometry, filter, indexing, groups, running, cache, in_flight, orphans, .. } = &mut *self.meta;
        let page_of = |block| StorePageNo(geometry.store_page_no(block));
        // Locked with the first entry, and once for all of them.
        let mut change: Option<FilterChange<'_>> = None;
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Index(fingerprint, block) => {
                    indexing.enter(change.get_or_insert_with(|| filter.change()), fingerprint, page_of(block));
                }
                Effect::Unindex(fingerprint, block) => {
                    let change = change.get_or_insert_with(|| filter.change());
                    indexing.leave(change, fingerprint, page_of(block), self.leave);
                }
                Effect::UnbusyRun(run) => {
                    groups.busy.clear_run(run.first, run.count);
                }
                Effect::FreedData(block) => {
                    // Again: an operation that claims a block and drops its only reference has just ended its being
                    // busy. Else it would be handed out at once, and a second time when its free is durable.
                    groups.busy.set(block);
                    running.freed.push(block);
                }
                Effect::FreedMetadata(block) => {
                    cache.remove(block);
                    running.forgotten.push(block);
                }
                Effect::Initialised(block) => in_flight.set_initialised(block),
                Effect::Hold(ino) => orphans.hold(ino),
                Effect::LostName(ino) => orphans.lost_name(ino),
                Effect::GotName(ino) => orphans.got_name(ino),
            }
        }
    }

    /// Takes back everything. Returns the blocks that were missing.
    pub(crate) fn roll_back(mut self) -> Vec<Fault> {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Bytes { block, offset, saved } => {
                    let slot = self.meta.cache.get(block).expect("a changed block is never evicted");
                    let length = saved.len();
                    Arc::make_mut(&mut slot.bytes)[offset..offset + length].copy_from_slice(&self.saved[saved]);
                }
                Undo::Created(block) => self.meta.cache.remove(block),
                Undo::Busy(block) => {
                    self.meta.groups.busy.clear(block);
                }
                Undo::Stock(block) => {
                    self.meta.groups.stock.add([block]);
                }
                Undo::BusyRun(run) => {
                    self.meta.groups.busy.clear_run(run.first, run.count);
                }
            }
        }
        for (group, known) in std::mem::take(&mut self.known_before) {
            // What it found out about other groups stays true: what is tried again does not begin anew.
            self.meta.groups.free_runs.set(group, known);
        }
        self.meta.groups.metadata_run = self.metadata_run_before;
        // What is tried again takes the same blocks: what it missed is in memory by then.
        self.meta.groups.data_cursor = self.data_cursor_before;
        self.forget_dirty();
        // Only now: a panic on the way leaves a pool that has stopped.
        self.ended = true;
        std::mem::take(&mut self.faults)
    }

    /// Takes the blocks that this operation was the first to change out of the running transaction: an operation too
    /// large for the journal must not leave a transaction behind that is.
    fn forget_dirty(&mut self) {
        let first_changed_here = self.meta.running.dirty.split_off(self.dirty_before);
        for block in first_changed_here {
            if let Some(slot) = self.meta.cache.get(block) {
                slot.dirty = None;
            }
        }
        let running = &mut self.meta.running;
        running.bytes_bound = running.bytes_bound.min(running.worst_bytes());
    }
}

impl Drop for Op<'_> {
    /// An operation that is dropped half done can only be a panic: what it leaves behind must not be committed.
    fn drop(&mut self) {
        if !self.ended && !self.undo.is_empty() {
            self.meta.stopped.get_or_insert_with(|| "an operation ended in an internal error".to_owned());
        }
    }
}

/// Returns the error that says that a structure is damaged.
pub(crate) fn damaged(structure: &'static str, block: BlockNo, what: impl Into<String>) -> OpError {
    OpError::Fail(PoolError::Damaged { structure, block, what: what.into() })
}
