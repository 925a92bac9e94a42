//! Commit and checkpoint: make changes durable, and empty the journal.
//!
//! **Commit.** The order, and what would be lost if a step moved:
//! 1. The running transaction is taken, and a new one begins. This holds the metadata lock only while pointers are
//!    cloned, not bytes. (Later: operations would wait for the disk.)
//! 2. If the transaction names data written since the last flush, late writes go to the device
//!    ([`super::late_writes`]), and the device is flushed. (Later: after a power cut, a committed map could name a
//!    block with old content.)
//! 3. The transaction is written to the log in one piece, and the device is flushed. Now it is durable.
//! 4. Freed data blocks may be handed out again. (Earlier: a crash would bring back a map that names a block which
//!    another write has overwritten.)
//!
//! **Checkpoint.** Empties the log:
//! 1. A new epoch begins: from now on, the first change of a block is logged whole. (Later: a home copy torn in step 2
//!    of the *next* checkpoint could not be rebuilt.)
//! 2. The committed content of all blocks in the log is written home, but never the content of the running transaction,
//!    which may not happen.
//!    The summaries of the groups are written, too ([`super::summary_places`]).
//! 3. The device is flushed. Only then is the tail moved, and that is flushed too. (Earlier: recovery would not repair
//!    a home copy that did not reach the device.)
//! 4. Freed metadata blocks may be handed out again. (Earlier: recovery would write old metadata over new data.)

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_block::device::writes_of;
use onefold_block::{BLOCK_BYTES, BlockNo};

use super::summary_places::WrittenSummaries;
use super::{BUFFER_BLOCKS, Engine};
use crate::activity::ActivityCounter;
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::header;
use crate::format::journal::{TransactionBuilder, TransactionIdentity, WHOLE_RECORD_BYTES};
use crate::journal::log::{self, JournalLog};
use crate::meta::Meta;
use crate::meta::free_again::runs_of;
use crate::meta::ranges::DirtyRanges;
use crate::options::Journaling;
use crate::sync::{self, MutexGuard};
use crate::waits::about_to_wait;

/// Number of blocks that a checkpoint gathers in one buffer.
const GATHER_BLOCKS: usize = 256;
/// Number of blocks that are handed out again, or noted to be in place, under one hold of the metadata lock.
const BLOCKS_PER_HOLD: usize = 1024;
const _: () = assert!(GATHER_BLOCKS <= BUFFER_BLOCKS, "a kept buffer is large enough");

/// State of commits and checkpoints, behind its own lock.
#[derive(Debug)]
pub(crate) struct Committer {
    log: JournalLog,
    /// The last durable transaction.
    durable: u64,
    /// Committed content that may not be in place yet.
    home: BTreeMap<BlockNo, Arc<BlockBytes>>,
    /// Metadata blocks freed by transactions that are in the log.
    held: Vec<BlockNo>,
    /// Data blocks whose free is durable, but which were pinned at that time.
    freed_later: Vec<BlockNo>,
    /// A taken transaction for which the backing file had no room. It is written before anything else.
    unwritten: Option<PendingTransaction>,
    /// The summaries of the groups on the device.
    pub(super) summaries: WrittenSummaries,
}

/// One block of a transaction.
#[derive(Debug)]
struct LogBlock {
    block: BlockNo,
    bytes: Arc<BlockBytes>,
    /// The ranges to log; `None` for the whole block.
    ranges: Option<DirtyRanges>,
}

/// A transaction that was taken and is not durable yet.
#[derive(Debug)]
struct PendingTransaction {
    sequence: u64,
    blocks: Vec<LogBlock>,
    forgotten: Vec<BlockNo>,
    freed: Vec<BlockNo>,
    wrote_data: bool,
    bytes_bound: usize,
}

