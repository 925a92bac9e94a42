//! Inserts items, and splits pages.

use onefold_block::BlockNo;

use super::cells::{self, CellCopies};
use super::delete::rebalance;
use super::limits::{LEVEL_MAX, VALUE_BYTES_MAX};
use super::node::{Node, SLOT_BYTES, cell_key, interior_cell, leaf_cell};
use super::path::PagePath;
use super::{Defect, Key, Pages, TreeError};

/// Makes an empty tree and returns its root.
///
/// # Errors
/// See [`Pages::allocate`] and [`Pages::edit`].
pub fn create<P: Pages>(pages: &mut P) -> Result<BlockNo, P::Error> {
    let root = pages.allocate()?;
    cells::write_all(pages, root, 0, &[])?;
    Ok(root)
}

/// Sets the value of `key`; returns whether it had one before. `root` changes when a level is added or removed, and
/// only on success.
///
/// A value of the same length is replaced in place, editing only the bytes from the first to the last difference.
/// Otherwise up to one page for each level and one more are allocated.
///
/// # Errors
/// [`TreeError::ValueTooLong`]; those of any call of [`Pages`]; or a page on the path is corrupt.
pub fn insert<P: Pages>(pages: &mut P, root: &mut BlockNo, key: &Key, value: &[u8]) -> Result<bool, P::Error> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(TreeError::ValueTooLong { bytes: value.len() }.into());
    }
    let path = PagePath::to_leaf_of(pages, *root, key)?;
    let node = path.node(pages)?;
    match node.search(key)? {
        Ok(index) => replace(pages, root, path, index, key, value).map(|()| true),
        Err(index) => add(pages, root, path, index, leaf_cell(key, value)).map(|()| false),
    }
}

/// Replaces the value of item `index` of the leaf at the end of `path`.
fn replace<P: Pages>(
    pages: &mut P,
    root: &mut BlockNo,
    path: PagePath,
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

/// Inserts a cell before item `index` of the page at the end of `path`, and splits pages from there upwards as needed.
fn add<P: Pages>(
    pages: &mut P,
    root: &mut BlockNo,
    mut path: PagePath,
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

/// Splits a page without space for a cell before item `index`, and inserts the cell into one of the two. Returns the
/// new page, which is the right one, and its separator.
///
/// The right page gets half of the bytes, but as few as possible if the cell would be the last of its level. In that
/// case keys probably ascend, and nothing would ever fill the space left in the left page.
fn split<P: Pages>(pages: &mut P, path: &PagePath, index: usize, cell: &[u8]) -> Result<(Key, BlockNo), P::Error> {
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
        // A sound tree never gets here: see LEVEL_MAX.
        return Err(Defect::LevelTooHigh { found: level.saturating_add(1) }.of(left).into());
    }
    let root = pages.allocate()?;
    let cells = [interior_cell(&Key::MIN, left), interior_cell(separator, right)];
    cells::write_all(pages, root, level + 1, &[&cells[0], &cells[1]])?;
    Ok(root)
}
