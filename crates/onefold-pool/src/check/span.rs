//! Block groups: compares bitmaps with fingerprint stores, and reference counts with the references that are found.
//!
//! References are counted in a *span*: as many block groups as fit the memory, at 8 bytes per block. All maps are
//! walked once for each span. A count starts at the value in the store and decreases with each reference found.

use std::ops::Range;

use onefold_block::BlockNo;
use onefold_block::zero::is_zero;

use super::context::Context;
use super::findings::CheckFindings;
use super::inodes::TreeContent;
use super::reader::CheckError;
use crate::format::BlockBytes;
use crate::format::geometry::{
    BITMAP_BLOCKS, BITS_PER_BITMAP_BLOCK, ENTRIES_PER_STORE_PAGE, GROUP_BLOCKS, Geometry, STORE_PAGES_PER_GROUP,
};
use crate::format::header::{BlockKind, HEADER_BYTES};
use crate::format::store_page::{self, BlockUse, StoreEntry};

/// The entry is unreadable: nothing is known of the block.
const UNKNOWN: u8 = 1;
/// The block has a reference.
const REFERRED: u8 = 2;
/// More references were found than are recorded.
const OVER: u8 = 4;
/// The block's problem is already reported.
const TOLD: u8 = 8;
/// The sharing domain of a map node's files is known.
const DOMAIN_KNOWN: u8 = 16;

/// The use is unknown: the first reference determines it.
const BLANK: u8 = 32;
/// The bitmap marks the block as free.
const MARKED_FREE: u8 = 64;
/// Files of several sharing domains refer to the block.
const MIXED: u8 = 128;

/// A block while its references are counted.
#[derive(Clone, Copy)]
struct BlockTally {
    /// Recorded references not yet found; with [`OVER`], minus the number of excess ones.
    remaining: u32,
    domain: u16,
    usage: BlockUse,
    flags: u8,
}

const _: () = assert!(size_of::<BlockTally>() == 8);

/// Totals over the groups of all spans.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpanTotals {
    pub(super) data: u64,
    pub(super) shared: u64,
    pub(super) metadata: u64,
    pub(super) references: u64,
    /// Number of blocks promised to reserved places.
    pub(super) reserved: u64,
    /// Number of blocks with fewer references than recorded, which damage elsewhere may explain.
    pub(super) unaccounted: u64,
}

/// A problem of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReferenceTrouble {
    /// The block has another use.
    Use(BlockUse),
    /// The block belongs to another sharing domain.
    Domain(u16),
}

/// The evidence of references about a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReferenceEvidence {
    pub(super) usage: BlockUse,
    pub(super) count: u32,
    /// Sharing domain of the first file, for a data block.
    pub(super) domain: u16,
    /// Whether there are files of other sharing domains.
    pub(super) is_mixed: bool,
}

/// Some block groups while their references are counted.
pub(super) struct GroupSpan {
    first: u64,
    blocks: Vec<BlockTally>,
}

/// [`ENTRIES_PER_STORE_PAGE`], as an index.
const ENTRIES_PER_PAGE: usize = 170;
const _: () = assert!(ENTRIES_PER_PAGE as u64 == ENTRIES_PER_STORE_PAGE);

/// Returns the number of groups whose blocks fit the memory for counting.
pub(super) fn groups_per_span(memory_bytes: u64) -> u64 {
    (memory_bytes / 2 / (size_of::<BlockTally>() as u64 * GROUP_BLOCKS)).max(1)
}

impl GroupSpan {
    pub(super) fn load(
        context: &mut Context<'_>,
        groups: Range<u64>,
        sums: &mut SpanTotals,
    ) -> Result<GroupSpan, CheckError> {
        let geometry = context.geometry;
        let blocks: u64 = groups.clone().map(|group| geometry.group_blocks(group)).sum();
        let mut span = GroupSpan {
            first: groups.start * GROUP_BLOCKS,
            blocks: Vec::with_capacity(usize::try_from(blocks).unwrap_or(0)),
        };
        for group in groups {
            span.load_group(context, group, sums);
            context.meter.advance(geometry.group_blocks(group))?;
        }
        Ok(span)
    }

