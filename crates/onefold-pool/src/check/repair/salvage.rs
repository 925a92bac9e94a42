//! A names tree with unusable pages, built anew: from what can still be reached, and from leaves that can't be reached
//! any more but are recorded as pages of the tree.
//!
//! The new tree takes blocks that are free by bitmap and fingerprint store alike. It becomes the pool's by one change of
//! the pool state, after all of it is durable; the old one is freed when the block groups are made anew.

use std::collections::BTreeSet;

use onefold_block::BlockNo;

use super::patch::Patch;
use crate::check::CheckOptions;
use crate::check::context::Context;
use crate::check::findings::Findings;
use crate::check::reader::CheckError;
use crate::check::span::bit;
use crate::engine::open::read_superblock;
use crate::format::geometry::{BITMAP_BLOCKS, ENTRIES_PER_STORE_PAGE, STATE, STORE_PAGES_PER_GROUP};
use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::format::store_page::{self, BlockUse};
use crate::progress::Progress;
use crate::tree::{self, Finding, Key};

/// Where a page of the tree keeps its level.
const LEVEL_OFFSET: usize = 16;
/// New pages for each old one, at most: they are filled in key order, and a third at least.
const GROWTH: usize = 3;
/// Pages of the tree that are held at once, at most.
const PAGES_MAX: usize = 1 << 22;

/// Builds the names tree anew.
pub(super) fn mend(
    device: &dyn onefold_block::BlockDevice,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<(), CheckError> {
    let superblock = read_superblock(device)?;
    let mut patch = Patch::recover(device, &superblock)?;
    let mut unheard = Findings::default();
    let gone = || CheckError::Unusable("the pool changed while it was mended".to_owned());
    let mut context = Context::open(device, options, progress, &mut unheard)?.ok_or_else(gone)?;
    let root = BlockNo(context.field(Field::TreeRoot));
    let reached = pages_below(&mut context, root)?;
    let (mut stray, mut free) = (Vec::new(), Vec::new());
    look_through_groups(&mut context, &reached, &mut stray, &mut free)?;
    free.truncate((reached.len() + stray.len()) * GROWTH + GROWTH);
    free.reverse();
    patch.free = free;
    let mut new_root = tree::create(&mut patch)?;
    copy_items(&mut context, root, &mut patch, &mut new_root, Precedence::New)?;
    for leaf in stray {
        copy_items(&mut context, leaf, &mut patch, &mut new_root, Precedence::Old)?;
    }
    patch.flush()?;
    let mut state = Box::new(*patch.block(STATE, BlockKind::State).map_err(CheckError::Unusable)?);
    state[Field::TreeRoot.range()].copy_from_slice(&new_root.0.to_le_bytes());
    patch.put(STATE, state)?;
    Ok(patch.flush()?)
}

/// Returns the pages that can be reached and read.
fn pages_below(context: &mut Context<'_>, root: BlockNo) -> Result<BTreeSet<BlockNo>, CheckError> {
    let mut reached = BTreeSet::new();
    tree::check(&mut context.tree, root, &mut |finding| {
        match finding {
            Finding::Page { at } if reached.len() < PAGES_MAX => {
                reached.insert(at);
            }
            Finding::Unreadable { page, error: CheckError::Unusable(_) } => {
                reached.remove(&page);
            }
            Finding::Unreadable { error, .. } => return Err(error),
            _ => {}
        }
        Ok(())
    })?;
    Ok(reached)
}

/// Finds leaves that are recorded as pages of the tree but were not reached, and free blocks.
fn look_through_groups(
    context: &mut Context<'_>,
    reached: &BTreeSet<BlockNo>,
    stray: &mut Vec<BlockNo>,
    free: &mut Vec<BlockNo>,
) -> Result<(), CheckError> {
    let geometry = context.geometry;
    let [bitmap_count, page_count] =
        [BITMAP_BLOCKS, STORE_PAGES_PER_GROUP].map(|count| usize::try_from(count).expect("few"));
    for group in 0..context.groups_ready() {
        let bitmaps = context.blocks.run(geometry.bitmap_block(group, 0), bitmap_count, BlockKind::Bitmap);
        let pages = context.blocks.run(geometry.store_page(group, 0), page_count, BlockKind::StorePage);
        for within in 0..geometry.group_blocks(group) {
            let block = geometry.group_first(group).plus(within);
            let page = &pages[usize::try_from(within / ENTRIES_PER_STORE_PAGE).expect("below 193")];
            let index = usize::try_from(within % ENTRIES_PER_STORE_PAGE).expect("below 170");
            let usage = page.as_ref().ok().and_then(|page| store_page::entry(page, index)).map(|entry| entry.usage);
            if !geometry.is_allocatable(block) {
                continue;
            }
            let is_free = usage == Some(BlockUse::Free) && bit(&bitmaps, within) == Some(false);
            // Enough for any tree that fits the memory; the first ones lie close together.
            if is_free && free.len() < PAGES_MAX {
                free.push(block);
            }
            // Where the entry is lost too, the block's own header must do.
            let may_be_page = matches!(usage, Some(BlockUse::TreePage)) || page.is_err();
            if may_be_page && !reached.contains(&block) && stray.len() < PAGES_MAX {
                let is_leaf =
                    context.blocks.block(block, BlockKind::TreePage).is_ok_and(|bytes| bytes[LEVEL_OFFSET] == 0);
                if is_leaf {
                    stray.push(block);
                }
            }
        }
        context.meter.advance(0)?;
    }
    Ok(())
}

/// Which of two items of one key counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Precedence {
    /// The one that is copied.
    New,
    /// The one that is there.
    Old,
}

/// Copies all items below a page that can be read.
fn copy_items(
    context: &mut Context<'_>,
    from: BlockNo,
    patch: &mut Patch<'_>,
    root: &mut BlockNo,
    precedence: Precedence,
) -> Result<(), CheckError> {
    let meter = &mut context.meter;
    tree::check(&mut context.tree, from, &mut |finding| {
        match finding {
            Finding::Page { .. } => meter.advance(0)?,
            Finding::Item { key, value } => copy_item(patch, root, &key, value, precedence)?,
            Finding::Unreadable { error: CheckError::Unusable(_), .. } | Finding::Damage(_) => {}
            Finding::Unreadable { error, .. } => return Err(error),
        }
        Ok(())
    })?;
    Ok(())
}

fn copy_item(
    patch: &mut Patch<'_>,
    root: &mut BlockNo,
    key: &Key,
    value: &[u8],
    precedence: Precedence,
) -> Result<(), CheckError> {
    if precedence == Precedence::New || tree::get(patch, *root, key)?.is_none() {
        tree::insert(patch, root, key, value)?;
        patch.flush_if_many()?;
    }
    Ok(())
}
