//! The names tree on top of the metadata cache: its pages are journaled like all metadata.

use std::ops::Range;

use onefold_block::{BLOCK_BYTES, BlockNo};

use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::format::store_page::BlockUse;
use crate::meta::op::damaged;
use crate::meta::{Op, OpError, OpResult};
use crate::tree::{self, Key, Pages};

impl Pages for Op<'_> {
    type Error = OpError;

    fn page(&mut self, at: BlockNo) -> Result<&[u8; BLOCK_BYTES], OpError> {
        self.block(at, BlockKind::TreePage)
    }

    fn edit(&mut self, at: BlockNo, range: Range<usize>) -> Result<&mut [u8], OpError> {
        Op::edit(self, at, BlockKind::TreePage, range)
    }

    fn allocate(&mut self) -> Result<BlockNo, OpError> {
        self.allocate_metadata(BlockKind::TreePage, BlockUse::TreePage)
    }

    fn free(&mut self, at: BlockNo) -> Result<(), OpError> {
        self.free_metadata(at)
    }
}

impl Op<'_> {
    /// Returns the root page of the names tree.
    pub(crate) fn tree_root(&self) -> BlockNo {
        BlockNo(self.state(Field::TreeRoot))
    }

    fn set_tree_root(&mut self, old: BlockNo, new: BlockNo) -> OpResult<()> {
        if old == new { Ok(()) } else { self.set_state(Field::TreeRoot, new.0) }
    }

    /// Returns an item's value.
    pub(crate) fn item(&mut self, key: &Key) -> OpResult<Option<Vec<u8>>> {
        let root = self.tree_root();
        tree::get(self, root, key)
    }

    /// Makes or replaces an item.
    pub(crate) fn put_item(&mut self, key: &Key, value: &[u8]) -> OpResult<()> {
        let old = self.tree_root();
        let mut root = old;
        tree::insert(self, &mut root, key, value)?;
        self.set_tree_root(old, root)
    }

    /// Removes an item. Returns false if there was none.
    pub(crate) fn remove_item(&mut self, key: &Key) -> OpResult<bool> {
        let old = self.tree_root();
        let mut root = old;
        let existed = tree::delete(self, &mut root, key)?;
        self.set_tree_root(old, root)?;
        Ok(existed)
    }

    /// Removes an item that a scan has returned. If a page's keys are out of order, a scan can return an item that a
    /// look-up does not find; a caller that empties a list would otherwise meet the item forever.
    ///
    /// # Errors
    /// Damage if it is not found.
    pub(crate) fn remove_found_item(&mut self, key: &Key) -> OpResult<()> {
        if self.remove_item(key)? {
            return Ok(());
        }
        Err(damaged(BlockKind::TreePage.name(), self.tree_root(), "an item is listed but cannot be found"))
    }
}
