//! The blocks of a journal that describe other blocks: descriptors, commits, revocations.
//!
//! All numbers are big-endian. Each block begins with the magic, its kind (4 bytes) and its transaction (4 bytes).
//!
//! | kind | content from byte 12 |
//! |------|----------------------|
//! | 1, descriptor | tags: for each the block that a following block is a copy of |
//! | 2, commit | 12: kind of checksum; 13: its length; 16: checksum; 48: time in seconds, 8 bytes |
//! | 5, revocation | 12: bytes used, with these 16; then block numbers of 4 bytes, or 8 with 64 bits |
//!
//! | tag, version 3 | tag, before | field |
//! |----------------|-------------|-------|
//! | 0  | 0 | block, low |
//! | 4 (4 bytes) | 6 (2 bytes) | flags: 1 escaped, 2 no UUID follows, 8 last |
//! | 8  | 8 | block, high, with 64 bits |
//! | 12 (4 bytes) | 4 (2 bytes) | checksum of transaction and copy |

use super::head::{ChecksumKind, Head};
use crate::bytes::Bytes;
use crate::ext::checksum::crc32c;
use crate::ext::source::JOURNAL_MAGIC;

const HEADER_BYTES: usize = 12;
const UUID_BYTES: usize = 16;
const REVOCATIONS_AT: usize = 16;
const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

/// A kind of block that describes other blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Descriptor,
    Commit,
    Revocation,
}

/// A block that a descriptor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) block: u64,
    pub(super) is_escaped: bool,
    pub(super) sum: u32,
}

/// Returns the kind of a block of the log, if it belongs to a transaction.
pub(super) fn record(block: &[u8], sequence: u32) -> Option<Record> {
    let bytes = Bytes(block);
    if bytes.be32(0) != Some(JOURNAL_MAGIC) || bytes.be32(8) != Some(sequence) {
        return None;
    }
    match bytes.be32(4)? {
        1 => Some(Record::Descriptor),
        2 => Some(Record::Commit),
        5 => Some(Record::Revocation),
        _ => None,
    }
}

/// Returns the tags of a descriptor.
pub(super) fn tags(head: &Head, block: &[u8]) -> Vec<Tag> {
    let usable = block.len().saturating_sub(head.tail_bytes());
    let bytes = Bytes(block.get(..usable).unwrap_or_default());
    let mut found = Vec::new();
    let mut at = HEADER_BYTES;
    while let Some((tag, flags)) = tag(head, bytes, at) {
        found.push(tag);
        at += tag_bytes(head) + if flags & SAME_UUID == 0 { UUID_BYTES } else { 0 };
        if flags & LAST != 0 {
            break;
        }
    }
    found
}

fn tag_bytes(head: &Head) -> usize {
    match head.sums {
        ChecksumKind::Full => 16,
        ChecksumKind::Short => 10 + if head.is_wide { 4 } else { 0 },
        _ => 8 + if head.is_wide { 4 } else { 0 },
    }
}

fn tag(head: &Head, bytes: Bytes<'_>, at: usize) -> Option<(Tag, u32)> {
    let bytes = bytes.part(at, tag_bytes(head))?;
    let high = if head.is_wide { bytes.be32(8)? } else { 0 };
    let (flags, sum) = match head.sums {
        ChecksumKind::Full => (bytes.be32(4)?, bytes.be32(12)?),
        _ => (u32::from(bytes.be16(6)?), u32::from(bytes.be16(4)?)),
    };
    let block = u64::from(high) << 32 | u64::from(bytes.be32(0)?);
    Some((Tag { block, is_escaped: flags & ESCAPED != 0, sum }, flags))
}

/// Returns the blocks that a revocation names; `None` if it is damaged.
pub(super) fn revocations(head: &Head, block: &[u8]) -> Option<Vec<u64>> {
    let bytes = Bytes(block);
    let used = usize::try_from(bytes.be32(HEADER_BYTES)?).ok()?;
    if used > block.len() - head.tail_bytes() {
        return None;
    }
    let numbers = block.get(REVOCATIONS_AT..used)?;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some(numbers.chunks_exact(if head.is_wide { 8 } else { 4 }).map(number).collect())
}

/// Returns whether a descriptor or a revocation has the right checksum at its end.
pub(super) fn has_right_tail(head: &Head, block: &[u8]) -> bool {
    if head.tail_bytes() == 0 {
        return true;
    }
    let Some((summed, tail)) = block.split_last_chunk::<4>() else { return false };
    crc32c(crc32c(head.seed, summed), &[0; 4]) == u32::from_be_bytes(*tail)
}

/// Returns whether a copy has the checksum in its tag.
pub(super) fn has_right_sum(head: &Head, sequence: u32, copy: &[u8], sum: u32) -> bool {
    let found = crc32c(crc32c(head.seed, &sequence.to_be_bytes()), copy);
    match head.sums {
        ChecksumKind::Full => found == sum,
        ChecksumKind::Short => found & 0xffff == sum,
        ChecksumKind::Commits | ChecksumKind::None => true,
    }
}

/// A commit block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commit {
    pub(super) seconds: u64,
    pub(super) is_sound: bool,
}

/// Returns the commit of a transaction; `transaction_sum` is the checksum of its blocks, for version 1.
pub(super) fn commit(head: &Head, block: &[u8], transaction_sum: u32) -> Option<Commit> {
    let bytes = Bytes(block);
    let (kind, length, sum) = (bytes.u8(12)?, bytes.u8(13)?, bytes.be32(16)?);
    let is_sound = match head.sums {
        ChecksumKind::None => true,
        ChecksumKind::Commits => (kind, length, sum) == (1, 4, transaction_sum) || (kind, length, sum) == (0, 0, 0),
        ChecksumKind::Short | ChecksumKind::Full => {
            let parts = [bytes.part(0, 16)?.0, &[0; 4], bytes.from(20)?.0];
            parts.iter().fold(head.seed, |sum, part| crc32c(sum, part)) == sum
        }
    };
    Some(Commit { seconds: bytes.be64(48)?, is_sound })
}

/// Continues the checksum of a transaction, version 1: CRC-32 with the highest bit first, without inversions.
pub(super) fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    bytes.iter().fold(seed, |crc, byte| crc << 8 ^ TABLE[usize::from(crc.to_be_bytes()[0] ^ byte)])
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let (mut index, mut top) = (0, 0_u32);
    while index < 256 {
        let (mut crc, mut bit) = (top << 24, 0);
        while bit < 8 {
            crc = if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
        top += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_sums_with_the_highest_bit_first() {
        assert_eq!(crc32_be(u32::MAX, b"123456789"), 0x0376_e6e7);
    }
}
