//! Runs of free blocks that hold the saved filter and the summaries of the groups: reserved, named by items of the
//! names tree, and found again by the next opening. Nobody may hand them out meanwhile, so they are busy.

use std::ops::ControlFlow;

use super::Engine;
use crate::error::Result;
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::items::{self, FilterRun};
use crate::format::state::Field;
use crate::meta::group_run::GroupRun;
use crate::meta::{Op, OpResult, Privilege};
use crate::tree::{self, Key};

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

    /// Makes the items name these runs and no others, in one operation. Unless there are neither old nor new ones, this
    /// changes the pool, even if the items stay the same.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`](crate::error::PoolError); device errors; damage.
    pub(super) fn name_saved_runs(&self, runs: &[FilterRun]) -> Result<()> {
        self.run(Privilege::Freeing, |op| {
            for (key, _) in saved_items(op)? {
                op.remove_item(&key)?;
            }
            for (number, run) in (0..).zip(runs) {
                op.put_item(&items::filter_run_key(number), &run.encode())?;
            }
            if !runs.is_empty() {
                op.wrote_data();
            }
            Ok(())
        })
    }

    /// Returns the runs that are named, in order.
    ///
    /// # Errors
    /// Device errors; damage of the names tree.
    pub(super) fn saved_runs(&self) -> Result<Vec<FilterRun>> {
        let items = self.view(saved_items)?;
        Ok(items.iter().filter_map(|(_, value)| FilterRun::decode(value)).collect())
    }

    /// Keeps blocks of named runs from being handed out. `None` if they are not known to be all free: then their
    /// content cannot be used.
    pub(super) fn reserve_saved(&self, runs: &[FilterRun]) -> Option<Vec<GroupRun>> {
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
            });
            // Bitmaps that cannot be read must not keep a pool from being opened for a convenience.
            if !matches!(is_free, Ok(true)) {
                self.meta().free_again(&reserved);
                return None;
            }
            reserved.push(run);
        }
        Some(reserved)
    }
}

/// Returns the items that name runs.
fn saved_items(op: &mut Op<'_>) -> OpResult<Vec<(Key, Vec<u8>)>> {
    let root = op.tree_root();
    let (first, last) = items::filter_run_bounds();
    let mut found = Vec::new();
    let _ = tree::scan(op, root, first..=last, |key, value| -> ControlFlow<()> {
        found.push((key, value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
