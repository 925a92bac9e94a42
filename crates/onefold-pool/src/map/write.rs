//! Changes a map: grows it, copies shared nodes on the way down, and sets entries.

use onefold_block::BlockNo;

use super::{entry_index, inline_index};
use crate::error::PoolError;
use crate::format::header::BlockKind;
use crate::format::inode::{INLINE_ENTRIES, Inode, MapRoot};
use crate::format::map_node::{self, FAN_OUT_LEN, LEVELS_MAX, MapEntry, MapTotals};
use crate::format::state::Field;
use crate::format::store_page::BlockUse;
use crate::meta::op::damaged;
use crate::meta::{Op, OpResult};

/// The nodes from the root down to one node, all of them with one parent.
#[derive(Clone, Debug)]
pub(crate) struct NodePath {
    nodes: Vec<BlockNo>,
}

impl NodePath {
    /// Returns the lowest node.
    pub(crate) fn last(&self) -> BlockNo {
        *self.nodes.last().expect("a path has a root")
    }
}

impl Op<'_> {
    /// Replaces the map of blocks `first..`, one entry each. The caller has added the references of new entries; this
    /// drops those of replaced entries.
    pub(crate) fn map_write(&mut self, inode: &mut Inode, first: u64, entries: &[MapEntry]) -> OpResult<()> {
        let mut done = 0;
        while done < entries.len() {
            let index = first + done as u64;
            let last = first + entries.len() as u64 - 1;
            if matches!(inode.map, MapRoot::Inline(_)) && inline_index(last).is_some() {
                return self.map_write_inline(inode, index, &entries[done..]);
            }
            let at = entry_index(index, 0);
            let count = (FAN_OUT_LEN - at).min(entries.len() - done);
            self.map_write_leaf(inode, index, &entries[done..done + count])?;
            done += count;
        }
        Ok(())
    }

    fn map_write_inline(&mut self, inode: &mut Inode, first: u64, entries: &[MapEntry]) -> OpResult<()> {
        let mut change = MapTotals::default();
        for (index, &entry) in (first..).zip(entries) {
            let MapRoot::Inline(inline) = &mut inode.map else { break };
            let at = inline_index(index).ok_or_else(|| damaged("file map", BlockNo(0), "inline map overrun"))?;
            let old = std::mem::replace(&mut inline[at], entry);
            change += self.replaced(old, entry)?;
        }
        self.add_totals(inode, change);
        Ok(())
    }

    fn map_write_leaf(&mut self, inode: &mut Inode, first: u64, entries: &[MapEntry]) -> OpResult<()> {
        let all_holes = entries.iter().all(|entry| *entry == MapEntry::Hole);
        if all_holes
            && matches!(inode.map, MapRoot::Tree { .. })
            && self.map_node_at(inode, first, 0)? == MapEntry::Hole
        {
            // Zeros over a hole: no map is made for them.
            return Ok(());
        }
        let path = self.map_path(inode, first, 0)?;
        let leaf = path.last();
        let at = entry_index(first, 0);
        let mut old = Vec::with_capacity(entries.len());
        for offset in 0..entries.len() {
            old.push(self.map_entry(leaf, 0, at + offset)?);
        }
        self.want_entries(old.iter().filter_map(|entry| match entry {
            MapEntry::Block(block) => Some(*block),
            MapEntry::Hole | MapEntry::Reserved => None,
        }))?;
        let bytes = self.edit(leaf, BlockKind::MapNode(0), map_node::entries_range(at, entries.len()))?;
        for (place, entry) in bytes.chunks_exact_mut(map_node::ENTRY_BYTES).zip(entries) {
            place.copy_from_slice(&entry.encode().to_le_bytes());
        }
        let mut change = MapTotals::default();
        for (old, new) in old.into_iter().zip(entries) {
            change += self.replaced(old, *new)?;
        }
        self.map_add_totals(inode, &path, change)
    }

    /// Drops the reference or promise of an entry at leaf level; returns how its replacement changes the totals.
    pub(crate) fn replaced(&mut self, old: MapEntry, new: MapEntry) -> OpResult<MapTotals> {
        let mut change = MapTotals::default();
        match old {
            MapEntry::Hole => {}
            MapEntry::Reserved => {
                self.count(Field::ReservedBlocks, -1);
                change.reserved -= 1;
            }
            MapEntry::Block(block) => {
                self.drop_data_reference(block)?;
                change.mapped -= 1;
            }
        }
        match new {
            MapEntry::Hole => {}
            MapEntry::Reserved => {
                self.count(Field::ReservedBlocks, 1);
                change.reserved += 1;
            }
            MapEntry::Block(_) => change.mapped += 1,
        }
        Ok(change)
    }

    /// Adds a change to the totals of the inode and of every node of the path.
    pub(crate) fn map_add_totals(&mut self, inode: &mut Inode, path: &NodePath, change: MapTotals) -> OpResult<()> {
        if change == MapTotals::default() {
            return Ok(());
        }
        let MapRoot::Tree { levels, .. } = inode.map else {
            return Err(damaged("file map", path.last(), "a path in an inline map"));
        };
        for (depth, &node) in (0..levels).rev().zip(&path.nodes) {
            let mut totals = self.map_totals(node, depth)?;
            totals += change;
            let bytes =
                map_node::encode_totals(totals).ok_or_else(|| damaged("file map", node, "totals below zero"))?;
            self.edit(node, BlockKind::MapNode(depth), map_node::TOTALS_RANGE)?.copy_from_slice(&bytes);
        }
        self.add_totals(inode, change);
        Ok(())
    }

    /// Adds a change to the totals of the inode and of the pool.
    pub(crate) fn add_totals(&mut self, inode: &mut Inode, change: MapTotals) {
        inode.mapped = inode.mapped.saturating_add_signed(change.mapped);
        inode.reserved_blocks = inode.reserved_blocks.saturating_add_signed(change.reserved);
        self.count(Field::LogicalBlocks, change.mapped);
    }

    /// Returns the path to the node at `level` that covers block `index`. Makes missing nodes and copies shared ones on
    /// the way.
    pub(crate) fn map_path(&mut self, inode: &mut Inode, index: u64, level: u8) -> OpResult<NodePath> {
        self.grow_map(inode, index, level)?;
        let MapRoot::Tree { levels, mut root } = inode.map else {
            return Err(damaged("file map", BlockNo(0), "the map did not grow"));
        };
        if self.node_parents(root)? > 1 {
            root = self.copy_node(root, levels - 1)?;
            inode.map = MapRoot::Tree { levels, root };
        }
        let mut path = NodePath { nodes: vec![root] };
        for above in (level + 1..levels).rev() {
            let node = path.last();
            let at = entry_index(index, above);
            let child = match self.map_entry(node, above, at)? {
                MapEntry::Hole => self.allocate_metadata(BlockKind::MapNode(above - 1), BlockUse::MapNode)?,
                MapEntry::Reserved => self.reserved_node(above - 1)?,
                MapEntry::Block(child) if self.node_parents(child)? > 1 => self.copy_node(child, above - 1)?,
                MapEntry::Block(child) => {
                    path.nodes.push(child);
                    continue;
                }
            };
            self.set_map_entry(node, above, at, MapEntry::Block(child))?;
            path.nodes.push(child);
        }
        Ok(path)
    }

    /// Sets one entry of a node.
    pub(crate) fn set_map_entry(&mut self, node: BlockNo, level: u8, at: usize, entry: MapEntry) -> OpResult<()> {
        self.edit(node, BlockKind::MapNode(level), map_node::entries_range(at, 1))?
            .copy_from_slice(&entry.encode().to_le_bytes());
        Ok(())
    }

    /// Makes the map a tree tall enough for block `index` and for a node at `level`.
    fn grow_map(&mut self, inode: &mut Inode, index: u64, level: u8) -> OpResult<()> {
        if let MapRoot::Inline(entries) = inode.map {
            let root = self.allocate_metadata(BlockKind::MapNode(0), BlockUse::MapNode)?;
            for (at, entry) in entries.into_iter().enumerate() {
                self.set_map_entry(root, 0, at, entry)?;
            }
            self.set_inode_totals(inode, root, 0)?;
            inode.map = MapRoot::Tree { levels: 1, root };
        }
        while let MapRoot::Tree { levels, root } = inode.map {
            if index < map_node::entry_span(levels) && level < levels {
                break;
            }
            if levels == LEVELS_MAX {
                return Err(PoolError::FileTooLarge.into());
            }
            let above = self.allocate_metadata(BlockKind::MapNode(levels), BlockUse::MapNode)?;
            self.set_map_entry(above, levels, 0, MapEntry::Block(root))?;
            self.set_inode_totals(inode, above, levels)?;
            inode.map = MapRoot::Tree { levels: levels + 1, root: above };
        }
        Ok(())
    }

    /// Gives a new root the totals of its inode.
    fn set_inode_totals(&mut self, inode: &Inode, node: BlockNo, level: u8) -> OpResult<()> {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let totals = MapTotals { mapped: number(inode.mapped), reserved: number(inode.reserved_blocks) };
        let bytes = map_node::encode_totals(totals).ok_or_else(|| damaged("file map", node, "totals below zero"))?;
        self.edit(node, BlockKind::MapNode(level), map_node::TOTALS_RANGE)?.copy_from_slice(&bytes);
        Ok(())
    }

    /// Copies a shared node for one of its parents, which drops the original. Each block that the node names gets one
    /// more reference.
    pub(crate) fn copy_node(&mut self, node: BlockNo, level: u8) -> OpResult<BlockNo> {
        let mut entries = self.map_entries(node, level)?;
        let named = entries.iter().filter_map(|entry| match entry {
            MapEntry::Block(block) => Some(*block),
            MapEntry::Hole | MapEntry::Reserved => None,
        });
        self.want_entries(named.collect::<Vec<_>>())?;
        let totals = self.map_totals(node, level)?;
        if totals.reserved != 0 {
            return Err(damaged("file map", node, "is shared and has reserved places"));
        }
        for entry in entries.iter_mut() {
            match *entry {
                MapEntry::Hole => {}
                MapEntry::Reserved => return Err(damaged("file map", node, "is shared and has reserved places")),
                MapEntry::Block(block) if level == 0 => *entry = MapEntry::Block(self.add_data_reference(block)?),
                MapEntry::Block(child) => self.add_node_parent(child)?,
            }
        }
        let copy = self.allocate_metadata(BlockKind::MapNode(level), BlockUse::MapNode)?;
        let bytes = self.edit(copy, BlockKind::MapNode(level), map_node::entries_range(0, FAN_OUT_LEN))?;
        for (place, entry) in bytes.chunks_exact_mut(map_node::ENTRY_BYTES).zip(entries.iter()) {
            place.copy_from_slice(&entry.encode().to_le_bytes());
        }
        let encoded = map_node::encode_totals(totals).ok_or_else(|| damaged("file map", node, "totals below zero"))?;
        self.edit(copy, BlockKind::MapNode(level), map_node::TOTALS_RANGE)?.copy_from_slice(&encoded);
        self.drop_node_parent(node)?;
        Ok(copy)
    }
}

const _: () = assert!(INLINE_ENTRIES <= FAN_OUT_LEN);
