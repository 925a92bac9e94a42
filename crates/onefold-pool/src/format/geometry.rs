//! The layout of a pool: pure arithmetic over the facts of the superblock.
//!
//! The device is divided into block groups of 32,768 blocks (128 MiB), as in the paper. A group begins with its own
//! structures; group 0 also holds the structures that exist once per pool.
//!
//! | group 0, blocks | what                                                     |
//! |-----------------|----------------------------------------------------------|
//! | 0               | superblock                                               |
//! | 1               | heartbeat                                                |
//! | 2..4            | bitmap of group 0                                        |
//! | 4..197          | fingerprint store of group 0                             |
//! | 197             | pool state                                               |
//! | 4095            | superblock copy                                          |
//! | 200.. or 4096.. | journal: two header slots, then the log (small pools: 200) |
//!
//! | other group, blocks from its first | what                             |
//! |------------------------------------|----------------------------------|
//! | 0..2                               | bitmap: bit set = allocated      |
//! | 2..195                             | fingerprint store                |
//! | 195..                              | file data, map nodes, tree pages |
//!
//! With [`StorePlacement::AtEnd`], all stores lie side by side behind the last group instead, 193 blocks per group.

use onefold_block::BlockNo;
use onefold_block::block::BLOCK_BYTES_U64;

use super::header::BlockKind;
use crate::StorePlacement;
use crate::error::PoolError;

/// Blocks of a block group: 128 MiB.
pub const GROUP_BLOCKS: u64 = 32_768;
/// Entries of a fingerprint store page: 170 entries of 24 bytes and a header exactly fill a block.
pub const ENTRIES_PER_STORE_PAGE: u64 = 170;
/// Pages of a group's fingerprint store.
pub const STORE_PAGES_PER_GROUP: u64 = GROUP_BLOCKS.div_ceil(ENTRIES_PER_STORE_PAGE);
/// Bits in a bitmap block, after its header.
pub const BITS_PER_BITMAP_BLOCK: u64 = 4080 * 8;
/// Bitmap blocks of a group.
pub const BITMAP_BLOCKS: u64 = GROUP_BLOCKS.div_ceil(BITS_PER_BITMAP_BLOCK);
/// The superblock's place.
pub const SUPERBLOCK: BlockNo = BlockNo(0);
/// The heartbeat's place.
pub const HEARTBEAT: BlockNo = BlockNo(1);
/// The pool state's place.
pub const STATE: BlockNo = BlockNo(197);
/// The superblock copy's place: fixed, so that it is found without the superblock, and far enough away to survive a
/// stray write to the front of the device.
pub const SUPERBLOCK_COPY: BlockNo = BlockNo(4095);
/// Minimum size of a device: 16 MiB.
pub const DEVICE_BLOCKS_MIN: u64 = 4096;
/// Minimum length of the last group. A shorter one is left unused: its own structures would take most of it.
pub const LAST_GROUP_BLOCKS_MIN: u64 = 512;
/// Maximum number of blocks of a journal: 64 MiB.
pub const JOURNAL_BLOCKS_MAX: u64 = 16_384;
/// Minimum number of blocks of a journal: 1 MiB.
pub const JOURNAL_BLOCKS_MIN: u64 = 256;

/// Maximum number of blocks that an operation changes: two store pages for each entry of a leaf, bitmaps, maps and
/// names.
const OPERATION_BLOCKS_MAX: u64 = 1100;
/// Number of blocks that it changes besides store pages, in a pool with few of them.
const OPERATION_BLOCKS_EXTRA: u64 = 40;
const GROUP_0_META_FIRST: u64 = 2;
const JOURNAL_FIRST_SMALL: u64 = 200;
const JOURNAL_FIRST_LARGE: u64 = 4096;
const _: () = assert!(STORE_PAGES_PER_GROUP == 193 && BITMAP_BLOCKS == 2);
const _: () = assert!(GROUP_0_META_FIRST + BITMAP_BLOCKS + STORE_PAGES_PER_GROUP == STATE.0);
const _: () = assert!(JOURNAL_FIRST_LARGE + JOURNAL_BLOCKS_MAX <= GROUP_BLOCKS / 2 + JOURNAL_FIRST_LARGE);
const _: () = assert!(SUPERBLOCK_COPY.0 < DEVICE_BLOCKS_MIN);

