//! The journal's format: a circular log of transactions, and two header slots with the place where it begins.
//!
//! **Header slot** (the journal's first two blocks, written in turn; of two valid ones the higher generation counts),
//! after the common header:
//!
//! | bytes  | field         | notes                                                       |
//! |--------|---------------|-------------------------------------------------------------|
//! | 16..24 | generation    | one more at each rewrite                                    |
//! | 24..32 | tail sequence | the first transaction that recovery may need                |
//! | 32..40 | tail position | where it begins: block index in the log                     |
//! | 40..44 | tail chain    | `chain` of that transaction                                 |
//! | 44     | clean         | 1: closed properly, nothing follows                         |
//! | 48..56 | run           | the opening that wrote it, as in its heartbeat; 0: none     |
//!
//! **Transaction**: whole blocks, wrapping at the log's end. It opens with
//!
//! | bytes  | field    | notes                                                                        |
//! |--------|----------|------------------------------------------------------------------------------|
//! | 0..8   | identity | what only the pool itself can write there: [`TransactionIdentity`]            |
//! | 8..12  | checksum | CRC-32C over bytes 12..length: a torn transaction did not happen              |
//! | 12..16 | chain    | checksum of the transaction before: an old transaction can't follow a new one |
//! | 16..24 | sequence | one more than the transaction before                                         |
//! | 24..32 | position | block index in the log where it believes it begins                           |
//! | 32..40 | length   | bytes, this opening included                                                 |
//!
//! Blocks of the log contain data that users choose, such as attributes. So no value known to users may make a block
//! look like the beginning of a transaction: the identity derives from the pool's secret. In version 1 of the format it
//! was the magic `OFTX` and the pool tag.
//!
//! A transaction continues with records, byte after byte:
//!
//! | record | bytes                                                                                   |
//! |--------|-----------------------------------------------------------------------------------------|
//! | whole  | 1 u8, block u64, the block's 4096 bytes, sealed                                         |
//! | ranges | 2 u8, block u64, checksum u32 of the block as it results, count u16, then count times: offset u16, length u16, bytes |
//! | forget | 3 u8, block u64: freed; recovery must not write what earlier records say of it           |
//!
//! After a checkpoint, the first change of a block is logged whole: recovery never needs a home copy, which a crash may
//! have torn.

use onefold_block::{BLOCK_BYTES, BlockNo};

use super::header::{self, BlockKind, HeaderError};
use super::{BlockBytes, GENERATION_MAX, get_u16, get_u32, get_u64, put_u32, put_u64};

/// Magic at the start of version 1 transactions, before the pool tag.
const PUBLIC_MAGIC: [u8; 4] = *b"OFTX";
/// Context for deriving the identity of a pool's transactions from its key.
const IDENTITY_CONTEXT: &str = "onefold 2026 journal transaction";
/// Bytes of a transaction's opening.
pub const OPENING_BYTES: usize = 40;
/// Header slots at the front of the journal.
pub const HEADER_SLOTS: u64 = 2;
const RECORD_WHOLE: u8 = 1;
const RECORD_RANGES: u8 = 2;
const RECORD_FORGET: u8 = 3;
/// Bytes of a whole block in a transaction.
pub const WHOLE_RECORD_BYTES: usize = 9 + BLOCK_BYTES;
/// Bytes of a ranges record without its ranges.
pub const RANGES_RECORD_BYTES: usize = 15;
/// Bytes of one range without its content.
pub const RANGE_BYTES: usize = 4;
/// Bytes of a forget record.
pub const FORGET_RECORD_BYTES: usize = 9;

/// The place where the log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// Of two valid slots, the one with the higher generation counts.
    pub generation: u64,
    /// Sequence number of the first transaction in the log.
    pub tail_sequence: u64,
    /// Block index in the log where it begins.
    pub tail_position: u64,
    /// Checksum of the transaction before it.
    pub tail_chain: u32,
    /// Whether the pool was closed cleanly.
    pub clean: bool,
    /// Random number of the opening that wrote it, as in its heartbeat; 0 if that opening had none.
    pub run: u64,
}

impl JournalHeader {
    /// Returns the sealed block for the slot at `at`.
    #[must_use]
    pub fn encode(&self, pool_tag: u32, at: BlockNo) -> BlockBytes {
        let mut bytes = header::blank(pool_tag, BlockKind::JournalHeader, at);
        put_u64(&mut bytes, 16, self.generation);
        put_u64(&mut bytes, 24, self.tail_sequence);
        put_u64(&mut bytes, 32, self.tail_position);
        put_u32(&mut bytes, 40, self.tail_chain);
        bytes[44] = u8::from(self.clean);
        put_u64(&mut bytes, 48, self.run);
        header::seal(&mut bytes);
        bytes
    }

