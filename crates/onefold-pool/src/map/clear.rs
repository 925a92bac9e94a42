//! Removes parts of a map, and reclaims them.
//!
//! A truncate or punch itself drops at most two partly covered leaves. It detaches whole subtrees: their roots go to
//! the durable reclaim list, which takes over the map's reference, and a background worker walks them later in small
//! transactions. So deleting a huge file returns at once, and after a crash at any point the rest is on the list.

use std::ops::Range;

use onefold_block::BlockNo;

use super::{entry_index, inline_index};
use crate::format::header::BlockKind;
use crate::format::inode::{INLINE_ENTRIES, Inode, MapRoot};
use crate::format::items::{self, ReclaimItem};
use crate::format::map_node::{self, FAN_OUT, FAN_OUT_LEN, MapEntry, MapTotals};
use crate::format::state::Field;
use crate::meta::op::damaged;
use crate::meta::{Op, OpResult};
use crate::tree;

/// Maximum number of leaf entries that one step of reclaim drops: all other operations wait meanwhile, for some 50
/// microseconds.
const ENTRIES_PER_STEP: usize = 128;
/// Maximum number of entries above leaves that it drops.
const CHILDREN_PER_STEP: usize = 4;

/// A node of a map, with the part of the file that it covers.
#[derive(Clone, Copy)]
struct NodeSpan {
    node: BlockNo,
    level: u8,
    /// The first block of the file that it covers.
    base: u64,
}

