//! Recovery: reads the log from its tail and returns the metadata blocks as the committed transactions left them.
//!
//! It writes nothing and reads no data. Each block's first mention since the tail is whole, so home copies, which the
//! crash may have torn, are not needed. The log ends where a transaction's checksum, number, place or chain does not
//! match: that transaction was being written when the power failed. A matching transaction *behind* the end cannot come
//! from a crash, because each was durable before the next was begun. It means damage, and the opening is refused so
//! that no promise is forgotten.
//!
//! The log is read in pieces, and each transaction separately: a journal may be as large as all the memory of a pool.

use std::collections::{BTreeMap, BTreeSet};

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo};

use super::log::{LogPosition, log_blocks};
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::geometry::Geometry;
use crate::format::header;
use crate::format::journal::{self, HEADER_SLOTS, JournalHeader, JournalRecord, Opening, TransactionIdentity};
use crate::format::superblock::Superblock;

/// Number of blocks of the log that are read at once in the search for transactions: 1 MiB.
const PIECE_BLOCKS: usize = 256;

/// Result of a replay.
#[derive(Debug)]
pub(crate) struct ReplayResult {
    /// Metadata blocks that may not be in place yet, sealed, by their place.
    pub(crate) blocks: BTreeMap<BlockNo, Box<BlockBytes>>,
    /// Freed metadata blocks, not to be reused before the tail has moved past the records that name them.
    pub(crate) forgotten: BTreeSet<BlockNo>,
    /// Transactions found.
    pub(crate) transaction_count: u64,
    /// Number of the next transaction.
    pub(crate) next_sequence: u64,
    /// Position of the log.
    pub(crate) position: LogPosition,
}

/// Reads the header slots and the log.
///
/// # Errors
/// Damage; device errors.
pub(crate) fn replay(device: &dyn BlockDevice, superblock: &Superblock) -> Result<ReplayResult> {
    let (geometry, pool_tag) = (&superblock.geometry, superblock.pool_tag());
    let header = read_header(device, geometry, pool_tag)?;
    let mut log = JournalReader::new(device, geometry, superblock.transaction_identity());
    let mut replayed = ReplayResult {
        blocks: BTreeMap::new(),
        forgotten: BTreeSet::new(),
        transaction_count: 0,
        next_sequence: header.tail_sequence,
        position: LogPosition {
            head: header.tail_position,
            used: 0,
            chain: header.tail_chain,
            generation: header.generation,
        },
    };
    while let Some(opening) = log.opening_at(replayed.position.head)? {
        let fits = opening.sequence == replayed.next_sequence
            && opening.chain == replayed.position.chain
            && replayed.position.used + opening.block_count() <= log.blocks;
        if !fits {
            break;
        }
        let Some(bytes) = log.transaction(&opening)? else { break };
        apply(&mut replayed, geometry, &bytes[..opening.length])?;
        replayed.transaction_count += 1;
        replayed.next_sequence += 1;
        replayed.position.head = (replayed.position.head + opening.block_count()) % log.blocks;
        replayed.position.used += opening.block_count();
        replayed.position.chain = opening.checksum;
    }
    refuse_later_transactions(&mut log, &replayed, geometry)?;
    refuse_misplaced_blocks(&replayed, geometry, pool_tag)?;
    Ok(replayed)
}

/// Checks that each block is metadata that belongs at its place. No block may overwrite a superblock, a bitmap or the
/// journal itself with anything else, however correct its checksum is.
fn refuse_misplaced_blocks(replayed: &ReplayResult, geometry: &Geometry, pool_tag: u32) -> Result<()> {
    for (&block, bytes) in &replayed.blocks {
        ensure_in_place(geometry, pool_tag, block, bytes).map_err(|what| PoolError::Damaged {
            structure: "journal",
            block,
            what,
        })?;
    }
    Ok(())
}

/// Checks that sealed content is metadata that may be put at `block`; describes the problem otherwise.
pub(super) fn ensure_in_place(
    geometry: &Geometry,
    pool_tag: u32,
    block: BlockNo,
    bytes: &BlockBytes,
) -> std::result::Result<(), String> {
    let kind = header::kind(bytes).ok_or("holds a block of no known kind")?;
    header::verify(bytes, pool_tag, kind, block).map_err(|error| error.to_string())?;
    if !geometry.is_place_of(kind, block) {
        return Err(format!("holds a block of kind {} that does not belong there", kind.name()));
    }
    Ok(())
}

fn journal_damage(geometry: &Geometry, what: impl Into<String>) -> PoolError {
    PoolError::Damaged { structure: "journal", block: geometry.journal_first, what: what.into() }
}

/// Reads the newest header slot.
///
/// # Errors
/// Damage of both slots; device errors.
pub(crate) fn read_header(device: &dyn BlockDevice, geometry: &Geometry, pool_tag: u32) -> Result<JournalHeader> {
    let mut newest: Option<JournalHeader> = None;
    let mut complaints = Vec::new();
    for slot in 0..HEADER_SLOTS {
        let at = geometry.journal_first.plus(slot);
        let mut buffer = AlignedBuffer::zeroed(1);
        device.read(at, &mut buffer).map_err(|source| PoolError::Io { action: "read", block: at, source })?;
        let bytes = buffer.block(0).expect("one block was read");
        match JournalHeader::decode(bytes, pool_tag, at, log_blocks(geometry)) {
            Ok(header) if newest.is_none_or(|other| header.generation > other.generation) => newest = Some(header),
            Ok(_) => {}
            Err(complaint) => complaints.push(complaint),
        }
    }
    newest.ok_or_else(|| journal_damage(geometry, format!("both header slots are unusable: {}", complaints.join("; "))))
}