impl Committer {
    /// Returns the committer of an opened pool. Recovery found `home` and `held` in the log.
    pub(crate) fn new(
        log: JournalLog,
        durable: u64,
        home: BTreeMap<BlockNo, Arc<BlockBytes>>,
        held: Vec<BlockNo>,
    ) -> Committer {
        let summaries = WrittenSummaries::default();
        Committer { log, durable, home, held, freed_later: Vec::new(), unwritten: None, summaries }
    }

    /// Returns whether each transaction that was taken is in the log.
    pub(super) fn has_written_all(&self) -> bool {
        self.unwritten.is_none()
    }

    /// Returns whether all transactions before `sequence` are durable.
    pub(super) fn is_durable_before(&self, sequence: u64) -> bool {
        self.durable + 1 == sequence && self.has_written_all()
    }

    /// Returns the places of committed content that may not be there yet.
    pub(super) fn home_blocks(&self) -> impl Iterator<Item = BlockNo> {
        self.home.keys().copied()
    }

    /// Gives later transactions another identity. Must be called while the log is empty.
    pub(super) fn identify_by(&mut self, identity: TransactionIdentity) {
        self.log.identify_by(identity);
    }
}

/// Takes the running transaction and begins the next one.
fn take_running(meta: &mut Meta) -> PendingTransaction {
    let running = &mut meta.running;
    let sequence = running.sequence;
    let mut blocks = Vec::with_capacity(running.dirty.len());
    for block in std::mem::take(&mut running.dirty) {
        // The block was freed since, or is listed twice.
        let Some(slot) = meta.cache.get(block) else { continue };
        let Some(ranges) = slot.dirty.take() else { continue };
        let whole = slot.logged_epoch != running.epoch;
        slot.logged_epoch = running.epoch;
        slot.home_sequence = sequence;
        blocks.push(LogBlock { block, bytes: Arc::clone(&slot.bytes), ranges: (!whole).then_some(ranges) });
    }
    running.sequence += 1;
    PendingTransaction {
        sequence,
        blocks,
        forgotten: std::mem::take(&mut running.forgotten),
        freed: std::mem::take(&mut running.freed),
        wrote_data: std::mem::take(&mut running.wrote_data),
        bytes_bound: std::mem::take(&mut running.bytes_bound),
    }
}

impl Engine {
    /// Makes all changes so far durable.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped; [`PoolError::NoSpace`] if the backing file is full. In that case
    /// nothing is lost and nothing counts as written, and the next commit continues from there.
    pub(crate) fn commit(&self) -> Result<()> {
        let target = self.meta().running.sequence;
        self.commit_through(target)
    }

