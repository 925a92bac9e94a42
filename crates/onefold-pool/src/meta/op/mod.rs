//! One operation on the metadata, which takes effect completely or not at all.
//!
//! Every change of a block goes through [`Op::edit`], which keeps the old bytes. All other results of an operation
//! (filter entries, freed blocks) wait in `effects` until it has succeeded. So an operation can be rolled back at any
//! point: if a block is missing in memory, if space runs out, if damage is found.

mod effects;
mod error;

use std::ops::Range;
use std::sync::Arc;

use onefold_block::BlockNo;

use super::Meta;
use super::group_run::GroupRun;
use super::groups::AllocationCursor;
use super::hash::PlainMap;
use super::indexing::RemovalTime;
use super::ranges::DirtyRanges;
use crate::error::PoolError;
use crate::format::BlockBytes;
use crate::format::geometry::STATE;
use crate::format::group_summaries::GroupSummary;
use crate::format::header::{self, BlockKind};
use crate::format::journal;
use crate::format::state::{FIELD_COUNT, Field};
use crate::options::Allocation;
use effects::Effect;
pub(crate) use error::{OpError, OpResult, damaged};

/// Whether an operation may use the emergency reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// It may not use the emergency reserve.
    Normal,
    /// It may turn out to free space (truncate, punch): it may use all blocks if it frees at least as many as it takes.
    Shrinking,
    /// It frees space (unlink, reclaim): it may use all blocks.
    Freeing,
}

/// A block that must be read before the operation can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockFault {
    pub(crate) block: BlockNo,
    pub(crate) kind: BlockKind,
}

#[derive(Debug)]
enum UndoStep {
    Bytes { block: BlockNo, offset: usize, saved: Range<usize> },
    Created(BlockNo),
    Busy(BlockNo),
    BusyRun(GroupRun),
    Stock(BlockNo),
}