    fn load_group(&mut self, context: &mut Context<'_>, group: u64, sums: &mut SpanTotals) {
        let geometry = context.geometry;
        let bitmap_count = usize::try_from(BITMAP_BLOCKS).expect("two");
        let bitmaps = context.blocks.run(geometry.bitmap_block(group, 0), bitmap_count, BlockKind::Bitmap);
        let page_count = usize::try_from(STORE_PAGES_PER_GROUP).expect("193");
        let pages = context.blocks.run(geometry.store_page(group, 0), page_count, BlockKind::StorePage);
        for (index, bitmap) in (0..).zip(&bitmaps) {
            if let Err(what) = bitmap {
                context.is_incomplete = true;
                let at = geometry.bitmap_block(group, index);
                context.findings.tell(
                    "bitmap",
                    Some(at),
                    format!("the bitmap of block group {group} is unusable: {what}"),
                );
            }
        }
        for (index, page) in (0..).zip(&pages) {
            if let Err(what) = page {
                context.is_incomplete = true;
                let at = geometry.store_page(group, index);
                let what =
                    format!("fingerprints and reference counts of {} blocks are lost: {what}", ENTRIES_PER_STORE_PAGE);
                context.findings.tell("fingerprint store", Some(at), what);
            }
        }
        let first = geometry.group_first(group);
        for within in 0..geometry.group_blocks(group) {
            let block = first.plus(within);
            let page = usize::try_from(within / ENTRIES_PER_STORE_PAGE).expect("below 193");
            let index = usize::try_from(within % ENTRIES_PER_STORE_PAGE).expect("below 170");
            let entry = match &pages[page] {
                Ok(bytes) => store_page::entry(bytes, index).or_else(|| {
                    let at = geometry.store_place(block).page;
                    context.findings.tell(
                        "fingerprint store",
                        Some(at),
                        format!("the entry of block {block} makes no sense"),
                    );
                    None
                }),
                Err(_) => None,
            };
            let bit = bit(&bitmaps, within);
            check_agreement(&mut context.findings, &geometry, block, bit, entry.as_ref());
            let mark = if bit == Some(false) { MARKED_FREE } else { 0 };
            let counted = counted(entry, sums);
            self.blocks.push(BlockTally { flags: counted.flags | mark, ..counted });
        }
        check_beyond_end(&mut context.findings, &geometry, group, &bitmaps, &pages);
    }

    /// Returns a span of blocks about which only later references give evidence.
    pub(super) fn blank(geometry: &Geometry, groups: Range<u64>) -> GroupSpan {
        let blocks: u64 = groups.clone().map(|group| geometry.group_blocks(group)).sum();
        let blank = BlockTally { remaining: 0, domain: 0, usage: BlockUse::Free, flags: BLANK };
        GroupSpan { first: groups.start * GROUP_BLOCKS, blocks: vec![blank; usize::try_from(blocks).unwrap_or(0)] }
    }

    /// Returns the evidence of the references so far about a block of a blank span.
    pub(super) fn found(&mut self, block: BlockNo) -> ReferenceEvidence {
        let Some(counted) = self.place(block) else {
            return ReferenceEvidence { usage: BlockUse::Free, count: 0, domain: 0, is_mixed: false };
        };
        ReferenceEvidence {
            usage: counted.usage,
            count: counted.remaining.wrapping_neg(),
            domain: if counted.usage == BlockUse::Data { counted.domain } else { 0 },
            is_mixed: counted.flags & MIXED != 0,
        }
    }

    /// Returns the record of a block, if the block belongs to the span.
    fn place(&mut self, block: BlockNo) -> Option<&mut BlockTally> {
        let offset = usize::try_from(block.0.checked_sub(self.first)?).ok()?;
        self.blocks.get_mut(offset)
    }

