//! Checks a whole tree, damaged or not.
//!
//! The check remembers no pages. It enters a child only if the child's separator lies in the range promised to its
//! parent, and the ranges of one level are disjoint. So it follows each pointer at most once, whatever the pages hold.

use std::ops::Range;

use onefold_block::{BLOCK_BYTES, BlockNo};

use super::node::{FILL_BYTES_MIN, Node, PageHeader};
use super::{Defect, Key, Pages, TreeError};

/// A finding of [`check`].
#[derive(Debug)]
pub enum TreeFinding<'a, E> {
    /// A reference to a page. A page with two references is found twice.
    Page {
        /// The page.
        at: BlockNo,
    },
    /// An item in its place.
    Item {
        /// The key of the item.
        key: Key,
        /// The value of the item.
        value: &'a [u8],
    },
    /// A problem of a page.
    Damage(TreeError),
    /// A page could not be read, so the part below it stays unknown.
    Unreadable {
        /// The page.
        page: BlockNo,
        /// The error of [`Pages::page`].
        error: E,
    },
}

/// Takes the findings of [`check`] one by one. An error ends the check.
pub type FindingSink<'a, E> = dyn FnMut(TreeFinding<'_, E>) -> Result<(), E> + 'a;

/// Sums over the pages that [`check`] could read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeTotals {
    /// Number of pages with a sound header.
    pub pages: u64,
    /// Number of items in their place.
    pub items: u64,
    /// Bytes of slots and cells in these pages.
    pub used_bytes: u64,
    /// Number of levels.
    pub levels: u8,
}

/// Checks all invariants of the tree (see the module's list) and reports the findings; continues after damage. Reports
/// items in key order.
///
/// # Errors
/// Only those of `tell`, which decides whether, for example, an unreadable page ends the check.
pub fn check<P: Pages>(
    pages: &mut P,
    root: BlockNo,
    tell: &mut FindingSink<'_, P::Error>,
) -> Result<TreeTotals, P::Error> {
    let mut checker = TreeChecker { pages, tell, totals: TreeTotals::default() };
    let whole = PagePlace { at: root, low: Key::MIN, end: None, level: None, is_last_of_level: true };
    checker.check_below(&whole)?;
    Ok(checker.totals)
}

/// A page's place in the tree, which decides its properties.
struct PagePlace {
    at: BlockNo,
    /// Lowest key that may be in the page.
    low: Key,
    /// The key above all keys that may be in the page, if any.
    end: Option<Key>,
    /// `None` at the root.
    level: Option<u8>,
    is_last_of_level: bool,
}

struct TreeChecker<'a, P: Pages> {
    pages: &'a mut P,
    tell: &'a mut FindingSink<'a, P::Error>,
    totals: TreeTotals,
}