impl Op<'_> {
    /// Makes blocks `first..end` of the file a hole.
    pub(crate) fn map_clear(&mut self, inode: &mut Inode, first: u64, end: u64) -> OpResult<()> {
        match inode.map {
            MapRoot::Inline(mut entries) => {
                let mut change = MapTotals::default();
                for index in first..end.min(INLINE_ENTRIES as u64) {
                    let Some(at) = inline_index(index) else { break };
                    change += self.replaced(std::mem::replace(&mut entries[at], MapEntry::Hole), MapEntry::Hole)?;
                }
                inode.map = MapRoot::Inline(entries);
                self.add_totals(inode, change);
            }
            MapRoot::Tree { levels, .. } => {
                let span = map_node::entry_span(levels);
                let end = end.min(span);
                if first == 0 && end == span {
                    return self.map_detach_all(inode);
                }
                if first < end {
                    let root = self.map_path(inode, first, levels - 1)?.last();
                    let top = NodeSpan { node: root, level: levels - 1, base: 0 };
                    let change = self.clear_node(top, &(first..end))?;
                    self.add_totals(inode, change);
                }
            }
        }
        Ok(())
    }

    /// Removes the whole map from the inode.
    pub(crate) fn map_detach_all(&mut self, inode: &mut Inode) -> OpResult<()> {
        if let MapRoot::Tree { levels, root } = inode.map {
            self.detach(root, levels - 1)?;
            let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
            let all = MapTotals { mapped: number(inode.mapped), reserved: number(inode.reserved_blocks) };
            self.add_totals(inode, -all);
            inode.map = MapRoot::EMPTY;
            return Ok(());
        }
        self.map_clear(inode, 0, INLINE_ENTRIES as u64)
    }

    /// Clears `range` below a node with one parent. Returns the change of the node's totals, which is written to the
    /// node but not to those above.
    fn clear_node(&mut self, at: NodeSpan, range: &Range<u64>) -> OpResult<MapTotals> {
        let span = map_node::entry_span(at.level);
        let from = (range.start.max(at.base) - at.base) / span;
        let to = (range.end.min(at.base + FAN_OUT * span) - at.base).div_ceil(span);
        let change =
            if at.level == 0 { self.clear_leaf(at.node, from, to)? } else { self.clear_children(at, from..to, range)? };
        let mut totals = self.map_totals(at.node, at.level)?;
        totals += change;
        let bytes = map_node::encode_totals(totals).ok_or_else(|| damaged("file map", at.node, "totals below zero"))?;
        self.edit(at.node, BlockKind::MapNode(at.level), map_node::TOTALS_RANGE)?.copy_from_slice(&bytes);
        Ok(change)
    }

    fn clear_leaf(&mut self, leaf: BlockNo, from: u64, to: u64) -> OpResult<MapTotals> {
        let entries = self.map_entries(leaf, 0)?;
        let (from, to) = (entry_index(from, 0), from_len(to));
        let old = &entries[from..to];
        self.want_entries(blocks_of(old))?;
        self.edit(leaf, BlockKind::MapNode(0), map_node::entries_range(from, to - from))?.fill(0);
        let mut change = MapTotals::default();
        for entry in old {
            change += self.replaced(*entry, MapEntry::Hole)?;
        }
        Ok(change)
    }

    fn clear_children(&mut self, at: NodeSpan, children: Range<u64>, range: &Range<u64>) -> OpResult<MapTotals> {
        let span = map_node::entry_span(at.level);
        let entries = self.map_entries(at.node, at.level)?;
        let touched = &entries[entry_index(children.start, 0)..from_len(children.end)];
        // Requests everything that will be needed at once.
        for child in blocks_of(touched) {
            self.want(child, BlockKind::MapNode(at.level - 1))?;
        }
        self.want_entries(blocks_of(touched))?;
        let mut change = MapTotals::default();
        for index in children {
            let slot = from_len(index);
            let base = at.base + index * span;
            let whole = range.start <= base && base + span <= range.end;
            let below = at.level - 1;
            let child = match entries[slot] {
                MapEntry::Hole => continue,
                MapEntry::Reserved if whole => {
                    self.release_reserved(at.level);
                    change.reserved -= i64::try_from(span).unwrap_or(i64::MAX);
                    self.set_map_entry(at.node, at.level, slot, MapEntry::Hole)?;
                    continue;
                }
                MapEntry::Block(child) if whole => {
                    change += -self.map_totals(child, below)?;
                    self.detach(child, below)?;
                    self.set_map_entry(at.node, at.level, slot, MapEntry::Hole)?;
                    continue;
                }
                MapEntry::Reserved => self.reserved_node(below)?,
                MapEntry::Block(child) if self.node_parents(child)? > 1 => self.copy_node(child, below)?,
                MapEntry::Block(child) => child,
            };
            self.set_map_entry(at.node, at.level, slot, MapEntry::Block(child))?;
            let covered = NodeSpan { node: child, level: below, base };
            change += self.clear_node(covered, range)?;
        }
        Ok(change)
    }

    /// Takes back the promise of a reserved entry of a node at `level`.
    pub(crate) fn release_reserved(&mut self, level: u8) {
        self.count(Field::ReservedBlocks, -i64::try_from(map_node::reserve_blocks(level)).unwrap_or(i64::MAX));
    }

    /// Drops a map's reference to a subtree: at once if other references exist, or else through the reclaim list.
    pub(crate) fn detach(&mut self, node: BlockNo, level: u8) -> OpResult<()> {
        if self.node_parents(node)? > 1 {
            return self.drop_node_parent(node);
        }
        self.note_detached();
        let number = self.state(Field::NextReclaim);
        self.count(Field::NextReclaim, 1);
        self.count(Field::ReclaimPending, 1);
        self.put_item(&items::reclaim_key(number), &ReclaimItem { node, level }.encode())
    }

    /// Does a bounded piece of reclaim. Returns false if the list is empty.
    ///
    /// Takes the newest entry: the children of a node are put on the list one at a time, so the list stays short.
    pub(crate) fn reclaim_step(&mut self) -> OpResult<bool> {
        let root = self.tree_root();
        let (first, last) = items::reclaim_bounds();
        let Some((key, value)) = tree::last_before(self, root, &last)?.filter(|(key, _)| *key >= first) else {
            return Ok(false);
        };
        let item = ReclaimItem::decode(&value).ok_or_else(|| damaged("reclaim list", root, "entry makes no sense"))?;
        if self.reclaim_node(item)? {
            self.remove_found_item(&key)?;
            self.count(Field::ReclaimPending, -1);
        }
        Ok(true)
    }

    /// Drops the list's reference to a node, or a part of the subtree. Returns true when the node is finished.
    fn reclaim_node(&mut self, item: ReclaimItem) -> OpResult<bool> {
        let ReclaimItem { node, level } = item;
        if self.node_parents(node)? > 1 {
            self.drop_node_parent(node)?;
            return Ok(true);
        }
        if level == 0 {
            return self.reclaim_leaf(node);
        }
        let entries = self.map_entries(node, level)?;
        let mut left = (0..).zip(entries.iter()).filter(|(_, entry)| **entry != MapEntry::Hole).peekable();
        if left.peek().is_none() {
            self.free_metadata(node)?;
            return Ok(true);
        }
        for (slot, entry) in left.take(CHILDREN_PER_STEP) {
            match *entry {
                MapEntry::Hole => {}
                MapEntry::Reserved => self.release_reserved(level),
                MapEntry::Block(child) if self.node_parents(child)? > 1 => self.drop_node_parent(child)?,
                MapEntry::Block(child) if level == 1 => {
                    if self.reclaim_leaf(child)? {
                        self.set_map_entry(node, level, slot, MapEntry::Hole)?;
                    }
                    return Ok(false);
                }
                MapEntry::Block(child) => {
                    // The reference moves from the node to the list; the child is walked next.
                    self.set_map_entry(node, level, slot, MapEntry::Hole)?;
                    self.detach(child, level - 1)?;
                    return Ok(false);
                }
            }
            self.set_map_entry(node, level, slot, MapEntry::Hole)?;
        }
        Ok(false)
    }

    /// Drops some references of a leaf that only the reclaimed node or the list names; frees the leaf with the last of
    /// them. Returns true when it is gone. A partly reclaimed leaf stays sound, with correct totals.
    fn reclaim_leaf(&mut self, leaf: BlockNo) -> OpResult<bool> {
        let entries = self.map_entries(leaf, 0)?;
        let first = entries.iter().position(|entry| *entry != MapEntry::Hole).unwrap_or(FAN_OUT_LEN);
        let end = (first + ENTRIES_PER_STEP).min(FAN_OUT_LEN);
        // Reads everything that the leaf needs together.
        self.want_entries(blocks_of(&entries[first..]))?;
        let mut change = MapTotals::default();
        for entry in &entries[first..end] {
            change += match *entry {
                MapEntry::Hole => MapTotals::default(),
                MapEntry::Reserved => {
                    self.release_reserved(0);
                    MapTotals { mapped: 0, reserved: -1 }
                }
                MapEntry::Block(block) => {
                    self.drop_data_reference(block)?;
                    MapTotals { mapped: -1, reserved: 0 }
                }
            };
        }
        if entries[end..].iter().all(|entry| *entry == MapEntry::Hole) {
            self.free_metadata(leaf)?;
            return Ok(true);
        }
        let kind = BlockKind::MapNode(0);
        self.edit(leaf, kind, map_node::entries_range(first, end - first))?.fill(0);
        let mut totals = self.map_totals(leaf, 0)?;
        totals += change;
        let bytes = map_node::encode_totals(totals).ok_or_else(|| damaged("file map", leaf, "totals below zero"))?;
        self.edit(leaf, kind, map_node::TOTALS_RANGE)?.copy_from_slice(&bytes);
        Ok(false)
    }
}

/// Returns a place in a node, which is at most 508, as an index.
fn from_len(place: u64) -> usize {
    usize::try_from(place).map_or(FAN_OUT_LEN, |place| place.min(FAN_OUT_LEN))
}

/// Returns the blocks that entries name.
pub(crate) fn blocks_of(entries: &[MapEntry]) -> Vec<BlockNo> {
    entries.iter().filter_map(MapEntry::block).collect()
}
