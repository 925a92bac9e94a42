//! Reads metadata blocks that operations miss, with the metadata lock released.
//!
//! Fingerprint stores are read ahead (paper, section 2.3). Unique blocks are written one after another, so the entries
//! of a file's blocks lie side by side, and a second miss near the first predicts more.
//!
//! Bitmaps are read ahead, too: a search for free blocks in a full pool goes from group to group, and would wait for
//! each.

use std::sync::Arc;

use onefold_block::device::reads_of;
use onefold_block::{AlignedBuffer, BlockNo};

use super::Engine;
use crate::activity::ActivityCounter;
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::geometry::{BITMAP_BLOCKS, ENTRIES_PER_STORE_PAGE, GROUP_BLOCKS, Geometry, STORE_PAGES_PER_GROUP};
use crate::format::header::{self, BlockKind};
use crate::format::state::Field;
use crate::meta::Meta;
use crate::meta::op::BlockFault;
use crate::options::Prefetch;

const _: () = assert!(ENTRIES_PER_STORE_PAGE * STORE_PAGES_PER_GROUP >= GROUP_BLOCKS);

/// Checks that the block read for `fault` is valid and belongs at its place. A hostile pointer could lead to a block
/// with a fixed use and a forged header, and the next change would overwrite it.
pub(super) fn sound(
    geometry: &Geometry,
    pool_tag: u32,
    fault: BlockFault,
    bytes: &BlockBytes,
) -> std::result::Result<(), String> {
    if !geometry.is_place_of(fault.kind, fault.block) {
        return Err("does not belong there".to_owned());
    }
    header::verify(bytes, pool_tag, fault.kind, fault.block).map_err(|error| error.to_string())
}

/// Adds the other bitmap block of a group. If those of the preceding groups were missing too, also adds those of the
/// following groups.
fn add_bitmaps_ahead(meta: &mut Meta, faults: &[BlockFault], mine: &mut Vec<BlockFault>) {
    let geometry = meta.geometry;
    let ready = meta.state(Field::GroupsReady);
    for fault in faults.iter().filter(|fault| fault.kind == BlockKind::Bitmap) {
        let group = geometry.group_of(fault.block);
        let ahead = meta.groups.note_bitmap_miss(group);
        for near in group..ready.min(group + ahead) {
            for index in 0..BITMAP_BLOCKS {
                let fault = BlockFault { block: geometry.bitmap_block(near, index), kind: BlockKind::Bitmap };
                if meta.cache.begin_load(fault.block) {
                    mine.push(fault);
                }
            }
        }
    }
}

impl Engine {
    /// Reads blocks into the cache, or waits for those that another thread is reading.
    ///
    /// # Errors
    /// Device errors; damage of a requested block.
    pub(crate) fn load(&self, faults: &[BlockFault]) -> Result<()> {
        debug_assert!(!faults.is_empty(), "an operation faulted without saying on what");
        let (mut mine, geometry, pool_tag) = {
            let mut meta = self.meta.lock();
            let mut mine: Vec<BlockFault> =
                faults.iter().copied().filter(|fault| meta.cache.begin_load(fault.block)).collect();
            if mine.is_empty() {
                while faults.iter().any(|fault| meta.cache.is_loading(fault.block)) {
                    self.loaded.wait(&mut meta);
                }
                return Ok(());
            }
            self.add_neighbours(&mut meta, faults, &mut mine);
            add_bitmaps_ahead(&mut meta, faults, &mut mine);
            (mine, meta.geometry, meta.pool_tag)
        };
        mine.sort_unstable_by_key(|fault| fault.block);
        let mut buffer = AlignedBuffer::zeroed(mine.len());
        let read = self.read_runs(&mine, &mut buffer);
        let mut damage = None;
        // Checked and copied before the metadata is locked.
        let mut contents = Vec::with_capacity(mine.len());
        for (fault, bytes) in mine.iter().zip(buffer.blocks()).filter(|_| read.is_ok()) {
            let content = match sound(&geometry, pool_tag, *fault, bytes) {
                Ok(()) => Some((fault.kind, Arc::new(*bytes))),
                Err(what) => {
                    if faults.contains(fault) {
                        damage = Some(PoolError::Damaged { structure: fault.kind.name(), block: fault.block, what });
                    }
                    None
                }
            };
            contents.push(content);
        }
        let mut contents = contents.into_iter();
        let mut meta = self.meta.lock();
        for fault in &mine {
            meta.cache.end_load(fault.block, contents.next().flatten());
        }
        drop(meta);
        self.loaded.notify_all();
        self.activity.add(ActivityCounter::MetadataBlocksRead, mine.len() as u64);
        read?;
        damage.map_or(Ok(()), Err)
    }

    /// Adds the rest of a fingerprint store if the policy says so.
    fn add_neighbours(&self, meta: &mut Meta, faults: &[BlockFault], mine: &mut Vec<BlockFault>) {
        let geometry = meta.geometry;
        let mut groups: Vec<u64> = Vec::new();
        for fault in faults.iter().filter(|fault| fault.kind == BlockKind::StorePage) {
            let Some(group) = geometry.group_of_store_page(fault.block) else { continue };
            let wanted = match self.options.prefetch {
                Prefetch::Never => false,
                Prefetch::Always => true,
                Prefetch::Adaptive => meta.groups.note_store_miss(group),
            };
            if wanted && !groups.contains(&group) {
                groups.push(group);
            }
        }
        // A whole store is 772 KiB. Reading several at once must not evict blocks that the operation itself needs.
        let room = (meta.cache.capacity() / 4) as u64;
        for group in groups {
            if mine.len() as u64 + STORE_PAGES_PER_GROUP > room {
                break;
            }
            for index in 0..STORE_PAGES_PER_GROUP {
                let fault = BlockFault { block: geometry.store_page(group, index), kind: BlockKind::StorePage };
                if meta.cache.begin_load(fault.block) {
                    mine.push(fault);
                }
            }
        }
    }

    fn read_runs(&self, sorted: &[BlockFault], buffer: &mut AlignedBuffer) -> Result<()> {
        let blocks: Vec<BlockNo> = sorted.iter().map(|fault| fault.block).collect();
        let (block, mut batch) = (blocks[0], reads_of(&blocks, buffer));
        self.device.read_batch(&mut batch).map_err(|source| PoolError::Io { action: "read", block, source })
    }
}
