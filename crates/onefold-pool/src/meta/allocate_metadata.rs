//! Allocation of metadata: map nodes and tree pages are taken from a run of their own, so that they do not cut file data
//! into pieces, and only from blocks that were written before ([`crate::engine::metadata_run`]).

use onefold_block::BlockNo;

use super::allocate::{EMERGENCY_BLOCKS, FreeFor, Run};
use super::op::{Op, OpError, OpResult, Privilege};
use crate::error::PoolError;
use crate::format::geometry::GROUP_BLOCKS;
use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::format::store_page::{BlockUse, Entry};
use crate::options::Allocation;

/// Length of a run kept for metadata.
const METADATA_RUN_BLOCKS: u64 = 256;
/// Blocks of a run that only operations which free space may take: a sparse backing file may have room for no others.
const RUN_BLOCKS_KEPT: u64 = 32;

impl Op<'_> {
    /// Allocates a block for metadata and makes it in memory, blank. Its entry in the fingerprint store is made too.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]; [`OpError::NeedGroup`].
    pub(crate) fn allocate_metadata(&mut self, kind: BlockKind, usage: BlockUse) -> OpResult<BlockNo> {
        let kept = match self.privilege {
            Privilege::Normal => EMERGENCY_BLOCKS / 2 + self.state(Field::ReservedBlocks) + self.meta.set_aside,
            Privilege::Freeing => 0,
        };
        if self.blocks_available() <= kept {
            return Err(PoolError::NoSpace.into());
        }
        self.permit(if usage == BlockUse::TreePage { Allocation::TreePage } else { Allocation::MapNode })?;
        let block = self.find_metadata_block()?;
        self.refuse_blocks_in_use(&[Run { first: block, count: 1 }])?;
        self.set_bit(block, true)?;
        self.set_entry(block, &Entry::metadata(usage))?;
        self.count(Field::MetadataBlocks, 1);
        self.create_block(block, kind);
        Ok(block)
    }

    fn find_metadata_block(&mut self) -> OpResult<BlockNo> {
        let (first, end) = self.meta.groups.metadata_run;
        let kept = match self.privilege {
            Privilege::Normal => RUN_BLOCKS_KEPT,
            Privilege::Freeing => 0,
        };
        if first + kept < end {
            let (group, within) = (first / GROUP_BLOCKS, first % GROUP_BLOCKS);
            if let Some((place, _)) = self.find_run(group, within, 1, 1, FreeFor::Metadata)? {
                let block = group * GROUP_BLOCKS + place;
                if block + kept < end {
                    self.meta.groups.metadata_run = (block + 1, end);
                    return Ok(BlockNo(block));
                }
            }
        }
        self.find_outside_run()
    }

    /// Finds a block for metadata where none of the run is left for this operation.
    fn find_outside_run(&mut self) -> OpResult<BlockNo> {
        let ready = self.state(Field::GroupsReady);
        let may_grow = ready < self.meta.geometry.group_count();
        if !self.meta.groups.full_backing.is_full() {
            if let Some(run) = self.find_metadata_run(METADATA_RUN_BLOCKS)? {
                return Err(OpError::NeedWritten(run));
            }
            if may_grow {
                return Err(OpError::NeedGroup(ready));
            }
        }
        // A nearly full pool: any block will do.
        match self.find_metadata_run(1)? {
            Some(Run { first, .. }) if self.meta.groups.written.contains(&first) => Ok(first),
            Some(Run { first, .. }) => Err(OpError::NeedWritten(Run { first, count: 1 })),
            None if may_grow => Err(OpError::NeedGroup(ready)),
            None => Err(PoolError::NoSpace.into()),
        }
    }

    fn find_metadata_run(&mut self, least: u64) -> OpResult<Option<Run>> {
        let ready = self.state(Field::GroupsReady);
        let start = if self.meta.groups.full_backing.is_full() { 0 } else { self.meta.groups.data_cursor.group };
        // What is kept of the run is for operations that free space.
        let free_for = match self.privilege {
            Privilege::Normal => FreeFor::Data,
            Privilege::Freeing => FreeFor::Metadata,
        };
        for group in (0..ready).map(|step| (start + step) % ready) {
            if self.meta.groups.lacks_run(group, least) {
                continue;
            }
            if let Some((within, count)) = self.find_run(group, 0, least, METADATA_RUN_BLOCKS, free_for)? {
                return Ok(Some(Run { first: BlockNo(group * GROUP_BLOCKS + within), count }));
            }
            self.set_lacks_run(group, least);
        }
        Ok(None)
    }

    /// Makes a run busy if all of it is free. Returns whether it is.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn reserve_run(&mut self, run: Run) -> OpResult<bool> {
        let (group, within) = (run.first.0 / GROUP_BLOCKS, run.first.0 % GROUP_BLOCKS);
        let found = self.find_run(group, within, 1, run.count, FreeFor::Metadata)?;
        let is_free = found == Some((within, run.count));
        for block in (0..run.count).filter(|_| is_free) {
            self.set_busy(run.first.plus(block));
        }
        Ok(is_free)
    }
}
