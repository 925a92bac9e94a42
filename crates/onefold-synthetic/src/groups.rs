//! The structures of block groups while their blocks are allocated: bitmap and fingerprint store.

use std::collections::BTreeMap;

use onefold_block::{AlignedBuffer, BlockDevice, BlockNo};
use onefold_pool::format::geometry::{
    BITMAP_BLOCKS, BITS_PER_BITMAP_BLOCK, ENTRIES_PER_STORE_PAGE, GROUP_BLOCKS, Geometry, STORE_PAGES_PER_GROUP,
};
use onefold_pool::format::header::{self, BlockKind, HEADER_BYTES};
use onefold_pool::format::store_page::{self, StoreEntry};

use crate::{SyntheticError, ensure_sound};

/// Number of blocks of bitmap and store, which are adjacent.
const STRUCTURE_BLOCKS: u64 = BITMAP_BLOCKS + STORE_PAGES_PER_GROUP;

/// The groups that are being filled. Each is read or made when it is first used, and written once.
pub(crate) struct Groups<'d> {
    pub(crate) device: &'d dyn BlockDevice,
    pub(crate) geometry: Geometry,
    pool_tag: u32,
    open: BTreeMap<u64, AlignedBuffer>,
}

impl<'d> Groups<'d> {
    pub(crate) fn new(device: &'d dyn BlockDevice, geometry: Geometry, pool_tag: u32) -> Groups<'d> {
        Groups { device, geometry, pool_tag, open: BTreeMap::new() }
    }

    /// Opens a group; `is_ready` says whether the pool has initialised it.
    pub(crate) fn open(&mut self, group: u64, is_ready: bool) -> Result<(), SyntheticError> {
        if self.open.contains_key(&group) {
            return Ok(());
        }
        let image = if is_ready { self.read(group)? } else { self.blank(group) };
        self.open.insert(group, image);
        Ok(())
    }

    fn read(&self, group: u64) -> Result<AlignedBuffer, SyntheticError> {
        let first = self.geometry.bitmap_block(group, 0);
        let mut image = AlignedBuffer::zeroed(index(STRUCTURE_BLOCKS));
        self.device.read(first, &mut image).map_err(|source| SyntheticError::Io {
            action: "read",
            block: first,
            source,
        })?;
        for (offset, bytes) in (0..).zip(image.blocks()) {
            ensure_sound(bytes, self.pool_tag, kind_at(offset), first.plus(offset))?;
        }
        Ok(image)
    }

    fn blank(&self, group: u64) -> AlignedBuffer {
        let first = self.geometry.bitmap_block(group, 0);
        let mut image = AlignedBuffer::zeroed(index(STRUCTURE_BLOCKS));
        for (offset, bytes) in (0..).zip(image.blocks_mut()) {
            header::stamp(bytes, self.pool_tag, kind_at(offset), first.plus(offset));
        }
        for within in 0..self.geometry.group_blocks(group) {
            if self.geometry.is_fixed(self.geometry.group_first(group).plus(within)) {
                set_bit(&mut image, within);
            }
        }
        image
    }

    /// Returns whether a block of an open group is free.
    pub(crate) fn is_free(&self, block: BlockNo) -> bool {
        let (offset, byte, mask) = bit_place(block.0 % GROUP_BLOCKS);
        let image = &self.open[&(block.0 / GROUP_BLOCKS)];
        image.block(offset).expect("two bitmap blocks")[byte] & mask == 0
    }

    /// Allocates a block of an open group.
    pub(crate) fn take(&mut self, block: BlockNo, entry: &StoreEntry) {
        let within = block.0 % GROUP_BLOCKS;
        let image = self.open.get_mut(&(block.0 / GROUP_BLOCKS)).expect("its group is open");
        set_bit(image, within);
        let page = index(BITMAP_BLOCKS + within / ENTRIES_PER_STORE_PAGE);
        let range = store_page::entry_range(index(within % ENTRIES_PER_STORE_PAGE));
        image.block_mut(page).expect("193 pages")[range].copy_from_slice(&entry.encode());
    }

    /// Writes all open groups below `end`.
    pub(crate) fn write_before(&mut self, end: u64) -> Result<(), SyntheticError> {
        while let Some((group, mut image)) = self.open.pop_first() {
            if group >= end {
                self.open.insert(group, image);
                return Ok(());
            }
            image.blocks_mut().for_each(|bytes| {
                header::seal(bytes);
            });
            let first = self.geometry.bitmap_block(group, 0);
            self.device.write(first, &image).map_err(|source| SyntheticError::Io {
                action: "write",
                block: first,
                source,
            })?;
        }
        Ok(())
    }
}

fn kind_at(offset: u64) -> BlockKind {
    if offset < BITMAP_BLOCKS { BlockKind::Bitmap } else { BlockKind::StorePage }
}

/// Returns the place of a block's bit: block of the structures, byte and mask.
fn bit_place(within: u64) -> (usize, usize, u8) {
    let bit = within % BITS_PER_BITMAP_BLOCK;
    (index(within / BITS_PER_BITMAP_BLOCK), HEADER_BYTES + index(bit / 8), 1 << (bit % 8))
}

fn set_bit(image: &mut AlignedBuffer, within: u64) {
    let (offset, byte, mask) = bit_place(within);
    image.block_mut(offset).expect("two bitmap blocks")[byte] |= mask;
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("below the blocks of a group")
}
