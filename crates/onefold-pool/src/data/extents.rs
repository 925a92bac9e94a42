//! Reports the places of a file's data on the device.

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_substrate::MappedExtent;

use super::Data;
use crate::attr::Ino;
use crate::error::Result;
use crate::format::inode::Inode;
use crate::format::map_node::MapEntry;
use crate::map::seek::PlaceKind;
use crate::meta::{Op, OpResult};
use crate::names::inodes::blocks_spanned;

/// Maximum number of blocks that are reported under one hold of the metadata lock.
const STEP_BLOCKS: u64 = 512;
/// Maximum number of runs of holes and reserved places that are skipped under one hold of the metadata lock.
const STEPS_MAX: u32 = 1024;
/// Number of extents after which a call returns. Its last step may find more.
const EXTENTS_WANTED: usize = 1024;

/// The result of one step.
struct ExtentStep {
    extents: Vec<MappedExtent>,
    /// The block at which the next step begins.
    next: u64,
}

impl Data {
    /// Returns the places of a file's data, in order, from the block that contains `offset` on; holes are left out.
    /// Returns at least one extent, and possibly not all of them. Returns none if there is no data between there and
    /// the end of the file.
    ///
    /// # Errors
    /// If the file does not exist or is not a regular file; damage; device errors.
    pub(crate) fn extents(&self, ino: Ino, offset: u64) -> Result<Vec<MappedExtent>> {
        let mut extents: Vec<MappedExtent> = Vec::new();
        let mut at = offset / BLOCK_BYTES_U64;
        while extents.len() < EXTENTS_WANTED {
            let step = self.engine.view(|op| {
                let inode = op.regular(ino)?;
                let end = blocks_spanned(inode.attr.size_bytes);
                if at < end { op.extents_step(&inode, at, end).map(Some) } else { Ok(None) }
            })?;
            let Some(step) = step else { break };
            step.extents.into_iter().for_each(|extent| append(&mut extents, extent));
            at = step.next;
        }
        Ok(extents)
    }
}

impl Op<'_> {
    /// Returns the next run of stored blocks, and the reserved places before it.
    fn extents_step(&mut self, inode: &Inode, from: u64, end: u64) -> OpResult<ExtentStep> {
        let mut step = ExtentStep { extents: Vec::new(), next: from };
        for _ in 0..STEPS_MAX {
            if step.next >= end {
                break;
            }
            let first = step.next;
            let (kind, next) = self.map_run(inode, first)?;
            step.next = next.min(end);
            match kind {
                PlaceKind::Hole => {}
                PlaceKind::Reserved => {
                    let (offset, length) = (first * BLOCK_BYTES_U64, (step.next - first) * BLOCK_BYTES_U64);
                    let reserved = MappedExtent { offset, place: None, length, is_shared: false, is_unwritten: true };
                    append(&mut step.extents, reserved);
                }
                PlaceKind::Mapped => {
                    step.next = step.next.min(first + STEP_BLOCKS);
                    self.stored_extents(inode, first, step.next, &mut step.extents)?;
                    break;
                }
            }
        }
        Ok(step)
    }

    /// Appends the extents of blocks that are all stored, and below one leaf.
    fn stored_extents(&mut self, inode: &Inode, first: u64, end: u64, extents: &mut Vec<MappedExtent>) -> OpResult<()> {
        let mut entries = vec![MapEntry::Hole; usize::try_from(end - first).expect("at most a step")];
        self.map_read(inode, first, &mut entries)?;
        let blocks = crate::map::blocks_of(&entries);
        self.want_entries(blocks.iter().copied())?;
        // A leaf that a clone shares counts once, whichever file reads through it.
        let is_leaf_shared = self.map_is_shared(inode, first)?;
        for (index, block) in (first..end).zip(blocks) {
            let extent = MappedExtent {
                offset: index * BLOCK_BYTES_U64,
                place: Some(block.0 * BLOCK_BYTES_U64),
                length: BLOCK_BYTES_U64,
                is_shared: is_leaf_shared || self.entry(block)?.count > 1,
                is_unwritten: false,
            };
            append(extents, extent);
        }
        Ok(())
    }
}

/// Appends an extent, or lengthens the last one if the new one continues it.
fn append(extents: &mut Vec<MappedExtent>, extent: MappedExtent) {
    match extents.last_mut() {
        Some(last)
            if last.end() == extent.offset
                && last.place.map(|place| place + last.length) == extent.place
                && (last.is_shared, last.is_unwritten) == (extent.is_shared, extent.is_unwritten) =>
        {
            last.length += extent.length;
        }
        _ => extents.push(extent),
    }
}
