//! The places of the fields in each kind of block. The layouts are those of `onefold_pool::format` and of the names
//! tree. A wrong place here only makes the damage less targeted.

use std::ops::Range;

use onefold_pool::format::BlockBytes;
use onefold_pool::format::header::{BlockKind, HEADER_BYTES};
use onefold_pool::format::map_node::{ENTRY_BYTES, FAN_OUT_LEN, entries_range};
use onefold_pool::format::state::FIELD_COUNT;
use onefold_pool::format::store_page;

use crate::Choices;

const SUPERBLOCK: [(usize, usize); 18] = [
    (16, 8),
    (24, 4),
    (28, 1),
    (29, 1),
    (30, 1),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (80, 8),
    (112, 8),
    (120, 8),
    (128, 8),
    (136, 8),
    (144, 4),
    (148, 1),
    (149, 8),
];
const JOURNAL_HEADER: [(usize, usize); 6] = [(16, 8), (24, 8), (32, 8), (40, 4), (44, 1), (48, 8)];
const HEARTBEAT: [(usize, usize); 4] = [(16, 8), (32, 8), (40, 8), (48, 1)];
const TREE_HEADER: [(usize, usize); 5] = [(16, 1), (17, 1), (18, 2), (20, 2), (22, 2)];
const STORE_ENTRY: [(usize, usize); 5] = [(0, 8), (16, 4), (20, 2), (22, 1), (23, 1)];
/// Within a leaf's cell: the key's parts, the length of the value, then the fields of an inode.
const CELL: [(usize, usize); 26] = [
    (0, 8),
    (8, 1),
    (9, 8),
    (17, 2),
    (19, 1),
    (20, 1),
    (21, 2),
    (23, 4),
    (27, 4),
    (31, 4),
    (35, 4),
    (39, 2),
    (41, 1),
    (42, 1),
    (43, 8),
    (51, 8),
    (59, 8),
    (67, 8),
    (75, 8),
    (83, 8),
    (91, 4),
    (119, 8),
    (131, 8),
    (147, 8),
    (155, 8),
    (163, 8),
];
const SLOTS_START: usize = 24;

/// Returns the place of a random field of a block of this kind.
pub(super) fn pick(choices: &mut Choices<'_>, kind: BlockKind, bytes: &BlockBytes) -> Range<usize> {
    let (first, length) = match kind {
        BlockKind::Superblock => *choices.one_of(&SUPERBLOCK),
        BlockKind::JournalHeader => *choices.one_of(&JOURNAL_HEADER),
        BlockKind::Heartbeat => *choices.one_of(&HEARTBEAT),
        BlockKind::State => (HEADER_BYTES + 8 * choices.index(FIELD_COUNT), 8),
        BlockKind::Bitmap => (HEADER_BYTES + choices.index(4080 - 8), 8),
        BlockKind::StorePage => {
            let entry = used(choices, bytes, 170, store_page::entry_range);
            let (offset, length) = *choices.one_of(&STORE_ENTRY);
            (entry.start + offset, length)
        }
        BlockKind::MapNode(_) if choices.below(8) == 0 => (HEADER_BYTES + 8 * choices.index(2), 8),
        BlockKind::MapNode(_) => {
            (used(choices, bytes, FAN_OUT_LEN, |index| entries_range(index, 1)).start, ENTRY_BYTES)
        }
        BlockKind::TreePage => tree_field(choices, bytes),
        BlockKind::GroupSummaries => (HEADER_BYTES + 4 * choices.index(1020), 4),
    };
    // Cuts a field that would reach past the block, which happens in a damaged page.
    first.min(bytes.len() - 1)..(first + length).min(bytes.len())
}

/// Returns the place of an entry that is not all zeros, if one follows a randomly chosen one.
fn used(
    choices: &mut Choices<'_>,
    bytes: &BlockBytes,
    count: usize,
    range: impl Fn(usize) -> Range<usize>,
) -> Range<usize> {
    let from = choices.index(count);
    let is_used = |index: &usize| bytes[range(*index)].iter().any(|&byte| byte != 0);
    // Mostly hits an entry in use, now and then a free one.
    let at = if from.is_multiple_of(8) { None } else { (0..count).map(|step| (from + step) % count).find(is_used) };
    range(at.unwrap_or(from))
}

fn tree_field(choices: &mut Choices<'_>, bytes: &BlockBytes) -> (usize, usize) {
    let number_at = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let count = number_at(18).min((bytes.len() - SLOTS_START) / 2);
    match choices.below(8) {
        0 => *choices.one_of(&TREE_HEADER),
        1 => (SLOTS_START + 2 * choices.index(count.max(1)), 2),
        _ if count == 0 => (18, 2),
        _ => {
            let cell = number_at(SLOTS_START + 2 * choices.index(count)).min(bytes.len() - 1);
            let (offset, length) = if bytes[16] == 0 { *choices.one_of(&CELL) } else { *choices.one_of(&CELL[..3]) };
            // An interior cell has the child's number where a leaf's cell has the value's length.
            if bytes[16] != 0 && choices.below(2) == 0 { (cell + 17, 8) } else { (cell + offset, length) }
        }
    }
}
