//! Summaries of groups: what was known of the free blocks of each group. With them, the first writes after an opening
//! read no bitmaps of groups without room.
//!
//! A close writes them. A large pool also writes them at each checkpoint while it is open, for the opening after a
//! crash. The blocks are free ones. [`FilterRun`](super::items::FilterRun)s lead to them, after those of the filter. A
//! block that is missing or damaged costs only time.
//!
//! | bytes  | field     | notes                                                                                   |
//! |--------|-----------|-----------------------------------------------------------------------------------------|
//! | 0..16  | header    | see [`super::header`]                                                                   |
//! | 16..24 | sequence  | number of the next transaction after the close, or [`WHILE_OPEN`]                       |
//! | 24..32 | first     | the group of the first summary                                                          |
//! | 32..   | summaries | of 4 bytes each: longest run (2), number of free blocks (2); all ones if nothing is known |
//!
//! Only an opening whose next transaction has this number may trust the summaries. In any other state they are hints.

use onefold_block::{BLOCK_BYTES, BlockNo};

use super::geometry::GROUP_BLOCKS;
use super::header::{self, BlockKind};
use super::{BlockBytes, get_u16, get_u64, put_u16, put_u64};

/// Longer runs count as this long: no search needs more.
pub const LONG_RUN: u64 = 256;
/// Number of summaries in a block.
pub const SUMMARIES_PER_BLOCK: usize = (BLOCK_BYTES - SUMMARIES_AT) / SUMMARY_BYTES;
/// The sequence of summaries that were written while the pool was open: no transaction has this number.
pub const WHILE_OPEN: u64 = u64::MAX;
const SEQUENCE_AT: usize = 16;
const FIRST_AT: usize = 24;
const SUMMARIES_AT: usize = 32;
const SUMMARY_BYTES: usize = 4;
const UNKNOWN: u16 = u16::MAX;
const _: () = assert!(LONG_RUN <= GROUP_BLOCKS && GROUP_BLOCKS < UNKNOWN as u64);

/// The known facts about the free blocks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// Upper bound of the longest run of free blocks, at most [`LONG_RUN`].
    pub longest: u16,
    /// Number of free blocks.
    pub free: u16,
}

impl GroupSummary {
    /// Returns the summary of a group with `free` free blocks, at most `longest` of them in a row.
    #[must_use]
    pub fn new(longest: u64, free: u64) -> GroupSummary {
        let narrow = |count: u64| u16::try_from(count).expect("a group has 32,768 blocks");
        GroupSummary { longest: narrow(longest.min(LONG_RUN)), free: narrow(free) }
    }
}

/// The content of a block of summaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryBlock {
    /// Number of the next transaction, or [`WHILE_OPEN`].
    pub sequence: u64,
    /// The group of the first summary.
    pub first_group: u64,
    /// The summaries of this group and the next ones, [`SUMMARIES_PER_BLOCK`] at most; `None` of a group that is
    /// unknown, or past the last one.
    pub summaries: Vec<Option<GroupSummary>>,
}

impl SummaryBlock {
    /// Returns the bytes of the block at `at`, sealed.
    #[must_use]
    pub fn encode(&self, pool_tag: u32, at: BlockNo) -> BlockBytes {
        let mut bytes = header::blank(pool_tag, BlockKind::GroupSummaries, at);
        put_u64(&mut bytes, SEQUENCE_AT, self.sequence);
        put_u64(&mut bytes, FIRST_AT, self.first_group);
        let summaries = self.summaries.iter().copied().chain(std::iter::repeat(None));
        for (index, summary) in summaries.take(SUMMARIES_PER_BLOCK).enumerate() {
            let place = SUMMARIES_AT + index * SUMMARY_BYTES;
            put_u16(&mut bytes, place, summary.map_or(UNKNOWN, |known| known.longest));
            put_u16(&mut bytes, place + 2, summary.map_or(UNKNOWN, |known| known.free));
        }
        header::seal(&mut bytes);
        bytes
    }

    /// Decodes the block at `at`; `None` if it is damaged, or something else.
    #[must_use]
    pub fn decode(bytes: &BlockBytes, pool_tag: u32, at: BlockNo) -> Option<SummaryBlock> {
        header::verify(bytes, pool_tag, BlockKind::GroupSummaries, at).ok()?;
        let summaries = bytes[SUMMARIES_AT..].as_chunks::<SUMMARY_BYTES>().0.iter().map(|summary| {
            let (longest, free) = (get_u16(summary, 0), get_u16(summary, 2));
            match (longest, free) {
                (UNKNOWN, UNKNOWN) => Some(None),
                _ if u64::from(free) > GROUP_BLOCKS || u64::from(longest) > LONG_RUN.min(u64::from(free)) => None,
                _ => Some(Some(GroupSummary { longest, free })),
            }
        });
        Some(SummaryBlock {
            sequence: get_u64(bytes, SEQUENCE_AT),
            first_group: get_u64(bytes, FIRST_AT),
            summaries: summaries.collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: BlockNo = BlockNo(77);

    fn block() -> SummaryBlock {
        let mut summaries = vec![None; SUMMARIES_PER_BLOCK];
        summaries[0] = Some(GroupSummary::new(3, 70));
        summaries[2] = Some(GroupSummary::new(5000, GROUP_BLOCKS));
        summaries[1015] = Some(GroupSummary::new(0, 0));
        SummaryBlock { sequence: 0x0102_0304_0506_0708, first_group: 2032, summaries }
    }

    #[test]
    fn a_block_of_summaries_has_these_bytes() {
        let bytes = block().encode(0xabcd_ef01, AT);
        assert_eq!(bytes[4..16], [0x01, 0xef, 0xcd, 0xab, 77, 0, 0, 0, 0, 0, 10, 0]);
        assert_eq!(bytes[16..32], [8, 7, 6, 5, 4, 3, 2, 1, 0xf0, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..44], [3, 0, 70, 0, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0x80]);
        assert_eq!(bytes[4088..], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(SummaryBlock::decode(&bytes, 0xabcd_ef01, AT), Some(block()));
    }

    #[test]
    fn a_block_elsewhere_or_with_more_than_a_group_has_is_refused() {
        let bytes = block().encode(7, AT);
        assert_eq!(SummaryBlock::decode(&bytes, 7, AT.plus(1)), None);
        assert_eq!(SummaryBlock::decode(&bytes, 8, AT), None);
        for (longest, free) in [(0, 32_769), (71, 70), (257, 300), (UNKNOWN, 0), (0, UNKNOWN)] {
            let mut bytes = bytes;
            put_u16(&mut bytes, SUMMARIES_AT, longest);
            put_u16(&mut bytes, SUMMARIES_AT + 2, free);
            header::seal(&mut bytes);
            assert_eq!(SummaryBlock::decode(&bytes, 7, AT), None, "{longest}, {free}");
        }
    }
}
