//! The summaries of the groups while the pool is open, for the opening after a crash. Without them, a write soon after
//! it might read the bitmaps of the whole pool before it finds the only group with room.
//!
//! A pool of more than a few groups keeps some free blocks for them, which items of the names tree name. Each
//! checkpoint writes the blocks that have changed before it moves the tail. So a crash finds each group in one of three
//! states:
//! 1. Its bitmaps are in the log. Recovery has them, and an opening looks at them at once.
//! 2. Its summary was true at the last checkpoint, and still is.
//! 3. There is no summary: nothing was known of it, work was in progress there, or blocks waited there to be handed out
//!    again.
//!
//! On a full host a checkpoint may fail to write them. They are hints all the same: a search uses them to choose the
//! order in which it looks at groups, and finds free blocks in spite of hints that are wrong.

use std::collections::BTreeSet;

use onefold_block::device::writes_of;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockNo};

use super::Engine;
use super::saved::named;
use super::summary_image::{places_of, summary_blocks};
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::get_u32;
use crate::format::group_summaries::{SUMMARIES_PER_BLOCK, SummaryBlock, WHILE_OPEN};
use crate::format::header::BlockKind;
use crate::format::items::{FilterRun, SUMMARIES_GENERATION};
use crate::format::state::Field;
use crate::meta::Meta;
use crate::meta::free_words::{Bitmaps, FreeWords, SearchPurpose, bitmaps_of};
use crate::meta::group_run::GroupRun;
use crate::options::Journaling;
use crate::sync;

/// The summaries that the last checkpoints have written.
#[derive(Debug, Default)]
pub(super) struct WrittenSummaries {
    /// Checksum of each block, which also covers its place; 0 before the first write.
    checksums: Vec<u32>,
}

/// Returns the groups of which nothing is told: a crash would undo what the running transaction has changed there, or
/// blocks without room in a full backing file are left out of the facts.
fn groups_left_out(meta: &Meta) -> BTreeSet<u64> {
    let geometry = &meta.geometry;
    let bitmaps = meta.running.dirty.iter().filter(|block| geometry.is_place_of(BlockKind::Bitmap, **block));
    let without_room = meta.groups.full_backing.without_room();
    let lacking = without_room.flat_map(|range| range.start / GROUP_BLOCKS..range.end.div_ceil(GROUP_BLOCKS));
    bitmaps.map(|block| geometry.group_of(*block)).chain(lacking).collect()
}

/// Returns block `number` of the summaries as it should be now.
fn encode(meta: &Meta, number: u64, at: BlockNo) -> BlockBytes {
    let first_group = number * SUMMARIES_PER_BLOCK as u64;
    let left_out = groups_left_out(meta);
    let groups = (first_group..meta.state(Field::GroupsReady)).take(SUMMARIES_PER_BLOCK);
    let known = |group| if left_out.contains(&group) { None } else { meta.groups.summary_so_far(group) };
    SummaryBlock { sequence: WHILE_OPEN, first_group, summaries: groups.map(known).collect() }.encode(meta.pool_tag, at)
}