/// Layout of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks that the pool manages, structures included.
    pub total_blocks: u64,
    /// First block of the journal.
    pub journal_first: BlockNo,
    /// Blocks of the journal, header slots included.
    pub journal_blocks: u64,
    /// Where fingerprint stores lie.
    pub placement: StorePlacement,
    /// Blocks covered by groups: all of them, or all before the stores at the end.
    grouped_blocks: u64,
    /// Blocks that can hold data, map nodes and tree pages.
    allocatable_blocks: u64,
}

/// Place of a block's entry in its fingerprint store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// The block of the page.
    pub page: BlockNo,
    /// Index of the entry in the page.
    pub index: usize,
}

impl Geometry {
    /// Returns the layout for a new pool on a device of `device_blocks`, with a journal of `journal_blocks` if given.
    /// `None` if the device is too small or the journal size is impossible.
    #[must_use]
    pub fn plan(device_blocks: u64, journal_blocks: Option<u64>, placement: StorePlacement) -> Option<Geometry> {
        if !(DEVICE_BLOCKS_MIN..=BlockNo::MAX.0).contains(&device_blocks) {
            return None;
        }
        let large = device_blocks >= GROUP_BLOCKS;
        let journal_first = BlockNo(if large { JOURNAL_FIRST_LARGE } else { JOURNAL_FIRST_SMALL });
        let journal_max = if large { JOURNAL_BLOCKS_MAX } else { (SUPERBLOCK_COPY.0 - JOURNAL_FIRST_SMALL) / 2 };
        let journal_blocks =
            journal_blocks.unwrap_or_else(|| (device_blocks / 64).clamp(JOURNAL_BLOCKS_MIN, journal_max));
        if !(JOURNAL_BLOCKS_MIN..=journal_max).contains(&journal_blocks) {
            return None;
        }
        Geometry::new(device_blocks, journal_first, journal_blocks, placement)
    }

    /// Returns the layout that a superblock describes; `None` if it is invalid.
    #[must_use]
    pub fn new(
        total_blocks: u64,
        journal_first: BlockNo,
        journal_blocks: u64,
        placement: StorePlacement,
    ) -> Option<Geometry> {
        if !(DEVICE_BLOCKS_MIN..=BlockNo::MAX.0).contains(&total_blocks) {
            return None;
        }
        if !(JOURNAL_BLOCKS_MIN..=JOURNAL_BLOCKS_MAX).contains(&journal_blocks) {
            return None;
        }
        let journal_end = journal_first.0.checked_add(journal_blocks)?;
        let fits = match journal_first.0 {
            JOURNAL_FIRST_SMALL => journal_end <= SUPERBLOCK_COPY.0,
            JOURNAL_FIRST_LARGE => journal_end <= GROUP_BLOCKS.min(total_blocks),
            _ => false,
        };
        if !fits {
            return None;
        }
        let mut grouped_blocks = match placement {
            StorePlacement::InGroups => total_blocks,
            StorePlacement::AtEnd => {
                // Groups take as many blocks as leave room for the stores of all groups.
                let groups = total_blocks.div_ceil(GROUP_BLOCKS + STORE_PAGES_PER_GROUP);
                total_blocks.checked_sub(groups * STORE_PAGES_PER_GROUP)?
            }
        };
        let rest = grouped_blocks % GROUP_BLOCKS;
        if grouped_blocks > GROUP_BLOCKS && rest != 0 && rest < LAST_GROUP_BLOCKS_MIN {
            grouped_blocks -= rest;
        }
        if grouped_blocks <= SUPERBLOCK_COPY.0 {
            return None;
        }
        let mut geometry =
            Geometry { total_blocks, journal_first, journal_blocks, placement, grouped_blocks, allocatable_blocks: 0 };
        // Group 0 has more fixed structures than the others, which are alike: a hostile size must not cost a loop.
        let others = geometry.group_count() - 1;
        let fixed = geometry.fixed_blocks(0) + others.checked_mul(geometry.fixed_blocks(1))?;
        geometry.allocatable_blocks = grouped_blocks.checked_sub(fixed)?;
        Some(geometry)
    }

    /// Returns the number of blocks that the journal needs for the largest operation: copying a map leaf whose 508
    /// blocks all lie on different store pages. A small pool has fewer pages than that.
    #[must_use]
    pub fn journal_blocks_needed(&self) -> u64 {
        (self.store_page_count() + OPERATION_BLOCKS_EXTRA).clamp(JOURNAL_BLOCKS_MIN, OPERATION_BLOCKS_MAX)
    }