    /// Counts a reference to a block as `usage` by a file of `domain`. Does nothing if the block belongs to another
    /// span. Returns the same problem of a block only once.
    pub(super) fn refer(&mut self, block: BlockNo, usage: BlockUse, domain: Option<u16>) -> Option<ReferenceTrouble> {
        let counted = self.place(block)?;
        counted.flags |= REFERRED;
        if counted.flags & UNKNOWN != 0 {
            return None;
        }
        if counted.flags & BLANK != 0 {
            counted.flags &= !BLANK;
            counted.usage = usage;
            counted.domain = domain.unwrap_or(0);
        }
        let mut trouble = None;
        if counted.usage != usage {
            trouble = Some(ReferenceTrouble::Use(counted.usage));
        } else {
            if counted.remaining == 0 {
                counted.flags |= OVER;
            }
            counted.remaining = counted.remaining.wrapping_sub(1);
            if let Some(domain) = domain {
                if usage == BlockUse::MapNode && counted.flags & DOMAIN_KNOWN == 0 {
                    counted.flags |= DOMAIN_KNOWN;
                    counted.domain = domain;
                }
                if counted.domain != domain {
                    counted.flags |= MIXED;
                    trouble = Some(ReferenceTrouble::Domain(counted.domain));
                }
            }
        }
        let is_new = counted.flags & TOLD == 0;
        if trouble.is_some() {
            counted.flags |= TOLD;
        }
        trouble.filter(|_| is_new)
    }

    /// Reports blocks of the saved filter that are in use.
    pub(super) fn check_filter_blocks(&mut self, context: &mut Context<'_>, listed: &TreeContent) {
        let sum: u64 = listed.filter_runs.iter().map(|run| run.count).sum();
        if sum > context.geometry.total_blocks {
            return;
        }
        for run in &listed.filter_runs {
            let in_use = (0..run.count).map(|offset| run.first.plus(offset)).find(|block| {
                self.place(*block).is_some_and(|counted| counted.usage != BlockUse::Free)
                    || context.geometry.is_fixed(*block)
            });
            if let Some(block) = in_use {
                context.findings.tell("saved filter", Some(block), "it is recorded in blocks that are in use");
            }
        }
    }

    /// Reports all blocks whose number of references differs from the recorded one.
    ///
    /// An unreferenced page of the names tree is not lost space: the page that led to it is outdated.
    pub(super) fn settle(&self, context: &mut Context<'_>, sums: &mut SpanTotals) {
        let mut leaked: Option<(BlockNo, u64)> = None;
        for (block, counted) in (self.first..).map(BlockNo).zip(&self.blocks) {
            let is_over = counted.flags & OVER != 0;
            if counted.flags & (UNKNOWN | TOLD) != 0 || counted.remaining == 0 && !is_over {
                continue;
            }
            if is_over {
                let found = counted.remaining.wrapping_neg();
                let what = format!(
                    "there are {found} more references to the block than recorded: it would be freed too early"
                );
                context.findings.tell_users_of(block, "reference count", what);
            } else if context.is_incomplete {
                sums.unaccounted += 1;
                context.findings.unreferenced += 1;
            } else if counted.flags & REFERRED == 0 {
                let (_, count) = leaked.get_or_insert((block, 0));
                *count += 1;
                context.findings.unreferenced += 1;
                // If even the bitmap marks it as free, the entry is outdated.
                context.findings.lost_names |= counted.usage == BlockUse::TreePage && counted.flags & MARKED_FREE == 0;
            } else {
                let what = format!("{} more references to the block are recorded than there are", counted.remaining);
                context.findings.tell_users_of(block, "reference count", what);
            }
        }
        if let Some((first, count)) = leaked {
            let what =
                format!("{count} blocks from this one on are in use, but nothing refers to them: their space is lost");
            context.findings.tell("reference count", Some(first), what);
        }
    }
}

fn counted(entry: Option<StoreEntry>, sums: &mut SpanTotals) -> BlockTally {
    let Some(entry) = entry else {
        return BlockTally { remaining: 0, domain: 0, usage: BlockUse::Free, flags: UNKNOWN };
    };
    add(&entry, sums);
    BlockTally { remaining: entry.count, domain: entry.domain, usage: entry.usage, flags: 0 }
}

/// Adds the content of an entry to the sums.
pub(super) fn add(entry: &StoreEntry, sums: &mut SpanTotals) {
    match entry.usage {
        BlockUse::Free => {}
        BlockUse::Data => {
            sums.data += 1;
            sums.shared += u64::from(entry.count > 1);
            sums.references += u64::from(entry.count);
        }
        BlockUse::MapNode | BlockUse::TreePage => sums.metadata += 1,
    }
}

