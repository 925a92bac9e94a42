//! Changes the cells of one page. Leaf and interior cells are treated alike: bytes that begin with a key.

use std::ops::Range;

use onefold_block::{BLOCK_BYTES, BlockNo};

use super::node::{BODY_BYTES, COUNT_START, HEADER_START, Node, PageHeader, SLOT_BYTES, SLOTS_START, encode_number};
use super::{Defect, Pages, TreeError};

/// A copy of a page's cells, for distributing them anew.
pub(super) struct CellCopies {
    page: Box<[u8; BLOCK_BYTES]>,
    ranges: Vec<Range<usize>>,
}

impl CellCopies {
    /// Copies the cells of a page whose header accounts for them, so that they fit a page again.
    pub(super) fn of(node: &Node<'_>) -> Result<CellCopies, TreeError> {
        let ranges = (0..node.header.count).map(|index| node.cell_range(index)).collect::<Result<Vec<_>, _>>()?;
        let cell_bytes = ranges.iter().map(Range::len).sum();
        let (dead_bytes, area_bytes) = (node.header.dead_bytes, BLOCK_BYTES - node.header.cells_start);
        if cell_bytes + dead_bytes != area_bytes {
            return Err(Defect::Accounting { cell_bytes, dead_bytes, area_bytes }.of(node.at));
        }
        Ok(CellCopies { page: Box::new(*node.bytes()), ranges })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ranges.iter().map(|range| &self.page[range.clone()])
    }
}

/// Returns the number of bytes that cells need in a page, including their slots.
pub(super) fn bytes_needed(cells: &[&[u8]]) -> usize {
    cells.iter().map(|cell| SLOT_BYTES + cell.len()).sum()
}

/// Returns how many of the cells belong in the left of two pages, so that both are about equally full.
pub(super) fn middle(cells: &[&[u8]]) -> usize {
    let half = bytes_needed(cells) / 2;
    let mut left_bytes = 0;
    for (index, cell) in cells.iter().enumerate() {
        let with_cell = left_bytes + SLOT_BYTES + cell.len();
        if with_cell >= half {
            return if with_cell - half < half - left_bytes { index + 1 } else { index };
        }
        left_bytes = with_cell;
    }
    cells.len()
}

/// Makes `cells` the whole content of the page, without dead bytes.
pub(super) fn write_all<P: Pages>(pages: &mut P, at: BlockNo, level: u8, cells: &[&[u8]]) -> Result<(), P::Error> {
    assert!(bytes_needed(cells) <= BODY_BYTES, "the cells fit the page");
    let cell_bytes = cells.iter().map(|cell| cell.len()).sum::<usize>();
    let header = PageHeader { level, count: cells.len(), cells_start: BLOCK_BYTES - cell_bytes, dead_bytes: 0 };

    let front = pages.edit(at, HEADER_START..header.slots_end())?;
    let (front, slots) = front.split_at_mut(SLOTS_START - HEADER_START);
    front.copy_from_slice(&header.encode());
    let mut start = BLOCK_BYTES;
    for (slot, cell) in slots.chunks_exact_mut(SLOT_BYTES).zip(cells) {
        start -= cell.len();
        slot.copy_from_slice(&encode_number(start));
    }
    if cells.is_empty() {
        return Ok(());
    }
    let mut rest = pages.edit(at, header.cells_start..BLOCK_BYTES)?;
    for cell in cells {
        let (lower, place) = rest.split_at_mut(rest.len() - cell.len());
        place.copy_from_slice(cell);
        rest = lower;
    }
    Ok(())
}

