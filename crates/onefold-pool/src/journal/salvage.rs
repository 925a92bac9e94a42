//! Salvages a damaged journal: reads its whole transactions in each order that may be the true one.
//!
//! Old transactions stay in the log until later ones overwrite them, long after their blocks are in place. Transactions
//! that follow one another without a gap up to the newest form a *chain*, and the last mention of a block in a chain is
//! that block's content. So a chain can replace a damaged or outdated home copy.
//!
//! Nothing here decides which reading is the true one. Only a check of the whole pool can tell.

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo};

use super::log::{LogPosition, log_blocks};
use super::replay::{ReplayResult, ensure_in_place};
use crate::format::BlockBytes;
use crate::format::geometry::Geometry;
use crate::format::header;
use crate::format::journal::{self, HEADER_SLOTS, JournalHeader, JournalRecord, Opening, TransactionIdentity};
use crate::format::superblock::Superblock;

/// Maximum sequence number of a transaction: a header slot with a higher one is refused.
const SEQUENCE_MAX: u64 = u64::MAX / 4;

/// The readable rest of a journal.
pub(crate) struct Remains {
    /// The newest usable header slot.
    pub(crate) header: Option<JournalHeader>,
    /// Blocks of the log that cannot be read.
    pub(crate) unreadable: Vec<BlockNo>,
    log: AlignedBuffer,
    /// All whole transactions, by number.
    transactions: Vec<Opening>,
    log_blocks: u64,
    pool_tag: u32,
    identity: TransactionIdentity,
}

impl Remains {
    /// Reads everything readable in the journal.
    pub(crate) fn read(device: &dyn BlockDevice, superblock: &Superblock) -> Remains {
        let (geometry, pool_tag) = (&superblock.geometry, superblock.pool_tag());
        let identity = superblock.transaction_identity();
        let log_blocks = log_blocks(geometry);
        let first = geometry.journal_first;
        let mut slot = AlignedBuffer::zeroed(1);
        let mut header: Option<JournalHeader> = None;
        for at in (0..HEADER_SLOTS).map(|slot| first.plus(slot)) {
            let Ok(()) = device.read(at, &mut slot) else { continue };
            let bytes = slot.block(0).expect("one block was read");
            if let Ok(found) = JournalHeader::decode(bytes, pool_tag, at, log_blocks)
                && header.is_none_or(|other| found.generation > other.generation)
            {
                header = Some(found);
            }
        }
        let mut log = AlignedBuffer::zeroed(usize::try_from(log_blocks).expect("a journal has at most 64 MiB"));
        let mut unreadable = Vec::new();
        if device.read(first.plus(HEADER_SLOTS), &mut log).is_err() {
            for (at, place) in (first.0 + HEADER_SLOTS..).map(BlockNo).zip(log.blocks_mut()) {
                if device.read(at, place).is_err() {
                    place.fill(0);
                    unreadable.push(at);
                }
            }
        }
        let transactions = whole_transactions(&log, identity, log_blocks);
        Remains { header, unreadable, log, transactions, log_blocks, pool_tag, identity }
    }

    /// Returns the result of the transactions that follow one another up to the newest; `None` if there are none.
    pub(crate) fn newest_chain(&self, device: &dyn BlockDevice, geometry: &Geometry) -> Option<ReplayResult> {
        let mut first = self.transactions.len().checked_sub(1)?;
        while first > 0 && self.follows(&self.transactions[first - 1], &self.transactions[first]) {
            first -= 1;
        }
        Some(self.replay(device, geometry, &self.transactions[first..]))
    }

    /// Returns the result of the transactions that follow one another from the tail in the header slot on.
    pub(crate) fn since_tail(&self, device: &dyn BlockDevice, geometry: &Geometry) -> Option<ReplayResult> {
        let header = self.header?;
        let first = self.transactions.partition_point(|opening| opening.sequence < header.tail_sequence);
        let mut count = 0;
        let (mut sequence, mut position, mut chain) = (header.tail_sequence, header.tail_position, header.tail_chain);
        for opening in &self.transactions[first..] {
            if (opening.sequence, opening.position, opening.chain) != (sequence, position, chain) {
                break;
            }
            sequence += 1;
            position = (position + opening.block_count()) % self.log_blocks;
            chain = opening.checksum;
            count += 1;
        }
        Some(self.replay(device, geometry, &self.transactions[first..first + count]))
    }

    /// Returns the reading that uses nothing from the log.
    pub(crate) fn nothing(&self) -> ReplayResult {
        ReplayResult {
            blocks: std::collections::BTreeMap::new(),
            forgotten: std::collections::BTreeSet::new(),
            transaction_count: 0,
            next_sequence: self.next_sequence(),
            position: LogPosition {
                head: 0,
                used: 0,
                chain: 0,
                generation: self.header.map_or(0, |header| header.generation),
            },
        }
    }

