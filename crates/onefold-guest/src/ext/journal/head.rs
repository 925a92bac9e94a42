//! The journal's superblock, in its first block.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Journal (jbd2)". All numbers are big-endian.
//!
//! | byte | field | byte | field |
//! |------|-------|------|-------|
//! | 0x0  | magic 0xc03b3998 | 0x20 | error number that the file system noted |
//! | 0x4  | kind of block: 3 (version 1), 4 (version 2) | 0x24 | compatible features: 1 checksums of commits |
//! | 0xc  | block size | 0x28 | incompatible features |
//! | 0x10 | blocks of the journal | 0x30 | UUID, 16 bytes |
//! | 0x14 | first block of the log | 0x50 | kind of checksum: 4 is CRC-32C |
//! | 0x18 | first transaction expected | 0x54 | blocks of fast commits at the end |
//! | 0x1c | block of its beginning; 0: nothing to apply | 0xfc | checksum of 1024 bytes, with zeros here |

use crate::bytes::Bytes;
use crate::ext::checksum::crc32c;
use crate::ext::source::JOURNAL_MAGIC;

pub(super) const HEAD_BYTES: usize = 1024;
const CHECKSUM_AT: usize = 0xfc;
/// Default number of blocks for fast commits.
const FAST_BLOCKS: u32 = 256;
/// Minimum length of a log.
const LOG_BLOCKS_MIN: u32 = 1024;

/// `mke2fs` makes no journal of more than 10,240,000 blocks.
const BLOCKS_MAX: u32 = 1 << 24;

const COMMIT_SUMS: u32 = 0x1;
const BITS_64: u32 = 0x2;
const SUMS_2: u32 = 0x8;
const SUMS_3: u32 = 0x10;
const FAST_COMMIT: u32 = 0x20;
/// Those above, and: 1 revocations, 4 commits that may be written before their blocks.
const KNOWN: u32 = 0x3f;

/// Kind of the checksums of a journal's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChecksumKind {
    None,
    /// Version 1: a commit has a checksum over all blocks of its transaction.
    Commits,
    /// Version 2: each block has a checksum. Tags contain the lower half.
    Short,
    /// Version 3: each block has a checksum.
    Full,
}

/// The journal's superblock.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// The first block of the log.
    pub(super) first: u32,
    /// The block after the last one of the log.
    pub(super) last: u32,
    pub(super) sequence: u32,
    /// Start of the log; 0 if there is nothing to apply.
    pub(super) start: u32,
    pub(super) has_error: bool,
    pub(super) sums: ChecksumKind,
    pub(super) is_wide: bool,
    pub(super) has_fast_commits: bool,
    /// The seed of checksums.
    pub(super) seed: u32,
}

impl Head {
    /// Decodes the head of a journal whose map has `blocks`.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub(super) fn decode(bytes: &[u8], block_bytes: u64, blocks: u64) -> Result<Head, &'static str> {
        let sound = Bytes(bytes).part(0, HEAD_BYTES).ok_or("its head is too short")?;
        let (head, incompatible) = Head::fields(sound, block_bytes, blocks).ok_or("its head makes no sense")?;
        if incompatible & !KNOWN != 0 {
            return Err("it has features that are unknown here");
        }
        if matches!(head.sums, ChecksumKind::Short | ChecksumKind::Full) {
            let parts = [&sound.0[..CHECKSUM_AT], &[0; 4], &sound.0[CHECKSUM_AT + 4..]];
            let sum = parts.iter().fold(u32::MAX, |sum, part| crc32c(sum, part));
            if sound.u8(0x50) != Some(4) || sound.be32(CHECKSUM_AT) != Some(sum) {
                return Err("the checksum of its head is wrong");
            }
        }
        Ok(head)
    }

    fn fields(bytes: Bytes<'_>, block_bytes: u64, blocks: u64) -> Option<(Head, u32)> {
        let version = bytes.be32(4)?;
        let feature = |at| if version == 4 { bytes.be32(at) } else { Some(0) };
        let (compatible, incompatible) = (feature(0x24)?, feature(0x28)?);
        let has_fast_commits = incompatible & FAST_COMMIT != 0;
        let length = bytes.be32(0x10)?;
        let fast = match bytes.be32(0x54)? {
            _ if !has_fast_commits => 0,
            0 => FAST_BLOCKS,
            count => count,
        };
        let last = length.checked_sub(fast).filter(|last| fast == 0 || *last >= LOG_BLOCKS_MIN).unwrap_or(length);
        let head = Head {
            first: bytes.be32(0x14)?,
            last,
            sequence: bytes.be32(0x18)?,
            start: bytes.be32(0x1c)?,
            has_error: bytes.be32(0x20)? != 0,
            sums: match incompatible & (SUMS_2 | SUMS_3) {
                0 if compatible & COMMIT_SUMS != 0 => ChecksumKind::Commits,
                0 => ChecksumKind::None,
                SUMS_2 => ChecksumKind::Short,
                SUMS_3 => ChecksumKind::Full,
                _ => return None,
            },
            is_wide: incompatible & BITS_64 != 0,
            has_fast_commits,
            seed: crc32c(u32::MAX, bytes.part(0x30, 16)?.0),
        };
        let is_sound = bytes.be32(0) == Some(JOURNAL_MAGIC)
            && matches!(version, 3 | 4)
            && bytes.be32(0xc).map(u64::from) == Some(block_bytes)
            && u64::from(length) <= blocks
            && length <= BLOCKS_MAX
            && head.first > 0
            && head.first < head.last
            && (head.start == 0 || (head.first..head.last).contains(&head.start));
        is_sound.then_some((head, incompatible))
    }

    /// Returns the length of the checksum at the end of a block.
    pub(super) fn tail_bytes(&self) -> usize {
        if matches!(self.sums, ChecksumKind::Short | ChecksumKind::Full) { 4 } else { 0 }
    }

    /// Returns the number of a block of the log, which is circular.
    pub(super) fn wrapped(&self, block: u64) -> u64 {
        let (first, last) = (u64::from(self.first), u64::from(self.last));
        if block < last { block } else { first + (block - first) % (last - first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_any_length_is_damaged() {
        let head = |blocks: u32| {
            let mut bytes = vec![0; HEAD_BYTES];
            let fields = [(0, JOURNAL_MAGIC), (4, 4), (0xc, 4096), (0x10, blocks), (0x14, 1), (0x18, 1)];
            for (at, value) in fields {
                bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
            }
            Head::decode(&bytes, 4096, u64::from(u32::MAX)).map(|head| head.last)
        };
        assert_eq!(head(10_240_000), Ok(10_240_000));
        assert_eq!(head(1 << 31), Err("its head makes no sense"));
    }
}
