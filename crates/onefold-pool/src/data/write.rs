//! Writes files: the frame around the decision.
//!
//! The order of these steps makes a crash harmless:
//! 1. The range of the file is locked against other writers and readers.
//! 2. Partly written blocks are filled with the file's content.
//! 3. Zero blocks are found, and the others are fingerprinted, many side by side.
//! 4. The fates are decided under the metadata lock ([`super::decide`]); new blocks are reserved.
//! 5. New blocks are written to the device, or, for small writes, kept for the next commit
//!    ([`crate::engine::late_writes`]). Nothing names them yet: a crash here loses a write that was not promised to
//!    anyone.
//! 6. Blocks that other writers are writing are waited for. With `verify=value`, candidates are compared.
//! 7. The fates take effect in one operation: entries, counts, map, length and times join the running transaction
//!    together. By then their data has reached the device, or is kept for a commit to write first. (Earlier: a commit
//!    could make a map durable that names a block without its data.)
//!
//! Blocks that lost their share between 4 and 7 are decided again.

use std::sync::Arc;

use onefold_block::buffer::is_aligned;
use onefold_block::device::writes_of;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockNo, Fingerprint, WriteOp};

use super::Data;
use super::decide::{ApplyResult, DecisionRequest, Fate, LostBlock, SharingPolicy, WriteBlock, sought};
use crate::activity::ActivityCounter;
use crate::attr::{Dedup, Ino};
use crate::engine::{BUFFER_BLOCKS, Engine, PLACES_MAX};
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::meta::group_run::GroupRun;
use crate::meta::in_flight::{DeviceWrite, WriteState};
use crate::meta::{Op, OpResult, Privilege};
use crate::options::Verification;

/// Maximum number of blocks in a batch: one buffer.
pub(crate) const BATCH_BLOCKS: usize = BUFFER_BLOCKS;
/// Number of rounds in which a block may lose its share. After them, it gets a block of its own.
const ROUNDS_MAX: u32 = 8;

/// Blocks to be stored in a file.
#[derive(Clone, Copy)]
pub(crate) struct StoreRequest<'a> {
    pub(crate) ino: Ino,
    /// Each block's place and bytes, ascending.
    pub(crate) data: &'a [(u64, &'a [u8])],
    /// The same bytes in one piece, if they are contiguous in memory.
    pub(crate) side_by_side: Option<&'a [u8]>,
    pub(crate) privilege: Privilege,
    /// The blocks take effect after all accepted writes below this number ([`super::behind`]).
    pub(crate) after: u64,
    /// Whether new blocks may be kept in memory until a commit ([`crate::engine::late_writes`]).
    pub(crate) may_be_late: bool,
}

impl<'a> StoreRequest<'a> {
    /// Returns a request for blocks that wait for no other write.
    pub(crate) fn now(ino: Ino, data: &'a [(u64, &'a [u8])], privilege: Privilege) -> StoreRequest<'a> {
        StoreRequest { ino, data, side_by_side: None, privilege, after: 0, may_be_late: false }
    }
}

/// The fates of a batch. Dropping it gives back pinned blocks and blocks being written.
struct WritePlan<'e> {
    engine: &'e Engine,
    fates: Vec<Fate>,
}

impl WritePlan<'_> {
    /// Gives back what the fates of some blocks hold.
    fn give_back(&mut self, places: impl IntoIterator<Item = usize>) {
        let mut unused = Vec::new();
        {
            let mut meta = self.engine.meta();
            for at in places {
                match std::mem::replace(&mut self.fates[at], Fate::Hole) {
                    Fate::Hole | Fate::Same(_) => {}
                    Fate::Share(block) => meta.in_flight.unpin(block),
                    Fate::Attach(flight) | Fate::Write(flight) => {
                        if meta.in_flight.leave(flight.block) {
                            unused.push(flight.block);
                        }
                    }
                }
            }
        }
        if unused.is_empty() {
            return;
        }
        // The blocks are not free yet, so nobody else gets them meanwhile. This may wait for the device.
        for &block in &unused {
            self.engine.late_writes.forget(block);
        }
        let mut meta = self.engine.meta();
        for first in unused {
            meta.free_again(&[GroupRun { first, count: 1 }]);
        }
    }
}

impl Drop for WritePlan<'_> {
    fn drop(&mut self) {
        for fate in &self.fates {
            if let Fate::Write(flight) = fate {
                // Does nothing if the write has ended; otherwise, other writers would wait for it for ever.
                flight.write.fail_if_unfinished();
            }
        }
        self.give_back(0..self.fates.len());
    }
}

