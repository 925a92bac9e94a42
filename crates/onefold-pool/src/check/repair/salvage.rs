//! Rebuilds a names tree with unusable pages: from its reachable pages, and from all leaves that are recorded as pages
//! of the tree.
//!
//! The new tree takes blocks that are free in both bitmap and fingerprint store. One change of the pool state makes it
//! the pool's tree, after all of it is durable. The old tree is freed when the block groups are rebuilt.
//!
//! Where the record of a block is lost too, its own header decides. Users of a pool of format version 1 know such a
//! header, and can write one into a file. So there such a leaf counts only if the tree leads to it, or if the options
//! say so ([`UnprovenNames`]).

use std::collections::BTreeSet;

use onefold_block::BlockNo;

use super::patch::Patch;
use crate::check::context::Context;
use crate::check::lost_state::LEVEL_OFFSET;
use crate::check::reader::CheckError;
use crate::check::span::bit;
use crate::check::{CheckOptions, UnprovenNames};
use crate::engine::open::read_superblock;
use crate::error::PoolError;
use crate::format::geometry::{BITMAP_BLOCKS, ENTRIES_PER_STORE_PAGE, STATE, STORE_PAGES_PER_GROUP};
use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::format::store_page::{self, BlockUse};
use crate::format::superblock::Marking;
use crate::progress::Progress;
use crate::tree::{self, TreeFinding};

/// Maximum number of new pages for each old one: they are filled in key order, at least to a third.
const GROWTH: usize = 3;
/// Maximum number of pages of the tree that are held at once.
const PAGES_MAX: usize = 1 << 22;

/// Rebuilds the names tree.
pub(super) fn mend(
    device: &dyn onefold_block::BlockDevice,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<(), CheckError> {
    let superblock = read_superblock(device)?;
    let mut patch = Patch::recover(device, &superblock)?;
    let mut context = Context::reopen(device, options, progress)?;
    let root = BlockNo(context.field(Field::TreeRoot));
    let GroupEvidence { leaves, mut unproven, page_count, mut free, free_perhaps } = look_through_groups(&mut context)?;
    let needed = page_count.saturating_mul(GROWTH) + GROWTH;
    if free.len() < needed {
        free.extend(free_perhaps);
    }
    free.truncate(needed);
    free.reverse();
    patch.free = free;
    let mut new_root = tree::create(&mut patch)?;
    // Items that a look-up finds are the newest. Leaves contain others if the page above them is damaged or outdated; a
    // leaf that is not recorded was freed.
    let are_all_listed = leaves.len() + unproven.len() < PAGES_MAX;
    let mut reached = BTreeSet::new();
    let counts = |leaf: BlockNo| {
        let is_unproven = unproven.binary_search(&leaf).is_ok();
        if is_unproven {
            reached.insert(leaf);
        }
        is_unproven || !are_all_listed || leaves.binary_search(&leaf).is_ok()
    };
    copy_items(&mut context, root, &mut patch, &mut new_root, counts)?;
    unproven.retain(|leaf| !reached.contains(leaf));
    let taken = match (options.unproven_names, unproven.first()) {
        (UnprovenNames::Refuse, Some(&first)) => {
            return Err(CheckError::Fatal(PoolError::UnprovenNames { count: unproven.len(), first }));
        }
        (UnprovenNames::Take, _) => unproven,
        (UnprovenNames::Refuse | UnprovenNames::Leave, _) => Vec::new(),
    };
    for &leaf in leaves.iter().chain(&taken) {
        copy_items(&mut context, leaf, &mut patch, &mut new_root, |_| true)?;
    }
    patch.flush()?;
    let mut state = Box::new(*patch.block(STATE, BlockKind::State).map_err(CheckError::Unusable)?);
    state[Field::TreeRoot.range()].copy_from_slice(&new_root.0.to_le_bytes());
    patch.put(STATE, state)?;
    Ok(patch.flush()?)
}

/// The block groups' information.
#[derive(Default)]
struct GroupEvidence {
    /// All leaves that are recorded as pages of the tree, ascending.
    leaves: Vec<BlockNo>,
    /// Leaves that only a header shows that users can know, ascending.
    unproven: Vec<BlockNo>,
    /// Number of pages in use.
    page_count: usize,
    /// Blocks that are free in both bitmap and fingerprint store.
    free: Vec<BlockNo>,
    /// Blocks that are free in one of them while the other is unusable.
    free_perhaps: Vec<BlockNo>,
}

fn look_through_groups(context: &mut Context<'_>) -> Result<GroupEvidence, CheckError> {
    let geometry = context.geometry;
    let has_secret_tag = context.superblock.marking == Marking::Secret;
    let mut found = GroupEvidence::default();
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
            let mark = bit(&bitmaps, within);
            let free = match (usage, mark) {
                (Some(BlockUse::Free), Some(false)) => Some(&mut found.free),
                (Some(BlockUse::Free), None) => Some(&mut found.free_perhaps),
                (None, Some(false)) if page.is_err() => Some(&mut found.free_perhaps),
                _ => None,
            };
            // Enough for any tree that fits the memory; the first ones are close together.
            if let Some(free) = free.filter(|free| free.len() < PAGES_MAX) {
                free.push(block);
            }
            // If the entry is lost too, the block's own header decides.
            let may_be_page = (usage == Some(BlockUse::TreePage) || page.is_err()) && mark != Some(false);
            if may_be_page
                && found.leaves.len() + found.unproven.len() < PAGES_MAX
                && let Ok(bytes) = context.blocks.block(block, BlockKind::TreePage)
            {
                found.page_count += 1;
                if bytes[LEVEL_OFFSET] == 0 {
                    let is_proven = page.is_ok() || has_secret_tag;
                    if is_proven { &mut found.leaves } else { &mut found.unproven }.push(block);
                }
            }
        }
        context.meter.advance(0)?;
    }
    Ok(found)
}

/// Copies all items below a page that are readable and whose leaf satisfies `counts`, except those already there.
fn copy_items(
    context: &mut Context<'_>,
    from: BlockNo,
    patch: &mut Patch<'_>,
    root: &mut BlockNo,
    mut counts: impl FnMut(BlockNo) -> bool,
) -> Result<(), CheckError> {
    let meter = &mut context.meter;
    let mut is_counted = false;
    tree::check(&mut context.tree, from, &mut |finding| {
        match finding {
            TreeFinding::Page { at } => {
                is_counted = counts(at);
                meter.advance(0)?;
            }
            TreeFinding::Item { key, value } if is_counted && tree::get(patch, *root, &key)?.is_none() => {
                tree::insert(patch, root, &key, value)?;
                patch.flush_if_many()?;
            }
            TreeFinding::Item { .. }
            | TreeFinding::Unreadable { error: CheckError::Unusable(_), .. }
            | TreeFinding::Damage(_) => {}
            TreeFinding::Unreadable { error, .. } => return Err(error),
        }
        Ok(())
    })?;
    Ok(())
}
