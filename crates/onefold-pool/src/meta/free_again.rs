//! Makes blocks allocatable again, and updates the facts known about their groups.

use onefold_block::BlockNo;

use super::Meta;
use super::allocate_metadata::METADATA_RUN_BLOCKS;
use super::free_words::{FreeWords, SearchPurpose};
use super::group_run::GroupRun;
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::group_summaries::LONG_RUN;

/// Returns the runs in an ascending list of blocks, each within one group.
pub(crate) fn runs_of(blocks: &[BlockNo]) -> Vec<GroupRun> {
    let goes_on = |one: &BlockNo, next: &BlockNo| one.plus(1) == *next && !next.0.is_multiple_of(GROUP_BLOCKS);
    blocks.chunk_by(goes_on).map(|run| GroupRun { first: run[0], count: run.len() as u64 }).collect()
}

impl Meta {
    /// Ends the busy state of blocks that are free in their bitmaps, so that they are allocatable. Each run lies in one
    /// group; adjacent runs of a group cost least.
    pub(crate) fn free_again(&mut self, runs: &[GroupRun]) {
        for runs in runs.chunk_by(|one, next| one.first.0 / GROUP_BLOCKS == next.first.0 / GROUP_BLOCKS) {
            let count = runs.iter().map(|run| self.groups.busy.clear_run(run.first, run.count)).sum();
            self.note_free(runs, count);
        }
    }

    /// Keeps written blocks for metadata. Of two long runs the later one is kept; the blocks of the other become
    /// ordinary free blocks.
    pub(crate) fn keep_written(&mut self, runs: &[GroupRun]) {
        if let [run] = runs
            && run.count == METADATA_RUN_BLOCKS
        {
            self.give_up_metadata_run();
            self.groups.metadata_run = (run.first.0, run.first.0 + run.count);
            return;
        }
        let blocks = runs.iter().flat_map(|run| (0..run.count).map(|offset| run.first.plus(offset)));
        let given_up = self.groups.stock.add(blocks);
        self.note_given_up(&given_up);
    }

    /// Releases the blocks kept for metadata: data has found no others, or the blocks may have been discarded.
    pub(crate) fn give_up_kept(&mut self) {
        let given_up = self.groups.stock.give_up();
        self.note_given_up(&given_up);
        self.give_up_metadata_run();
    }

    fn give_up_metadata_run(&mut self) {
        let (first, end) = std::mem::take(&mut self.groups.metadata_run);
        if first < end {
            // They were counted as free blocks all the time.
            self.note_free(&[GroupRun { first: BlockNo(first), count: end - first }], 0);
        }
    }

    /// Notes that ascending free blocks are no longer kept for metadata.
    fn note_given_up(&mut self, blocks: &[BlockNo]) {
        for blocks in blocks.chunk_by(|one, next| one.0 / GROUP_BLOCKS == next.0 / GROUP_BLOCKS) {
            self.note_free(&runs_of(blocks), 0);
        }
    }

    /// Notes that runs of one group are allocatable again; `count` of their blocks were not free before.
    fn note_free(&mut self, runs: &[GroupRun], count: u64) {
        let Some(group) = runs.first().map(|run| run.first.0 / GROUP_BLOCKS) else { return };
        let Some(known) = self.groups.free_runs.get(group) else {
            return self.groups.free_runs.set_hint(group, None);
        };
        let words = FreeWords::cached(&self.cache, &self.groups, &self.geometry, group, SearchPurpose::Data);
        let longest = match &words {
            Some(words) => {
                let merged = |run: &GroupRun| words.run_around(run.first.0 % GROUP_BLOCKS, run.count, LONG_RUN);
                runs.iter().map(merged).max().unwrap_or(0)
            }
            // The blocks beside and between them are not examined now: no such piece is longer than the known bound.
            None => {
                let pieces = runs.len() as u64 + 1;
                runs.iter().map(|run| run.count).sum::<u64>() + pieces * u64::from(known.longest)
            }
        };
        self.groups.free_runs.release(group, count, longest);
    }
}
