//! Rows of candidates: for each file and each phase in which it has pieces, a head and these pieces.
//!
//! | bits of the row | are |
//! |---|---|
//! | 0..61 | number of the content: files with one number are candidates of each other |
//! | 61..64 | its phase: where the host's blocks begin in the content, in units of 512 bytes |
//! | 64..74 | its rank as a source: how many pieces it has, whether most of it is unshared on the host, and whether some of its content has no piece |
//! | 74..92 | its image, by the rank of its number |
//! | 92..112 | its number among the files of the image |
//! | 112 | 0 in a head, 1 in a piece |
//! | 113..143 | piece: the block of the content |
//! | 143..182 | piece: the block of the image |
//! | 182..192 | piece: how many blocks, less one |
//! | 128..192 | head: the key of the content |
//!
//! The first bits are the highest ones of the first word. So files that are believed equal come together, the best
//! source before all others; the head comes before the pieces, and the pieces come in the order of the content.

use onefold_sort::Row;

use crate::format::FileBlock;
use crate::format::guest::{CONTENT_BLOCKS_MAX, PHASES, Piece};

const PHASE_BITS: u32 = 3;
const IMAGE_BITS: u32 = 18;
const ORDINAL_BITS: u32 = 20;
const CONTENT_LOW_BITS: u32 = 15;
const COUNT_BITS: u32 = 10;
const IMAGE_SHIFT: u32 = ORDINAL_BITS + ORDINAL_SHIFT;
const ORDINAL_SHIFT: u32 = 16;
const RANK_SHIFT: u32 = IMAGE_BITS + IMAGE_SHIFT;
const PIECE: u64 = 1 << 15;
const _: () = assert!(FileBlock::LIMIT == 1 << (u64::BITS - COUNT_BITS - CONTENT_LOW_BITS), "39 bits of a block");
const _: () = assert!(PHASES == 1 << PHASE_BITS && CONTENT_BLOCKS_MAX == 1 << 30, "what the rows have room for");
const _: () = assert!(RANK_SHIFT + 10 == u64::BITS, "rank, image, file and 16 more bits are a word");

/// Limit of image ranks: the highest rank plus one.
pub(in crate::files) const IMAGES_MAX: u32 = 1 << IMAGE_BITS;
/// Maximum number of files of one image that are candidates.
pub(in crate::files) const FILES_MAX: u32 = 1 << ORDINAL_BITS;
/// Maximum number of blocks of one piece.
pub(in crate::files) const PIECE_BLOCKS_MAX: u64 = 1 << COUNT_BITS;
/// The worst rank.
pub(in crate::files) const RANK_MAX: u64 = (1 << 10) - 1;

/// A file that is believed to equal others: its part in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::files) struct Instance {
    /// Number of the content that it is believed to have; 61 bits count.
    pub(in crate::files) content: u64,
    /// Where the host's blocks begin in it, in units of 512 bytes.
    pub(in crate::files) phase: u64,
    /// Lower ones are better sources.
    pub(in crate::files) rank: u64,
    /// Its image.
    pub(in crate::files) image: u32,
    /// Its number in the image.
    pub(in crate::files) ordinal: u32,
}

/// The part of a row that follows its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::files) enum Part {
    /// The head, with the number of the content's key.
    Head(u32),
    /// A piece.
    Piece(Piece),
}

impl Instance {
    fn words(&self) -> [u64; 2] {
        let first = (self.content << PHASE_BITS) | (self.phase % PHASES as u64);
        let second = self.rank.min(RANK_MAX) << RANK_SHIFT
            | u64::from(self.image % IMAGES_MAX) << IMAGE_SHIFT
            | u64::from(self.ordinal % FILES_MAX) << ORDINAL_SHIFT;
        [first, second]
    }

    /// Returns the row of its head.
    pub(super) fn head(&self, key: u32) -> Row {
        let [first, second] = self.words();
        [first, second, u64::from(key)]
    }

    /// Returns the row of a piece; `None` if it is too long or lies too far.
    pub(super) fn piece(&self, piece: &Piece) -> Option<Row> {
        let [first, second] = self.words();
        let fits = (1..=PIECE_BLOCKS_MAX).contains(&piece.count)
            && piece.content.checked_add(piece.count)? <= CONTENT_BLOCKS_MAX
            && piece.block.checked_add(piece.count)? <= FileBlock::LIMIT;
        if !fits {
            return None;
        }
        let second = second | PIECE | piece.content >> CONTENT_LOW_BITS;
        let third = piece.content << (u64::BITS - CONTENT_LOW_BITS) | piece.block << COUNT_BITS | (piece.count - 1);
        Some([first, second, third])
    }
}

/// Returns the instance and the part of a row.
pub(super) fn parts([first, second, third]: Row) -> (Instance, Part) {
    let low = |word: u64, bits: u32| word & ((1 << bits) - 1);
    let number = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
    let instance = Instance {
        content: first >> PHASE_BITS,
        phase: low(first, PHASE_BITS),
        rank: second >> RANK_SHIFT,
        image: number(low(second >> IMAGE_SHIFT, IMAGE_BITS)),
        ordinal: number(low(second >> ORDINAL_SHIFT, ORDINAL_BITS)),
    };
    if second & PIECE == 0 {
        return (instance, Part::Head(number(third)));
    }
    let content = low(second, 15) << CONTENT_LOW_BITS | third >> (u64::BITS - CONTENT_LOW_BITS);
    let block = low(third >> COUNT_BITS, u64::BITS - COUNT_BITS - CONTENT_LOW_BITS);
    (instance, Part::Piece(Piece { content, block, count: low(third, COUNT_BITS) + 1 }))
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;

    #[test]
    fn rows_hold_all_that_is_packed_into_them() {
        let random = SeededRandom::new(1);
        let below = |limit: u32| u32::try_from(random.below(u64::from(limit))).unwrap();
        for _ in 0..10_000 {
            let instance = Instance {
                content: random.below(1 << 61),
                phase: random.below(PHASES as u64),
                rank: random.below(RANK_MAX + 1),
                image: below(IMAGES_MAX),
                ordinal: below(FILES_MAX),
            };
            let count = 1 + random.below(PIECE_BLOCKS_MAX);
            let content = random.below(CONTENT_BLOCKS_MAX - count + 1);
            let piece = Piece { content, block: random.below(FileBlock::LIMIT - count + 1), count };
            assert_eq!(parts(instance.piece(&piece).unwrap()), (instance, Part::Piece(piece)));
            let key = below(u32::MAX);
            assert_eq!(parts(instance.head(key)), (instance, Part::Head(key)));
            assert!(instance.head(key) < instance.piece(&piece).unwrap());
        }
    }

    #[test]
    fn pieces_that_are_too_long_or_too_far_have_no_row() {
        let instance = Instance { content: 1, phase: 0, rank: 0, image: 0, ordinal: 0 };
        let last = Piece { content: CONTENT_BLOCKS_MAX - 1, block: FileBlock::LIMIT - 1, count: 1 };
        assert!(instance.piece(&last).is_some());
        for piece in [
            Piece { count: 0, ..last },
            Piece { count: 2, content: 0, ..last },
            Piece { count: 2, block: 0, ..last },
            Piece { content: 0, block: 0, count: PIECE_BLOCKS_MAX + 1 },
            Piece { content: u64::MAX, ..last },
            Piece { block: u64::MAX, ..last },
        ] {
            assert_eq!(instance.piece(&piece), None, "{piece:?}");
        }
    }
}
