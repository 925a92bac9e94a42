//! Damage that recovery believes: changes records of the journal, and then corrects every checksum from there on, both
//! of blocks within records and of the chain of transactions.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use onefold_block::{BLOCK_BYTES, BlockNo};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::geometry::Geometry;
use onefold_pool::format::header;
use onefold_pool::format::journal::{HEADER_SLOTS, JournalHeader, OPENING_BYTES, Opening};
use onefold_testing::device::MemoryImage;

use super::block::change_field;
use super::values;
use crate::Choices;
use crate::samples::Sample;

/// The log of a sample, and the transactions that recovery would read.
struct Log {
    bytes: Vec<u8>,
    transactions: Vec<Range<usize>>,
    chain: u32,
}

/// Returns the sample's device with a few changes to its journal. A closed pool has an empty journal.
pub fn damage_journal(choices: &mut Choices<'_>, sample: &Sample) -> MemoryImage {
    let mut image = sample.image.clone();
    let Some(mut log) = read(&image, sample) else { return image };
    for _ in 0..=choices.below(4) {
        let transaction = choices.one_of(&log.transactions).clone();
        change(choices, sample, &mut log.bytes[transaction]);
    }
    make_right(&mut log);
    for (number, block) in (0..).zip(log.bytes.as_chunks::<BLOCK_BYTES>().0) {
        image.set(log_block(&sample.geometry, number), Arc::new(*block));
    }
    image
}

fn log_block(geometry: &Geometry, number: u64) -> BlockNo {
    geometry.journal_first.plus(HEADER_SLOTS + number)
}

/// Reads the log. `None` if it is empty or wraps around its end, which no sample's log does.
fn read(image: &MemoryImage, sample: &Sample) -> Option<Log> {
    let Sample { geometry, pool_tag, identity, .. } = sample;
    let log_blocks = geometry.journal_blocks - HEADER_SLOTS;
    let slots = (0..HEADER_SLOTS).filter_map(|slot| {
        let at = geometry.journal_first.plus(slot);
        JournalHeader::decode(image.get(at)?, *pool_tag, at, log_blocks).ok()
    });
    let header = slots.max_by_key(|header| header.generation)?;
    let mut bytes = Vec::new();
    for number in 0..log_blocks {
        match image.get(log_block(geometry, number)) {
            Some(block) => bytes.extend_from_slice(&block[..]),
            None => bytes.extend_from_slice(&[0; BLOCK_BYTES]),
        }
    }
    let mut transactions = Vec::new();
    let (mut position, mut sequence) = (header.tail_position, header.tail_sequence);
    while let Some(opening) = usize::try_from(position)
        .ok()
        .and_then(|position| Opening::decode(bytes.get(position * BLOCK_BYTES..)?, *identity, log_blocks))
        .filter(|opening| opening.sequence == sequence && opening.position == position)
    {
        let at = usize::try_from(position).ok()? * BLOCK_BYTES;
        transactions.push(at..at + opening.length);
        (position, sequence) = (position + opening.block_count(), sequence + 1);
    }
    (!transactions.is_empty()).then_some(Log { bytes, transactions, chain: header.tail_chain })
}

/// One record within a transaction: its claimed kind, and its place.
struct RecordPlace {
    kind: u8,
    block: BlockNo,
    range: Range<usize>,
}

/// Returns the records of a transaction, as far as they are valid.
fn places(transaction: &[u8]) -> Vec<RecordPlace> {
    let mut places = Vec::new();
    let mut at = OPENING_BYTES;
    while let Some((&kind, after)) = transaction.get(at..).and_then(<[u8]>::split_first) {
        let Some((block, after)) = after.split_first_chunk::<8>() else { break };
        let length = match kind {
            1 => Some(BLOCK_BYTES),
            2 => ranges_bytes(after),
            3 => Some(0),
            _ => None,
        };
        let Some(end) = length.map(|length| at + 9 + length).filter(|&end| end <= transaction.len()) else { break };
        places.push(RecordPlace { kind, block: BlockNo(u64::from_le_bytes(*block)), range: at..end });
        at = end;
    }
    places
}

/// Returns the number of bytes of a ranges record after its block number, if the record is valid.
fn ranges_bytes(after: &[u8]) -> Option<usize> {
    let count = u16::from_le_bytes(*after.get(4..6)?.first_chunk()?);
    let mut at = 6;
    for _ in 0..count {
        at += 4 + usize::from(u16::from_le_bytes(*after.get(at + 2..at + 4)?.first_chunk()?));
    }
    Some(at)
}