impl Data {
    /// Returns how a file's blocks may be shared now.
    fn sharing(&self, inode: &Inode) -> SharingPolicy {
        SharingPolicy {
            domain: inode.attr.domain,
            enabled: inode.attr.dedup == Dedup::On && self.engine.options.dedup == Dedup::On,
            verify: self.engine.options.verify,
        }
    }

    /// Stores whole blocks, each at its place, in ascending order, in a file whose range the caller has locked. `also`
    /// runs in the operation that makes them visible, and changes the inode further (length, times, holes). `set_aside`
    /// blocks are kept for the write, and it subtracts those that it uses.
    ///
    /// # Errors
    /// No space, after which nothing has changed; device errors, after which the pool is stopped.
    pub(crate) fn store_blocks(
        &self,
        store: &StoreRequest<'_>,
        set_aside: &mut u64,
        also: &mut dyn FnMut(&mut Op<'_>, &mut Inode) -> OpResult<()>,
    ) -> Result<()> {
        let inode = self.engine.view(|op| op.regular(store.ino))?;
        let sharing = self.sharing(&inode);
        let mut blocks = self.fingerprints(store.data, sharing.domain);
        let mut plan = WritePlan { engine: &self.engine, fates: vec![Fate::Hole; blocks.len()] };
        let mut undecided: Vec<usize> = (0..blocks.len()).collect();
        let fingerprints = sought(&blocks, &undecided, sharing);
        let mut looked_up = (!fingerprints.is_empty()).then(|| self.engine.filter.look_up(&fingerprints));
        let (mut round, mut places_tried) = (0, 0);
        loop {
            // Blocks that keep losing their shares get blocks of their own.
            let sharing = SharingPolicy { enabled: sharing.enabled && round < ROUNDS_MAX, ..sharing };
            let own = (*set_aside).min(blocks.len() as u64);
            let deciding = DecisionRequest {
                ino: store.ino,
                blocks: &blocks,
                undecided: &undecided,
                sharing,
                set_aside: own,
                looked_up: looked_up.as_ref(),
            };
            let fates = self.engine.run(store.privilege, |op| op.decide(&deciding, &self.engine.activity))?;
            looked_up = None;
            if own > 0 {
                // The blocks needed from it are reserved now.
                self.engine.meta().set_aside -= own;
                *set_aside -= own;
            }
            for (&at, fate) in undecided.iter().zip(fates) {
                plan.fates[at] = fate;
            }
            match self.write_new(&blocks, &plan.fates, &undecided, store) {
                Ok(()) => {}
                // Tries other places: in a full backing file, only blocks that were used before have room.
                Err(PoolError::NoSpace) if places_tried < PLACES_MAX => {
                    places_tried += 1;
                    plan.give_back(undecided.iter().copied());
                    continue;
                }
                Err(error) => return Err(error),
            }
            undecided = self.confirm_shares(&mut blocks, &plan.fates, &undecided, sharing.verify)?;
            if undecided.is_empty() {
                self.behind.wait_for(store.after);
                let applied = self.engine.run(store.privilege, |op| {
                    let mut inode = op.regular(store.ino)?;
                    let applied = op.apply_fates(&mut inode, &blocks, &plan.fates, sharing)?;
                    if matches!(applied, ApplyResult::Done) {
                        also(op, &mut inode)?;
                        op.put_inode(&inode)?;
                    }
                    Ok(applied)
                })?;
                match applied {
                    ApplyResult::Done => break,
                    ApplyResult::Lost(lost) => {
                        for LostBlock { at, full } in &lost {
                            blocks[*at].unfit.extend(full);
                        }
                        undecided = lost.iter().map(|lost| lost.at).collect();
                    }
                }
            }
            undecided = with_followers(&plan.fates, undecided);
            plan.give_back(undecided.iter().copied());
            round += 1;
        }
        self.count_fates(&plan.fates);
        Ok(())
    }

    fn fingerprints<'a>(&self, data: &[(u64, &'a [u8])], domain: u16) -> Vec<WriteBlock<'a>> {
        let mut blocks: Vec<WriteBlock<'a>> = data
            .iter()
            .map(|&(index, bytes)| WriteBlock {
                index,
                bytes,
                fingerprint: Fingerprint([0; 16]),
                is_zero: onefold_block::zero::is_zero(bytes),
                unfit: Vec::new(),
            })
            .collect();
        let some: Vec<usize> = (0..blocks.len()).filter(|&at| !blocks[at].is_zero).collect();
        let bytes: Vec<&[u8]> = some.iter().map(|&at| blocks[at].bytes).collect();
        let mut fingerprints = vec![Fingerprint([0; 16]); some.len()];
        self.engine.key(domain).fingerprint_each(&bytes, &mut fingerprints);
        for (at, fingerprint) in some.into_iter().zip(fingerprints) {
            blocks[at].fingerprint = fingerprint;
        }
        blocks
    }

    /// Writes the new blocks among `decided` to the device, or keeps them for the next commit.
    fn write_new(
        &self,
        blocks: &[WriteBlock<'_>],
        fates: &[Fate],
        decided: &[usize],
        store: &StoreRequest<'_>,
    ) -> Result<()> {
        let mut new: Vec<(BlockNo, usize)> = decided
            .iter()
            .filter_map(|&at| match &fates[at] {
                Fate::Write(flight) => Some((flight.block, at)),
                Fate::Hole | Fate::Same(_) | Fate::Attach(_) | Fate::Share(_) => None,
            })
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        new.sort_unstable();
        for (block, _) in &new {
            self.readers.cache.forget(*block);
        }
        let written = match self.keep_late(blocks, &new, store) {
            Ok(true) => Ok(()),
            Ok(false) => self.write_at_once(blocks, &new, store.side_by_side),
            Err(error) => Err(error),
        };
        let state = if written.is_ok() { WriteState::Written } else { WriteState::Failed };
        if written.is_err() {
            let mut meta = self.engine.meta();
            for &at in decided {
                if let Fate::Write(flight) = &fates[at] {
                    meta.in_flight.forget_block(flight.block);
                }
            }
        }
        let mut ended: Option<&Arc<DeviceWrite>> = None;
        for &at in decided {
            if let Fate::Write(flight) = &fates[at]
                && ended.is_none_or(|ended| !Arc::ptr_eq(ended, &flight.write))
            {
                flight.write.finish(state);
                ended = Some(&flight.write);
            }
        }
        self.engine.activity.add(ActivityCounter::BlocksWritten, new.len() as u64);
        written
    }

    /// Keeps new blocks for the next commit and returns true, or returns false if the device should get them now.
    /// Blocks that were kept before may have to be written first; a failure of that stops the pool.
    fn keep_late(&self, blocks: &[WriteBlock<'_>], new: &[(BlockNo, usize)], store: &StoreRequest<'_>) -> Result<bool> {
        if !store.may_be_late || !self.engine.is_vouched_for() {
            return Ok(false);
        }
        let content: Vec<(BlockNo, &[u8])> = new.iter().map(|&(block, at)| (block, blocks[at].bytes)).collect();
        let kept = self.engine.late_writes.keep(&content, &self.engine.buffers);
        kept.inspect_err(|error| self.engine.write_failed(error, new[0].0))
    }

    /// Writes new blocks to the device, in order of their places.
    fn write_at_once(
        &self,
        blocks: &[WriteBlock<'_>],
        new: &[(BlockNo, usize)],
        side_by_side: Option<&[u8]>,
    ) -> Result<()> {
        let follows = |one: &(BlockNo, usize), next: &(BlockNo, usize)| one.0.plus(1) == next.0;
        let goes_on = |one: &(BlockNo, usize), next: &(BlockNo, usize)| follows(one, next) && one.1 + 1 == next.1;
        // A copy into one piece costs less than several requests to the device.
        let in_place = side_by_side
            .filter(|bytes| is_aligned(bytes) && new.chunk_by(follows).count() == new.chunk_by(goes_on).count());
        match in_place {
            Some(bytes) => {
                let run = |run: &[(BlockNo, usize)]| {
                    let first = run[0].1 * BLOCK_BYTES;
                    WriteOp { first: run[0].0, from: &bytes[first..first + run.len() * BLOCK_BYTES] }
                };
                self.write_places(&new.chunk_by(goes_on).map(run).collect::<Vec<_>>())
            }
            None => {
                // Copied into aligned memory for O_DIRECT.
                let mut buffer = match new.len() {
                    1 => AlignedBuffer::zeroed(1),
                    _ => self.engine.buffers.take(),
                };
                if buffer.block_count() < new.len() {
                    buffer = AlignedBuffer::zeroed(new.len());
                }
                for (place, (_, at)) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(new) {
                    place.copy_from_slice(blocks[*at].bytes);
                }
                let places: Vec<BlockNo> = new.iter().map(|(block, _)| *block).collect();
                self.write_places(&writes_of(&places, &buffer))
            }
        }
    }

    /// Writes places that nothing names yet, and handles a failure.
    fn write_places(&self, batch: &[WriteOp<'_>]) -> Result<()> {
        let Err(source) = self.engine.device.write_batch(batch) else { return Ok(()) };
        let mut failed = (batch[0].first, source);
        if failed.1.kind() == std::io::ErrorKind::StorageFull {
            // Writes them again one by one, to find the place without room.
            let write = |op: &WriteOp<'_>| Some((op.first, self.engine.device.write(op.first, op.from).err()?));
            match batch.iter().find_map(write) {
                Some(found) => failed = found,
                None => return Ok(()),
            }
        }
        let error = PoolError::of_write(failed.0, failed.1);
        self.engine.write_failed(&error, failed.0);
        Err(error)
    }

    /// Waits for blocks that other writers are writing, and compares candidates if requested. Returns the blocks that
    /// must be decided again.
    fn confirm_shares(
        &self,
        blocks: &mut [WriteBlock<'_>],
        fates: &[Fate],
        decided: &[usize],
        verify: Verification,
    ) -> Result<Vec<usize>> {
        let mut again = Vec::new();
        for &at in decided {
            let candidate = match &fates[at] {
                Fate::Attach(flight) => {
                    if flight.write.wait() == WriteState::Failed {
                        again.push(at);
                        continue;
                    }
                    flight.block
                }
                Fate::Share(block) => *block,
                Fate::Hole | Fate::Same(_) | Fate::Write(_) => continue,
            };
            if verify == Verification::Value && self.fetch_block(candidate)?[..] != *blocks[at].bytes {
                blocks[at].unfit.push(candidate);
                again.push(at);
            }
        }
        Ok(again)
    }

    fn count_fates(&self, fates: &[Fate]) {
        let zero = fates.iter().filter(|fate| matches!(fate, Fate::Hole)).count();
        let written = fates.iter().filter(|fate| matches!(fate, Fate::Write(_))).count();
        self.engine.activity.add(ActivityCounter::BlocksAccepted, fates.len() as u64);
        self.engine.activity.add(ActivityCounter::BlocksZero, zero as u64);
        self.engine.activity.add(ActivityCounter::BlocksShared, (fates.len() - zero - written) as u64);
    }
}

/// Adds the blocks that are the same as one of `again`.
fn with_followers(fates: &[Fate], mut again: Vec<usize>) -> Vec<usize> {
    let followers = (0..fates.len()).filter(|at| matches!(&fates[*at], Fate::Same(other) if again.contains(other)));
    let followers: Vec<usize> = followers.collect();
    again.extend(followers);
    again.sort_unstable();
    again.dedup();
    again
}

#[cfg(test)]
mod tests {
    use onefold_block::BlockDevice;
    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;
    use onefold_testing::device::MemoryDevice;

    use super::*;
    use crate::options::{CreateOptions, Environment, OpenOptions, TestLimits, Workers};

    /// Regression, found in a review: a block of a failed write was still written with the next commit.
    #[test]
    fn a_block_that_is_given_back_is_not_kept() {
        let environment =
            Environment { clock: Arc::new(ManualClock::starting_at(1)), random: Arc::new(SeededRandom::new(1)) };
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(16_384));
        crate::engine::format::create(&device, &CreateOptions::default(), &environment).unwrap();
        let test_limits = TestLimits { late_after: 0, ..TestLimits::default() };
        let options =
            OpenOptions { background: false, workers: Workers::Callers, test_limits, ..OpenOptions::default() };
        let engine = Engine::open(device.clone(), options, environment).unwrap();
        let reserve = |op: &mut Op<'_>| op.reserve_free_run(0, 0, 2);
        let run = engine.run(Privilege::Normal, reserve).unwrap().expect("there are free blocks");
        let [used, unused] = [run.first, run.first.plus(1)];
        let write = DeviceWrite::begin();
        let flight = |block| engine.meta().in_flight.enter(block, None, &write);
        let fates = vec![Fate::Write(flight(used)), Fate::Write(flight(unused))];
        engine.meta().in_flight.set_initialised(used);
        let content = [(used, &[1; BLOCK_BYTES][..]), (unused, &[2; BLOCK_BYTES][..])];
        assert!(engine.late_writes.keep(&content, &engine.buffers).unwrap());
        write.finish(WriteState::Written);
        drop(WritePlan { engine: &engine, fates });
        engine.late_writes.write_out(&engine.buffers).unwrap();
        let mut stored = AlignedBuffer::zeroed(2);
        device.read(used, &mut stored).unwrap();
        assert_eq!((stored[0], stored[BLOCK_BYTES]), (1, 0));
    }
}
