//! Rebuilds a lost pool state from the content of the pool: the number of block groups in use, and the root page of the
//! names tree. Counters stay 0; the rebuild of the block groups counts them.

use onefold_block::BlockNo;

use super::reader::{CheckError, MetadataReader};
use crate::engine::open::COUNTER_MAX;
use crate::format::BlockBytes;
use crate::format::geometry::{BITMAP_BLOCKS, ENTRIES_PER_STORE_PAGE, Geometry, STATE, STORE_PAGES_PER_GROUP};
use crate::format::header::{self, BlockKind};
use crate::format::items::{self, DirItem, ItemKind};
use crate::format::state::Field;
use crate::format::store_page::{self, BlockUse};
use crate::format::superblock::{Marking, Superblock};
use crate::tree::{self, TreeFinding};

/// Offset of the level in a page of the tree.
pub(super) const LEVEL_OFFSET: usize = 16;
/// Number of inode numbers that are skipped: removed files may have had them, and numbers are never reused.
const NUMBERS_SKIPPED: u64 = 1 << 20;

/// Returns a sealed pool state. If no page proves to be the root, it names block 0, which is never taken for a page.
pub(super) fn rebuild(reader: &mut MetadataReader<'_>, superblock: &Superblock) -> Box<BlockBytes> {
    let geometry = &superblock.geometry;
    let ready = groups_ready(reader, geometry);
    let root = find_root(reader, superblock, ready).unwrap_or(BlockNo(0));
    let (ino_max, reclaim_max) = highest_numbers(reader, root);
    let mut state = Box::new(header::blank(superblock.pool_tag(), BlockKind::State, STATE));
    for (field, value) in [
        (Field::TreeRoot, root.0),
        (Field::NextIno, ino_max + NUMBERS_SKIPPED),
        (Field::GroupsReady, ready),
        (Field::NextReclaim, reclaim_max + NUMBERS_SKIPPED),
    ] {
        state[field.range()].copy_from_slice(&value.to_le_bytes());
    }
    header::seal(&mut state);
    state
}

/// Returns the number of groups in use: they are initialised in order, and each has its structures from then on.
fn groups_ready(reader: &mut MetadataReader<'_>, geometry: &Geometry) -> u64 {
    let has_structures = |reader: &mut MetadataReader<'_>, group| {
        let is_bitmap = |index| reader.block(geometry.bitmap_block(group, index), BlockKind::Bitmap).is_ok();
        if (0..BITMAP_BLOCKS).any(is_bitmap) {
            return true;
        }
        (0..STORE_PAGES_PER_GROUP)
            .any(|index| reader.block(geometry.store_page(group, index), BlockKind::StorePage).is_ok())
    };
    (0..geometry.group_count()).take_while(|&group| group == 0 || has_structures(reader, group)).count() as u64
}

/// Pages of the highest level found so far.
#[derive(Default)]
struct HighestPages {
    level: u8,
    pages: Vec<BlockNo>,
}

impl HighestPages {
    fn take(&mut self, at: BlockNo, level: u8) {
        if level > self.level {
            *self = HighestPages { level, pages: Vec::new() };
        }
        // A single page is the root; two prove that there is no root, so more need not be kept.
        if level == self.level && self.pages.len() < 2 {
            self.pages.push(at);
        }
    }
}

/// Finds the single page of the highest level among the recorded pages of the names tree. If no page is recorded, all
/// blocks that look like pages count, unless users can make such blocks.
fn find_root(reader: &mut MetadataReader<'_>, superblock: &Superblock, ready: u64) -> Option<BlockNo> {
    let geometry = &superblock.geometry;
    let has_secret_tag = superblock.marking == Marking::Secret;
    let (mut recorded, mut possible) = (HighestPages::default(), HighestPages::default());
    let page_count = usize::try_from(STORE_PAGES_PER_GROUP).expect("193");
    for group in 0..ready {
        let pages = reader.run(geometry.store_page(group, 0), page_count, BlockKind::StorePage);
        for within in 0..geometry.group_blocks(group) {
            let block = geometry.group_first(group).plus(within);
            let page = &pages[usize::try_from(within / ENTRIES_PER_STORE_PAGE).expect("below 193")];
            let index = usize::try_from(within % ENTRIES_PER_STORE_PAGE).expect("below 170");
            let usage = page.as_ref().ok().and_then(|page| store_page::entry(page, index)).map(|entry| entry.usage);
            let highest = match usage {
                Some(BlockUse::TreePage) => &mut recorded,
                None if has_secret_tag && geometry.is_allocatable(block) => &mut possible,
                _ => continue,
            };
            if let Ok(bytes) = reader.block(block, BlockKind::TreePage) {
                highest.take(block, bytes[LEVEL_OFFSET]);
            }
        }
    }
    let found = if recorded.pages.is_empty() { possible } else { recorded };
    match found.pages[..] {
        [root] => Some(root),
        _ => None,
    }
}

/// Returns the highest inode number, and the highest number in the reclaim list, below a root.
fn highest_numbers(reader: &mut MetadataReader<'_>, root: BlockNo) -> (u64, u64) {
    let (mut ino_max, mut reclaim_max) = (1, 0);
    // Unreadable pages contribute no number; the repair of names considers numbers found later.
    let _ = tree::check(reader, root, &mut |finding| -> Result<(), CheckError> {
        if let TreeFinding::Item { key, value } = finding {
            match items::item_kind(&key) {
                Some(ItemKind::Reclaim) => reclaim_max = reclaim_max.max(key.sub),
                Some(ItemKind::DirEntry) => {
                    ino_max = DirItem::decode(value).map_or(ino_max, |item| ino_max.max(item.ino.0));
                }
                Some(_) => ino_max = ino_max.max(key.ino),
                None => {}
            }
        }
        Ok(())
    });
    let bound = COUNTER_MAX - NUMBERS_SKIPPED;
    (ino_max.min(bound), reclaim_max.min(bound))
}