    /// Refuses a journal that cannot hold the largest operation.
    ///
    /// # Errors
    /// [`PoolError::JournalTooSmall`] with the minimum size.
    pub(crate) fn ensure_journal_suffices(&self) -> Result<(), PoolError> {
        let (given, needed) = (self.journal_blocks, self.journal_blocks_needed());
        if given >= needed {
            return Ok(());
        }
        Err(PoolError::JournalTooSmall { given_bytes: given * BLOCK_BYTES_U64, needed_bytes: needed * BLOCK_BYTES_U64 })
    }

    /// Returns the number of block groups.
    #[must_use]
    pub fn group_count(&self) -> u64 {
        self.grouped_blocks.div_ceil(GROUP_BLOCKS)
    }

    /// Returns the group's first block.
    #[must_use]
    pub fn group_first(&self, group: u64) -> BlockNo {
        BlockNo(group * GROUP_BLOCKS)
    }

    /// Returns the number of blocks of the group; the last one may be short.
    #[must_use]
    pub fn group_blocks(&self, group: u64) -> u64 {
        (self.grouped_blocks - group * GROUP_BLOCKS).min(GROUP_BLOCKS)
    }

    /// Returns the group of a block.
    #[must_use]
    pub fn group_of(&self, block: BlockNo) -> u64 {
        block.0 / GROUP_BLOCKS
    }

    /// Returns the offset of the group's own structures within the group.
    fn meta_first(&self, group: u64) -> u64 {
        group * GROUP_BLOCKS + if group == 0 { GROUP_0_META_FIRST } else { 0 }
    }

    /// Returns bitmap block `index` (0 or 1) of the group.
    #[must_use]
    pub fn bitmap_block(&self, group: u64, index: u64) -> BlockNo {
        BlockNo(self.meta_first(group) + index)
    }

    /// Returns page `index` of the group's fingerprint store.
    #[must_use]
    pub fn store_page(&self, group: u64, index: u64) -> BlockNo {
        match self.placement {
            StorePlacement::InGroups => BlockNo(self.meta_first(group) + BITMAP_BLOCKS + index),
            StorePlacement::AtEnd => BlockNo(self.grouped_end_of_device() + group * STORE_PAGES_PER_GROUP + index),
        }
    }

    /// Returns where the stores begin, if they are at the end.
    fn grouped_end_of_device(&self) -> u64 {
        self.total_blocks - self.total_blocks.div_ceil(GROUP_BLOCKS + STORE_PAGES_PER_GROUP) * STORE_PAGES_PER_GROUP
    }

    /// Returns the group whose fingerprint store contains the page at `page`.
    #[must_use]
    pub fn group_of_store_page(&self, page: BlockNo) -> Option<u64> {
        let group = match self.placement {
            StorePlacement::InGroups => self.group_of(page),
            StorePlacement::AtEnd => page.0.checked_sub(self.grouped_end_of_device())? / STORE_PAGES_PER_GROUP,
        };
        (group < self.group_count()).then_some(group)
    }

    /// Returns the place of the entry of `block` in its fingerprint store.
    #[must_use]
    pub fn store_place(&self, block: BlockNo) -> StorePlace {
        let within = block.0 % GROUP_BLOCKS;
        StorePlace {
            page: self.store_page(self.group_of(block), within / ENTRIES_PER_STORE_PAGE),
            index: usize::try_from(within % ENTRIES_PER_STORE_PAGE).expect("below 170"),
        }
    }

    /// Splits a run of blocks into runs whose entries lie in one fingerprint store page each: first block and count.
    pub fn store_runs(&self, first: BlockNo, count: u64) -> impl Iterator<Item = (BlockNo, usize)> + use<> {
        let end = first.plus(count);
        let mut at = first;
        std::iter::from_fn(move || {
            let left = (end.0 - at.0).min(GROUP_BLOCKS - at.0 % GROUP_BLOCKS);
            let in_page = ENTRIES_PER_STORE_PAGE - at.0 % GROUP_BLOCKS % ENTRIES_PER_STORE_PAGE;
            let run = (at, usize::try_from(left.min(in_page)).expect("at most 170"));
            at = at.plus(run.1 as u64);
            (run.1 > 0).then_some(run)
        })
    }

    /// Returns the pool-wide number of the store page with the entry of `block`: dense, for the filter.
    #[must_use]
    pub fn store_page_no(&self, block: BlockNo) -> u64 {
        self.group_of(block) * STORE_PAGES_PER_GROUP + block.0 % GROUP_BLOCKS / ENTRIES_PER_STORE_PAGE
    }

    /// Returns the number of store pages of all groups together.
    #[must_use]
    pub fn store_page_count(&self) -> u64 {
        self.group_count() * STORE_PAGES_PER_GROUP
    }