impl<P: Pages> TreeChecker<'_, P> {
    /// Checks a page and everything below it. Levels decrease by one, so calls never nest deeper than there are levels.
    fn check_below(&mut self, place: &PagePlace) -> Result<(), P::Error> {
        (self.tell)(TreeFinding::Page { at: place.at })?;
        // Copied, because the pages below are read before this one is finished.
        let page = match self.pages.page(place.at) {
            Ok(page) => Box::new(*page),
            Err(error) => return (self.tell)(TreeFinding::Unreadable { page: place.at, error }),
        };
        let node = match Node::open(place.at, &page) {
            Ok(node) => node,
            Err(error) => return self.tell_damage(error),
        };
        let level = node.header.level;
        if let Some(expected) = place.level
            && level != expected
        {
            return self.tell_defect(place.at, Defect::Level { found: level, expected });
        }
        self.totals.pages += 1;
        self.totals.used_bytes += u64::try_from(node.header.used_bytes()).expect("at most a page");
        self.totals.levels = self.totals.levels.max(level + 1);

        self.check_fill(place, &node.header)?;
        self.check_cells(&node)?;
        let sound = self.check_keys(place, &node)?;
        if node.is_leaf() { self.tell_items(&node, &sound) } else { self.check_children(place, &node, &sound) }
    }

    fn check_fill(&mut self, place: &PagePlace, header: &PageHeader) -> Result<(), P::Error> {
        let is_root = place.level.is_none();
        if header.count < header.count_min() && !(is_root && header.level == 0) {
            return self.tell_defect(place.at, Defect::TooFewItems { count: header.count });
        }
        let used_bytes = header.used_bytes();
        if used_bytes < FILL_BYTES_MIN && !is_root && !place.is_last_of_level {
            return self.tell_defect(place.at, Defect::Underfull { used_bytes });
        }
        Ok(())
    }

    /// Checks that the cells are disjoint and match the header's accounting.
    fn check_cells(&mut self, node: &Node<'_>) -> Result<(), P::Error> {
        let in_bounds = |index| node.cell_range(index).ok().map(|range| (range, index));
        let mut cells = (0..node.header.count).filter_map(in_bounds).collect::<Vec<(Range<usize>, usize)>>();
        cells.sort_unstable_by_key(|(range, _)| range.start);
        for pair in cells.windows(2) {
            if pair[1].0.start < pair[0].0.end {
                self.tell_defect(node.at, Defect::CellOverlap { index: pair[1].1 })?;
            }
        }
        let cell_bytes = cells.iter().map(|(range, _)| range.len()).sum::<usize>();
        let (dead_bytes, area_bytes) = (node.header.dead_bytes, BLOCK_BYTES - node.header.cells_start);
        if cell_bytes + dead_bytes != area_bytes {
            self.tell_defect(node.at, Defect::Accounting { cell_bytes, dead_bytes, area_bytes })?;
        }
        Ok(())
    }

    /// Returns the items whose keys are valid.
    fn check_keys(&mut self, place: &PagePlace, node: &Node<'_>) -> Result<Vec<(usize, Key)>, P::Error> {
        let mut sound: Vec<(usize, Key)> = Vec::with_capacity(node.header.count);
        for index in 0..node.header.count {
            let key = match node.key(index) {
                Ok(key) => key,
                Err(error) => {
                    self.tell_damage(error)?;
                    continue;
                }
            };
            let is_first_separator = !node.is_leaf() && index == 0;
            if key < place.low || place.end.is_some_and(|end| key >= end) || is_first_separator && key != place.low {
                self.tell_defect(node.at, Defect::KeyRange { index })?;
            } else if sound.last().is_some_and(|(_, previous)| key <= *previous) {
                self.tell_defect(node.at, Defect::KeyOrder { index })?;
            } else {
                sound.push((index, key));
            }
        }
        Ok(sound)
    }

    fn tell_items(&mut self, leaf: &Node<'_>, sound: &[(usize, Key)]) -> Result<(), P::Error> {
        for &(index, key) in sound {
            match leaf.value(index) {
                Ok(value) => {
                    self.totals.items += 1;
                    (self.tell)(TreeFinding::Item { key, value })?;
                }
                Err(error) => self.tell_damage(error)?,
            }
        }
        Ok(())
    }

    fn check_children(&mut self, place: &PagePlace, node: &Node<'_>, sound: &[(usize, Key)]) -> Result<(), P::Error> {
        for (position, &(index, low)) in sound.iter().enumerate() {
            let at = match node.child(index) {
                Ok(at) => at,
                Err(error) => {
                    self.tell_damage(error)?;
                    continue;
                }
            };
            let next = sound.get(position + 1);
            self.check_below(&PagePlace {
                at,
                low,
                end: next.map_or(place.end, |&(_, key)| Some(key)),
                level: Some(node.header.level - 1),
                is_last_of_level: place.is_last_of_level && next.is_none(),
            })?;
        }
        Ok(())
    }

    fn tell_damage(&mut self, damage: TreeError) -> Result<(), P::Error> {
        (self.tell)(TreeFinding::Damage(damage))
    }

    fn tell_defect(&mut self, page: BlockNo, what: Defect) -> Result<(), P::Error> {
        self.tell_damage(what.of(page))
    }
}
