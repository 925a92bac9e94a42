//! File maps: the block behind each part of a file.
//!
//! A map is a radix tree of fan-out 508 with 8-byte pointers ([`crate::format::map_node`]); files of up to 12 blocks
//! have theirs in the inode. Nodes are reference-counted: a clone shares subtrees, and a change of a shared node first
//! copies it, one level at a time. A data block's count is the number of *leaves* (and inline maps) that name it. So
//! copying a leaf adds one to each block that it names: at most 508 counts, which bounds the first write after a clone.
//!
//! Invariants:
//! 1. A node's count is the number of parents (nodes and inodes, and entries of the reclaim list) that name it.
//! 2. A changed node has one parent, and so has every node above it.
//! 3. A node's totals are the mapped and reserved places below it, and so are an inode's.
//! 4. `ReservedBlocks` of the pool is the sum of [`map_node::reserve_blocks`] over all reserved entries of all nodes
//!    and inline maps.
//! 5. A node with reserved places below it has one parent: a promise belongs to one file, and writing the place needs
//!    no copy of a node. A clone of a source with reserved places gets leaves of its own, without these places.

mod clear;
pub(crate) mod clone;
pub(crate) mod reserve;
pub(crate) mod seek;
mod write;

pub(crate) use clear::blocks_of;

use onefold_block::BlockNo;

use crate::format::header::BlockKind;
use crate::format::inode::{INLINE_ENTRIES, Inode, MapRoot};
use crate::format::map_node::{self, FAN_OUT, FAN_OUT_LEN, MapEntry, MapTotals};
use crate::meta::op::damaged;
use crate::meta::{Op, OpResult};

/// Returns the index of the entry of a node at `level` that leads to block `index` of the file.
pub(crate) fn entry_index(index: u64, level: u8) -> usize {
    usize::try_from(index / map_node::entry_span(level) % FAN_OUT).expect("below 508")
}

impl Op<'_> {
    /// Reads entry `at` of a map node.
    pub(crate) fn map_entry(&mut self, node: BlockNo, level: u8, at: usize) -> OpResult<MapEntry> {
        map_node::entry(self.block(node, BlockKind::MapNode(level))?, at)
            .ok_or_else(|| damaged("file map", node, format!("entry {at} makes no sense")))
    }

    /// Reads all entries of a map node.
    pub(crate) fn map_entries(&mut self, node: BlockNo, level: u8) -> OpResult<Box<[MapEntry; FAN_OUT_LEN]>> {
        let bytes = self.block(node, BlockKind::MapNode(level))?;
        let mut entries = Box::new([MapEntry::Hole; FAN_OUT_LEN]);
        for (at, entry) in entries.iter_mut().enumerate() {
            *entry = map_node::entry(bytes, at)
                .ok_or_else(|| damaged("file map", node, format!("entry {at} makes no sense")))?;
        }
        Ok(entries)
    }

    /// Reads a node's totals.
    pub(crate) fn map_totals(&mut self, node: BlockNo, level: u8) -> OpResult<MapTotals> {
        map_node::totals(self.block(node, BlockKind::MapNode(level))?)
            .ok_or_else(|| damaged("file map", node, "totals that no file has"))
    }

    /// Returns the node at `level` that covers block `index`, or the entry in its place.
    pub(crate) fn map_node_at(&mut self, inode: &Inode, index: u64, level: u8) -> OpResult<MapEntry> {
        let MapRoot::Tree { levels, root } = inode.map else { return Ok(MapEntry::Hole) };
        if index >= map_node::entry_span(levels) || level >= levels {
            return Ok(MapEntry::Hole);
        }
        let mut node = root;
        for above in (level + 1..levels).rev() {
            match self.map_entry(node, above, entry_index(index, above))? {
                MapEntry::Block(child) => node = child,
                empty => return Ok(empty),
            }
        }
        Ok(MapEntry::Block(node))
    }

    /// Returns whether the part of the map that covers block `index` is shared with a clone.
    pub(crate) fn map_is_shared(&mut self, inode: &Inode, index: u64) -> OpResult<bool> {
        let MapRoot::Tree { levels, root } = inode.map else { return Ok(false) };
        if index >= map_node::entry_span(levels) {
            return Ok(false);
        }
        let mut node = root;
        for level in (0..levels).rev() {
            if self.node_parents(node)? > 1 {
                return Ok(true);
            }
            match self.map_entry(node, level, entry_index(index, level))? {
                MapEntry::Block(child) if level > 0 => node = child,
                _ => break,
            }
        }
        Ok(false)
    }

    /// Reads the map of blocks `first..first + into.len()`.
    pub(crate) fn map_read(&mut self, inode: &Inode, first: u64, into: &mut [MapEntry]) -> OpResult<()> {
        if let MapRoot::Inline(entries) = &inode.map {
            for (index, entry) in (first..).zip(into) {
                *entry = usize::try_from(index).ok().and_then(|at| entries.get(at)).copied().unwrap_or(MapEntry::Hole);
            }
            return Ok(());
        }
        // All leaves are requested before giving up, so that missing ones are read together.
        let mut done = 0;
        let mut missing = false;
        while done < into.len() {
            let index = first + done as u64;
            let at = entry_index(index, 0);
            let count = (FAN_OUT_LEN - at).min(into.len() - done);
            match self.map_node_at(inode, index, 0)? {
                MapEntry::Block(leaf) => {
                    if self.want(leaf, BlockKind::MapNode(0))? {
                        for (offset, entry) in into[done..done + count].iter_mut().enumerate() {
                            *entry = self.map_entry(leaf, 0, at + offset)?;
                        }
                    } else {
                        missing = true;
                    }
                }
                empty => into[done..done + count].fill(empty),
            }
            done += count;
        }
        if missing { self.settle() } else { Ok(()) }
    }
}

/// Returns the inline entry index of block `index`, if it fits an inline map.
pub(crate) fn inline_index(index: u64) -> Option<usize> {
    usize::try_from(index).ok().filter(|&at| at < INLINE_ENTRIES)
}
