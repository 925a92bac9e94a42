//! Allocation state of the block groups that is not on disk: the *busy* blocks ([`super::busy`]), the facts known about
//! free blocks, and the start of the next search.

use std::ops::Range;

use super::busy::BusyBlocks;
use super::free_runs::FreeRuns;
use super::full_backing::FullBacking;
use super::group_run::GroupRun;
use super::stock::Stock;
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::group_summaries::GroupSummary;

/// Number of misses of store pages that are remembered: with more, scattered misses would look close together.
const STORE_MISSES_KEPT: usize = 64;
/// Maximum number of groups whose bitmaps a search for free blocks reads at once: half a mebibyte in as many places.
const BITMAP_GROUPS_AHEAD_MAX: u64 = 64;
/// Number of unknown groups that searches for long runs may scan between two that find blocks.
const UNKNOWN_GROUPS_MAX: u32 = 64;

/// Position at which allocation continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocationCursor {
    /// The group.
    pub(crate) group: u64,
    /// The block within the group.
    pub(crate) within: u64,
}

/// Allocation state of all groups.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Blocks that are free in their bitmaps but may not be allocated.
    pub(crate) busy: BusyBlocks,
    /// The facts known about the free blocks of each group.
    pub(crate) free_runs: FreeRuns,
    /// Number of unknown groups that searches for long runs may still scan.
    unknown_left: u32,
    /// Whether some facts were not scanned, but saved by the last close.
    has_remembered: bool,
    /// Groups before this one were surveyed in the background, or skipped.
    pub(crate) survey_next: u64,
    /// Number of words of 64 blocks that searches and surveys have scanned since the pool was opened.
    pub(crate) words_scanned: u64,
    /// Groups in whose fingerprint stores a page was missing lately, oldest first.
    store_misses: std::collections::VecDeque<u64>,
    /// The group whose bitmaps will be missing next if a search continues, and the number of groups that were read at
    /// once up to there.
    bitmap_search: (u64, u64),
    /// The place at which the search for the next data block begins.
    pub(crate) data_cursor: AllocationCursor,
    /// A run kept for metadata, so that map nodes and tree pages do not fragment file data: first and end. Its blocks
    /// have been written since the pool was opened, so a checkpoint finds room for them.
    pub(crate) metadata_run: (u64, u64),
    /// Single blocks kept for metadata, if there is no such run.
    pub(crate) stock: Stock,
    /// Blocks for which a sparse backing file has no room.
    pub(crate) full_backing: FullBacking,
    /// Where the summaries of the groups are kept as long as the pool is open ([`crate::engine::summary_places`]). The
    /// blocks are busy all the time.
    pub(crate) summary_places: Vec<GroupRun>,
    /// Whether places are being searched.
    pub(crate) is_placing: bool,
    /// The numbers of ready groups and of checkpoints when places were last searched.
    pub(crate) places_searched_at: Option<(u64, u64)>,
}

impl Groups {
    /// Returns the state of unknown groups without busy blocks. Busy blocks should take at most `busy_bytes_max` bytes
    /// of memory.
    pub(crate) fn new(busy_bytes_max: u64) -> Groups {
        Groups {
            busy: BusyBlocks::new(busy_bytes_max),
            free_runs: FreeRuns::default(),
            unknown_left: UNKNOWN_GROUPS_MAX,
            has_remembered: false,
            survey_next: 0,
            words_scanned: 0,
            store_misses: std::collections::VecDeque::new(),
            bitmap_search: (0, 0),
            data_cursor: AllocationCursor::default(),
            metadata_run: (0, 0),
            stock: Stock::default(),
            full_backing: FullBacking::default(),
            summary_places: Vec::new(),
            is_placing: false,
            places_searched_at: None,
        }
    }

    /// Returns the number of busy blocks that are kept for the summaries.
    pub(crate) fn blocks_kept(&self) -> u64 {
        self.summary_places.iter().map(|run| run.count).sum()
    }

    /// Returns the number of busy blocks that will be free again.
    pub(crate) fn blocks_waiting(&self) -> u64 {
        self.busy.count().saturating_sub(self.blocks_kept())
    }

    /// Notes that a page of a group's fingerprint store was missing; returns whether one was missing lately already.
    pub(crate) fn note_store_miss(&mut self, group: u64) -> bool {
        let again = self.store_misses.contains(&group);
        self.store_misses.push_back(group);
        if self.store_misses.len() > STORE_MISSES_KEPT {
            self.store_misses.pop_front();
        }
        again
    }

    /// Notes that the bitmap of a group was not in memory. Returns how many bitmaps the caller should read from this
    /// group on. The number doubles each time the search continues where the last read ended.
    pub(crate) fn note_bitmap_miss(&mut self, group: u64) -> u64 {
        let (next, before) = self.bitmap_search;
        let ahead = if group == next { (before * 2).clamp(1, BITMAP_GROUPS_AHEAD_MAX) } else { 1 };
        self.bitmap_search = (group + ahead, ahead);
        ahead
    }