/// Returns a block's bit; `None` if its bitmap is unusable.
pub(super) fn bit(bitmaps: &[Result<Box<BlockBytes>, String>], within: u64) -> Option<bool> {
    let bitmap = bitmaps[usize::try_from(within / BITS_PER_BITMAP_BLOCK).expect("two bitmap blocks")].as_ref().ok()?;
    let bit = within % BITS_PER_BITMAP_BLOCK;
    Some(bitmap[HEADER_BYTES + usize::try_from(bit / 8).expect("below 4080")] & 1 << (bit % 8) != 0)
}

fn check_agreement(
    findings: &mut CheckFindings,
    geometry: &Geometry,
    block: BlockNo,
    bit: Option<bool>,
    entry: Option<&StoreEntry>,
) {
    if geometry.is_fixed(block) {
        if bit == Some(false) {
            findings.tell(
                "bitmap",
                Some(block),
                "a structure with a fixed place is marked as free: it would be overwritten",
            );
        }
        if entry.is_some_and(|entry| entry.usage != BlockUse::Free) {
            findings.tell("fingerprint store", Some(block), "a structure with a fixed place has an entry");
        }
        return;
    }
    match (bit, entry.map(|entry| entry.usage)) {
        (Some(true), Some(BlockUse::Free)) => {
            findings.tell("bitmap", Some(block), "the block is marked as used, but its entry says that it is free");
        }
        (Some(false), Some(BlockUse::Data | BlockUse::MapNode | BlockUse::TreePage)) => {
            findings.tell_users_of(
                block,
                "bitmap",
                "the block is marked as free, but it is in use: it would be overwritten",
            );
        }
        _ => {}
    }
    if entry.is_some_and(|entry| entry.usage == BlockUse::Free && *entry != StoreEntry::FREE) {
        findings.tell("fingerprint store", Some(block), "the entry of a free block is not empty");
    }
    if entry.is_some_and(|entry| entry.usage == BlockUse::TreePage && entry.count != 1) {
        findings.tell("reference count", Some(block), "a page of the names tree has more than one reference");
    }
}

/// Returns whether any bit of a bitmap block is set from bit `first` on.
fn is_any_set(bitmap: &BlockBytes, first: u64) -> bool {
    let first = usize::try_from(first.min(BITS_PER_BITMAP_BLOCK)).expect("below 2^15");
    let bytes = &bitmap[HEADER_BYTES + first / 8..];
    match bytes.split_first() {
        Some((partial, rest)) => partial >> (first % 8) != 0 || !is_zero(rest),
        None => false,
    }
}

/// Checks that no block past the group's end is described.
fn check_beyond_end(
    findings: &mut CheckFindings,
    geometry: &Geometry,
    group: u64,
    bitmaps: &[Result<Box<BlockBytes>, String>],
    pages: &[Result<Box<BlockBytes>, String>],
) {
    let end = geometry.group_blocks(group);
    if bitmaps.iter().zip(0..).any(|(bitmap, index)| {
        bitmap.as_ref().is_ok_and(|bytes| is_any_set(bytes, end.saturating_sub(index * BITS_PER_BITMAP_BLOCK)))
    }) {
        let at = geometry.bitmap_block(group, BITMAP_BLOCKS - 1);
        findings.tell("bitmap", Some(at), format!("blocks past the end of block group {group} are marked as used"));
    }
    let beyond = (0..STORE_PAGES_PER_GROUP).zip(pages).find(|(number, page)| {
        let first = end.saturating_sub(number * ENTRIES_PER_STORE_PAGE).min(ENTRIES_PER_STORE_PAGE);
        let first = usize::try_from(first).expect("at most 170");
        let entries = store_page::entries_range(first, ENTRIES_PER_PAGE - first);
        page.as_ref().is_ok_and(|bytes| !is_zero(&bytes[entries]))
    });
    if let Some((number, _)) = beyond {
        let at = geometry.store_page(group, number);
        findings.tell("fingerprint store", Some(at), format!("there are entries past the end of block group {group}"));
    }
}
