//! Removes items, and merges pages.

use onefold_block::BlockNo;

use super::cells::{self, CellCopies, bytes_needed};
use super::node::{BODY_BYTES, FILL_BYTES_MIN, Node, PageHeader, cell_key};
use super::path::{PagePath, PathStep};
use super::{Defect, Key, Pages};

/// Removes `key` and its value; returns whether it existed. `root` changes when the tree gets lower, and only on
/// success.
///
/// # Errors
/// Those of any call of [`Pages`]; or a page on the path, or beside it, is corrupt.
pub fn delete<P: Pages>(pages: &mut P, root: &mut BlockNo, key: &Key) -> Result<bool, P::Error> {
    let path = PagePath::to_leaf_of(pages, *root, key)?;
    let Ok(index) = path.node(pages)?.search(key)? else {
        return Ok(false);
    };
    cells::remove_one(pages, path.at, index)?;
    rebalance(pages, root, path)?;
    Ok(true)
}

/// Refills the page at the end of `path`, which lost bytes, and then the pages above it.
pub(super) fn rebalance<P: Pages>(pages: &mut P, root: &mut BlockNo, mut path: PagePath) -> Result<(), P::Error> {
    loop {
        let node = Node::open(path.at, pages.page(path.at)?)?;
        let Some(parent) = path.parent() else {
            if !node.is_leaf() && node.header.count == 1 {
                let child = node.child(0)?;
                pages.free(path.at)?;
                *root = child;
            }
            return Ok(());
        };
        let header = node.header;
        if !is_underfull(&header, path.is_last_of_level) || !join(pages, parent, header.level)? {
            return Ok(());
        }
        path.ascend();
    }
}

/// Returns whether a page other than the root must be joined with a neighbour. The last page of a level may stay nearly
/// empty: ascending inserts continue there, and filling it from the left would undo the purpose of their splits.
fn is_underfull(header: &PageHeader, is_last_of_level: bool) -> bool {
    header.count < header.count_min() || !is_last_of_level && header.used_bytes() < FILL_BYTES_MIN
}

/// Joins the child of `parent` with a neighbour: merges both into one page and returns true, or distributes their items
/// evenly and returns false if they do not fit in one.
fn join<P: Pages>(pages: &mut P, parent: PathStep, level: u8) -> Result<bool, P::Error> {
    // The left page stays and the right one goes, so a parent's first separator never changes.
    let left_index = parent.index.saturating_sub(1);
    let node = Node::open(parent.at, pages.page(parent.at)?)?;
    if node.header.count < 2 {
        return Err(Defect::TooFewItems { count: node.header.count }.of(parent.at).into());
    }
    let (left, right) = (node.child(left_index)?, node.child(left_index + 1)?);
    let separator = node.cell_range(left_index + 1)?;
    if left == right {
        return Err(Defect::SameChild { index: left_index }.of(parent.at).into());
    }
    let (left_copies, right_copies) = (copies_at(pages, left, level)?, copies_at(pages, right, level)?);
    let cells = left_copies.iter().chain(right_copies.iter()).collect::<Vec<_>>();

    if bytes_needed(&cells) <= BODY_BYTES {
        cells::write_all(pages, left, level, &cells)?;
        pages.free(right)?;
        cells::remove_one(pages, parent.at, left_index + 1)?;
        return Ok(true);
    }
    let (left_cells, right_cells) = cells.split_at(cells::middle(&cells));
    cells::write_all(pages, left, level, left_cells)?;
    cells::write_all(pages, right, level, right_cells)?;
    let new = cell_key(right_cells[0]).encode();
    cells::overwrite(pages, parent.at, &(separator.start..separator.start + new.len()), &new)?;
    Ok(false)
}

fn copies_at<P: Pages>(pages: &mut P, at: BlockNo, expected: u8) -> Result<CellCopies, P::Error> {
    let node = Node::open(at, pages.page(at)?)?;
    let found = node.header.level;
    if found != expected {
        return Err(Defect::Level { found, expected }.of(at).into());
    }
    Ok(CellCopies::of(&node)?)
}
