//! Rebuilds bitmaps, fingerprint stores and counters from the references that exist.

use std::collections::BTreeSet;

use onefold_block::{AlignedBuffer, BlockNo, FingerprintKey};

use super::patch::Patch;
use crate::check::context::Context;
use crate::check::inodes::TreeContent;
use crate::check::reader::CheckError;
use crate::check::span::{self, GroupSpan, ReferenceEvidence, SpanTotals};
use crate::check::{maps, state};
use crate::engine::group_init::blank_group;
use crate::format::geometry::{BITMAP_BLOCKS, BITS_PER_BITMAP_BLOCK, ENTRIES_PER_STORE_PAGE, STATE};
use crate::format::header::{BlockKind, HEADER_BYTES};
use crate::format::store_page::{self, BlockUse, StoreEntry};

/// Rebuilds every group in use, and the pool state.
pub(super) fn mend(context: &mut Context<'_>, patch: &mut Patch<'_>, listed: &TreeContent) -> Result<(), CheckError> {
    let ready = context.groups_ready();
    let groups = span::groups_per_span(context.memory_bytes);
    let mut sums = SpanTotals::default();
    let mut first = 0;
    while first < ready {
        let end = (first + groups).min(ready);
        let mut span = GroupSpan::blank(&context.geometry, first..end);
        maps::walk(context, &mut span, listed, first == 0, &mut sums)?;
        for group in first..end {
            mend_group(context, patch, &mut span, group, &mut sums)?;
            context.meter.advance(context.geometry.group_blocks(group))?;
        }
        first = end;
    }
    let mut bytes = Box::new(*patch.block(STATE, BlockKind::State).map_err(CheckError::Unusable)?);
    for (field, counted) in state::counters(listed, &sums) {
        bytes[field.range()].copy_from_slice(&counted.to_le_bytes());
    }
    if bytes != context.state {
        patch.put(STATE, bytes)?;
    }
    Ok(patch.flush()?)
}

fn mend_group(
    context: &mut Context<'_>,
    patch: &mut Patch<'_>,
    span: &mut GroupSpan,
    group: u64,
    sums: &mut SpanTotals,
) -> Result<(), CheckError> {
    let geometry = context.geometry;
    let first = geometry.group_first(group);
    let outdated = outdated_pages(context, patch, span, group);
    // A blank group has only the bits of fixed structures set.
    let mut new = blank_group(&geometry, context.superblock.pool_tag(), group);
    for within in 0..geometry.group_blocks(group) {
        let block = first.plus(within);
        let ReferenceEvidence { usage, count, domain, is_mixed } = span.found(block);
        if usage == BlockUse::Free || !geometry.is_allocatable(block) {
            continue;
        }
        let place = geometry.store_place(block);
        let recorded =
            patch.block(place.page, BlockKind::StorePage).ok().and_then(|page| store_page::entry(page, place.index));
        let entry = match (usage, recorded) {
            // The fingerprint is evidence of what was written, so it is kept, whatever the block holds now. So is its
            // domain if there are several: files of the others get copies later.
            (BlockUse::Data, Some(recorded))
                if recorded.usage == BlockUse::Data && (recorded.domain == domain || is_mixed) =>
            {
                let is_witness = !outdated.contains(&place.page) || holds(context, block, &recorded);
                if is_witness {
                    StoreEntry { count, ..recorded }
                } else {
                    fingerprinted(context, block, count, recorded.domain)
                }
            }
            (BlockUse::Data, _) => fingerprinted(context, block, count, domain),
            (other, _) => StoreEntry { count, ..StoreEntry::metadata(other) },
        };
        span::add(&entry, sums);
        let bit = within % BITS_PER_BITMAP_BLOCK;
        let byte = HEADER_BYTES + usize::try_from(bit / 8).expect("below 4080");
        let [bitmap, page] = [within / BITS_PER_BITMAP_BLOCK, BITMAP_BLOCKS + within / ENTRIES_PER_STORE_PAGE]
            .map(|at| usize::try_from(at).expect("a group has 195 structures"));
        new[bitmap].2[byte] |= 1 << (bit % 8);
        new[page].2[store_page::entry_range(place.index)].copy_from_slice(&entry.encode());
    }
    for (at, kind, bytes) in new {
        let is_right = patch.block(at, kind).is_ok_and(|old| old[4..] == bytes[4..]);
        if !is_right {
            patch.put(at, Box::new(bytes))?;
        }
    }
    Ok(())
}

/// Returns the pages of a group's fingerprint store whose counts or uses fall short of the references: one of their
/// writes was lost, so their fingerprints are no evidence of what was written. (Counts that are too high come from
/// damage elsewhere.)
fn outdated_pages(context: &Context<'_>, patch: &mut Patch<'_>, span: &mut GroupSpan, group: u64) -> BTreeSet<BlockNo> {
    let geometry = context.geometry;
    let mut outdated = BTreeSet::new();
    for block in (0..geometry.group_blocks(group)).map(|within| geometry.group_first(group).plus(within)) {
        let ReferenceEvidence { usage, count, .. } = span.found(block);
        let place = geometry.store_place(block);
        if usage == BlockUse::Free || outdated.contains(&place.page) {
            continue;
        }
        let page = patch.block(place.page, BlockKind::StorePage).ok();
        let recorded = page.and_then(|page| store_page::entry(page, place.index));
        if recorded.is_some_and(|recorded| recorded.usage != usage || recorded.count < count) {
            outdated.insert(place.page);
        }
    }
    outdated
}

/// Returns whether a data block matches its entry.
fn holds(context: &Context<'_>, block: BlockNo, entry: &StoreEntry) -> bool {
    let mut buffer = AlignedBuffer::zeroed(1);
    let key = FingerprintKey::derive(&context.superblock.key, entry.domain);
    // An unreadable block proves nothing against the entry.
    context.blocks.device().read(block, &mut buffer).is_err() || key.fingerprint(&buffer) == entry.fingerprint
}

/// Returns the entry of a data block whose fingerprint is lost; the new one is computed from the block's content. An
/// unreadable block gets a fingerprint that no content has.
fn fingerprinted(context: &Context<'_>, block: BlockNo, count: u32, domain: u16) -> StoreEntry {
    let mut buffer = AlignedBuffer::zeroed(1);
    let read = context.blocks.device().read(block, &mut buffer);
    let key = FingerprintKey::derive(&context.superblock.key, domain);
    let fingerprint = read.map(|()| key.fingerprint(&buffer)).unwrap_or_default();
    StoreEntry { fingerprint, count, domain, usage: BlockUse::Data, private: false }
}