    /// Decodes the slot at `at` of a journal whose log has `log_blocks`.
    ///
    /// # Errors
    /// A description of the problem. A crash may tear one of the two slots.
    pub fn decode(bytes: &BlockBytes, pool_tag: u32, at: BlockNo, log_blocks: u64) -> Result<JournalHeader, String> {
        header::verify(bytes, pool_tag, BlockKind::JournalHeader, at)
            .map_err(|error: HeaderError| error.to_string())?;
        let found = JournalHeader {
            generation: get_u64(bytes, 16),
            tail_sequence: get_u64(bytes, 24),
            tail_position: get_u64(bytes, 32),
            tail_chain: get_u32(bytes, 40),
            clean: bytes[44] == 1,
            run: get_u64(bytes, 48),
        };
        let sound = found.tail_position < log_blocks
            && (1..GENERATION_MAX).contains(&found.tail_sequence)
            && found.generation <= GENERATION_MAX
            && bytes[44] <= 1;
        if sound { Ok(found) } else { Err("a tail that makes no sense".to_owned()) }
    }
}

/// The eight bytes by which a pool recognises its transactions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TransactionIdentity([u8; 8]);

impl std::fmt::Debug for TransactionIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Kept out of logs.
        f.write_str("TransactionIdentity")
    }
}

impl TransactionIdentity {
    /// Returns the identity of version 1, which is not secret.
    #[must_use]
    pub fn public(pool_tag: u32) -> TransactionIdentity {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&PUBLIC_MAGIC);
        put_u32(&mut bytes, 4, pool_tag);
        TransactionIdentity(bytes)
    }

    /// Returns the identity that cannot be known without the pool's key.
    #[must_use]
    pub fn secret(pool_key: &[u8; 32]) -> TransactionIdentity {
        let derived = blake3::derive_key(IDENTITY_CONTEXT, pool_key);
        TransactionIdentity(*derived.first_chunk().expect("thirty-two bytes"))
    }
}

/// The opening of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Checksum over everything that follows it.
    pub checksum: u32,
    /// Checksum of the transaction before.
    pub chain: u32,
    /// Its sequence number.
    pub sequence: u64,
    /// Block index in the log.
    pub position: u64,
    /// Length in bytes, including the opening.
    pub length: usize,
}

impl Opening {
    /// Decodes a possible opening; `None` if the bytes are not one. Only a matching checksum proves it.
    #[must_use]
    pub fn decode(bytes: &[u8], identity: TransactionIdentity, log_blocks: u64) -> Option<Opening> {
        if bytes.len() < OPENING_BYTES || bytes[..8] != identity.0 {
            return None;
        }
        let length = get_u64(bytes, 32);
        if length < OPENING_BYTES as u64 || length > log_blocks * BLOCK_BYTES as u64 {
            return None;
        }
        Some(Opening {
            checksum: get_u32(bytes, 8),
            chain: get_u32(bytes, 12),
            sequence: get_u64(bytes, 16),
            position: get_u64(bytes, 24),
            length: usize::try_from(length).ok()?,
        })
    }

    /// Returns the number of whole blocks in the transaction.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.length.div_ceil(BLOCK_BYTES) as u64
    }

    /// Returns whether `transaction` (at least `length` bytes) matches its checksum.
    #[must_use]
    pub fn matches(&self, transaction: &[u8]) -> bool {
        transaction.len() >= self.length && crc32c::crc32c(&transaction[12..self.length]) == self.checksum
    }
}

/// Builds one transaction.
#[derive(Debug)]
pub struct TransactionBuilder {
    bytes: Vec<u8>,
}

impl TransactionBuilder {
    /// Returns an empty transaction with room for `bytes_expected`.
    #[must_use]
    pub fn new(bytes_expected: usize) -> TransactionBuilder {
        let mut bytes = Vec::with_capacity(bytes_expected.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES);
        bytes.resize(OPENING_BYTES, 0);
        TransactionBuilder { bytes }
    }

    /// Adds a whole block; seals the copy.
    pub fn whole(&mut self, block: BlockNo, content: &BlockBytes) {
        self.record(RECORD_WHOLE, block);
        let first = self.bytes.len();
        self.bytes.extend_from_slice(content);
        let sum = header::checksum(content);
        put_u32(&mut self.bytes, first, sum);
    }

