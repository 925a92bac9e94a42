//! A page of the tree: its layout, and how it is read.
//!
//! | bytes              | field       | notes                                                              |
//! |--------------------|-------------|--------------------------------------------------------------------|
//! | 0..16              | common      | header of every metadata block, written by the keeper of the pages |
//! | 16                 | level       | 0 is a leaf; the root has the highest                              |
//! | 17                 | padding     | 0                                                                  |
//! | 18..20             | count       | number of items                                                    |
//! | 20..22             | cells start | the cell area reaches from here to the page's end                  |
//! | 22..24             | dead bytes  | bytes of the cell area that belong to no cell                      |
//! | 24..24 + 2 × count | slots       | offset of each item's cell within the page, in key order           |
//! | ..cells start      | gap         | no meaning, not cleared                                            |
//! | cells start..4096  | cells       | in no order, mixed with dead bytes                                 |
//!
//! | leaf cell     | field        |   | interior cell | field                                         |
//! |---------------|--------------|---|---------------|-----------------------------------------------|
//! | 0..17         | key          |   | 0..17         | separator: no key of the child is below it    |
//! | 17..19        | value length |   | 17..25        | child's block number, of 48 bits              |
//! | 19..          | value        |   |               |                                               |
//!
//! Numbers are little-endian, except within the key. Checksum and journal ensure that a page is never torn. Yet every
//! field is checked before it is used: a page may have been damaged before its checksum was made.

use std::cmp::Ordering;
use std::ops::Range;

use onefold_block::{BLOCK_BYTES, BlockNo};

use super::key::KEY_BYTES;
use super::limits::{LEVEL_MAX, VALUE_BYTES_MAX};
use super::{Defect, Key, TreeError};

pub(super) const HEADER_START: usize = 16;
pub(super) const COUNT_START: usize = HEADER_START + 2;
pub(super) const SLOTS_START: usize = 24;
pub(super) const SLOT_BYTES: usize = 2;

/// Bytes of a page for slots and cells.
pub(super) const BODY_BYTES: usize = BLOCK_BYTES - SLOTS_START;

/// Minimum number of used bytes of a page: one with fewer is merged with its neighbour, or takes items from it.
pub(super) const FILL_BYTES_MIN: usize = BODY_BYTES / 3;

const LENGTH_END: usize = KEY_BYTES + 2;
const INTERIOR_CELL_BYTES: usize = KEY_BYTES + 8;
const ITEM_BYTES_MAX: usize = SLOT_BYTES + LENGTH_END + VALUE_BYTES_MAX;

const _: () = assert!(3 * ITEM_BYTES_MAX <= BODY_BYTES, "a page holds three items of any size");
const _: () = assert!(BODY_BYTES + 2 * ITEM_BYTES_MAX <= 2 * BODY_BYTES, "an overfull page fits into two");
const _: () = assert!((BODY_BYTES - ITEM_BYTES_MAX) / 2 >= FILL_BYTES_MIN, "both halves of a split are full enough");
const _: () = assert!(BLOCK_BYTES <= u16::MAX as usize, "offsets fit a slot");

/// The tree's own header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) level: u8,
    pub(super) count: usize,
    pub(super) cells_start: usize,
    pub(super) dead_bytes: usize,
}

impl PageHeader {
    pub(super) fn decode(at: BlockNo, page: &[u8; BLOCK_BYTES]) -> Result<PageHeader, TreeError> {
        let header = PageHeader {
            level: page[HEADER_START],
            count: number_at(page, COUNT_START),
            cells_start: number_at(page, COUNT_START + 2),
            dead_bytes: number_at(page, COUNT_START + 4),
        };
        if page[HEADER_START + 1] != 0 {
            return Err(Defect::Padding.of(at));
        }
        if header.level > LEVEL_MAX {
            return Err(Defect::LevelTooHigh { found: header.level }.of(at));
        }
        let PageHeader { count, cells_start, dead_bytes, .. } = header;
        if header.slots_end() > cells_start || cells_start > BLOCK_BYTES || dead_bytes > BLOCK_BYTES - cells_start {
            return Err(Defect::Layout { count, cells_start, dead_bytes }.of(at));
        }
        Ok(header)
    }

    pub(super) fn encode(&self) -> [u8; SLOTS_START - HEADER_START] {
        let (count, start, dead) =
            (encode_number(self.count), encode_number(self.cells_start), encode_number(self.dead_bytes));
        [self.level, 0, count[0], count[1], start[0], start[1], dead[0], dead[1]]
    }

    pub(super) fn slots_end(&self) -> usize {
        SLOTS_START + SLOT_BYTES * self.count
    }

    /// Returns the bytes between slots and cells, which can be used without moving cells.
    pub(super) fn gap_bytes(&self) -> usize {
        self.cells_start - self.slots_end()
    }

    /// Returns the bytes of slots and cells.
    pub(super) fn used_bytes(&self) -> usize {
        BODY_BYTES - self.free_bytes()
    }

    /// Returns the bytes in no slot or cell, wherever they lie.
    pub(super) fn free_bytes(&self) -> usize {
        self.gap_bytes() + self.dead_bytes
    }

    /// Returns the minimum number of items of a page that is not the root.
    pub(super) fn count_min(&self) -> usize {
        if self.level == 0 { 1 } else { 2 }
    }
}

