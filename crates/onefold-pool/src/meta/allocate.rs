//! Allocation: chooses free blocks for data, map nodes and tree pages, and frees blocks.
//!
//! Data is allocated in runs, beginning where the last run ended, so that blocks written one after another are
//! adjacent, even those of random writes. Groups in use that still have long runs come first, then a group never used
//! before, then the remaining holes. Metadata is allocated from runs of its own.
//!
//! Space is counted before blocks are searched. An operation that may not use the emergency reserve, or the space
//! promised to `fallocate`d ranges, is refused even if blocks are free.
//!
//! A sparse backing file can be full while blocks are free. Blocks that were written before still have their room
//! there. So after such a failure all holes are tried before any block that was never used.

use onefold_block::BlockNo;
use onefold_block::zero::is_zero;

use super::free_words::SearchPurpose;
use super::group_run::GroupRun;
use super::groups::AllocationCursor;
use super::op::{Op, OpError, OpResult, Privilege, damaged};
use super::search::{RunRequest, UnknownGroups};
use crate::error::PoolError;
use crate::format::geometry::{BITS_PER_BITMAP_BLOCK, GROUP_BLOCKS};
use crate::format::get_u64;
use crate::format::header::{BlockKind, HEADER_BYTES};
use crate::format::state::Field;
use crate::format::store_page::{self, StoreEntry};
use crate::options::Allocation;

/// Blocks that only operations which free space may take: enough for the map and tree paths that they copy.
pub(crate) const EMERGENCY_BLOCKS: u64 = 128;
/// As long as untouched groups are left, data goes only to free runs of at least this length.
const RUN_BLOCKS_PREFERRED: u64 = 32;
const BITMAP_WORDS: u64 = BITS_PER_BITMAP_BLOCK / 64;