fn change(choices: &mut Choices<'_>, sample: &Sample, transaction: &mut [u8]) {
    let places = places(transaction);
    if places.is_empty() || choices.below(8) == 0 {
        let at = 12 + choices.index(transaction.len() - 12);
        transaction[at] = choices.byte();
        return;
    }
    let RecordPlace { kind, range, .. } = choices.one_of(&places);
    match choices.below(4) {
        0 => transaction[range.start] = choices.below(5).to_le_bytes()[0],
        1 => {
            let old = u64::from_le_bytes(transaction[range.start + 1..range.start + 9].try_into().expect("eight"));
            let new = values::number(choices, old, sample);
            transaction[range.start + 1..range.start + 9].copy_from_slice(&new.to_le_bytes());
        }
        _ if *kind == 1 => {
            let content: &mut [u8] = &mut transaction[range.start + 9..range.end];
            let content: &mut BlockBytes = content.try_into().expect("a whole block");
            if let Some(of) = header::kind(content) {
                change_field(choices, sample, of, content);
            }
        }
        _ => {
            let at = range.start + choices.index(range.len());
            transaction[at] = choices.byte();
        }
    }
}

/// Corrects all checksums, as recovery will compute them.
fn make_right(log: &mut Log) {
    let mut blocks: BTreeMap<BlockNo, BlockBytes> = BTreeMap::new();
    for range in log.transactions.clone() {
        let transaction = &mut log.bytes[range];
        for RecordPlace { kind, block, range } in places(transaction) {
            let record = &mut transaction[range];
            match kind {
                1 => {
                    let content: &mut BlockBytes = (&mut record[9..]).try_into().expect("a whole block");
                    header::seal(content);
                    blocks.insert(block, *content);
                }
                2 => {
                    if let Some(content) = blocks.get_mut(&block) {
                        apply(content, &record[15..]);
                        let sum = header::seal(content);
                        record[9..13].copy_from_slice(&sum.to_le_bytes());
                    }
                }
                _ => drop(blocks.remove(&block)),
            }
        }
        transaction[12..16].copy_from_slice(&log.chain.to_le_bytes());
        let sum = crc32c::crc32c(&transaction[12..]);
        transaction[8..12].copy_from_slice(&sum.to_le_bytes());
        log.chain = sum;
    }
}

fn apply(content: &mut BlockBytes, mut ranges: &[u8]) {
    while let Some((opening, after)) = ranges.split_first_chunk::<4>() {
        let offset = usize::from(u16::from_le_bytes([opening[0], opening[1]]));
        let (bytes, rest) = after.split_at(usize::from(u16::from_le_bytes([opening[2], opening[3]])).min(after.len()));
        if let Some(place) = content.get_mut(offset..offset + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        ranges = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{environment, open_options, samples};
    use onefold_pool::Pool;
    use onefold_testing::device::MemoryDevice;

    #[test]
    fn a_journal_with_a_changed_record_is_believed() {
        let sample = &samples()[1];
        let log = read(&sample.image, sample).expect("a pool that was cut has a journal to replay");
        assert!(log.transactions.len() >= 3);
        // The next inode number is a field of the pool state for which any value is valid.
        let mut bytes = log.bytes;
        let whole = places(&bytes[log.transactions[0].clone()]);
        let state = whole.iter().find(|place| place.kind == 1 && place.block.0 == 197).expect("the state is logged");
        bytes[log.transactions[0].start + state.range.start + 9 + 16 + 8 + 3] = 1;
        let mut changed = Log { bytes, transactions: log.transactions, chain: log.chain };
        make_right(&mut changed);
        let mut image = sample.image.clone();
        for (number, block) in (0..).zip(changed.bytes.as_chunks::<BLOCK_BYTES>().0) {
            image.set(log_block(&sample.geometry, number), Arc::new(*block));
        }
        let pool = Pool::open(Arc::new(MemoryDevice::from(image)), open_options(), environment()).unwrap();
        let activity = pool.stat().unwrap().activity;
        assert_eq!(activity.replayed, changed.transactions.len() as u64);
        let lengths = changed.transactions.iter().map(|transaction| transaction.len().next_multiple_of(BLOCK_BYTES));
        assert_eq!(activity.replayed_bytes, lengths.sum::<usize>() as u64, "each begins a block");
    }
}
