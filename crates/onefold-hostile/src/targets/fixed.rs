//! Decoders of structures that have a block of their own.

use onefold_block::{BLOCK_BYTES, BlockNo};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::geometry::{ENTRIES_PER_STORE_PAGE, HEARTBEAT, STATE, SUPERBLOCK};
use onefold_pool::format::group_summaries::SummaryBlock;
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::format::heartbeat::Heartbeat;
use onefold_pool::format::journal::JournalHeader;
use onefold_pool::format::map_node::{self, FAN_OUT_LEN};
use onefold_pool::format::state::Field;
use onefold_pool::format::store_page::{self, StoreEntry};
use onefold_pool::format::superblock::{self, Superblock};

use crate::Choices;
use crate::samples::{Sample, samples};

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let sample = choices.one_of(samples());
    match choices.below(7) {
        0 => superblock(&block(&mut choices, sample, BlockKind::Superblock, SUPERBLOCK)),
        1 => journal_header(&mut choices, sample),
        2 => {
            let bytes = block(&mut choices, sample, BlockKind::Heartbeat, HEARTBEAT);
            if let Some(beat) = Heartbeat::decode(&bytes, sample.pool_tag) {
                assert_eq!(Heartbeat::decode(&beat.encode(sample.pool_tag), sample.pool_tag), Some(beat));
            }
        }
        3 => {
            let bytes = block(&mut choices, sample, BlockKind::State, STATE);
            let _ = (Field::TreeRoot.get(&bytes), Field::ReclaimPending.get(&bytes));
        }
        4 => store_page(&block(&mut choices, sample, BlockKind::StorePage, BlockNo(4))),
        5 => group_summaries(&mut choices, sample),
        _ => map_node(&block(&mut choices, sample, BlockKind::MapNode(0), BlockNo(5000))),
    }
}

/// Returns a block of the sample, or an empty one, with parts overwritten by the input's bytes.
fn block(choices: &mut Choices<'_>, sample: &Sample, kind: BlockKind, at: BlockNo) -> BlockBytes {
    let mut bytes = sample.image.get(at).map_or([0; BLOCK_BYTES], |block| **block);
    while !choices.is_used_up() {
        let first = if choices.below(4) == 0 { choices.index(BLOCK_BYTES) } else { 16 + choices.index(200) };
        let length = 1 + choices.index(8);
        for (place, byte) in bytes[first..].iter_mut().zip(choices.take(length)) {
            *place = *byte;
        }
    }
    let tag = if kind == BlockKind::Superblock { superblock::tag_of(&bytes) } else { sample.pool_tag };
    header::stamp(&mut bytes, tag, kind, at);
    header::seal(&mut bytes);
    bytes
}

fn superblock(bytes: &BlockBytes) {
    if let Ok(found) = Superblock::decode(bytes, SUPERBLOCK) {
        let again = Superblock::decode(&found.encode(SUPERBLOCK), SUPERBLOCK);
        assert!(again.as_ref() == Ok(&found), "{found:?} is written as {again:?}");
    }
}

fn journal_header(choices: &mut Choices<'_>, sample: &Sample) {
    let at = sample.geometry.journal_first;
    let bytes = block(choices, sample, BlockKind::JournalHeader, at);
    let log_blocks = sample.geometry.journal_blocks - 2;
    if let Ok(found) = JournalHeader::decode(&bytes, sample.pool_tag, at, log_blocks) {
        assert!(found.tail_position < log_blocks);
        let again = JournalHeader::decode(&found.encode(sample.pool_tag, at), sample.pool_tag, at, log_blocks);
        assert_eq!(again, Ok(found));
    }
}

fn group_summaries(choices: &mut Choices<'_>, sample: &Sample) {
    let at = BlockNo(6000);
    let bytes = block(choices, sample, BlockKind::GroupSummaries, at);
    if let Some(found) = SummaryBlock::decode(&bytes, sample.pool_tag, at) {
        assert_eq!(found.encode(sample.pool_tag, at), bytes);
    }
}

fn store_page(bytes: &BlockBytes) {
    for index in 0..usize::try_from(ENTRIES_PER_STORE_PAGE).expect("170") {
        if let Some(entry) = store_page::entry(bytes, index) {
            assert_eq!(StoreEntry::decode(&entry.encode()), Some(entry));
            assert!(store_page::find(bytes, entry.fingerprint).any(|found| found == index));
        }
    }
}

fn map_node(bytes: &BlockBytes) {
    let _ = map_node::totals(bytes).map(map_node::encode_totals);
    for index in 0..FAN_OUT_LEN {
        if let Some(entry) = map_node::entry(bytes, index) {
            assert_eq!(map_node::MapEntry::decode(entry.encode()), Some(entry));
        }
    }
}