    /// Lets a search for a long run scan one more unknown group. Returns false when it has scanned enough.
    pub(crate) fn may_look_at_unknown(&mut self) -> bool {
        let may = self.unknown_left > 0;
        self.unknown_left = self.unknown_left.saturating_sub(1);
        may
    }

    /// Notes that a search has found blocks: the next ones may again scan as many unknown groups.
    pub(crate) fn note_found(&mut self) {
        self.unknown_left = UNKNOWN_GROUPS_MAX;
    }

    /// Takes what the last close saved about a group's free blocks.
    pub(crate) fn remember(&mut self, group: u64, known: GroupSummary) {
        self.free_runs.set(group, Some(known));
        self.has_remembered = true;
    }

    /// Forgets everything about free blocks if a part of it was remembered: no blocks were found, although the pool's
    /// counters say that there are some. Only a damaged or hostile pool needs this; on a full host a search finds none
    /// for a good reason. Returns whether a search may find more now.
    pub(crate) fn forget_remembered(&mut self) -> bool {
        if self.full_backing.is_full() {
            return false;
        }
        if self.has_remembered {
            self.free_runs = FreeRuns::default();
            self.survey_next = 0;
        }
        std::mem::take(&mut self.has_remembered)
    }

    /// Returns what the next opening may know about a group's free blocks: the facts known, unless blocks are busy that
    /// will be free then.
    pub(crate) fn lasting_summary(&self, group: u64) -> Option<GroupSummary> {
        let known = self.free_runs.get(group).filter(|_| self.busy.of_group(group).is_none())?;
        // The bound may be higher than the number.
        Some(GroupSummary { longest: known.longest.min(known.free), ..known })
    }

    /// Returns what the next opening may be told about a group's free blocks if this one ends in a crash: the facts, or
    /// the hint of an earlier opening.
    pub(crate) fn summary_so_far(&self, group: u64) -> Option<GroupSummary> {
        let hint = || self.free_runs.hint(group).filter(|_| self.busy.of_group(group).is_none());
        self.lasting_summary(group).or_else(hint)
    }

    /// Forgets the facts known about a group's free blocks.
    pub(crate) fn forget_runs(&mut self, group: u64) {
        self.free_runs.set(group, None);
        self.survey_next = self.survey_next.min(group);
    }

    /// Notes that a sparse backing file has no room for some free blocks; the search for others starts over.
    pub(crate) fn note_full_backing(&mut self, without_room: Range<u64>) {
        if let Some(forgotten) = self.full_backing.refuse(without_room) {
            self.forget_runs_in(&forgotten);
        }
        self.data_cursor = AllocationCursor::default();
    }

    /// Notes once that a sparse backing file has no room for a new block group. No blocks can be excluded from the
    /// search for it.
    pub(crate) fn note_full_backing_once(&mut self) {
        if !self.full_backing.is_full() {
            self.note_full_backing(0..0);
        }
    }

    /// Searches everywhere again: a full backing file may have room by now.
    pub(crate) fn forget_full_backing(&mut self) {
        for range in self.full_backing.forget() {
            self.forget_runs_in(&range);
        }
    }

    /// Forgets the groups of a range: their numbers did not include the blocks of the range.
    fn forget_runs_in(&mut self, range: &Range<u64>) {
        for group in range.start / GROUP_BLOCKS..range.end.div_ceil(GROUP_BLOCKS) {
            self.forget_runs(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_goes_on_reads_ever_more_bitmaps_at_once() {
        let mut groups = Groups::new(0);
        let mut at = 7;
        for ahead in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(groups.note_bitmap_miss(at), ahead);
            at += ahead;
        }
        assert_eq!(groups.note_bitmap_miss(3), 1, "another search");
        assert_eq!(groups.note_bitmap_miss(4), 2);
    }

    #[test]
    fn what_is_known_of_groups_without_room_is_forgotten_with_the_ranges() {
        let mut groups = Groups::new(0);
        for group in 0..3 {
            groups.free_runs.set(group, Some(GroupSummary::new(0, 9)));
        }
        groups.survey_next = 3;
        groups.note_full_backing(GROUP_BLOCKS + 5..GROUP_BLOCKS + 9);
        assert!(groups.free_runs.next_unknown(0..3).is_none());
        groups.forget_full_backing();
        assert_eq!((groups.free_runs.next_unknown(0..3), groups.free_runs.next_unknown(2..3)), (Some(1), None));
        assert_eq!(groups.survey_next, 1);
    }

    #[test]
    fn searches_look_at_few_unknown_groups_until_one_finds_blocks() {
        let mut groups = Groups::new(0);
        let mut look = || (0..1000).filter(|_| groups.may_look_at_unknown()).count();
        assert_eq!([look(), look()], [64, 0]);
        groups.note_found();
        assert!(groups.may_look_at_unknown());
    }
}
