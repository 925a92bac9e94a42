//! The summaries of the groups, as a clean close saves them and as an opening takes them. Without them, a write soon
//! after the next opening might read the bitmaps of the whole pool before it finds the only group with room.
//!
//! They are written after the last commit, because that commit still changes bitmaps. So a crash may leave the names of
//! their places without the summaries. Each block has a checksum, and the number of the next transaction. An opening
//! trusts only blocks with the number that it will give to its own first transaction: then no bitmap has changed since.
//! The other ones, and those that a checkpoint has written ([`super::summary_places`]), are hints.

use onefold_block::device::{reads_of, writes_of};
use onefold_block::{AlignedBuffer, BlockNo};

use super::Engine;
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::group_summaries::{SUMMARIES_PER_BLOCK, SummaryBlock};
use crate::format::items::FilterRun;
use crate::format::state::Field;
use crate::journal::log;
use crate::meta::free_runs::GROUPS_MAX;
use crate::meta::group_run::GroupRun;

/// Number of free blocks that must be left for the names tree.
const SPARE_BLOCKS: u64 = 16;

/// Returns the number of blocks for the summaries of that many groups.
pub(super) fn summary_blocks(groups_ready: u64) -> u64 {
    groups_ready.min(GROUPS_MAX as u64).div_ceil(SUMMARIES_PER_BLOCK as u64)
}

/// Returns the blocks of runs, in order.
pub(super) fn places_of(runs: &[GroupRun]) -> Vec<BlockNo> {
    runs.iter().flat_map(|run| (0..run.count).map(|offset| run.first.plus(offset))).collect()
}

impl Engine {
    /// Returns the places for the summaries that this close saves, which are busy: those that were kept, or new ones if
    /// these are too few.
    ///
    /// # Errors
    /// See [`Engine::reserve_summary_runs`].
    pub(super) fn reserve_lasting_places(&self) -> Result<Vec<GroupRun>> {
        {
            let meta = self.meta();
            if meta.groups.blocks_kept() == summary_blocks(meta.state(Field::GroupsReady)) {
                return Ok(meta.groups.summary_places.clone());
            }
        }
        self.reserve_summary_runs()
    }

    /// Takes free runs for the summaries out of allocation's reach; none if the pool is too full. Looks only at groups
    /// with known room: no close waits for the bitmaps of others.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(super) fn reserve_summary_runs(&self) -> Result<Vec<GroupRun>> {
        let (mut missing, available) = {
            let meta = self.meta();
            (
                summary_blocks(meta.state(Field::GroupsReady)),
                meta.blocks_free().saturating_sub(meta.groups.busy.count()),
            )
        };
        let mut runs = Vec::new();
        if available < missing + SPARE_BLOCKS {
            return Ok(runs);
        }
        let mut from = 0;
        while missing > 0 {
            let group = {
                let meta = self.meta();
                meta.groups.free_runs.next_with(from..meta.state(Field::GroupsReady), 1)
            };
            let Some(group) = group else { break };
            if let Err(error) = self.reserve_free_runs(group, &mut missing, &mut runs) {
                self.meta().free_again(&runs);
                return Err(error);
            }
            from = group + 1;
        }
        if missing > 0 {
            self.meta().free_again(&std::mem::take(&mut runs));
        }
        Ok(runs)
    }

    /// Writes the summaries to `runs`, which are busy, after the pool was closed, when nothing changes bitmaps any
    /// more.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`] if the backing file is full; device errors. Both only cost the next opening time.
    pub(super) fn write_summaries(&self, runs: &[GroupRun]) -> Result<()> {
        let Some(first) = runs.first().map(|run| run.first) else { return Ok(()) };
        let places = places_of(runs);
        let mut buffer = AlignedBuffer::zeroed(places.len());
        // Until they are written, no transaction is taken, and no checkpoint writes to the same places.
        let committer = self.committer.lock();
        {
            let mut meta = self.meta();
            if !meta.running.is_empty() || !committer.is_durable_before(meta.running.sequence) {
                // A change came all the same, which the next opening may not find.
                return Ok(());
            }
            // Data may take these blocks at the next opening, and the summaries' own.
            meta.free_again(runs);
            meta.give_up_kept();
            meta.groups.forget_full_backing();
            let (ready, sequence, pool_tag) = (meta.state(Field::GroupsReady), meta.running.sequence, meta.pool_tag);
            for ((number, at), bytes) in (0..).zip(&places).zip(buffer.blocks_mut()) {
                let first_group = number * SUMMARIES_PER_BLOCK as u64;
                let groups = (first_group..ready).take(SUMMARIES_PER_BLOCK);
                let summaries = groups.map(|group| meta.groups.lasting_summary(group)).collect();
                *bytes = SummaryBlock { sequence, first_group, summaries }.encode(pool_tag, *at);
            }
            for run in runs {
                meta.groups.busy.set_run(run.first, run.count);
                let group = meta.geometry.group_of(run.first);
                meta.groups.free_runs.take(group, run.count);
            }
        }
        let writes = writes_of(&places, &buffer);
        self.device.write_batch(&writes).map_err(|source| PoolError::of_write(first, source))?;
        log::sync(&*self.device, first)
    }

    /// Takes the summaries in the blocks of `runs`: as facts if the pool was closed with them, as hints otherwise. Must
    /// come before the first change of the pool. Skips blocks that are something else, and all of them if the device
    /// fails.
    pub(super) fn take_summaries(&self, runs: &[FilterRun]) {
        let (ready, sequence, pool_tag, count) = {
            let meta = self.meta();
            let ready = meta.state(Field::GroupsReady);
            (ready, meta.running.sequence, meta.pool_tag, summary_blocks(ready))
        };
        let was_closed = self.activity.stat().replayed == 0;
        let blocks = runs.iter().flat_map(|run| (0..run.count).map(|offset| run.first.plus(offset)));
        let places: Vec<BlockNo> = blocks.take(usize::try_from(count).unwrap_or(usize::MAX)).collect();
        let mut buffer = AlignedBuffer::zeroed(places.len());
        if self.device.read_batch(&mut reads_of(&places, &mut buffer)).is_ok() {
            let decode = |(at, bytes): (&BlockNo, &BlockBytes)| SummaryBlock::decode(bytes, pool_tag, *at);
            let mut meta = self.meta();
            for block in places.iter().zip(buffer.blocks()).filter_map(decode) {
                for (group, summary) in (block.first_group..ready).zip(block.summaries) {
                    match summary {
                        Some(known) if was_closed && block.sequence == sequence => meta.groups.remember(group, known),
                        hint => meta.groups.free_runs.set_hint(group, hint),
                    }
                }
            }
        }
        self.learn_from_log();
    }
}
