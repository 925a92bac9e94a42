//! Putting items in, and how pages split.

use onefold_block::BlockNo;

use super::cells::{self, CellCopies};
use super::delete::rebalance;
use super::node::{LEVEL_MAX, Node, SLOT_BYTES, VALUE_BYTES_MAX, cell_key, interior_cell, leaf_cell};
use super::path::Path;
use super::{Defect, Key, Pages, TreeError};

/// Makes an empty tree and returns its root.
///
/// # Errors
/// As [`Pages::allocate`] and [`Pages::edit`].
pub fn create<P: Pages>(pages: &mut P) -> Result<BlockNo, P::Error> {
    let root = pages.allocate()?;
    cells::write_all(pages, root, 0, &[])?;
    Ok(root)
}

/// Gives `key` this value and returns whether it had one before. `root` is changed when a level comes or goes, and
/// only if all went well.
///
/// A value of the same length is replaced in place, and only the bytes from the first to the last that differ are
/// edited. Otherwise up to one page for each level and one more are allocated.
///
/// # Errors
/// [`TreeError::ValueTooLong`]; as any call of [`Pages`]; or a page on the way is corrupt.
pub fn insert<P: Pages>(pages: &mut P, root: &mut BlockNo, key: &Key, value: &[u8]) -> Result<bool, P::Error> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(TreeError::ValueTooLong { bytes: value.len() }.into());
    }
    let path = Path::to_leaf_of(pages, *root, key)?;
    let node = path.node(pages)?;
    match node.search(key)? {
        Ok(index) => replace(pages, root, path, index, key, value).map(|()| true),
        Err(index) => add(pages, root, path, index, leaf_cell(key, value)).map(|()| false),
    }
}

/// Replaces the value of item `index` of the leaf that `path` leads to.
fn replace<P: Pages>(
    pages: &mut P,
    root: &mut BlockNo,
    path: Path,
    index: usize,
    key: &Key,
    value: &[u8],
) -> Result<(), P::Error> {
    let old = path.node(pages)?.value_range(index)?;
    if old.len() == value.len() {
        return cells::overwrite(pages, path.at, &old, value);
    }
    cells::remove_one(pages, path.at, index)?;
    let cell = leaf_cell(key, value);
    if value.len() > old.len() {
        return add(pages, root, path, index, cell);
    }
    cells::insert_one(pages, path.at, index, &cell)?;
    rebalance(pages, root, path)
}

/// Puts a cell before item `index` of the page that `path` leads to, splitting pages from there upwards as needed.
fn add<P: Pages>(
    pages: &mut P,
    root: &mut BlockNo,
    mut path: Path,
    mut index: usize,
    mut cell: Vec<u8>,
) -> Result<(), P::Error> {
    loop {
        let node = Node::open(path.at, pages.page(path.at)?)?;
        if SLOT_BYTES + cell.len() <= node.header.free_bytes() {
            return cells::insert_one(pages, path.at, index, &cell);
        }
        let level = node.header.level;
        let (separator, right) = split(pages, &path, index, &cell)?;
        let Some(left_index) = path.ascend() else {
            *root = add_level(pages, level, path.at, &separator, right)?;
            return Ok(());
        };
        index = left_index + 1;
        cell = interior_cell(&separator, right);
    }
}

/// Splits a page that has no space for a cell before item `index`, and puts the cell into one of the two. Returns the
/// new page, which is the right one, and its separator.
///
/// The right page gets the half of the bytes, but as little as may be if the cell would be the last of its level:
/// then keys probably ascend, and nothing would ever fill the space left in the left page.
fn split<P: Pages>(pages: &mut P, path: &Path, index: usize, cell: &[u8]) -> Result<(Key, BlockNo), P::Error> {
    let node = Node::open(path.at, pages.page(path.at)?)?;
    let header = node.header;
    let copies = CellCopies::of(&node)?;
    let mut cells = copies.iter().collect::<Vec<_>>();
    cells.insert(index, cell);
    let left_count = if path.is_last_of_level && index == header.count {
        cells.len() - header.count_min()
    } else {
        cells::middle(&cells)
    };

    let right = pages.allocate()?;
    cells::write_all(pages, right, header.level, &cells[left_count..])?;
    if index < left_count {
        cells::truncate(pages, path.at, left_count - 1)?;
        cells::insert_one(pages, path.at, index, cell)?;
    } else if left_count < header.count {
        cells::truncate(pages, path.at, left_count)?;
    }
    Ok((cell_key(cells[left_count]), right))
}

/// Returns a new root above the two halves of the old one.
fn add_level<P: Pages>(
    pages: &mut P,
    level: u8,
    left: BlockNo,
    separator: &Key,
    right: BlockNo,
) -> Result<BlockNo, P::Error> {
    if level >= LEVEL_MAX {
        // No sound tree comes here: see LEVEL_MAX.
        return Err(Defect::LevelTooHigh { found: level.saturating_add(1) }.of(left).into());
    }
    let root = pages.allocate()?;
    let cells = [interior_cell(&Key::MIN, left), interior_cell(separator, right)];
    cells::write_all(pages, root, level + 1, &[&cells[0], &cells[1]])?;
    Ok(root)
}
