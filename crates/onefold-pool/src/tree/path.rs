//! The path from the root to a page.
//!
//! Pages do not point at their neighbours or parents, so that a page can be split or merged without touching pages that
//! the operation does not read anyway. An operation that needs them keeps its path.

use onefold_block::BlockNo;

use super::node::Node;
use super::{Key, Pages, TreeError};

/// An interior page on the path, with the index of the child that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathStep {
    pub(super) at: BlockNo,
    pub(super) index: usize,
    level: u8,
    is_last_of_level: bool,
}

/// The path to a page.
#[derive(Debug)]
pub(super) struct PagePath {
    /// The pages above, the root first.
    above: Vec<PathStep>,
    /// The page at the end of the path.
    pub(super) at: BlockNo,
    /// Whether no page of the same level lies to the right.
    pub(super) is_last_of_level: bool,
}

impl PagePath {
    /// Returns the path to the leaf where `key` is or would be.
    pub(super) fn to_leaf_of<P: Pages>(pages: &mut P, root: BlockNo, key: &Key) -> Result<PagePath, P::Error> {
        let mut path = PagePath { above: Vec::new(), at: root, is_last_of_level: true };
        path.descend(pages, |node| node.child_index(key))?;
        Ok(path)
    }

    /// Returns the page at the end of the path.
    pub(super) fn node<'a, P: Pages>(&self, pages: &'a mut P) -> Result<Node<'a>, P::Error> {
        let parent_level = self.above.last().map(|step| step.level);
        Ok(Node::open_below(self.at, pages.page(self.at)?, parent_level)?)
    }

    /// Returns the page above, or `None` at the root.
    pub(super) fn parent(&self) -> Option<PathStep> {
        self.above.last().copied()
    }

    /// Moves up to the page above; returns the index of the child that was left, or `None` at the root.
    pub(super) fn ascend(&mut self) -> Option<usize> {
        let step = self.above.pop()?;
        self.at = step.at;
        self.is_last_of_level = step.is_last_of_level;
        Some(step.index)
    }

    /// Moves to the next leaf; returns false if there is none, or if `is_past` says that all of it is beyond the range.
    pub(super) fn advance<P: Pages>(
        &mut self,
        pages: &mut P,
        is_past: impl Fn(&Key) -> bool,
    ) -> Result<bool, P::Error> {
        while let Some(left) = self.ascend() {
            let node = self.node(pages)?;
            let index = left + 1;
            if index == node.header.count {
                continue;
            }
            if is_past(&node.key(index)?) {
                return Ok(false);
            }
            self.take(&node, index)?;
            self.descend(pages, |_| Ok(0))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves to the previous leaf; returns false if there is none.
    pub(super) fn retreat<P: Pages>(&mut self, pages: &mut P) -> Result<bool, P::Error> {
        while let Some(left) = self.ascend() {
            if left == 0 {
                continue;
            }
            let node = self.node(pages)?;
            self.take(&node, left - 1)?;
            self.descend(pages, |node| Ok(node.header.count - 1))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Descends to a leaf through the children that `choose` names.
    fn descend<P: Pages>(
        &mut self,
        pages: &mut P,
        choose: impl Fn(&Node<'_>) -> Result<usize, TreeError>,
    ) -> Result<(), P::Error> {
        loop {
            let node = self.node(pages)?;
            if node.is_leaf() {
                return Ok(());
            }
            self.take(&node, choose(&node)?)?;
        }
    }

    /// Descends from `node`, the page at the end of the path, to its child `index`.
    fn take(&mut self, node: &Node<'_>, index: usize) -> Result<(), TreeError> {
        let child = node.child(index)?;
        let step = PathStep { at: self.at, index, level: node.header.level, is_last_of_level: self.is_last_of_level };
        self.above.push(step);
        self.at = child;
        self.is_last_of_level &= index + 1 == node.header.count;
        Ok(())
    }
}