    /// Adds ranges of a block whose content is now `content`. The ranges lie in bytes 4..4096.
    pub fn ranges(&mut self, block: BlockNo, content: &BlockBytes, ranges: &[(u16, u16)]) {
        self.record(RECORD_RANGES, block);
        self.bytes.extend_from_slice(&header::checksum(content).to_le_bytes());
        self.bytes.extend_from_slice(&u16::try_from(ranges.len()).expect("few ranges in a block").to_le_bytes());
        for &(first, end) in ranges {
            self.bytes.extend_from_slice(&first.to_le_bytes());
            self.bytes.extend_from_slice(&(end - first).to_le_bytes());
            self.bytes.extend_from_slice(&content[usize::from(first)..usize::from(end)]);
        }
    }

    /// Records that a metadata block was freed.
    pub fn forget(&mut self, block: BlockNo) {
        self.record(RECORD_FORGET, block);
    }

    fn record(&mut self, kind: u8, block: BlockNo) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&block.0.to_le_bytes());
    }

    /// Writes the opening; returns whole blocks and the transaction's checksum.
    #[must_use]
    pub fn finish(mut self, identity: TransactionIdentity, chain: u32, sequence: u64, position: u64) -> (Vec<u8>, u32) {
        let length = self.bytes.len();
        self.bytes[..8].copy_from_slice(&identity.0);
        put_u32(&mut self.bytes, 12, chain);
        put_u64(&mut self.bytes, 16, sequence);
        put_u64(&mut self.bytes, 24, position);
        put_u64(&mut self.bytes, 32, length as u64);
        let checksum = crc32c::crc32c(&self.bytes[12..length]);
        put_u32(&mut self.bytes, 8, checksum);
        self.bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
        (self.bytes, checksum)
    }
}

/// One record of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalRecord<'a> {
    /// A whole block.
    Whole {
        /// Its place.
        block: BlockNo,
        /// Its sealed content.
        content: &'a BlockBytes,
    },
    /// Ranges of a block.
    Ranges {
        /// Its place.
        block: BlockNo,
        /// Checksum of the block with the ranges applied.
        checksum: u32,
        /// Offset u16, length u16, bytes, repeated `count` times; bounded.
        ranges: RecordRanges<'a>,
    },
    /// A freed metadata block.
    Forget {
        /// Its place.
        block: BlockNo,
    },
}

/// Ranges of a record, checked to lie within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRanges<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for RecordRanges<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<(usize, &'a [u8])> {
        if self.bytes.is_empty() {
            return None;
        }
        let offset = usize::from(get_u16(self.bytes, 0));
        let length = usize::from(get_u16(self.bytes, 2));
        let content = &self.bytes[4..4 + length];
        self.bytes = &self.bytes[4 + length..];
        Some((offset, content))
    }
}

