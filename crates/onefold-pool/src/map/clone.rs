//! Cloning: makes a file, or a range of one, appear in another place without touching a data block.

use super::clear::blocks_of;
use super::entry_index;
use crate::format::header::BlockKind;
use crate::format::inode::{Inode, MapRoot};
use crate::format::map_node::{self, FAN_OUT, FAN_OUT_LEN, MapEntry, MapTotals};
use crate::meta::{Op, OpResult};

/// Position of a range clone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClonePosition {
    /// First block in the source.
    pub(crate) source: u64,
    /// First block in the target.
    pub(crate) target: u64,
    /// Remaining blocks, at least one.
    pub(crate) count: u64,
}

impl Op<'_> {
    /// Gives `target`, whose map is empty, the whole map of `source`, whose reserved places are all in its inode.
    pub(crate) fn map_clone_all(&mut self, source: &Inode, target: &mut Inode) -> OpResult<()> {
        match source.map {
            MapRoot::Inline(entries) => {
                let mut entries = entries;
                self.refer_to(&mut entries)?;
                self.map_write(target, 0, &entries)
            }
            MapRoot::Tree { root, .. } => {
                self.add_node_parent(root)?;
                target.map = source.map;
                let mapped = i64::try_from(source.mapped).unwrap_or(i64::MAX);
                self.add_totals(target, MapTotals { mapped, reserved: 0 });
                Ok(())
            }
        }
    }

    /// Clones the next piece of a range: a shared leaf if both sides are aligned to leaves, entries otherwise. Returns
    /// the number of blocks done, at least one and at most a leaf's worth.
    pub(crate) fn map_clone_step(&mut self, source: &Inode, target: &mut Inode, range: ClonePosition) -> OpResult<u64> {
        let aligned = range.source.is_multiple_of(FAN_OUT) && range.target.is_multiple_of(FAN_OUT);
        if aligned
            && matches!(source.map, MapRoot::Tree { .. })
            && let Some(done) = self.share_leaf(source, target, range)?
        {
            return Ok(done);
        }
        let within = (range.source % FAN_OUT).max(range.target % FAN_OUT);
        let count = range.count.min(FAN_OUT - within);
        let mut entries = vec![MapEntry::Hole; usize::try_from(count).unwrap_or(FAN_OUT_LEN)];
        self.map_read(source, range.source, &mut entries)?;
        if entries.iter().all(|entry| entry.block().is_none()) {
            self.map_clear(target, range.target, range.target + count)?;
            return Ok(count);
        }
        self.refer_to(&mut entries)?;
        self.map_write(target, range.target, &entries)?;
        Ok(count)
    }

    /// Adds a reference to each block of a source's entries, and converts them for a target, which has no promised
    /// space.
    fn refer_to(&mut self, entries: &mut [MapEntry]) -> OpResult<()> {
        self.want_entries(blocks_of(entries))?;
        for entry in entries {
            *entry = match *entry {
                MapEntry::Block(block) => MapEntry::Block(self.add_data_reference(block)?),
                MapEntry::Hole | MapEntry::Reserved => MapEntry::Hole,
            };
        }
        Ok(())
    }

    /// Makes the target name the source's leaf. `None` if the leaf holds more than the range, or reserved places, so
    /// that its entries must be copied.
    fn share_leaf(&mut self, source: &Inode, target: &mut Inode, range: ClonePosition) -> OpResult<Option<u64>> {
        let MapEntry::Block(leaf) = self.map_node_at(source, range.source, 0)? else {
            let count = range.count.min(FAN_OUT);
            self.map_clear(target, range.target, range.target + count)?;
            return Ok(Some(count));
        };
        if range.count < FAN_OUT {
            let beyond = usize::try_from(range.count).unwrap_or(FAN_OUT_LEN);
            let entries = self.map_entries(leaf, 0)?;
            let fits = entries[beyond..].iter().all(|entry| *entry == MapEntry::Hole)
                && self.map_node_at(target, range.target, 0)? == MapEntry::Hole
                && !matches!(target.map, MapRoot::Inline(inline) if inline.iter().any(|entry| *entry != MapEntry::Hole));
            if !fits {
                return Ok(None);
            }
        }
        let mut change = self.map_totals(leaf, 0)?;
        if change.reserved > 0 {
            // The promise belongs to the source alone: the target gets the entries.
            return Ok(None);
        }
        let path = self.map_path(target, range.target, 1)?;
        let slot = entry_index(range.target, 1);
        match self.map_entry(path.last(), 1, slot)? {
            MapEntry::Hole => {}
            MapEntry::Reserved => {
                self.release_reserved(1);
                change.reserved -= i64::try_from(map_node::entry_span(1)).unwrap_or(i64::MAX);
            }
            MapEntry::Block(old) if old == leaf => return Ok(Some(range.count.min(FAN_OUT))),
            MapEntry::Block(old) => {
                self.want(old, BlockKind::MapNode(0))?;
                self.want_entries([old])?;
                change += -self.map_totals(old, 0)?;
                self.detach(old, 0)?;
            }
        }
        self.add_node_parent(leaf)?;
        self.set_map_entry(path.last(), 1, slot, MapEntry::Block(leaf))?;
        self.map_add_totals(target, &path, change)?;
        Ok(Some(range.count.min(FAN_OUT)))
    }
}
