//! Compares all data with its fingerprints.

use std::collections::BTreeMap;

use onefold_block::device::reads_of;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo, Fingerprint, FingerprintKey};

use super::context::Context;
use super::reader::CheckError;
use crate::format::geometry::{ENTRIES_PER_STORE_PAGE, GROUP_BLOCKS, STORE_PAGES_PER_GROUP};
use crate::format::header::BlockKind;
use crate::format::store_page::{self, BlockUse};

/// Number of blocks read and hashed at once: 4 MiB.
const BATCH_BLOCKS: usize = 1024;

/// A data block, as described by its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataBlock {
    pub(crate) block: BlockNo,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) domain: u16,
    /// Whether no later write can be shared with it.
    pub(crate) is_private: bool,
}

/// Reads and hashes every data block.
pub(super) fn check(context: &mut Context<'_>) -> Result<(), CheckError> {
    let geometry = context.geometry;
    let mut buffer = AlignedBuffer::zeroed(BATCH_BLOCKS);
    let page_count = usize::try_from(STORE_PAGES_PER_GROUP).expect("193");
    for group in 0..context.groups_ready() {
        let first_page = geometry.store_page(group, 0);
        let pages = context.blocks.run(first_page, page_count, BlockKind::StorePage);
        // A page that was readable a moment ago: the blocks that it describes are not verified.
        for (number, page) in (0..).zip(&pages) {
            let at = first_page.plus(number);
            if let Err(what) = page
                && !context.findings.has_told_of(at)
            {
                context.findings.tell(BlockKind::StorePage.name(), Some(at), what.to_string());
            }
        }
        let mut batch = Vec::with_capacity(BATCH_BLOCKS);
        for within in 0..geometry.group_blocks(group) {
            let page = &pages[usize::try_from(within / ENTRIES_PER_STORE_PAGE).expect("below 193")];
            let index = usize::try_from(within % ENTRIES_PER_STORE_PAGE).expect("below 170");
            let block = BlockNo(group * GROUP_BLOCKS + within);
            if let Some(entry) = page.as_ref().ok().and_then(|bytes| store_page::entry(bytes, index))
                && entry.usage == BlockUse::Data
                && geometry.is_allocatable(block)
            {
                let (fingerprint, domain) = (entry.fingerprint, entry.domain);
                batch.push(DataBlock { block, fingerprint, domain, is_private: entry.private });
            }
            if batch.len() == BATCH_BLOCKS {
                check_batch(context, &batch, &mut buffer);
                context.meter.advance(batch.len() as u64)?;
                batch.clear();
            }
        }
        check_batch(context, &batch, &mut buffer);
        context.meter.advance(batch.len() as u64)?;
    }
    Ok(())
}

fn check_batch(context: &mut Context<'_>, batch: &[DataBlock], buffer: &mut AlignedBuffer) {
    if batch.is_empty() {
        return;
    }
    let blocks: Vec<BlockNo> = batch.iter().map(|described| described.block).collect();
    let failed = read(context.blocks.device(), &blocks, buffer);
    for (block, error) in &failed {
        context.findings.tell_users_of(*block, "data", format!("the block cannot be read: {error}"));
    }
    context.data_blocks_hashed += batch.len() as u64;
    let pool_key = context.superblock.key;
    for block in mismatches(|domain| FingerprintKey::derive(&pool_key, domain), batch, buffer) {
        if !failed.iter().any(|(unread, _)| *unread == block) {
            context.findings.tell_users_of(
                block,
                "data",
                "the content is not what was written: it does not match its fingerprint",
            );
            if batch.iter().any(|described| described.block == block && described.is_private) {
                context.findings.settle_last();
            }
        }
    }
}

/// Reads ascending blocks one after another into the front of `buffer`; adjacent ones in one read. Returns the
/// unreadable ones.
pub(crate) fn read(
    device: &dyn BlockDevice,
    blocks: &[BlockNo],
    buffer: &mut AlignedBuffer,
) -> Vec<(BlockNo, std::io::Error)> {
    let mut batch = reads_of(blocks, buffer);
    if device.read_batch(&mut batch).is_ok() {
        return Vec::new();
    }
    // One bad sector must not hide its neighbours.
    let each = blocks.iter().zip(buffer.chunks_exact_mut(BLOCK_BYTES));
    each.filter_map(|(block, into)| device.read(*block, into).err().map(|error| (*block, error))).collect()
}

/// Returns the blocks whose content, consecutive in `content`, does not have the described fingerprint under the key of
/// its sharing domain.
pub(crate) fn mismatches(
    key_of: impl Fn(u16) -> FingerprintKey,
    described: &[DataBlock],
    content: &[u8],
) -> Vec<BlockNo> {
    let mut domains: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (at, one) in described.iter().enumerate() {
        domains.entry(one.domain).or_default().push(at);
    }
    let mut wrong = Vec::new();
    for (domain, places) in domains {
        let bytes: Vec<&[u8]> = places.iter().map(|at| &content[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES]).collect();
        let mut found = vec![Fingerprint::default(); places.len()];
        key_of(domain).fingerprint_each(&bytes, &mut found);
        wrong.extend(
            places
                .iter()
                .zip(found)
                .filter(|(at, found)| described[**at].fingerprint != *found)
                .map(|(at, _)| described[*at].block),
        );
    }
    wrong.sort_unstable();
    wrong
}
