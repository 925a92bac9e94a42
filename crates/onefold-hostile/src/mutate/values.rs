//! Harmful numbers.

use onefold_block::BlockNo;
use onefold_pool::format::geometry::{HEARTBEAT, STATE, SUPERBLOCK, SUPERBLOCK_COPY};

use crate::Choices;
use crate::samples::{KINDS, Sample};

/// Numbers at the limits of fields or formats.
const EDGES: [u64; 20] = [
    0,
    1,
    2,
    4,
    12,
    507,
    508,
    1000,
    4095,
    4096,
    32_768,
    u16::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    1 << 44,
    BlockNo::MAX.0,
    BlockNo::MAX.0 + 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Returns a replacement for `old`: a limit, a nearby number, a flipped bit, another block, or any number.
pub(super) fn number(choices: &mut Choices<'_>, old: u64, sample: &Sample) -> u64 {
    match choices.below(8) {
        0 | 1 => *choices.one_of(&EDGES),
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << choices.below(64),
        5 | 6 => pointer(choices, sample).0,
        _ => choices.number(),
    }
}

/// Returns a block to point at: one of any structure, to cause loops, sharing and mistaken identity.
pub(super) fn pointer(choices: &mut Choices<'_>, sample: &Sample) -> BlockNo {
    let geometry = &sample.geometry;
    match choices.below(6) {
        0 => *choices.one_of(&[SUPERBLOCK, HEARTBEAT, STATE, SUPERBLOCK_COPY, geometry.journal_first]),
        1 => BlockNo(geometry.total_blocks - choices.below(2)),
        2 => BlockNo(choices.below(geometry.total_blocks)),
        _ => {
            let places = &sample.places[choices.index(KINDS.len())];
            if places.is_empty() { STATE } else { *choices.one_of(places) }
        }
    }
}