    /// Returns the block of store page number `page_no`, and the block that its first entry describes.
    #[must_use]
    pub fn store_page_by_no(&self, page_no: u64) -> (BlockNo, BlockNo) {
        let (group, index) = (page_no / STORE_PAGES_PER_GROUP, page_no % STORE_PAGES_PER_GROUP);
        (self.store_page(group, index), BlockNo(group * GROUP_BLOCKS + index * ENTRIES_PER_STORE_PAGE))
    }

    /// Returns the pool-wide number of the store page at `page`; `None` if no page can be there.
    #[must_use]
    pub fn number_of_store_page(&self, page: BlockNo) -> Option<u64> {
        let group = self.group_of_store_page(page)?;
        let index = page.0.checked_sub(self.store_page(group, 0).0).filter(|index| *index < STORE_PAGES_PER_GROUP)?;
        Some(group * STORE_PAGES_PER_GROUP + index)
    }

    /// Returns whether `block` holds a structure with a fixed place, which is never allocated or freed.
    #[must_use]
    pub fn is_fixed(&self, block: BlockNo) -> bool {
        let group = self.group_of(block);
        let within_meta = block.0.wrapping_sub(self.meta_first(group));
        let meta_blocks = match self.placement {
            StorePlacement::InGroups => BITMAP_BLOCKS + STORE_PAGES_PER_GROUP,
            StorePlacement::AtEnd => BITMAP_BLOCKS,
        };
        within_meta < meta_blocks
            || block == SUPERBLOCK
            || block == HEARTBEAT
            || block == STATE
            || block == SUPERBLOCK_COPY
            || (self.journal_first.0..self.journal_first.0 + self.journal_blocks).contains(&block.0)
    }

    /// Returns whether `block` may hold data, a map node or a tree page.
    #[must_use]
    pub fn is_allocatable(&self, block: BlockNo) -> bool {
        block.0 < self.grouped_blocks && !self.is_fixed(block)
    }

    /// Returns whether journaled and cached metadata of this kind belongs at `block`. Structures that are written in
    /// other ways (superblock, journal header, heartbeat, group summaries) never do.
    #[must_use]
    pub fn is_place_of(&self, kind: BlockKind, block: BlockNo) -> bool {
        match kind {
            BlockKind::State => block == STATE,
            BlockKind::MapNode(_) | BlockKind::TreePage => self.is_allocatable(block),
            BlockKind::Bitmap => {
                block.0 < self.grouped_blocks
                    && block.0.wrapping_sub(self.meta_first(self.group_of(block))) < BITMAP_BLOCKS
            }
            BlockKind::StorePage => self.number_of_store_page(block).is_some(),
            BlockKind::Superblock | BlockKind::JournalHeader | BlockKind::Heartbeat | BlockKind::GroupSummaries => {
                false
            }
        }
    }

    /// Returns the number of the group's blocks with a fixed use.
    #[must_use]
    pub fn fixed_blocks(&self, group: u64) -> u64 {
        let own = match self.placement {
            StorePlacement::InGroups => BITMAP_BLOCKS + STORE_PAGES_PER_GROUP,
            StorePlacement::AtEnd => BITMAP_BLOCKS,
        };
        // Superblock, heartbeat, pool state and the superblock's copy.
        if group == 0 { own + 4 + self.journal_blocks } else { own }
    }

