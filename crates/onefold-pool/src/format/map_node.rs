//! Node of a file map: a radix tree of fan-out 508 whose leaves name data blocks.
//!
//! After the header come two numbers of 8 bytes, *mapped* and *reserved*: how many places below this node are mapped to
//! data or reserved. They let a truncate detach a subtree without a walk. Then follow 508 entries of 8 bytes:
//!
//! | bits   | field  | notes                                                                          |
//! |--------|--------|--------------------------------------------------------------------------------|
//! | 0..48  | block  | the data block (in a leaf) or the child node (above); 0 is a hole               |
//! | 48..63 |        | 0                                                                              |
//! | 63     | reserved | `block` is 0: space is promised for all that the entry spans, it reads as zeros |

use onefold_block::BlockNo;

use super::header::HEADER_BYTES;
use super::{BlockBytes, get_u64};

/// Entries of a node.
pub const FAN_OUT: u64 = 508;
/// [`FAN_OUT`] as an array length.
pub const FAN_OUT_LEN: usize = 508;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 8;
/// Maximum height of a map: 508^4 blocks are more than the largest file has.
pub const LEVELS_MAX: u8 = 4;
const RESERVED: u64 = 1 << 63;
/// Byte ranges of the node's two numbers.
const MAPPED_OFFSET: usize = HEADER_BYTES;
const RESERVED_OFFSET: usize = HEADER_BYTES + 8;
const ENTRIES_OFFSET: usize = HEADER_BYTES + 16;
/// Byte range of both numbers.
pub const TOTALS_RANGE: std::ops::Range<usize> = MAPPED_OFFSET..ENTRIES_OFFSET;
const _: () = assert!(ENTRIES_OFFSET + FAN_OUT_LEN * ENTRY_BYTES == onefold_block::BLOCK_BYTES);
const _: () = assert!(FAN_OUT.pow(LEVELS_MAX as u32) * 4096 >= crate::FILE_BYTES_MAX);

/// A map's entry for one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapEntry {
    /// No block: reads as zeros.
    Hole,
    /// No block yet, but space is promised.
    Reserved,
    /// A data block, or a child node.
    Block(BlockNo),
}

impl MapEntry {
    /// Returns the block that the entry names.
    #[must_use]
    pub fn block(&self) -> Option<BlockNo> {
        match self {
            MapEntry::Block(block) => Some(*block),
            MapEntry::Hole | MapEntry::Reserved => None,
        }
    }

    /// Returns the 8 bytes as a number.
    #[must_use]
    pub fn encode(self) -> u64 {
        match self {
            MapEntry::Hole => 0,
            MapEntry::Reserved => RESERVED,
            MapEntry::Block(block) => block.0,
        }
    }

    /// Decodes an entry; `None` if Onefold never writes it like this.
    #[must_use]
    pub fn decode(raw: u64) -> Option<MapEntry> {
        match raw {
            0 => Some(MapEntry::Hole),
            RESERVED => Some(MapEntry::Reserved),
            block if block <= BlockNo::MAX.0 => Some(MapEntry::Block(BlockNo(block))),
            _ => None,
        }
    }
}

/// Returns the byte range of `count` entries from `index`.
#[must_use]
pub fn entries_range(index: usize, count: usize) -> std::ops::Range<usize> {
    let first = ENTRIES_OFFSET + index * ENTRY_BYTES;
    first..first + count * ENTRY_BYTES
}

/// Decodes entry `index`; `None` if damaged.
#[must_use]
pub fn entry(node: &BlockBytes, index: usize) -> Option<MapEntry> {
    MapEntry::decode(get_u64(node, ENTRIES_OFFSET + index * ENTRY_BYTES))
}

/// Numbers of places below a node, or changes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapTotals {
    /// Places mapped to data.
    pub mapped: i64,
    /// Places that are reserved.
    pub reserved: i64,
}

impl std::ops::AddAssign for MapTotals {
    fn add_assign(&mut self, other: MapTotals) {
        self.mapped += other.mapped;
        self.reserved += other.reserved;
    }
}

impl std::ops::Neg for MapTotals {
    type Output = MapTotals;

    fn neg(self) -> MapTotals {
        MapTotals { mapped: -self.mapped, reserved: -self.reserved }
    }
}

/// Decodes the node's totals; `None` if they exceed those of any file.
#[must_use]
pub fn totals(node: &BlockBytes) -> Option<MapTotals> {
    let number = |offset| i64::try_from(get_u64(node, offset)).ok().filter(|&number| number <= 1 << 48);
    Some(MapTotals { mapped: number(MAPPED_OFFSET)?, reserved: number(RESERVED_OFFSET)? })
}

/// Returns the bytes for [`TOTALS_RANGE`]; `None` if a total would be negative.
#[must_use]
pub fn encode_totals(totals: MapTotals) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&u64::try_from(totals.mapped).ok()?.to_le_bytes());
    bytes[8..].copy_from_slice(&u64::try_from(totals.reserved).ok()?.to_le_bytes());
    Some(bytes)
}

/// Returns how many blocks must be free for a reserved entry of a node at `level`: its data, and the nodes that will
/// map it.
#[must_use]
pub fn reserve_blocks(level: u8) -> u64 {
    (1..=level).fold(1, |below, _| FAN_OUT * below + 1)
}

/// Returns the number of blocks that one entry of a node at `level` spans: 1 in a leaf.
#[must_use]
pub fn entry_span(level: u8) -> u64 {
    FAN_OUT.pow(u32::from(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_encoding_and_nonsense_is_refused() {
        for entry in [MapEntry::Hole, MapEntry::Reserved, MapEntry::Block(BlockNo(1)), MapEntry::Block(BlockNo::MAX)] {
            assert_eq!(MapEntry::decode(entry.encode()), Some(entry));
        }
        for raw in [1 << 48, RESERVED | 5, u64::MAX, 1 << 62] {
            assert_eq!(MapEntry::decode(raw), None, "{raw:x}");
        }
    }

    #[test]
    fn spans_multiply_by_the_fan_out() {
        assert_eq!([0, 1, 2].map(reserve_blocks), [1, 509, 508 * 509 + 1]);
        assert_eq!([0, 1, 2].map(entry_span), [1, 508, 258_064]);
    }
}
