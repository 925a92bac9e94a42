//! Initialises block groups when allocation first needs them, so that creating a pool takes no time.

use std::sync::Arc;

use onefold_block::device::writes_of;
use onefold_block::{AlignedBuffer, BlockDevice, BlockNo};

use super::Engine;
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::geometry::{BITMAP_BLOCKS, BITS_PER_BITMAP_BLOCK, Geometry, STORE_PAGES_PER_GROUP};
use crate::format::header::{self, BlockKind, HEADER_BYTES};
use crate::format::state::Field;
use crate::meta::Privilege;
use crate::options::Allocation;

/// Returns the structures of an empty group, sealed, in ascending order. Only structures with fixed places are in use.
pub(crate) fn blank_group(geometry: &Geometry, pool_tag: u32, group: u64) -> Vec<(BlockNo, BlockKind, BlockBytes)> {
    let mut blocks = Vec::new();
    for index in 0..BITMAP_BLOCKS {
        let at = geometry.bitmap_block(group, index);
        let mut bitmap = header::blank(pool_tag, BlockKind::Bitmap, at);
        for bit in 0..BITS_PER_BITMAP_BLOCK {
            let within = index * BITS_PER_BITMAP_BLOCK + bit;
            if within < geometry.group_blocks(group) && geometry.is_fixed(geometry.group_first(group).plus(within)) {
                bitmap[HEADER_BYTES + usize::try_from(bit / 8).expect("below 4080")] |= 1 << (bit % 8);
            }
        }
        header::seal(&mut bitmap);
        blocks.push((at, BlockKind::Bitmap, bitmap));
    }
    for index in 0..STORE_PAGES_PER_GROUP {
        let at = geometry.store_page(group, index);
        let mut page = header::blank(pool_tag, BlockKind::StorePage, at);
        header::seal(&mut page);
        blocks.push((at, BlockKind::StorePage, page));
    }
    blocks
}

/// Writes blocks in ascending order, joining neighbours.
///
/// # Errors
/// [`PoolError::NoSpace`] if a sparse backing file is full; other device errors.
pub(crate) fn write_blocks(device: &dyn BlockDevice, blocks: &[(BlockNo, BlockKind, BlockBytes)]) -> Result<()> {
    let places: Vec<BlockNo> = blocks.iter().map(|(at, _, _)| *at).collect();
    let Some(&first) = places.first() else { return Ok(()) };
    let mut buffer = AlignedBuffer::zeroed(blocks.len());
    for (place, (_, _, bytes)) in buffer.blocks_mut().zip(blocks) {
        *place = *bytes;
    }
    device.write_batch(&writes_of(&places, &buffer)).map_err(|source| PoolError::of_write(first, source))
}

impl Engine {
    /// Initialises the first block group that is not ready.
    ///
    /// The blank structures are on the device before the transaction that makes the group ready is written, because
    /// that transaction is marked as one that wrote data. So a crash leaves either a group that is not ready or a blank
    /// one.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]; device errors, after which the pool is stopped.
    pub(crate) fn init_group(&self, group: u64) -> Result<()> {
        let _one_at_a_time = self.group_init.lock();
        let (geometry, pool_tag, ready) = {
            let meta = self.meta.lock();
            (meta.geometry, meta.pool_tag, meta.state(Field::GroupsReady))
        };
        if ready != group || group >= geometry.group_count() {
            return Ok(());
        }
        if !self.meta().permits(Allocation::BlockGroup) {
            return Err(PoolError::NoSpace);
        }
        let blocks = blank_group(&geometry, pool_tag, group);
        write_blocks(&*self.device, &blocks).inspect_err(|error| match error {
            PoolError::NoSpace => self.meta().groups.note_full_backing_once(),
            error => self.stop(error),
        })?;
        self.run(Privilege::Freeing, |op| {
            for (block, kind, bytes) in &blocks {
                // Clean, and equal to the device's content, so correct even if the operation is rolled back.
                if !op.meta.cache.contains(*block) {
                    op.meta.cache.insert(*block, *kind, Arc::new(*bytes));
                }
            }
            op.count(Field::GroupsReady, 1);
            op.wrote_data();
            op.meta.groups.forget_full_backing();
            op.survey(group)
        })
    }

    /// Handles a failed write of free blocks from `at` on. Stops the pool, unless the only problem is a full sparse
    /// backing file.
    pub(crate) fn write_failed(&self, error: &PoolError, at: BlockNo) {
        if !matches!(error, PoolError::NoSpace) {
            self.stop(error);
            return;
        }
        // If the bitmap cannot be read, only one block is excluded.
        let end = self.view(|op| op.unused_end(at)).unwrap_or(at).max(at.plus(1));
        self.meta().groups.note_full_backing(at.0..end.0);
    }
}