impl Op<'_> {
    /// Reserves `count` blocks for data: they become busy, not allocated. `promised` of them were reserved by
    /// `fallocate`, and `set_aside` for an accepted write.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]; [`OpError::NeedGroup`].
    pub(crate) fn reserve_data(&mut self, count: u64, promised: u64, set_aside: u64) -> OpResult<Vec<GroupRun>> {
        let of_others = self.meta.set_aside.saturating_sub(set_aside);
        let reserved = self.state(Field::ReservedBlocks).saturating_sub(promised) + of_others;
        let available = self.blocks_available().saturating_sub(reserved);
        let kept = match self.privilege {
            // Promised blocks must be available however far other files have filled the pool.
            Privilege::Normal if promised >= count => 0,
            Privilege::Normal => EMERGENCY_BLOCKS,
            // A truncate that must rewrite its last block may use the emergency reserve if it frees as much.
            Privilege::Shrinking | Privilege::Freeing => 0,
        };
        if available < count + kept {
            return Err(PoolError::NoSpace.into());
        }
        self.permit(Allocation::Data)?;
        let mut runs = Vec::new();
        let mut missing = count;
        while missing > 0 {
            let run = self.find_data_run(missing)?;
            self.reserve(run);
            missing -= run.count;
            runs.push(run);
        }
        self.refuse_blocks_in_use(&runs)?;
        self.meta.groups.note_found();
        Ok(runs)
    }

    /// Refuses to write to blocks that the bitmap calls free but whose entries are in use: the bitmap is damaged.
    pub(super) fn refuse_blocks_in_use(&mut self, runs: &[GroupRun]) -> OpResult<()> {
        let blocks = runs.iter().flat_map(|run| (0..run.count).map(|offset| run.first.plus(offset)));
        self.want_entries(blocks)?;
        let geometry = self.meta.geometry;
        for run in runs {
            for (first, count) in geometry.store_runs(run.first, run.count) {
                let place = geometry.store_place(first);
                let entries = store_page::entries_range(place.index, count);
                // A free block's entry is all zero.
                if !is_zero(&self.block(place.page, BlockKind::StorePage)?[entries]) {
                    return Err(damaged(BlockKind::Bitmap.name(), first, "a block in use is called free"));
                }
            }
        }
        Ok(())
    }

    /// Returns how many unpromised blocks may be allocated now: those neither reserved by `fallocate`, nor set aside
    /// for accepted writes, nor kept for operations that free space.
    pub(crate) fn blocks_unpromised(&self) -> u64 {
        let promised = self.state(Field::ReservedBlocks) + self.meta.set_aside + EMERGENCY_BLOCKS;
        self.blocks_available().saturating_sub(promised)
    }

    /// Makes the first free run of a group at or after `from` busy, or its first `most` blocks, for a discard or for
    /// uncounted content.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn reserve_free_run(&mut self, group: u64, from: u64, most: u64) -> OpResult<Option<GroupRun>> {
        let wanted = RunRequest { least: 1, most, free_for: SearchPurpose::Metadata, unknown: UnknownGroups::All };
        let run = self.find_run(group, from, wanted)?;
        run.into_iter().for_each(|run| self.reserve(run));
        Ok(run)
    }

    fn find_data_run(&mut self, count: u64) -> OpResult<GroupRun> {
        let is_backing_full = self.meta.groups.full_backing.is_full();
        let preferred = if is_backing_full { 1 } else { count.min(RUN_BLOCKS_PREFERRED) };
        let unknown = if preferred == 1 { UnknownGroups::All } else { UnknownGroups::Few };
        if let Some(run) = self.find_from_cursor(preferred, count, unknown)? {
            return Ok(run);
        }
        let ready = self.state(Field::GroupsReady);
        if ready < self.meta.geometry.group_count() {
            return Err(OpError::NeedGroup(ready));
        }
        // Only small holes are left: takes them, and in the end also the blocks kept for metadata.
        if let Some(run) = self.find_from_cursor(1, count, UnknownGroups::All)? {
            return Ok(run);
        }
        self.meta.give_up_kept();
        if let Some(run) = self.find_from_cursor(1, count, UnknownGroups::All)? {
            return Ok(run);
        }
        if self.meta.groups.forget_remembered()
            && let Some(run) = self.find_from_cursor(1, count, UnknownGroups::All)?
        {
            return Ok(run);
        }
        Err(PoolError::NoSpace.into())
    }

    /// Finds a run of at least `least` and at most `most` blocks where the last one ended, or else elsewhere.
    fn find_from_cursor(&mut self, least: u64, most: u64, unknown: UnknownGroups) -> OpResult<Option<GroupRun>> {
        let start =
            if self.meta.limits.lowest_first { AllocationCursor::default() } else { self.meta.groups.data_cursor };
        let found = self.search(start, RunRequest { least, most, free_for: SearchPurpose::Data, unknown })?;
        if let Some(run) = found {
            let within = run.first.0 % GROUP_BLOCKS + run.count;
            self.meta.groups.data_cursor = AllocationCursor { group: run.first.0 / GROUP_BLOCKS, within };
        }
        Ok(found)
    }

    /// Returns the end of the blocks from `first` on, within its group, that the bitmap does not mark as used.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn unused_end(&mut self, first: BlockNo) -> OpResult<BlockNo> {
        let geometry = self.meta.geometry;
        let group = geometry.group_of(first);
        let (mut within, end) = (first.0 % GROUP_BLOCKS, geometry.group_blocks(group));
        while within < end {
            let used = self.used_word(group, within / 64)? >> (within % 64);
            if used != 0 {
                within += u64::from(used.trailing_zeros());
                break;
            }
            within = (within / 64 + 1) * 64;
        }
        Ok(geometry.group_first(group).plus(within.min(end)))
    }

    /// Returns which of 64 blocks of a group the bitmap marks as used, one bit each.
    fn used_word(&mut self, group: u64, word: u64) -> OpResult<u64> {
        let bitmap = self.meta.geometry.bitmap_block(group, word / BITMAP_WORDS);
        let offset = HEADER_BYTES + usize::try_from(word % BITMAP_WORDS).expect("below 510") * 8;
        Ok(get_u64(self.block(bitmap, BlockKind::Bitmap)?, offset))
    }

    /// Allocates a run of reserved data blocks within one group: the bitmap then marks them as used.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn claim_data(&mut self, run: GroupRun, entries: &[StoreEntry]) -> OpResult<()> {
        self.set_bits(run, true)?;
        self.set_entries(run.first, entries)?;
        self.unbusy(run);
        self.count(Field::DataBlocks, i64::try_from(run.count).expect("a group has fewer"));
        Ok(())
    }

    /// Frees a data block without references.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn free_data(&mut self, block: BlockNo) -> OpResult<()> {
        self.set_bit(block, false)?;
        self.set_entry(block, &StoreEntry::FREE)?;
        // Becomes busy before the bit is committed: the block must not be reused until the free is durable.
        self.set_busy(block);
        self.freed_data(block);
        self.count(Field::DataBlocks, -1);
        Ok(())
    }

    /// Frees a metadata block without references.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn free_metadata(&mut self, block: BlockNo) -> OpResult<()> {
        self.set_bit(block, false)?;
        self.set_entry(block, &StoreEntry::FREE)?;
        self.set_busy(block);
        self.freed_metadata(block);
        self.count(Field::MetadataBlocks, -1);
        Ok(())
    }

    /// Returns whether the bitmap marks a block as used.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn is_marked_used(&mut self, block: BlockNo) -> OpResult<bool> {
        let (bitmap, at, mask) = self.bit_place(block);
        Ok(self.block(bitmap, BlockKind::Bitmap)?[at] & mask != 0)
    }

    /// Returns the place of a block's bit: bitmap block, byte and mask.
    fn bit_place(&self, block: BlockNo) -> (BlockNo, usize, u8) {
        let geometry = &self.meta.geometry;
        let within = block.0 % GROUP_BLOCKS;
        let bitmap = geometry.bitmap_block(geometry.group_of(block), within / BITS_PER_BITMAP_BLOCK);
        let bit = within % BITS_PER_BITMAP_BLOCK;
        (bitmap, HEADER_BYTES + usize::try_from(bit / 8).expect("below 4080"), 1 << (bit % 8))
    }

    /// Sets or clears a block's bit, which must have had the other value.
    pub(super) fn set_bit(&mut self, block: BlockNo, used: bool) -> OpResult<()> {
        self.set_bits(GroupRun { first: block, count: 1 }, used)
    }

    /// Sets or clears the bits of a run within one group, all of which must have had the other value.
    fn set_bits(&mut self, run: GroupRun, used: bool) -> OpResult<()> {
        let (mut block, end) = (run.first, run.first.plus(run.count));
        while block < end {
            let (bitmap, at, _) = self.bit_place(block);
            let first_bit = block.0 % GROUP_BLOCKS % BITS_PER_BITMAP_BLOCK;
            let count = (end.0 - block.0).min(BITS_PER_BITMAP_BLOCK - first_bit);
            let outside =
                (0..count).map(|offset| block.plus(offset)).find(|one| !self.meta.geometry.is_allocatable(*one));
            if let Some(block) = outside {
                return Err(damaged(
                    BlockKind::Bitmap.name(),
                    block,
                    "a structure with a fixed place is used as a block",
                ));
            }
            let last_byte = usize::try_from((first_bit + count - 1) / 8).expect("below 4080") + HEADER_BYTES;
            let bytes = self.edit(bitmap, BlockKind::Bitmap, at..last_byte + 1)?;
            for bit in first_bit..first_bit + count {
                let byte = &mut bytes[usize::try_from(bit / 8 - first_bit / 8).expect("below 4080")];
                let mask = 1 << (bit % 8);
                if (*byte & mask != 0) == used {
                    let what = if used { "a block in use is allocated again" } else { "a free block is freed" };
                    return Err(damaged(BlockKind::Bitmap.name(), block.plus(bit - first_bit), what));
                }
                *byte ^= mask;
            }
            block = block.plus(count);
        }
        Ok(())
    }
}
