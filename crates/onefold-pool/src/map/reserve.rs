//! Reserves space for places that are not written yet (`fallocate`).
//!
//! A reserved place is a mark in the map and a number in the pool state. No block is set aside, since the data to come
//! may already be stored elsewhere. A mark in a node above the leaves reserves its whole span, and the nodes needed to
//! map it.

use std::ops::Range;

use onefold_block::BlockNo;

use super::inline_index;
use crate::error::PoolError;
use crate::format::header::BlockKind;
use crate::format::inode::{Inode, MapRoot};
use crate::format::map_node::{self, FAN_OUT, FAN_OUT_LEN, MapEntry, MapTotals};
use crate::format::state::Field;
use crate::format::store_page::BlockUse;
use crate::meta::allocate::EMERGENCY_BLOCKS;
use crate::meta::op::damaged;
use crate::meta::{Op, OpResult, Privilege};
use crate::options::Allocation;

/// Maximum number of blocks that one operation reserves: the span of a node above the leaves.
pub(crate) const RESERVE_STEP_BLOCKS: u64 = FAN_OUT * FAN_OUT;

impl Op<'_> {
    /// Reserves the holes among blocks `range`, which lies within one aligned run of [`RESERVE_STEP_BLOCKS`].
    pub(crate) fn map_reserve(&mut self, inode: &mut Inode, range: Range<u64>) -> OpResult<()> {
        if let (MapRoot::Inline(mut entries), Some(_)) = (inode.map, inline_index(range.end - 1)) {
            let mut change = MapTotals::default();
            for at in range.filter_map(inline_index) {
                if entries[at] == MapEntry::Hole {
                    entries[at] = MapEntry::Reserved;
                    change.reserved += 1;
                }
            }
            inode.map = MapRoot::Inline(entries);
            self.count(Field::ReservedBlocks, change.reserved);
            self.add_totals(inode, change);
        } else {
            let path = self.map_path(inode, range.start.max(range.end - 1), 1)?;
            let base = range.start / RESERVE_STEP_BLOCKS * RESERVE_STEP_BLOCKS;
            let change = self.reserve_children(path.last(), base, &range)?;
            self.map_add_totals(inode, &path, change)?;
        }
        self.keep_promise_possible()
    }

    /// Refuses to promise more than there is. Space that this operation itself returns, promised or stored, counts as
    /// available: it is by the time that the first promised block is written.
    fn keep_promise_possible(&self) -> OpResult<()> {
        let promised = self.state(Field::ReservedBlocks);
        if promised <= self.meta.state(Field::ReservedBlocks) {
            return Ok(());
        }
        self.permit(Allocation::Reservation)?;
        let freed_here = self.meta.state(Field::DataBlocks).saturating_sub(self.state(Field::DataBlocks));
        if promised + self.meta.set_aside + EMERGENCY_BLOCKS > self.blocks_available() + freed_here {
            return Err(PoolError::NoSpace.into());
        }
        Ok(())
    }

    /// Reserves holes below a node of level 1 that has one parent.
    fn reserve_children(&mut self, node: BlockNo, base: u64, range: &Range<u64>) -> OpResult<MapTotals> {
        let entries = self.map_entries(node, 1)?;
        let slots = (range.start - base) / FAN_OUT..(range.end - base).div_ceil(FAN_OUT);
        for slot in slots.clone() {
            if let MapEntry::Block(leaf) = entries[usize::try_from(slot).unwrap_or(0)] {
                self.want(leaf, BlockKind::MapNode(0))?;
                self.want_entry_of(leaf)?;
            }
        }
        self.settle()?;
        let mut change = MapTotals::default();
        for slot in slots {
            let first = base + slot * FAN_OUT;
            let within = range.start.max(first) - first..range.end.min(first + FAN_OUT) - first;
            let at = usize::try_from(slot).unwrap_or(0);
            let leaf = match entries[at] {
                MapEntry::Reserved => continue,
                MapEntry::Hole if within == (0..FAN_OUT) => {
                    self.set_map_entry(node, 1, at, MapEntry::Reserved)?;
                    self.count(Field::ReservedBlocks, i64::try_from(map_node::reserve_blocks(1)).unwrap_or(i64::MAX));
                    change.reserved += i64::try_from(FAN_OUT).unwrap_or(i64::MAX);
                    continue;
                }
                MapEntry::Hole => self.allocate_metadata(BlockKind::MapNode(0), BlockUse::MapNode)?,
                MapEntry::Block(leaf) if self.node_parents(leaf)? > 1 => self.copy_node(leaf, 0)?,
                MapEntry::Block(leaf) => leaf,
            };
            self.set_map_entry(node, 1, at, MapEntry::Block(leaf))?;
            change += self.reserve_leaf(leaf, within)?;
        }
        Ok(change)
    }

    fn reserve_leaf(&mut self, leaf: BlockNo, within: Range<u64>) -> OpResult<MapTotals> {
        let entries = self.map_entries(leaf, 0)?;
        let mut change = MapTotals::default();
        for at in within.filter_map(|place| usize::try_from(place).ok()) {
            if entries[at] == MapEntry::Hole {
                self.set_map_entry(leaf, 0, at, MapEntry::Reserved)?;
                change.reserved += 1;
            }
        }
        self.count(Field::ReservedBlocks, change.reserved);
        let mut totals = self.map_totals(leaf, 0)?;
        totals += change;
        let bytes = map_node::encode_totals(totals).ok_or_else(|| damaged("file map", leaf, "totals below zero"))?;
        self.edit(leaf, BlockKind::MapNode(0), map_node::TOTALS_RANGE)?.copy_from_slice(&bytes);
        Ok(change)
    }

    /// Makes the node that a reserved entry of the level above promised, with all its entries reserved.
    pub(crate) fn reserved_node(&mut self, level: u8) -> OpResult<BlockNo> {
        // One block of the promise becomes this node.
        self.count(Field::ReservedBlocks, -1);
        let privilege = std::mem::replace(&mut self.privilege, Privilege::Freeing);
        let allocated = self.allocate_metadata(BlockKind::MapNode(level), BlockUse::MapNode);
        self.privilege = privilege;
        let node = allocated?;
        let bytes = self.edit(node, BlockKind::MapNode(level), map_node::entries_range(0, FAN_OUT_LEN))?;
        for place in bytes.chunks_exact_mut(map_node::ENTRY_BYTES) {
            place.copy_from_slice(&MapEntry::Reserved.encode().to_le_bytes());
        }
        let places = i64::try_from(map_node::entry_span(level + 1)).unwrap_or(i64::MAX);
        let totals = map_node::encode_totals(MapTotals { mapped: 0, reserved: places }).expect("not negative");
        self.edit(node, BlockKind::MapNode(level), map_node::TOTALS_RANGE)?.copy_from_slice(&totals);
        Ok(node)
    }

    fn want_entry_of(&mut self, block: BlockNo) -> OpResult<()> {
        let page = self.meta.geometry.store_place(block).page;
        self.want(page, BlockKind::StorePage).map(|_| ())
    }
}
