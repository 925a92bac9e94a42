//! The entries of fingerprint stores, and reference counts.

use onefold_block::BlockNo;

use super::group_run::GroupRun;
use super::op::{Op, OpError, OpResult, damaged};
use crate::error::PoolError;
use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::format::store_page::{self, BlockUse, StoreEntry};

impl Op<'_> {
    /// Reads a block's entry.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn entry(&mut self, block: BlockNo) -> OpResult<StoreEntry> {
        let geometry = self.meta.geometry;
        if !geometry.is_allocatable(block) {
            return Err(damaged("file map", block, "points at a structure with a fixed place or past the end"));
        }
        let place = geometry.store_place(block);
        store_page::entry(self.block(place.page, BlockKind::StorePage)?, place.index).ok_or_else(|| {
            damaged(BlockKind::StorePage.name(), place.page, format!("entry of block {block} makes no sense"))
        })
    }

    /// Notes that the entries of `blocks` will be needed, so that all missing pages are read together.
    ///
    /// # Errors
    /// [`OpError::Fault`] if any is missing; damage.
    pub(crate) fn want_entries(&mut self, blocks: impl IntoIterator<Item = BlockNo>) -> OpResult<()> {
        let geometry = self.meta.geometry;
        let mut last = None;
        for block in blocks {
            if !geometry.is_allocatable(block) {
                return Err(damaged("file map", block, "points at a structure with a fixed place or past the end"));
            }
            let page = geometry.store_place(block).page;
            if last != Some(page) {
                self.want(page, BlockKind::StorePage)?;
                last = Some(page);
            }
        }
        self.settle()
    }

    /// Replaces a block's entry.
    ///
    /// # Errors
    /// [`OpError::Fault`].
    pub(crate) fn set_entry(&mut self, block: BlockNo, entry: &StoreEntry) -> OpResult<()> {
        let place = self.meta.geometry.store_place(block);
        let range = store_page::entry_range(place.index);
        self.edit(place.page, BlockKind::StorePage, range)?.copy_from_slice(&entry.encode());
        Ok(())
    }

    /// Replaces the entries of consecutive blocks.
    ///
    /// # Errors
    /// [`OpError::Fault`].
    pub(super) fn set_entries(&mut self, first: BlockNo, entries: &[StoreEntry]) -> OpResult<()> {
        let geometry = self.meta.geometry;
        let mut rest = entries;
        for (block, count) in geometry.store_runs(first, entries.len() as u64) {
            let (entries, after) = rest.split_at(count);
            rest = after;
            let place = geometry.store_place(block);
            let bytes = self.edit(place.page, BlockKind::StorePage, store_page::entries_range(place.index, count))?;
            for (bytes, entry) in bytes.chunks_exact_mut(store_page::ENTRY_BYTES).zip(entries) {
                bytes.copy_from_slice(&entry.encode());
            }
        }
        Ok(())
    }

    fn set_count(&mut self, block: BlockNo, count: u32) -> OpResult<()> {
        let place = self.meta.geometry.store_place(block);
        let range = store_page::count_range(place.index);
        self.edit(place.page, BlockKind::StorePage, range)?.copy_from_slice(&count.to_le_bytes());
        Ok(())
    }

    /// Reads the entry of a block that must have references.
    fn referenced(&mut self, block: BlockNo, usage: BlockUse) -> OpResult<StoreEntry> {
        let entry = self.entry(block)?;
        if entry.usage != usage || entry.count == 0 {
            let what = format!("is referred to as {usage:?} but is {:?} with {} references", entry.usage, entry.count);
            return Err(damaged("reference count", block, what));
        }
        Ok(entry)
    }

    /// Adds a map leaf's reference to a data block in use, or to a copy of it if its count is full. Returns the block
    /// that the leaf must name.
    ///
    /// # Errors
    /// [`OpError::CountFull`] if there is no copy yet.
    pub(crate) fn add_data_reference(&mut self, block: BlockNo) -> OpResult<BlockNo> {
        let entry = self.referenced(block, BlockUse::Data)?;
        if self.count_one_more(block, &entry)? {
            return Ok(block);
        }
        for copy in self.meta.in_flight.copies_of(block).to_vec() {
            let of_copy = self.entry(copy)?;
            if of_copy.usage == BlockUse::Free {
                self.claim_with_references(copy, &[StoreEntry { count: 1, ..entry }])?;
                self.initialised(copy);
                return Ok(copy);
            }
            // This operation itself has claimed the copy, which is offered until the operation ends.
            if self.count_one_more(copy, &of_copy)? {
                return Ok(copy);
            }
        }
        Err(OpError::CountFull(block))
    }

    /// Adds one to a block's reference count; returns false if it is full.
    fn count_one_more(&mut self, block: BlockNo, entry: &StoreEntry) -> OpResult<bool> {
        if entry.count >= self.meta.limits.references_max {
            return Ok(false);
        }
        let count = entry.count + 1;
        self.set_count(block, count)?;
        self.count(Field::References, 1);
        if count == 2 {
            self.count(Field::SharedBlocks, 1);
        }
        Ok(true)
    }

    /// Drops a map leaf's reference to a data block; the last one frees it.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn drop_data_reference(&mut self, block: BlockNo) -> OpResult<()> {
        let entry = self.referenced(block, BlockUse::Data)?;
        self.count(Field::References, -1);
        match entry.count - 1 {
            0 => {
                if !entry.private {
                    self.unindex(entry.fingerprint, block);
                }
                self.free_data(block)
            }
            left => {
                self.set_count(block, left)?;
                if left == 1 {
                    self.count(Field::SharedBlocks, -1);
                }
                Ok(())
            }
        }
    }

    /// Makes the entries of a newly written run of blocks within one group, each with its first reference.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn claim_with_references(&mut self, first: BlockNo, entries: &[StoreEntry]) -> OpResult<()> {
        debug_assert!(entries.iter().all(|entry| entry.count == 1 && entry.usage == BlockUse::Data));
        let count = entries.len() as u64;
        self.claim_data(GroupRun { first, count }, entries)?;
        self.count(Field::References, i64::try_from(count).expect("a group has fewer"));
        for (block, entry) in (first.0..).map(BlockNo).zip(entries).filter(|(_, entry)| !entry.private) {
            self.index(entry.fingerprint, block);
        }
        Ok(())
    }

    /// Returns the number of parents of a map node.
    ///
    /// # Errors
    /// [`OpError::Fault`]; damage.
    pub(crate) fn node_parents(&mut self, node: BlockNo) -> OpResult<u32> {
        Ok(self.referenced(node, BlockUse::MapNode)?.count)
    }

    /// Adds a parent to a map node.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`] at the maximum count.
    pub(crate) fn add_node_parent(&mut self, node: BlockNo) -> OpResult<()> {
        let count = self.referenced(node, BlockUse::MapNode)?.count.checked_add(1).ok_or(PoolError::NoSpace)?;
        self.set_count(node, count)
    }

    /// Removes a parent from a map node that has others.
    ///
    /// # Errors
    /// Damage if it had only this one.
    pub(crate) fn drop_node_parent(&mut self, node: BlockNo) -> OpResult<()> {
        let count = self.referenced(node, BlockUse::MapNode)?.count;
        if count < 2 {
            return Err(damaged("reference count", node, "the last parent of a map node is taken without freeing it"));
        }
        self.set_count(node, count - 1)
    }
}