/// Inserts a cell before item `index`. The page must have enough free bytes; they need not be contiguous.
pub(super) fn insert_one<P: Pages>(pages: &mut P, at: BlockNo, index: usize, cell: &[u8]) -> Result<(), P::Error> {
    let node = Node::open(at, pages.page(at)?)?;
    let old = node.header;
    assert!(SLOT_BYTES + cell.len() <= old.free_bytes(), "the cell fits the page");
    if SLOT_BYTES + cell.len() > old.gap_bytes() {
        let copies = CellCopies::of(&node)?;
        let mut cells = copies.iter().collect::<Vec<_>>();
        cells.insert(index, cell);
        return write_all(pages, at, old.level, &cells);
    }
    let header = PageHeader { count: old.count + 1, cells_start: old.cells_start - cell.len(), ..old };
    pages.edit(at, header.cells_start..old.cells_start)?.copy_from_slice(cell);
    let slots = pages.edit(at, SLOTS_START + SLOT_BYTES * index..header.slots_end())?;
    slots.copy_within(..slots.len() - SLOT_BYTES, SLOT_BYTES);
    slots[..SLOT_BYTES].copy_from_slice(&encode_number(header.cells_start));
    write_numbers(pages, at, &header)
}

/// Removes item `index` from the page; its cell becomes dead bytes.
pub(super) fn remove_one<P: Pages>(pages: &mut P, at: BlockNo, index: usize) -> Result<(), P::Error> {
    let node = Node::open(at, pages.page(at)?)?;
    let (old, cell) = (node.header, node.cell_range(index)?);
    let header = if cell.start == old.cells_start {
        // The cell is next to the gap, which can simply grow.
        PageHeader { count: old.count - 1, cells_start: cell.end, ..old }
    } else {
        PageHeader { count: old.count - 1, dead_bytes: old.dead_bytes + cell.len(), ..old }
    };
    if header.dead_bytes > BLOCK_BYTES - header.cells_start {
        return Err(accounting(&node, cell.len()).into());
    }
    let slots = pages.edit(at, SLOTS_START + SLOT_BYTES * index..old.slots_end())?;
    slots.copy_within(SLOT_BYTES.., 0);
    write_numbers(pages, at, &header)
}

/// Removes all items from `count` on; their cells become dead bytes. Their slots' old bytes stay in the gap.
pub(super) fn truncate<P: Pages>(pages: &mut P, at: BlockNo, count: usize) -> Result<(), P::Error> {
    let node = Node::open(at, pages.page(at)?)?;
    let mut header = PageHeader { count, ..node.header };
    for index in count..node.header.count {
        header.dead_bytes += node.cell_range(index)?.len();
    }
    if header.dead_bytes > BLOCK_BYTES - header.cells_start {
        return Err(accounting(&node, header.dead_bytes - node.header.dead_bytes).into());
    }
    write_numbers(pages, at, &header)
}

/// Replaces bytes `range` of a page by new content of the same length. Edits only the bytes from the first difference
/// to the last: an inode's size and times change all the time, and the journal holds only edited bytes.
pub(super) fn overwrite<P: Pages>(
    pages: &mut P,
    at: BlockNo,
    range: &Range<usize>,
    new: &[u8],
) -> Result<(), P::Error> {
    let differs = |(old, new): (&u8, &u8)| old != new;
    let old = &pages.page(at)?[range.clone()];
    let Some(first) = old.iter().zip(new).position(differs) else {
        return Ok(());
    };
    let last = old.iter().zip(new).rposition(differs).expect("a byte differs");
    pages.edit(at, range.start + first..range.start + last + 1)?.copy_from_slice(&new[first..=last]);
    Ok(())
}

/// Writes the header's numbers, the only part of it that changes while a page is in use.
fn write_numbers<P: Pages>(pages: &mut P, at: BlockNo, header: &PageHeader) -> Result<(), P::Error> {
    pages.edit(at, COUNT_START..SLOTS_START)?.copy_from_slice(&header.encode()[COUNT_START - HEADER_START..]);
    Ok(())
}

/// Returns the error for a page whose cells of `cell_bytes` do not fit beside its dead bytes.
fn accounting(node: &Node<'_>, cell_bytes: usize) -> TreeError {
    let PageHeader { dead_bytes, cells_start, .. } = node.header;
    Defect::Accounting { cell_bytes, dead_bytes, area_bytes: BLOCK_BYTES - cells_start }.of(node.at)
}
