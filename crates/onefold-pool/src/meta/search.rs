//! The search for free blocks, over all groups and within one.
//!
//! The facts known about groups ([`super::free_runs`]) show which of them may have a run that is long enough; only
//! their bitmaps are scanned. A scan that finds no such run records the group's actual free blocks, so that the next
//! search skips the group. Soon after a mount, some groups may be unknown. A search for a long run scans a few of them
//! and then accepts less, since no write may wait for the bitmaps of a whole pool. Groups that had room when they were
//! last known come first.

use std::ops::Range;

use onefold_block::BlockNo;

use super::free_runs::Outlook;
use super::free_words::{FreeWords, SearchPurpose, bitmaps_of};
use super::group_run::GroupRun;
use super::groups::AllocationCursor;
use super::op::{Op, OpError, OpResult, damaged};
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::group_summaries::GroupSummary;
use crate::format::header::BlockKind;
use crate::format::state::Field;

/// Maximum number of groups whose bitmaps are read at once for a search: half a mebibyte in as many places.
const GROUPS_AHEAD_MAX: u64 = 64;

/// How many unknown groups a search scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownGroups {
    /// A few.
    Few,
    /// All if necessary: only that shows whether there are free blocks.
    All,
}

/// The wanted run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunRequest {
    /// Minimum length of the run, in blocks.
    pub(super) least: u64,
    /// Maximum length; a longer run is cut.
    pub(super) most: u64,
    pub(super) free_for: SearchPurpose,
    pub(super) unknown: UnknownGroups,
}

impl Op<'_> {
    /// Searches all groups for a run, beginning at `start`.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(super) fn search(&mut self, start: AllocationCursor, wanted: RunRequest) -> OpResult<Option<GroupRun>> {
        let ready = self.state(Field::GroupsReady);
        if start.within > 0 && self.may_have_run(start.group, wanted)? {
            if let Some(run) = self.find_run(start.group, start.within, wanted)? {
                return Ok(Some(run));
            }
            // The search leaves this group, so the rest of it is surveyed while its bitmaps are in memory.
            self.survey(start.group)?;
        }
        let around = [start.group..ready, 0..start.group.min(ready)];
        for groups in around.clone() {
            let mut from = groups.start;
            while let Some(group) = self.meta.groups.free_runs.next_with(from..groups.end, wanted.least) {
                if !self.has_bitmaps(group) {
                    self.want_bitmaps(group..groups.end, wanted)?;
                }
                if let Some(run) = self.find_run(group, 0, wanted)? {
                    return Ok(Some(run));
                }
                from = group + 1;
            }
        }
        for outlook in Outlook::BEST_FIRST {
            if outlook == Outlook::Poor && wanted.unknown == UnknownGroups::Few {
                break;
            }
            for groups in around.clone() {
                let mut from = groups.start;
                while let Some(group) =
                    self.meta.groups.free_runs.next_with_outlook(from..groups.end, wanted.least, outlook)
                {
                    if !self.may_look_at_unknown(wanted) {
                        return Ok(None);
                    }
                    self.survey(group)?;
                    if self.may_have_run(group, wanted)?
                        && let Some(run) = self.find_run(group, 0, wanted)?
                    {
                        return Ok(Some(run));
                    }
                    from = group + 1;
                }
            }
        }
        Ok(None)
    }

    /// Notes that the bitmaps of the next groups with possible runs will be needed, as many as are needed if each has
    /// only one run. They are read together.
    fn want_bitmaps(&mut self, groups: Range<u64>, wanted: RunRequest) -> OpResult<()> {
        let (geometry, mut from) = (self.meta.geometry, groups.start);
        for _ in 0..(wanted.most / wanted.least).clamp(1, GROUPS_AHEAD_MAX) {
            let Some(group) = self.meta.groups.free_runs.next_with(from..groups.end, wanted.least) else { break };
            for bitmap in bitmaps_of(&geometry, group) {
                self.want(bitmap, BlockKind::Bitmap)?;
            }
            from = group + 1;
        }
        self.settle()
    }

    /// Returns whether a group may have a run that is long enough. An unknown group is scanned first, unless enough of
    /// them were.
    fn may_have_run(&mut self, group: u64, wanted: RunRequest) -> OpResult<bool> {
        if self.meta.groups.free_runs.get(group).is_none() {
            if !self.may_look_at_unknown(wanted) {
                return Ok(false);
            }
            self.survey(group)?;
        }
        let known = self.meta.groups.free_runs.get(group);
        // A group that cannot be remembered stays unknown.
        Ok(known.is_none_or(|known| u64::from(known.longest) >= wanted.least))
    }

    fn may_look_at_unknown(&mut self, wanted: RunRequest) -> bool {
        wanted.unknown == UnknownGroups::All || self.meta.groups.may_look_at_unknown()
    }

    /// Returns the first run in a group at or after `from` that is long enough, cut to the wanted maximum. If there is
    /// none, records the group's free blocks.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(super) fn find_run(&mut self, group: u64, from: u64, wanted: RunRequest) -> OpResult<Option<GroupRun>> {
        let found = self.free_words(group, wanted.free_for)?.find(from, wanted.least, wanted.most);
        self.meta.groups.words_scanned += found.words;
        let Some((within, count)) = found.run else {
            if from == 0 {
                self.learn(group, found.known);
            }
            return Ok(None);
        };
        let first = BlockNo(group * GROUP_BLOCKS + within);
        let mut run = (0..count).map(|offset| first.plus(offset));
        if let Some(block) = run.find(|block| !self.meta.geometry.is_allocatable(*block)) {
            return Err(damaged(BlockKind::Bitmap.name(), block, "a structure with a fixed place is called free"));
        }
        Ok(Some(GroupRun { first, count }))
    }

    /// Scans a whole group and records the result.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn survey(&mut self, group: u64) -> OpResult<()> {
        let (known, words) = self.free_words(group, SearchPurpose::Data)?.survey();
        self.meta.groups.words_scanned += words;
        self.learn(group, known);
        Ok(())
    }

    /// Returns the first free runs of a group that data may take, up to `blocks_max` blocks. If there are none, records
    /// the group's free blocks.
    ///
    /// # Errors
    /// [`OpError::Fault`].
    pub(super) fn first_runs(&mut self, group: u64, blocks_max: u64) -> OpResult<Vec<GroupRun>> {
        let found = self.free_words(group, SearchPurpose::Data)?.first_runs(blocks_max);
        if found.is_empty() {
            self.survey(group)?;
        }
        let first = self.meta.geometry.group_first(group);
        Ok(found.into_iter().map(|(within, count)| GroupRun { first: first.plus(within), count }).collect())
    }

    /// Returns whether the bitmaps of a group are in memory.
    pub(super) fn has_bitmaps(&self, group: u64) -> bool {
        bitmaps_of(&self.meta.geometry, group).all(|bitmap| self.meta.cache.contains(bitmap))
    }

    fn learn(&mut self, group: u64, known: GroupSummary) {
        // A rollback reverts the operation's own changes of the group, including this one.
        self.meta.groups.free_runs.set(group, Some(known));
    }

    /// Returns the free blocks of a group.
    fn free_words(&mut self, group: u64, free_for: SearchPurpose) -> OpResult<FreeWords<'_>> {
        let geometry = self.meta.geometry;
        for bitmap in bitmaps_of(&geometry, group) {
            self.want(bitmap, BlockKind::Bitmap)?;
        }
        self.settle()?;
        let meta = &*self.meta;
        FreeWords::cached(&meta.cache, &meta.groups, &geometry, group, free_for).ok_or(OpError::Fault)
    }
}