/// An operation in progress.
pub(crate) struct Op<'a> {
    pub(crate) meta: &'a mut Meta,
    pub(crate) privilege: Privilege,
    undo: Vec<UndoStep>,
    saved: Vec<u8>,
    effects: Vec<Effect>,
    faults: Vec<BlockFault>,
    deltas: [i64; FIELD_COUNT],
    /// Number of blocks that are both busy and used until the operation succeeds.
    claimed: u64,
    /// Number of map nodes that it has put on the reclaim list, which frees them.
    detached: u64,
    /// Number of dirty blocks in the running transaction when the operation began.
    dirty_before: usize,
    /// Whether the running transaction contains nothing else.
    is_alone: bool,
    metadata_run_before: (u64, u64),
    data_cursor_before: AllocationCursor,
    /// The facts known about the groups from which the operation has taken blocks, from before it took them.
    known_before: PlainMap<u64, Option<GroupSummary>>,
    leave: RemovalTime,
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
            leave: RemovalTime::Now,
            wrote_data: false,
            edited: false,
            ended: false,
        }
    }

    /// Returns a metadata block's content.
    ///
    /// # Errors
    /// [`OpError::Fault`] if it is not in memory; damage if another kind of block is there.
    pub(crate) fn block(&mut self, block: BlockNo, kind: BlockKind) -> OpResult<&BlockBytes> {
        if !self.want(block, kind)? {
            return Err(OpError::Fault);
        }
        Ok(self.meta.cache.peek(block).expect("`want` found it"))
    }

    /// Notes that a block will be needed; returns false if it has to be read first. A caller that needs many blocks
    /// requests all of them before it gives up, so that they are read together.
    ///
    /// # Errors
    /// Damage if another kind of block is there.
    pub(crate) fn want(&mut self, block: BlockNo, kind: BlockKind) -> OpResult<bool> {
        match self.meta.cache.get(block) {
            Some(slot) if slot.kind == kind => Ok(true),
            Some(slot) => Err(damaged(kind.name(), block, format!("is used as {} too", slot.kind.name()))),
            None => {
                self.faults.push(BlockFault { block, kind });
                Ok(false)
            }
        }
    }

    /// Fails if any requested block was missing.
    ///
    /// # Errors
    /// [`OpError::Fault`].
    pub(crate) fn settle(&self) -> OpResult<()> {
        if self.faults.is_empty() { Ok(()) } else { Err(OpError::Fault) }
    }

    /// Returns bytes `range` of a block for editing.
    ///
    /// # Errors
    /// See [`Op::block`].
    pub(crate) fn edit(&mut self, block: BlockNo, kind: BlockKind, range: Range<usize>) -> OpResult<&mut [u8]> {
        if !self.want(block, kind)? {
            return Err(OpError::Fault);
        }
        self.edited = true;
        let running = &mut self.meta.running;
        let slot = self.meta.cache.get(block).expect("`want` found it");
        let saved_first = self.saved.len();
        self.saved.extend_from_slice(&slot.bytes[range.clone()]);
        self.undo.push(UndoStep::Bytes { block, offset: range.start, saved: saved_first..self.saved.len() });
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

    /// Makes a block with only its header, in memory.
    pub(crate) fn create_block(&mut self, block: BlockNo, kind: BlockKind) {
        let bytes = Arc::new(header::blank(self.meta.pool_tag, kind, block));
        let running = &mut self.meta.running;
        let slot = self.meta.cache.insert(block, kind, bytes);
        let mut dirty = DirtyRanges::default();
        dirty.add(4, onefold_block::BLOCK_BYTES);
        slot.dirty = Some(dirty);
        running.dirty.push(block);
        running.bytes_bound += journal::WHOLE_RECORD_BYTES;
        self.undo.push(UndoStep::Created(block));
    }

    /// Changes a counter of the pool state by `delta` when the operation succeeds.
    pub(crate) fn count(&mut self, field: Field, delta: i64) {
        self.deltas[field as usize] += delta;
    }

    /// Reads a number of the pool state, including this operation's changes.
    pub(crate) fn state(&self, field: Field) -> u64 {
        self.meta.state(field).saturating_add_signed(self.deltas[field as usize])
    }

    /// Fails if the seam for tests refuses an allocation.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`].
    pub(crate) fn permit(&self, what: Allocation) -> OpResult<()> {
        if self.meta.permits(what) { Ok(()) } else { Err(PoolError::NoSpace.into()) }
    }

    /// Returns how many blocks are free and may be allocated now, including this operation's changes. Blocks that it
    /// has freed wait for the commit; blocks that it has claimed were busy before, and count once.
    pub(crate) fn blocks_available(&self) -> u64 {
        let used = self.state(Field::DataBlocks) + self.state(Field::MetadataBlocks);
        let busy = self.meta.groups.busy.count().saturating_sub(self.claimed);
        self.meta.geometry.allocatable_blocks().saturating_sub(used + busy)
    }

    /// Makes a block busy until the operation is rolled back or the busy state is ended.
    pub(crate) fn set_busy(&mut self, block: BlockNo) {
        if self.meta.groups.busy.set(block) {
            self.undo.push(UndoStep::Busy(block));
        }
    }

    /// Notes that the reclaim list will free a map node.
    pub(crate) fn note_detached(&mut self) {
        self.detached += 1;
    }

    /// Refuses an operation that was expected to free space but has taken some of the emergency reserve.
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

    /// Makes free blocks busy: a run within one group.
    pub(crate) fn reserve(&mut self, run: GroupRun) {
        self.take(run);
        if self.meta.groups.busy.set_run(run.first, run.count) {
            self.undo.push(UndoStep::BusyRun(run));
            return;
        }
        for offset in 0..run.count {
            self.set_busy(run.first.plus(offset));
        }
    }

    /// Takes a block from the stock for metadata; a rollback returns it.
    pub(crate) fn take_from_stock(&mut self) -> Option<BlockNo> {
        let block = self.meta.groups.stock.take()?;
        self.undo.push(UndoStep::Stock(block));
        Some(block)
    }

    /// Notes that free blocks of a group are about to be used, or busy; a rollback reverts this.
    pub(crate) fn take(&mut self, run: GroupRun) {
        let group = self.meta.geometry.group_of(run.first);
        let free_runs = &mut self.meta.groups.free_runs;
        self.known_before.entry(group).or_insert_with(|| free_runs.get(group));
        free_runs.take(group, run.count);
    }

    /// Makes the commit flush the device before it writes the journal: metadata of this operation names data or blocks
    /// that were written outside the journal.
    pub(crate) fn wrote_data(&mut self) {
        self.wrote_data = true;
    }

    /// Ends the operation successfully; it joins the running transaction.
    ///
    /// # Errors
    /// [`OpError::TransactionFull`], or [`PoolError::TooLargeForJournal`] if a commit would not help;
    /// [`PoolError::NoSpace`]. The operation is rolled back then.
    pub(crate) fn finish(mut self) -> OpResult<()> {
        if let Err(error) = self.refuse_growth().and_then(|()| self.flush_deltas()) {
            self.roll_back();
            return Err(error);
        }
        // An operation that only reserved blocks adds nothing to the transaction, and cannot fail here.
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
    /// None in practice: the state block is always in memory.
    pub(crate) fn set_state(&mut self, field: Field, value: u64) -> OpResult<()> {
        self.edit(STATE, BlockKind::State, field.range())?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    /// Reverts everything. Returns the blocks that were missing.
    pub(crate) fn roll_back(mut self) -> Vec<BlockFault> {
        while let Some(undo) = self.undo.pop() {
            match undo {
                UndoStep::Bytes { block, offset, saved } => {
                    let slot = self.meta.cache.get(block).expect("a changed block is never evicted");
                    let length = saved.len();
                    Arc::make_mut(&mut slot.bytes)[offset..offset + length].copy_from_slice(&self.saved[saved]);
                }
                UndoStep::Created(block) => self.meta.cache.remove(block),
                UndoStep::Busy(block) => {
                    self.meta.groups.busy.clear(block);
                }
                UndoStep::Stock(block) => {
                    self.meta.groups.stock.add([block]);
                }
                UndoStep::BusyRun(run) => {
                    self.meta.groups.busy.clear_run(run.first, run.count);
                }
            }
        }
        for (group, known) in std::mem::take(&mut self.known_before) {
            // What it learned about other groups stays valid, so a retry need not scan them again.
            self.meta.groups.free_runs.set(group, known);
        }
        self.meta.groups.metadata_run = self.metadata_run_before;
        // A retry takes the same blocks: the missing ones are in memory by then.
        self.meta.groups.data_cursor = self.data_cursor_before;
        self.forget_dirty();
        // Set last: a panic on the way leaves a stopped pool.
        self.ended = true;
        std::mem::take(&mut self.faults)
    }

    /// Removes the blocks that this operation was the first to change from the running transaction: an operation too
    /// large for the journal must not leave a transaction that is too large.
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
    /// Stops the pool: only a panic drops an unfinished operation, and its changes must not be committed.
    fn drop(&mut self) {
        if !self.ended && !self.undo.is_empty() {
            self.meta.stopped.get_or_insert_with(|| "an operation ended in an internal error".to_owned());
        }
    }
}