    /// Returns a sequence number that no transaction has had.
    fn next_sequence(&self) -> u64 {
        let newest = self.transactions.last().map_or(0, |opening| opening.sequence);
        newest.max(self.header.map_or(0, |header| header.tail_sequence.saturating_sub(1))) + 1
    }

    fn follows(&self, earlier: &Opening, later: &Opening) -> bool {
        later.sequence == earlier.sequence + 1
            && later.chain == earlier.checksum
            && later.position == (earlier.position + earlier.block_count()) % self.log_blocks
    }

    /// Applies transactions that follow one another, as far as the results are the blocks that were logged.
    fn replay(&self, device: &dyn BlockDevice, geometry: &Geometry, chain: &[Opening]) -> ReplayResult {
        let mut replayed = self.nothing();
        for opening in chain {
            let Some((_, bytes)) = transaction_at(&self.log, opening.position, self.identity, self.log_blocks) else {
                continue;
            };
            // Invalid records end the transaction; the records before them still count.
            let _ = journal::records(&bytes[..opening.length], |record| {
                apply(&mut replayed, device, geometry, self.pool_tag, record);
            });
            replayed.transaction_count += 1;
            replayed.position.head = (opening.position + opening.block_count()) % self.log_blocks;
            replayed.position.chain = opening.checksum;
        }
        replayed
    }
}

/// Returns all whole transactions by number; one of several with the same number.
fn whole_transactions(log: &[u8], identity: TransactionIdentity, log_blocks: u64) -> Vec<Opening> {
    // Hostile blocks could each claim a transaction as long as the log.
    let mut budget = log.len().saturating_mul(4);
    let mut found = Vec::new();
    for (position, block) in (0..).zip(log.chunks_exact(BLOCK_BYTES)) {
        let Some(opening) = Opening::decode(block, identity, log_blocks) else { continue };
        if opening.position != position || !(1..SEQUENCE_MAX).contains(&opening.sequence) {
            continue;
        }
        let Some(left) = budget.checked_sub(opening.length) else { break };
        budget = left;
        if transaction_at(log, position, identity, log_blocks).is_some() {
            found.push(opening);
        }
    }
    found.sort_by_key(|opening| opening.sequence);
    found.dedup_by_key(|opening| opening.sequence);
    found
}

fn apply(
    replayed: &mut ReplayResult,
    device: &dyn BlockDevice,
    geometry: &Geometry,
    pool_tag: u32,
    record: JournalRecord<'_>,
) {
    match record {
        JournalRecord::Whole { block, content } => {
            if ensure_in_place(geometry, pool_tag, block, content).is_ok() {
                replayed.forgotten.remove(&block);
                replayed.blocks.insert(block, Box::new(*content));
            }
        }
        JournalRecord::Ranges { block, checksum, ranges } => {
            // A chain may begin after a block was logged whole. Its home copy is the right one to change if the result
            // is the block that was logged; otherwise it is newer, or the block is logged whole again.
            let mut content = match replayed.blocks.get(&block) {
                Some(content) => content.clone(),
                None => match home_copy(device, geometry, block) {
                    Some(content) => content,
                    None => return,
                },
            };
            for (offset, bytes) in ranges {
                content[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            if header::seal(&mut content) == checksum && ensure_in_place(geometry, pool_tag, block, &content).is_ok() {
                replayed.blocks.insert(block, content);
            }
        }
        JournalRecord::Forget { block } => {
            replayed.blocks.remove(&block);
            if geometry.is_allocatable(block) {
                replayed.forgotten.insert(block);
            }
        }
    }
}

fn home_copy(device: &dyn BlockDevice, geometry: &Geometry, block: BlockNo) -> Option<Box<BlockBytes>> {
    if block.0 >= geometry.total_blocks {
        return None;
    }
    let mut buffer = AlignedBuffer::zeroed(1);
    device.read(block, &mut buffer).ok()?;
    Some(Box::new(*buffer.block(0)?))
}

/// Returns the transaction that begins at a place of the log, if it is whole.
fn transaction_at(
    log: &[u8],
    position: u64,
    identity: TransactionIdentity,
    blocks_in_log: u64,
) -> Option<(Opening, Vec<u8>)> {
    let at = usize::try_from(position).ok()?.checked_mul(BLOCK_BYTES)?;
    let opening = Opening::decode(log.get(at..)?, identity, blocks_in_log)?;
    if opening.position != position {
        return None;
    }
    let mut bytes = Vec::with_capacity(opening.length);
    let front = opening.length.min(log.len() - at);
    bytes.extend_from_slice(&log[at..at + front]);
    bytes.extend_from_slice(&log[..opening.length - front]);
    opening.matches(&bytes).then_some((opening, bytes))
}