/// Decodes a transaction's records.
///
/// # Errors
/// When a transaction with a matching checksum is invalid: damage that a crash cannot cause.
pub fn records<'a>(transaction: &'a [u8], mut visit: impl FnMut(JournalRecord<'a>)) -> Result<(), &'static str> {
    let mut rest = transaction.get(OPENING_BYTES..).ok_or("shorter than its opening")?;
    while let Some((&kind, after)) = rest.split_first() {
        let (block, after) = after.split_first_chunk::<8>().ok_or("record without a block number")?;
        let block = BlockNo(u64::from_le_bytes(*block));
        if block > BlockNo::MAX {
            return Err("record for an impossible block");
        }
        rest = match kind {
            RECORD_WHOLE => {
                let (content, after) = after.split_first_chunk::<BLOCK_BYTES>().ok_or("whole block cut short")?;
                visit(JournalRecord::Whole { block, content });
                after
            }
            RECORD_RANGES => {
                let (opening, after) = after.split_first_chunk::<6>().ok_or("ranges cut short")?;
                let length = ranges_length(after, get_u16(opening, 4))?;
                let (bytes, after) = after.split_at(length);
                visit(JournalRecord::Ranges { block, checksum: get_u32(opening, 0), ranges: RecordRanges { bytes } });
                after
            }
            RECORD_FORGET => {
                visit(JournalRecord::Forget { block });
                after
            }
            _ => return Err("unknown record"),
        };
    }
    Ok(())
}

/// Returns the length of `count` ranges at the front of `bytes`, after checking all of them.
fn ranges_length(bytes: &[u8], count: u16) -> Result<usize, &'static str> {
    let mut at = 0;
    for _ in 0..count {
        let opening = bytes.get(at..at + 4).ok_or("range cut short")?;
        let (offset, length) = (usize::from(get_u16(opening, 0)), usize::from(get_u16(opening, 2)));
        if offset < 4 || offset + length > BLOCK_BYTES {
            return Err("range outside its block");
        }
        at += 4 + length;
        if at > bytes.len() {
            return Err("range cut short");
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: TransactionIdentity = TransactionIdentity(*b"identity");

    fn sample() -> (Vec<u8>, u32) {
        let mut builder = TransactionBuilder::new(0);
        let mut content = header::blank(5, BlockKind::State, BlockNo(197));
        builder.whole(BlockNo(197), &content);
        content[100..104].copy_from_slice(b"abcd");
        builder.ranges(BlockNo(197), &content, &[(100, 104), (4000, 4096)]);
        builder.forget(BlockNo(9));
        builder.finish(IDENTITY, 77, 12, 3)
    }

    #[test]
    fn a_transaction_survives_its_encoding() {
        let (bytes, checksum) = sample();
        assert_eq!(bytes.len() % BLOCK_BYTES, 0);
        let opening = Opening::decode(&bytes, IDENTITY, 100).unwrap();
        assert_eq!((opening.checksum, opening.chain, opening.sequence, opening.position), (checksum, 77, 12, 3));
        assert!(opening.matches(&bytes));
        let mut seen = Vec::new();
        records(&bytes[..opening.length], |record| seen.push(record)).unwrap();
        assert!(
            matches!(seen[0], JournalRecord::Whole { block: BlockNo(197), content } if header::verify(content, 5, BlockKind::State, BlockNo(197)).is_ok())
        );
        let JournalRecord::Ranges { ranges, .. } = seen[1] else { panic!("{:?}", seen[1]) };
        assert_eq!(ranges.collect::<Vec<_>>(), [(100, &b"abcd"[..]), (4000, &[0; 96][..])]);
        assert_eq!(seen[2], JournalRecord::Forget { block: BlockNo(9) });
    }

    #[test]
    fn identities_do_not_drift_and_pools_do_not_share_one() {
        assert_eq!(TransactionIdentity::public(0x0403_0201).0, *b"OFTX\x01\x02\x03\x04");
        assert_eq!(TransactionIdentity::secret(&[7; 32]).0, [0xb2, 0x7e, 0x6d, 0x75, 0xfa, 0x91, 0x67, 0xda]);
        assert_ne!(TransactionIdentity::secret(&[7; 32]), TransactionIdentity::secret(&[8; 32]));
        let (bytes, _) = sample();
        assert_eq!(Opening::decode(&bytes, TransactionIdentity::public(5), 100), None);
        assert_eq!(Opening::decode(&bytes, TransactionIdentity::secret(&[7; 32]), 100), None);
    }

    #[test]
    fn a_torn_transaction_is_seen() {
        let (bytes, _) = sample();
        let opening = Opening::decode(&bytes, IDENTITY, 100).unwrap();
        for sector in 0..opening.length.div_ceil(512) {
            let mut torn = bytes.clone();
            let end = (sector * 512 + 512).min(opening.length);
            torn[(sector * 512).max(12)..end].fill(0xee);
            assert!(!opening.matches(&torn), "sector {sector}");
        }
    }

    #[test]
    fn arbitrary_records_give_values_or_an_error() {
        let random = onefold_block::random::SeededRandom::new(3);
        let (bytes, _) = sample();
        for _ in 0..20_000 {
            let mut bytes = bytes.clone();
            for _ in 0..=random.below(8) {
                let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
                bytes[at] = random.next_u64().to_le_bytes()[0];
            }
            let length = usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap();
            let mut total = 0;
            let _ = records(&bytes[..length], |record| {
                if let JournalRecord::Ranges { ranges, .. } = record {
                    total += ranges.map(|(_, content)| content.len()).sum::<usize>();
                }
            });
            assert!(total <= length);
        }
    }

    #[test]
    fn a_header_slot_survives_its_encoding() {
        let header =
            JournalHeader { generation: 4, tail_sequence: 9, tail_position: 17, tail_chain: 3, clean: true, run: 8 };
        let bytes = header.encode(5, BlockNo(200));
        assert_eq!(JournalHeader::decode(&bytes, 5, BlockNo(200), 18), Ok(header));
        assert!(JournalHeader::decode(&bytes, 5, BlockNo(200), 17).is_err());
        assert!(JournalHeader::decode(&bytes, 5, BlockNo(201), 18).is_err());
    }

    /// Found by a fuzzer: a header with the highest possible generation was accepted, and the next checkpoint added one
    /// to it and panicked.
    #[test]
    fn a_generation_that_cannot_be_added_to_is_refused() {
        let sound =
            JournalHeader { generation: 4, tail_sequence: 9, tail_position: 0, tail_chain: 3, clean: true, run: 8 };
        let header = JournalHeader { generation: u64::MAX, ..sound };
        assert!(JournalHeader::decode(&header.encode(5, BlockNo(200)), 5, BlockNo(200), 18).is_err());
    }
}
