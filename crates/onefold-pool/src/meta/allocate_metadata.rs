//! Allocation of metadata. Map nodes and tree pages come from a run of their own, so that they do not fragment file
//! data, and only from blocks that were written before ([`crate::engine::metadata_run`]).

use onefold_block::BlockNo;

use super::allocate::EMERGENCY_BLOCKS;
use super::free_words::SearchPurpose;
use super::group_run::GroupRun;
use super::groups::AllocationCursor;
use super::op::{Op, OpError, OpResult, Privilege};
use super::search::{RunRequest, UnknownGroups};
use crate::error::PoolError;
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::format::store_page::{BlockUse, StoreEntry};
use crate::options::Allocation;

/// Length of a run kept for metadata, in blocks.
pub(super) const METADATA_RUN_BLOCKS: u64 = 256;
/// Blocks of a run that only operations which free space may take: a sparse backing file may have no room for other
/// blocks.
const RUN_BLOCKS_KEPT: u64 = 32;
/// If there is no run, at most one in this many available blocks is put in stock at once.
const STOCK_SHARE: u64 = 16;

impl Op<'_> {
    /// Allocates a block for metadata and makes it in memory, blank, together with its entry in the fingerprint store.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]; [`OpError::NeedGroup`].
    pub(crate) fn allocate_metadata(&mut self, kind: BlockKind, usage: BlockUse) -> OpResult<BlockNo> {
        let kept = match self.privilege {
            Privilege::Normal => self.metadata_blocks_kept(),
            Privilege::Shrinking | Privilege::Freeing => 0,
        };
        if self.blocks_available() <= kept {
            return Err(PoolError::NoSpace.into());
        }
        self.permit(if usage == BlockUse::TreePage { Allocation::TreePage } else { Allocation::MapNode })?;
        let block = self.find_metadata_block()?;
        self.refuse_blocks_in_use(&[GroupRun { first: block, count: 1 }])?;
        self.take(GroupRun { first: block, count: 1 });
        self.set_bit(block, true)?;
        self.set_entry(block, &StoreEntry::metadata(usage))?;
        self.count(Field::MetadataBlocks, 1);
        self.create_block(block, kind);
        self.meta.groups.note_found();
        Ok(block)
    }

    /// Returns how many available blocks an operation that does not free space must leave when it allocates metadata.
    pub(super) fn metadata_blocks_kept(&self) -> u64 {
        EMERGENCY_BLOCKS / 2 + self.state(Field::ReservedBlocks) + self.meta.set_aside
    }

    fn find_metadata_block(&mut self) -> OpResult<BlockNo> {
        let (first, end) = self.meta.groups.metadata_run;
        let kept = match self.privilege {
            Privilege::Normal => RUN_BLOCKS_KEPT,
            Privilege::Shrinking | Privilege::Freeing => 0,
        };
        if first + kept < end {
            let (group, within) = (first / GROUP_BLOCKS, first % GROUP_BLOCKS);
            let wanted =
                RunRequest { least: 1, most: 1, free_for: SearchPurpose::Metadata, unknown: UnknownGroups::All };
            if let Some(GroupRun { first: block, .. }) = self.find_run(group, within, wanted)?
                && block.0 + kept < end
            {
                self.meta.groups.metadata_run = (block.0 + 1, end);
                return Ok(block);
            }
        }
        while let Some(block) = self.take_from_stock() {
            let (group, within) = (block.0 / GROUP_BLOCKS, block.0 % GROUP_BLOCKS);
            // A saved filter may have taken it meanwhile.
            let wanted =
                RunRequest { least: 1, most: 1, free_for: SearchPurpose::Metadata, unknown: UnknownGroups::All };
            if self.find_run(group, within, wanted)?.is_some_and(|run| run.first == block) {
                return Ok(block);
            }
        }
        Err(self.miss_written()?)
    }

    /// Returns what must be done first if no written block is left for this operation.
    fn miss_written(&mut self) -> OpResult<OpError> {
        let ready = self.state(Field::GroupsReady);
        let may_grow = ready < self.meta.geometry.group_count();
        let is_backing_full = self.meta.groups.full_backing.is_full();
        if !is_backing_full {
            let start = AllocationCursor { group: self.meta.groups.data_cursor.group, within: 0 };
            let least = METADATA_RUN_BLOCKS;
            let wanted = RunRequest { least, most: least, free_for: SearchPurpose::Data, unknown: UnknownGroups::Few };
            if let Some(run) = self.search(start, wanted)? {
                return Ok(OpError::NeedWritten(vec![run]));
            }
            if may_grow {
                return Ok(OpError::NeedGroup(ready));
            }
        }
        // In a nearly full pool, any blocks will do. On a full host they may have no room, so they are tried one by
        // one.
        let share = (self.blocks_available() / STOCK_SHARE).clamp(1, METADATA_RUN_BLOCKS - 1);
        let runs = self.gather(if is_backing_full { 1 } else { share })?;
        Ok(match runs.is_empty() {
            false => OpError::NeedWritten(runs),
            true if may_grow => OpError::NeedGroup(ready),
            true => PoolError::NoSpace.into(),
        })
    }

    /// Returns up to `most` free blocks, as runs. Empty if there are none.
    fn gather(&mut self, most: u64) -> OpResult<Vec<GroupRun>> {
        let ready = self.state(Field::GroupsReady);
        // Data reaches the groups behind the cursor last; on a full host, the groups that were used first have room.
        let start = if self.meta.groups.full_backing.is_full() { 0 } else { self.meta.groups.data_cursor.group + 1 };
        let (mut runs, mut missing): (Vec<GroupRun>, u64) = (Vec::new(), most);
        for groups in [start.min(ready)..ready, 0..start.min(ready)] {
            let mut from = groups.start;
            while missing > 0
                && let Some(group) = self.meta.groups.free_runs.next_with(from..groups.end, 1)
            {
                if !runs.is_empty() && !self.has_bitmaps(group) {
                    // The runs found so far are enough to continue.
                    return Ok(runs);
                }
                let found = self.first_runs(group, missing)?;
                missing -= found.iter().map(|run| run.count).sum::<u64>();
                runs.extend(found);
                from = group + 1;
            }
        }
        if runs.is_empty() {
            let wanted = RunRequest { least: 1, most, free_for: SearchPurpose::Data, unknown: UnknownGroups::All };
            runs.extend(self.search(AllocationCursor::default(), wanted)?);
            if runs.is_empty() && self.meta.groups.forget_remembered() {
                runs.extend(self.search(AllocationCursor::default(), wanted)?);
            }
        }
        Ok(runs)
    }

    /// Makes runs busy if all of them are free. Returns whether they were.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn reserve_runs(&mut self, runs: &[GroupRun]) -> OpResult<bool> {
        for run in runs {
            let within = run.first.0 % GROUP_BLOCKS;
            let wanted = RunRequest {
                least: 1,
                most: run.count,
                free_for: SearchPurpose::Metadata,
                unknown: UnknownGroups::All,
            };
            if self.find_run(run.first.0 / GROUP_BLOCKS, within, wanted)? != Some(*run) {
                return Ok(false);
            }
        }
        runs.iter().for_each(|run| self.reserve(*run));
        Ok(true)
    }
}