fn read_log(device: &dyn BlockDevice, at: BlockNo, into: &mut [u8]) -> Result<()> {
    device.read(at, into).map_err(|source| PoolError::Io { action: "read", block: at, source })
}

/// The log, with one piece of it in memory.
struct JournalReader<'a> {
    device: &'a dyn BlockDevice,
    first: BlockNo,
    blocks: u64,
    identity: TransactionIdentity,
    piece: AlignedBuffer,
    /// Position of the piece; `None` before the first is read.
    piece_at: Option<u64>,
}

impl<'a> JournalReader<'a> {
    fn new(device: &'a dyn BlockDevice, geometry: &Geometry, identity: TransactionIdentity) -> JournalReader<'a> {
        let first = geometry.journal_first.plus(HEADER_SLOTS);
        let piece = AlignedBuffer::zeroed(PIECE_BLOCKS);
        JournalReader { device, first, blocks: log_blocks(geometry), identity, piece, piece_at: None }
    }

    /// Returns the opening of a transaction at a position, if the block there looks like one. Only its checksum proves
    /// it.
    fn opening_at(&mut self, position: u64) -> Result<Option<Opening>> {
        let piece_blocks = PIECE_BLOCKS as u64;
        let piece_at = position / piece_blocks * piece_blocks;
        if self.piece_at != Some(piece_at) {
            let count = piece_blocks.min(self.blocks - piece_at);
            let length = usize::try_from(count).expect("a piece at most") * BLOCK_BYTES;
            self.piece_at = None;
            read_log(self.device, self.first.plus(piece_at), &mut self.piece[..length])?;
            self.piece_at = Some(piece_at);
        }
        let within = usize::try_from(position - piece_at).expect("within a piece");
        let block = self.piece.block(within).expect("the piece holds the position");
        Ok(Opening::decode(block, self.identity, self.blocks).filter(|opening| opening.position == position))
    }

    /// Returns the blocks of a transaction found by [`JournalReader::opening_at`], if it is whole.
    fn transaction(&self, opening: &Opening) -> Result<Option<AlignedBuffer>> {
        let count = usize::try_from(opening.block_count()).expect("a log has at most 64 MiB");
        let front = usize::try_from(self.blocks - opening.position).map_or(count, |left| left.min(count));
        let mut bytes = AlignedBuffer::zeroed(count);
        let (before_end, from_start) = bytes.split_at_mut(front * BLOCK_BYTES);
        read_log(self.device, self.first.plus(opening.position), before_end)?;
        if !from_start.is_empty() {
            read_log(self.device, self.first, from_start)?;
        }
        Ok(opening.matches(&bytes).then_some(bytes))
    }
}

fn apply(replayed: &mut ReplayResult, geometry: &Geometry, transaction: &[u8]) -> Result<()> {
    let mut problem = None;
    let sequence = replayed.next_sequence;
    journal::records(transaction, |record| {
        if problem.is_none() {
            problem = apply_record(replayed, geometry, record).err();
        }
    })
    .map_err(|what| journal_damage(geometry, format!("transaction {sequence}: {what}")))?;
    match problem {
        None => Ok(()),
        Some(what) => Err(journal_damage(geometry, format!("transaction {sequence}: {what}"))),
    }
}

fn apply_record(
    replayed: &mut ReplayResult,
    geometry: &Geometry,
    record: JournalRecord<'_>,
) -> std::result::Result<(), String> {
    match record {
        JournalRecord::Whole { block, content } => {
            replayed.forgotten.remove(&block);
            replayed.blocks.insert(block, Box::new(*content));
        }
        JournalRecord::Ranges { block, checksum, ranges } => {
            let content =
                replayed.blocks.get_mut(&block).ok_or_else(|| format!("block {block} was never logged whole"))?;
            for (offset, bytes) in ranges {
                content[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            let found = header::seal(content);
            if found != checksum {
                return Err(format!("block {block} comes out with checksum {found:08x}, expected {checksum:08x}"));
            }
        }
        JournalRecord::Forget { block } => {
            if !geometry.is_allocatable(block) {
                return Err(format!("frees block {block}, which has a fixed use"));
            }
            replayed.blocks.remove(&block);
            replayed.forgotten.insert(block);
        }
    }
    Ok(())
}

/// Searches for a transaction that was durable after the one at which the log seems to end.
fn refuse_later_transactions(log: &mut JournalReader<'_>, replayed: &ReplayResult, geometry: &Geometry) -> Result<()> {
    // Hostile blocks could each claim a transaction as long as the log.
    let mut budget = log.blocks.saturating_mul(4);
    for position in 0..log.blocks {
        let Some(opening) = log.opening_at(position)? else { continue };
        let later = replayed.next_sequence + 1..=replayed.next_sequence + log.blocks;
        if !later.contains(&opening.sequence) {
            continue;
        }
        budget = match budget.checked_sub(opening.block_count()) {
            Some(left) => left,
            None => return Err(journal_damage(geometry, "too many blocks claim to begin a later transaction")),
        };
        // Cheap fields claim that it is later; only its checksum proves it.
        if log.transaction(&opening)?.is_some() {
            let what = format!(
                "transaction {} is damaged, but the later one {} is whole",
                replayed.next_sequence, opening.sequence
            );
            return Err(journal_damage(geometry, what));
        }
    }
    Ok(())
}