    /// Locks the committer. If several threads want a commit at the same time, one commits for all; most others find
    /// theirs done when they get the lock.
    fn lock_committer(&self) -> MutexGuard<'_, Committer> {
        if let Some(committer) = self.committer.try_lock() {
            return committer;
        }
        about_to_wait();
        let wait = self.committing.begin();
        self.committing.look(wait, || self.committer.try_lock()).unwrap_or_else(|| {
            let committer = self.committer.lock();
            self.committing.slept(wait);
            committer
        })
    }

    /// Makes transaction `target` durable. One of several callers commits for all.
    fn commit_through(&self, target: u64) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        let mut committer = self.lock_committer();
        self.write_unwritten(&mut committer)?;
        if committer.durable >= target {
            return Ok(());
        }
        let taken = loop {
            let mut meta = self.meta();
            if let Some(cause) = &meta.stopped {
                return Err(PoolError::Stopped { cause: cause.clone() });
            }
            if meta.running.is_empty() {
                drop(meta);
                self.hand_out_freed(&mut committer);
                return Ok(());
            }
            if meta.running.bytes_in_log() <= committer.log.bytes_left() {
                break take_running(&mut meta);
            }
            // Room must be made before the transaction is taken, because a checkpoint decides which blocks are logged
            // whole.
            drop(meta);
            self.checkpoint_locked(&mut committer, false)?;
        };
        committer.unwritten = Some(taken);
        self.write_unwritten(&mut committer)?;
        // A block that changes again before it is in place has two copies in memory.
        let crowded = committer.home.len() > self.meta().cache.capacity() / 4;
        if committer.log.is_half_full() || crowded {
            match self.checkpoint_locked(&mut committer, false) {
                // The transaction is durable. Blocks without room are put in place later.
                Ok(()) | Err(PoolError::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the transaction that was taken. If the backing file was full, the write may be repeated, as nothing
    /// counted as written and no flush has failed. After any other failure, the pool stops.
    fn write_unwritten(&self, committer: &mut Committer) -> Result<()> {
        if committer.unwritten.is_none() {
            return Ok(());
        }
        self.ensure_writable()?;
        let Some(taken) = committer.unwritten.take() else { return Ok(()) };
        if let Err(error) = self.write_transaction(committer, &taken) {
            match error {
                PoolError::NoSpace => committer.unwritten = Some(taken),
                _ => self.stop(&error),
            }
            return Err(error);
        }
        self.transaction_is_durable(committer, taken);
        Ok(())
    }

    /// Lets durably freed data blocks be handed out again, except those that are being compared or shared, which must
    /// wait a little longer.
    fn hand_out_freed(&self, committer: &mut Committer) {
        self.unpin_unread();
        let mut freed = std::mem::take(&mut committer.freed_later);
        freed.sort_unstable();
        for blocks in freed.chunks(BLOCKS_PER_HOLD) {
            let mut meta = self.meta();
            let (held, free): (Vec<BlockNo>, Vec<BlockNo>) =
                blocks.iter().partition(|block| meta.in_flight.is_held(**block));
            meta.free_again(&runs_of(&free));
            sync::unlock_fairly(meta);
            committer.freed_later.extend(held);
        }
    }

    /// Lets metadata blocks be handed out again once the log no longer names them.
    fn hand_out_held(&self, committer: &mut Committer) {
        committer.held.sort_unstable();
        for blocks in committer.held.chunks(BLOCKS_PER_HOLD) {
            let mut meta = self.meta();
            meta.free_again(&runs_of(blocks));
            sync::unlock_fairly(meta);
        }
        committer.held.clear();
    }

    fn write_transaction(&self, committer: &mut Committer, taken: &PendingTransaction) -> Result<()> {
        if taken.wrote_data {
            self.late_writes.write_out(&self.buffers)?;
            log::sync(&*self.device, BlockNo(0))?;
        }
        match self.options.journaling {
            Journaling::On => {
                let mut builder = TransactionBuilder::new(taken.bytes_bound);
                for logged in &taken.blocks {
                    match &logged.ranges {
                        None => builder.whole(logged.block, &logged.bytes),
                        Some(ranges) => builder.ranges(logged.block, &logged.bytes, ranges.as_slice()),
                    }
                }
                for &block in &taken.forgotten {
                    builder.forget(block);
                }
                committer.log.append(&*self.device, builder, taken.sequence)
            }
            Journaling::Off => {
                let blocks = taken.blocks.iter().map(|logged| (logged.block, Arc::clone(&logged.bytes))).collect();
                self.write_home(&blocks)?;
                log::sync(&*self.device, BlockNo(0))
            }
        }
    }

    fn transaction_is_durable(&self, committer: &mut Committer, taken: PendingTransaction) {
        match self.options.journaling {
            Journaling::On => {
                committer.home.extend(taken.blocks.into_iter().map(|logged| (logged.block, logged.bytes)));
            }
            Journaling::Off => {
                let mut meta = self.meta();
                for logged in taken.blocks {
                    if let Some(slot) = meta.cache.get(logged.block) {
                        slot.home_sequence = 0;
                    }
                }
            }
        }
        committer.durable = taken.sequence;
        for block in taken.forgotten {
            committer.home.remove(&block);
            committer.held.push(block);
        }
        committer.freed_later.extend(taken.freed);
        self.hand_out_freed(committer);
        if self.options.journaling == Journaling::Off {
            self.hand_out_held(committer);
        }
        self.activity.add(ActivityCounter::Commits, 1);
    }

    /// Puts all committed content in place and empties the log, without a commit.
    ///
    /// # Errors
    /// See [`Engine::commit`].
    pub(crate) fn checkpoint(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        let mut committer = self.lock_committer();
        self.ensure_writable()?;
        self.checkpoint_locked(&mut committer, false)
    }

    /// Checkpoints if committed content is not in place, or if freed blocks wait for a checkpoint.
    ///
    /// # Errors
    /// See [`Engine::commit`].
    pub(crate) fn checkpoint_if_needed(&self) -> Result<()> {
        let mut committer = self.lock_committer();
        if committer.home.is_empty() && committer.held.is_empty() {
            return Ok(());
        }
        self.ensure_writable()?;
        self.checkpoint_locked(&mut committer, false)
    }

    /// Commits and checkpoints for the last time, and marks the journal as cleanly closed.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn commit_and_close(&self) -> Result<()> {
        self.commit()?;
        let mut committer = self.lock_committer();
        self.ensure_writable()?;
        self.checkpoint_locked(&mut committer, true)
    }

    /// Checkpoints. If the backing file has no room for a block's place, the log stays as it is and nothing is lost.
    fn checkpoint_locked(&self, committer: &mut Committer, clean: bool) -> Result<()> {
        // Partly logged blocks of this transaction build on whole blocks that are still in the log.
        self.write_unwritten(committer)?;
        {
            let mut meta = self.meta();
            let running = &mut meta.running;
            running.epoch += 1;
            running.bytes_bound = running.dirty.len() * WHOLE_RECORD_BYTES;
        }
        let result = self.put_in_place(committer, clean);
        match &result {
            Ok(()) | Err(PoolError::NoSpace) => {}
            Err(error) => self.stop(error),
        }
        result
    }

    fn put_in_place(&self, committer: &mut Committer, clean: bool) -> Result<()> {
        self.write_home(&committer.home)?;
        self.update_summaries(&mut committer.summaries);
        log::sync(&*self.device, BlockNo(0))?;
        committer.log.move_tail(&*self.device, committer.durable + 1, clean)?;
        // Done first, while the bitmaps of the neighbouring blocks are still in memory.
        self.hand_out_held(committer);
        let home: Vec<BlockNo> = std::mem::take(&mut committer.home).into_keys().collect();
        for blocks in home.chunks(BLOCKS_PER_HOLD) {
            let mut meta = self.meta();
            for &block in blocks {
                // No newer transaction with the block can have been taken, as that needs the committer.
                if let Some(slot) = meta.cache.get(block) {
                    slot.home_sequence = 0;
                }
            }
            sync::unlock_fairly(meta);
        }
        self.activity.add(ActivityCounter::Checkpoints, 1);
        Ok(())
    }

    /// Seals metadata blocks and writes them to their places, in ascending order, joining neighbours.
    fn write_home(&self, blocks: &BTreeMap<BlockNo, Arc<BlockBytes>>) -> Result<()> {
        let ordered: Vec<(&BlockNo, &Arc<BlockBytes>)> = blocks.iter().collect();
        let mut buffer = self.buffers.take();
        for piece in ordered.chunks(GATHER_BLOCKS) {
            for (place, (_, bytes)) in buffer.blocks_mut().zip(piece) {
                *place = ***bytes;
                header::seal(place);
            }
            let places: Vec<BlockNo> = piece.iter().map(|(block, _)| **block).collect();
            let block = places[0];
            let content = &buffer[..piece.len() * BLOCK_BYTES];
            self.device
                .write_batch(&writes_of(&places, content))
                .map_err(|source| PoolError::of_write(block, source))?;
        }
        Ok(())
    }
}