    /// Returns the number of blocks that can be allocated, of all groups together.
    #[must_use]
    pub fn allocatable_blocks(&self) -> u64 {
        self.allocatable_blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Vec<Geometry> {
        let mut all = Vec::new();
        for blocks in [4096, 5000, 32_768, 32_800, 40_000, 262_144, 262_144 + 511, 262_144 + 512, 26_214_400] {
            for placement in [StorePlacement::InGroups, StorePlacement::AtEnd] {
                all.extend(Geometry::plan(blocks, None, placement));
            }
        }
        all
    }

    #[test]
    fn structures_never_overlap() {
        for layout in layouts().into_iter().filter(|layout| layout.total_blocks < 100_000) {
            let mut used = std::collections::HashSet::new();
            for group in 0..layout.group_count() {
                for index in 0..BITMAP_BLOCKS {
                    assert!(used.insert(layout.bitmap_block(group, index)), "{layout:?}");
                }
                for index in 0..STORE_PAGES_PER_GROUP {
                    let page = layout.store_page(group, index);
                    assert!(page.0 < layout.total_blocks, "{layout:?}");
                    assert!(used.insert(page), "{layout:?} group {group} page {index}");
                }
            }
            for fixed in [SUPERBLOCK, HEARTBEAT, STATE, SUPERBLOCK_COPY] {
                assert!(used.insert(fixed), "{layout:?} {fixed}");
            }
            for block in 0..layout.journal_blocks {
                assert!(used.insert(layout.journal_first.plus(block)), "{layout:?}");
            }
            for block in (0..layout.grouped_blocks).map(BlockNo) {
                assert_eq!(layout.is_fixed(block), used.contains(&block), "{layout:?} {block}");
            }
            let fixed: u64 = (0..layout.group_count()).map(|group| layout.fixed_blocks(group)).sum();
            let counted = (0..layout.grouped_blocks).filter(|&block| layout.is_fixed(BlockNo(block))).count() as u64;
            assert_eq!(fixed, counted, "{layout:?}");
        }
    }

    #[test]
    fn every_block_is_the_place_of_one_kind_at_most() {
        let kinds = [BlockKind::State, BlockKind::MapNode(0), BlockKind::Bitmap, BlockKind::StorePage];
        for layout in layouts().into_iter().filter(|layout| layout.total_blocks < 100_000) {
            for group in 0..layout.group_count() {
                assert!(layout.is_place_of(BlockKind::Bitmap, layout.bitmap_block(group, 1)), "{layout:?}");
                assert!(layout.is_place_of(BlockKind::StorePage, layout.store_page(group, 192)), "{layout:?}");
            }
            for block in (0..layout.total_blocks + 300).map(BlockNo) {
                let of: Vec<_> = kinds.iter().filter(|kind| layout.is_place_of(**kind, block)).collect();
                assert!(of.len() <= 1, "{layout:?} {block} {of:?}");
                assert_eq!(layout.is_allocatable(block), of == [&BlockKind::MapNode(0)], "{layout:?} {block}");
            }
        }
    }

    #[test]
    fn store_places_are_one_to_one() {
        for layout in layouts() {
            for block in (0..layout.grouped_blocks).step_by(97).map(BlockNo) {
                let place = layout.store_place(block);
                let (page, first) = layout.store_page_by_no(layout.store_page_no(block));
                assert_eq!((page, first.0 + place.index as u64), (place.page, block.0));
            }
        }
    }

    #[test]
    fn runs_of_entries_lie_in_one_page_each_and_cover_all() {
        let layout = layouts()[0];
        for (first, count) in [(0, 1), (169, 2), (5, 600), (GROUP_BLOCKS - 3, 10), (170, 170)] {
            let mut next = first;
            for (block, length) in layout.store_runs(BlockNo(first), count) {
                assert_eq!(block.0, next);
                let (head, tail) = (layout.store_place(block), layout.store_place(block.plus(length as u64 - 1)));
                assert_eq!((head.page, head.index + length - 1), (tail.page, tail.index));
                next += length as u64;
            }
            assert_eq!(next, first + count);
        }
    }

    #[test]
    fn structures_fixed_at_creation_take_less_than_the_promised_share() {
        let layout = Geometry::plan(26_214_400, None, StorePlacement::InGroups).unwrap();
        let fixed = layout.total_blocks - layout.allocatable_blocks();
        assert!(fixed * 10_000 <= layout.total_blocks * 70, "{fixed} of {}", layout.total_blocks);
    }

    #[test]
    fn a_journal_picked_by_size_always_suffices() {
        for blocks in (DEVICE_BLOCKS_MIN..600_000).step_by(509).chain([1 << 24, 1 << 32, 1 << 40]) {
            for placement in [StorePlacement::InGroups, StorePlacement::AtEnd] {
                // With its stores at the end, the smallest device has no room for anything else.
                let Some(layout) = Geometry::plan(blocks, None, placement) else {
                    assert!(placement == StorePlacement::AtEnd && blocks < 2 * DEVICE_BLOCKS_MIN, "{blocks}");
                    continue;
                };
                assert!(layout.ensure_journal_suffices().is_ok(), "{layout:?}");
            }
        }
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(Geometry::plan(4095, None, StorePlacement::InGroups), None);
        assert_eq!(Geometry::plan(1 << 49, None, StorePlacement::InGroups), None);
        assert_eq!(Geometry::plan(262_144, Some(20_000), StorePlacement::InGroups), None);
        assert_eq!(Geometry::new(262_144, BlockNo(77), 256, StorePlacement::InGroups), None);
        assert_eq!(Geometry::new(262_144, BlockNo(4096), u64::MAX, StorePlacement::InGroups), None);
    }
}