impl Engine {
    /// Keeps the places of the summaries that an opening has found, unless the pool is small or too full, or a block is
    /// in use. Returns the places that are kept, which are busy.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(super) fn keep_places(&self, named: &[FilterRun]) -> Result<Vec<GroupRun>> {
        let count = named.iter().fold(0_u64, |sum, run| sum.saturating_add(run.count));
        // A hostile pool must not keep its free blocks from use.
        if count == 0 || count > self.blocks_for_open_summaries() {
            return Ok(Vec::new());
        }
        let places = self.reserve_saved(named).unwrap_or_default();
        let places = self.give_up_what_others_need(places)?;
        self.replace_places(places.clone());
        Ok(places)
    }

    /// Returns the number of blocks that the summaries take while the pool is open, 0 if they are not kept.
    fn blocks_for_open_summaries(&self) -> u64 {
        let ready = self.meta().state(Field::GroupsReady);
        let is_large = ready >= self.options.test_limits.summaries_from_groups;
        let keeps = is_large && self.options.journaling == Journaling::On && !self.options.read_only;
        if keeps { summary_blocks(ready) } else { 0 }
    }

    /// Frees reserved places again if files have been promised the last free blocks, or operations that free space need
    /// them. Returns the places that are left: all or none.
    fn give_up_what_others_need(&self, places: Vec<GroupRun>) -> Result<Vec<GroupRun>> {
        if self.view_in_background(|op| Ok(op.blocks_unpromised()))? > 0 {
            return Ok(places);
        }
        self.meta().free_again(&places);
        Ok(Vec::new())
    }

    /// Changes the places. Those that were kept so far are free afterwards, unless they are among the new ones.
    pub(super) fn replace_places(&self, places: Vec<GroupRun>) {
        // A checkpoint writes to the places with this lock held.
        let _committer = self.committer.lock();
        let mut meta = self.meta();
        let before = std::mem::replace(&mut meta.groups.summary_places, places);
        let gone: Vec<GroupRun> = before.into_iter().filter(|run| !meta.groups.summary_places.contains(run)).collect();
        meta.free_again(&gone);
    }

    /// Finds places for the summaries, or for more of them if the pool has more groups now, once all groups are known.
    /// Returns whether it has found some. They are a convenience: failures leave everything as it was, and the search
    /// is repeated after the next checkpoint.
    pub(crate) fn place_summaries(&self) -> bool {
        let wanted = self.blocks_for_open_summaries();
        let checkpoints = self.activity.stat().checkpoints;
        {
            let mut meta = self.meta();
            let ready = meta.state(Field::GroupsReady);
            let groups = &mut meta.groups;
            let is_due = wanted > groups.blocks_kept()
                && !groups.is_placing
                && groups.places_searched_at != Some((ready, checkpoints))
                && groups.free_runs.next_unknown(groups.survey_next..ready).is_none();
            if !is_due {
                return false;
            }
            groups.places_searched_at = Some((ready, checkpoints));
            groups.is_placing = true;
        }
        let placed = self.place_summaries_anew(wanted);
        self.meta().groups.is_placing = false;
        placed.unwrap_or(false)
    }

    fn place_summaries_anew(&self, wanted: u64) -> Result<bool> {
        // Before any block is taken, even for a moment: others would be told that there is no space.
        if self.view_in_background(|op| Ok(op.blocks_unpromised()))? <= wanted {
            return Ok(false);
        }
        let places = self.reserve_summary_runs()?;
        let places = self.give_up_what_others_need(places)?;
        if places.is_empty() {
            return Ok(false);
        }
        // Written before they are named, so that a sparse backing file has room for them.
        let named: Vec<FilterRun> = named(&places, SUMMARIES_GENERATION).collect();
        let written = self.write_open_summaries(&places_of(&places), &mut WrittenSummaries::default());
        if let Err(error) = written.and_then(|()| self.name_saved_runs(&named)) {
            self.meta().free_again(&places);
            return Err(error);
        }
        self.replace_places(places);
        let mut committer = self.committer.lock();
        // A checkpoint since then has not written to them.
        if committer.has_written_all() {
            self.update_summaries(&mut committer.summaries);
        }
        Ok(true)
    }

    /// Brings the summaries up to date, for a checkpoint that has put everything in place. If that fails, the next one
    /// tries again; a device that fails for good fails the checkpoint itself.
    pub(super) fn update_summaries(&self, written: &mut WrittenSummaries) {
        let places = places_of(&self.meta().groups.summary_places);
        if self.write_open_summaries(&places, written).is_err() {
            *written = WrittenSummaries::default();
        }
    }

    /// Writes those blocks of the summaries that differ from what was written.
    fn write_open_summaries(&self, places: &[BlockNo], written: &mut WrittenSummaries) -> Result<()> {
        written.checksums.resize(places.len(), 0);
        let (mut changed, mut content): (Vec<BlockNo>, Vec<BlockBytes>) = (Vec::new(), Vec::new());
        for ((number, &at), before) in (0..).zip(places).zip(&mut written.checksums) {
            let meta = self.meta();
            let bytes = encode(&meta, number, at);
            sync::unlock_fairly(meta);
            let checksum = get_u32(&bytes, 0);
            if std::mem::replace(before, checksum) != checksum {
                changed.push(at);
                content.push(bytes);
            }
        }
        let Some(&first) = changed.first() else { return Ok(()) };
        let buffer = AlignedBuffer::copy_of(content.as_flattened());
        debug_assert_eq!(buffer.len(), changed.len() * BLOCK_BYTES);
        let done = self.device.write_batch(&writes_of(&changed, &buffer));
        done.map_err(|source| PoolError::of_write(first, source))
    }

    /// Looks at the bitmaps that recovery has found in the log: what was known of their groups before is not true any
    /// more.
    pub(super) fn learn_from_log(&self) {
        let groups: BTreeSet<u64> = {
            let committer = self.committer.lock();
            let geometry = self.meta().geometry;
            let bitmaps = committer.home_blocks().filter(|block| geometry.is_place_of(BlockKind::Bitmap, *block));
            bitmaps.map(|block| geometry.group_of(block)).collect()
        };
        let mut meta = self.meta();
        let meta = &mut *meta;
        let ready = meta.state(Field::GroupsReady);
        for group in groups.into_iter().filter(|group| *group < ready) {
            let mut bitmaps = Bitmaps::default();
            let mut is_whole = true;
            for (place, block) in bitmaps.iter_mut().zip(bitmaps_of(&meta.geometry, group)) {
                *place = meta.cache.peek(block);
                is_whole &= place.is_some();
            }
            let words = FreeWords::new(bitmaps, &meta.groups, &meta.geometry, group, SearchPurpose::Data);
            let (found, looked) = words.survey();
            meta.groups.words_scanned += looked;
            if is_whole {
                meta.groups.free_runs.set(group, Some(found));
            } else {
                // The other bitmap may call more blocks free.
                meta.groups.free_runs.set_hint(group, Some(found).filter(|found| found.free > 0));
            }
        }
    }
}
