//! File maps: replaces unreadable or invalid parts by holes, and corrects the totals.
//!
//! A block whose header proves it to be a map node or a page of the names tree is one. A leaf that names such a block
//! as data is wrong. So all nodes are found first, and then the maps are repaired.

use onefold_block::BlockNo;

use super::patch::Patch;
use crate::attr::{FileKind, Ino};
use crate::check::context::Context;
use crate::check::inodes::TreeContent;
use crate::check::node_set::{NodeSet, Visit};
use crate::check::reader::CheckError;
use crate::format::geometry::{GROUP_BLOCKS, Geometry};
use crate::format::header::BlockKind;
use crate::format::inode::{Inode, MapRoot};
use crate::format::items::{self, ItemKind};
use crate::format::map_node::{self, FAN_OUT_LEN, LEVELS_MAX, MapEntry, MapTotals};
use crate::format::state::Field;
use crate::tree::{self, Key, TreeFinding};

/// Repairs all maps. A shared node is repaired once for all files that share it.
pub(super) fn mend(context: &mut Context<'_>, patch: &mut Patch<'_>, listed: &TreeContent) -> Result<(), CheckError> {
    let root = BlockNo(context.field(Field::TreeRoot));
    let end = (context.groups_ready() * GROUP_BLOCKS).min(context.geometry.total_blocks);
    let visited = NodeSet::default();
    let mut mender = Mender { patch, geometry: context.geometry, end, visited, taken: NodeSet::default() };
    mender.find_metadata(context, root, listed)?;
    let mut changed: Vec<(Key, Vec<u8>)> = Vec::new();
    let meter = &mut context.meter;
    tree::check(&mut context.tree, root, &mut |finding| {
        if let TreeFinding::Item { key, value } = finding
            && items::item_kind(&key) == Some(ItemKind::Inode)
            && let Some(inode) = Inode::decode(Ino(key.ino), value)
            && inode.attr.kind == FileKind::Regular
        {
            let mut new = mender.file(&inode)?.encode();
            // An inline map that has become empty keeps its bytes, so that the item keeps its length.
            new.resize(value.len(), 0);
            if new != value {
                changed.push((key, new));
            }
            return meter.advance(0);
        }
        Ok(())
    })?;
    for item in &listed.reclaimed {
        mender.node(item.node, item.level)?;
    }
    let mut same_root = root;
    for (key, value) in changed {
        tree::insert(mender.patch, &mut same_root, &key, &value)?;
    }
    Ok(mender.patch.flush()?)
}

struct Mender<'c, 'a> {
    patch: &'c mut Patch<'a>,
    geometry: Geometry,
    /// Blocks from here on are in no block group in use.
    end: u64,
    visited: NodeSet,
    /// Map nodes and pages of the names tree, which cannot be data.
    taken: NodeSet,
}

/// Marks a page of the names tree among the levels of map nodes.
const TREE_PAGE: u8 = LEVELS_MAX;

impl Mender<'_, '_> {
    fn can_hold(&self, block: BlockNo) -> bool {
        block.0 < self.end && self.geometry.is_allocatable(block)
    }

    fn can_hold_data(&self, block: BlockNo) -> bool {
        self.can_hold(block) && !self.taken.has(block)
    }

    /// Finds all map nodes and pages of the names tree.
    fn find_metadata(
        &mut self,
        context: &mut Context<'_>,
        root: BlockNo,
        listed: &TreeContent,
    ) -> Result<(), CheckError> {
        let meter = &mut context.meter;
        tree::check(&mut context.tree, root, &mut |finding| {
            match finding {
                TreeFinding::Page { at } => {
                    self.taken.visit(at, TREE_PAGE);
                    return meter.advance(0);
                }
                TreeFinding::Item { key, value } if items::item_kind(&key) == Some(ItemKind::Inode) => {
                    if let Some(MapRoot::Tree { levels, root }) =
                        Inode::decode(Ino(key.ino), value).map(|inode| inode.map)
                    {
                        self.find_nodes(root, levels - 1);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        for item in &listed.reclaimed {
            self.find_nodes(item.node, item.level);
        }
        Ok(())
    }

    fn find_nodes(&mut self, at: BlockNo, level: u8) {
        if !self.can_hold(at) {
            return;
        }
        let Ok(bytes) = self.patch.block(at, BlockKind::MapNode(level)) else { return };
        let bytes = Box::new(*bytes);
        if self.taken.visit(at, level) == Visit::First && level > 0 {
            for index in 0..FAN_OUT_LEN {
                if let Some(MapEntry::Block(child)) = map_node::entry(&bytes, index) {
                    self.find_nodes(child, level - 1);
                }
            }
        }
    }

    /// Returns the repaired inode.
    fn file(&mut self, inode: &Inode) -> Result<Inode, CheckError> {
        let mut mended = inode.clone();
        let totals = match &mut mended.map {
            MapRoot::Inline(entries) => {
                let mut totals = MapTotals::default();
                for entry in entries {
                    match *entry {
                        MapEntry::Block(block) if self.can_hold_data(block) => totals.mapped += 1,
                        MapEntry::Reserved => totals.reserved += 1,
                        MapEntry::Hole | MapEntry::Block(_) => *entry = MapEntry::Hole,
                    }
                }
                totals
            }
            MapRoot::Tree { levels, root } => match self.node(*root, *levels - 1)? {
                Some(totals) => totals,
                None => {
                    mended.map = MapRoot::EMPTY;
                    MapTotals::default()
                }
            },
        };
        mended.mapped = u64::try_from(totals.mapped).unwrap_or(0);
        mended.reserved_blocks = u64::try_from(totals.reserved).unwrap_or(0);
        mended.attr.mapped_blocks = mended.mapped;
        Ok(mended)
    }

    /// Repairs a node and its subtree. Returns its totals; `None` if it is lost and its parent must drop it.
    fn node(&mut self, at: BlockNo, level: u8) -> Result<Option<MapTotals>, CheckError> {
        if !self.can_hold(at) {
            return Ok(None);
        }
        let Ok(bytes) = self.patch.block(at, BlockKind::MapNode(level)) else { return Ok(None) };
        if let Visit::Again(_) = self.visited.visit(at, level) {
            return Ok(map_node::totals(bytes));
        }
        let before = Box::new(*bytes);
        let mut after = before.clone();
        let mut totals = MapTotals::default();
        for index in 0..FAN_OUT_LEN {
            let (kept, below) = match map_node::entry(&before, index) {
                Some(entry @ MapEntry::Reserved) => {
                    let reserved = i64::try_from(map_node::entry_span(level)).expect("at most 508^3");
                    (entry, MapTotals { mapped: 0, reserved })
                }
                Some(entry @ MapEntry::Block(block)) if level == 0 && self.can_hold_data(block) => {
                    (entry, MapTotals { mapped: 1, reserved: 0 })
                }
                Some(entry @ MapEntry::Block(child)) if level > 0 => match self.node(child, level - 1)? {
                    Some(below) => (entry, below),
                    None => (MapEntry::Hole, MapTotals::default()),
                },
                _ => (MapEntry::Hole, MapTotals::default()),
            };
            totals += below;
            after[map_node::entries_range(index, 1)].copy_from_slice(&kept.encode().to_le_bytes());
        }
        let encoded = map_node::encode_totals(totals).expect("sums of what is not negative");
        after[map_node::TOTALS_RANGE].copy_from_slice(&encoded);
        if after != before {
            self.patch.put(at, after)?;
        }
        Ok(Some(totals))
    }
}