/// A page whose header is sound; its cells are checked one by one as they are read.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) at: BlockNo,
    pub(super) header: PageHeader,
    page: &'a [u8; BLOCK_BYTES],
}

impl<'a> Node<'a> {
    pub(super) fn open(at: BlockNo, page: &'a [u8; BLOCK_BYTES]) -> Result<Node<'a>, TreeError> {
        Ok(Node { at, header: PageHeader::decode(at, page)?, page })
    }

    /// Opens a page on the way down; `parent_level` is `None` at the root. Levels decrease by one, so every descent
    /// ends, whatever the pages hold.
    pub(super) fn open_below(
        at: BlockNo,
        page: &'a [u8; BLOCK_BYTES],
        parent_level: Option<u8>,
    ) -> Result<Node<'a>, TreeError> {
        let node = Node::open(at, page)?;
        let PageHeader { level, count, .. } = node.header;
        if let Some(expected) = parent_level.map(|above| above.saturating_sub(1))
            && level != expected
        {
            return Err(Defect::Level { found: level, expected }.of(at));
        }
        let is_empty_tree = parent_level.is_none() && level == 0;
        if count < node.header.count_min() && !is_empty_tree {
            return Err(Defect::TooFewItems { count }.of(at));
        }
        Ok(node)
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.header.level == 0
    }

    /// Returns the byte range of the cell of item `index`.
    pub(super) fn cell_range(&self, index: usize) -> Result<Range<usize>, TreeError> {
        assert!(index < self.header.count, "item {index} of {}", self.header.count);
        let out_of_bounds = || Defect::CellBounds { index }.of(self.at);
        let start = number_at(self.page, SLOTS_START + SLOT_BYTES * index);
        let fixed_bytes = if self.is_leaf() { LENGTH_END } else { INTERIOR_CELL_BYTES };
        if start < self.header.cells_start || start + fixed_bytes > BLOCK_BYTES {
            return Err(out_of_bounds());
        }
        let value_bytes = if self.is_leaf() { number_at(self.page, start + KEY_BYTES) } else { 0 };
        let end = start + fixed_bytes + value_bytes;
        if value_bytes > VALUE_BYTES_MAX || end > BLOCK_BYTES {
            return Err(out_of_bounds());
        }
        Ok(start..end)
    }

    pub(super) fn key(&self, index: usize) -> Result<Key, TreeError> {
        Ok(cell_key(&self.page[self.cell_range(index)?]))
    }

    /// Returns the byte range of the value of item `index` of a leaf.
    pub(super) fn value_range(&self, index: usize) -> Result<Range<usize>, TreeError> {
        let cell = self.cell_range(index)?;
        Ok(cell.start + LENGTH_END..cell.end)
    }

    pub(super) fn value(&self, index: usize) -> Result<&'a [u8], TreeError> {
        Ok(&self.page[self.value_range(index)?])
    }

    /// Returns the child that item `index` of an interior page leads to.
    pub(super) fn child(&self, index: usize) -> Result<BlockNo, TreeError> {
        let start = self.cell_range(index)?.start + KEY_BYTES;
        let found = u64::from_le_bytes(*self.page[start..].first_chunk().expect("the cell is within the page"));
        if found > BlockNo::MAX.0 {
            return Err(Defect::ChildNo { index, found }.of(self.at));
        }
        Ok(BlockNo(found))
    }

    /// Returns the index of the item with this key, or as an error the index where it would be inserted.
    pub(super) fn search(&self, key: &Key) -> Result<Result<usize, usize>, TreeError> {
        let (mut low, mut high) = (0, self.header.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle)?.cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(Ok(middle)),
                Ordering::Greater => high = middle,
            }
        }
        Ok(Err(low))
    }

    /// Returns the index of the child of an interior page to which `key` belongs.
    pub(super) fn child_index(&self, key: &Key) -> Result<usize, TreeError> {
        Ok(match self.search(key)? {
            Ok(index) => index,
            // In a sound page no key is below the first separator; in a damaged one, any child will do.
            Err(index) => index.saturating_sub(1),
        })
    }

    pub(super) fn bytes(&self) -> &'a [u8; BLOCK_BYTES] {
        self.page
    }
}

/// Returns the cell of an item of a leaf.
pub(super) fn leaf_cell(key: &Key, value: &[u8]) -> Vec<u8> {
    let mut cell = Vec::with_capacity(LENGTH_END + value.len());
    cell.extend_from_slice(&key.encode());
    cell.extend_from_slice(&encode_number(value.len()));
    cell.extend_from_slice(value);
    cell
}

/// Returns the cell of an interior page that leads to `child`.
pub(super) fn interior_cell(separator: &Key, child: BlockNo) -> Vec<u8> {
    let mut cell = Vec::with_capacity(INTERIOR_CELL_BYTES);
    cell.extend_from_slice(&separator.encode());
    cell.extend_from_slice(&child.0.to_le_bytes());
    cell
}

/// Returns the key at the start of any cell.
pub(super) fn cell_key(cell: &[u8]) -> Key {
    Key::decode(cell.first_chunk().expect("a cell is longer than a key"))
}

/// Returns the two bytes that encode an offset, count or length within a page.
pub(super) fn encode_number(number: usize) -> [u8; 2] {
    u16::try_from(number).expect("a number within a page").to_le_bytes()
}

fn number_at(page: &[u8; BLOCK_BYTES], start: usize) -> usize {
    usize::from(u16::from_le_bytes([page[start], page[start + 1]]))
}
