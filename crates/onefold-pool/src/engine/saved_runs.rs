//! Runs of free blocks that hold what a close saves: reserved, named by items of the names tree, and found again by the
//! next opening. Nobody may hand them out meanwhile, so they are busy.

use std::ops::ControlFlow;

use super::Engine;
use crate::error::Result;
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::items::{self, FilterRun};
use crate::format::state::Field;
use crate::meta::Privilege;
use crate::meta::group_run::GroupRun;
use crate::tree;

/// Maximum number of runs. With more, free space is too fragmented, and rebuilding the filter is as fast.
pub(super) const RUNS_MAX: usize = 4096;

impl Engine {
    /// Adds free runs of a group to `runs` until `missing` blocks are found or there are [`RUNS_MAX`] runs. Subtracts
    /// what it has found from `missing`.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(super) fn reserve_free_runs(&self, group: u64, missing: &mut u64, runs: &mut Vec<GroupRun>) -> Result<()> {
        if self.meta().groups.free_runs.get(group).is_some_and(|known| known.free == 0) {
            // Its bitmaps need not be read.
            return Ok(());
        }
        let mut from = 0;
        while *missing > 0 && runs.len() < RUNS_MAX && from < GROUP_BLOCKS {
            // Takes no more than needed, because the names tree may need a block, too.
            let run = self.run(Privilege::Freeing, |op| op.reserve_free_run(group, from, *missing))?;
            let Some(run) = run else { break };
            from = run.first.0 % GROUP_BLOCKS + run.count;
            *missing -= run.count;
            runs.push(run);
        }
        Ok(())
    }

    /// Puts the items that name runs, with numbers from `first` on.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`](crate::error::PoolError); device errors; damage.
    pub(super) fn put_saved_runs(&self, first: u64, runs: &[GroupRun], generation: u64) -> Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        self.run(Privilege::Freeing, |op| {
            for (number, run) in (first..).zip(runs) {
                let value = FilterRun { generation, first: run.first, count: run.count }.encode();
                op.put_item(&items::filter_run_key(number), &value)?;
            }
            op.wrote_data();
            Ok(())
        })
    }

    /// Removes the first `count` of these items.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(super) fn remove_saved_runs(&self, count: usize) -> Result<()> {
        self.run(Privilege::Freeing, |op| {
            for number in 0..count as u64 {
                op.remove_item(&items::filter_run_key(number))?;
            }
            Ok(())
        })
    }

    /// Returns the runs that the last close has saved to, in order; none after a crash.
    ///
    /// # Errors
    /// Device errors; damage of the names tree.
    pub(super) fn saved_runs(&self) -> Result<Vec<FilterRun>> {
        self.view(|op| {
            let root = op.tree_root();
            let (first, last) = items::filter_run_bounds();
            let mut runs = Vec::new();
            let _ = tree::scan(op, root, first..=last, |_, value| -> ControlFlow<()> {
                runs.extend(FilterRun::decode(value));
                ControlFlow::Continue(())
            })?;
            Ok(runs)
        })
    }

    /// Keeps the blocks that the last close has saved to from being handed out. `None` if they are not all free: then
    /// their content cannot be used.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(super) fn reserve_saved(&self, runs: &[FilterRun]) -> Result<Option<Vec<GroupRun>>> {
        let mut reserved = Vec::new();
        for run in runs {
            let run = GroupRun { first: run.first, count: run.count };
            let is_free = self.run(Privilege::Freeing, |op| {
                let (geometry, ready) = (op.meta.geometry, op.state(Field::GroupsReady));
                let (group, within) = (geometry.group_of(run.first), run.first.0 % GROUP_BLOCKS);
                let is_in_group = group < ready
                    && run.count > 0
                    && within.checked_add(run.count).is_some_and(|end| end <= geometry.group_blocks(group));
                if is_in_group { op.reserve_runs(&[run]) } else { Ok(false) }
            })?;
            if !is_free {
                self.meta().free_again(&reserved);
                return Ok(None);
            }
            reserved.push(run);
        }
        Ok(Some(reserved))
    }
}
