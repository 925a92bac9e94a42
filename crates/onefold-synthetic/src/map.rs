//! Builds a file map from its first leaf on.

use onefold_block::{BLOCK_BYTES, BlockNo};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::format::inode::MapRoot;
use onefold_pool::format::map_node::{self, FAN_OUT_LEN, MapEntry, MapTotals, TOTALS_RANGE};

use crate::SyntheticError;
use crate::places::Places;

/// A node that still takes entries.
struct GrowingNode {
    bytes: BlockBytes,
    entries: usize,
    mapped: i64,
}

impl GrowingNode {
    const EMPTY: GrowingNode = GrowingNode { bytes: [0; BLOCK_BYTES], entries: 0, mapped: 0 };
}

/// A level of the map: its last node, and the number of complete ones.
struct Level {
    last: GrowingNode,
    complete: u64,
}

/// The map of a file that is mapped in order, without holes.
pub(crate) struct MapBuilder {
    pool_tag: u32,
    levels: Vec<Level>,
}

impl MapBuilder {
    pub(crate) fn new(pool_tag: u32) -> MapBuilder {
        MapBuilder { pool_tag, levels: Vec::new() }
    }

    /// Maps the file's next block.
    pub(crate) fn add(&mut self, block: BlockNo, places: &mut Places<'_>) -> Result<(), SyntheticError> {
        self.push(0, block, 1, places)
    }

    /// Adds a node's next entry; the last entry completes the node.
    fn push(
        &mut self,
        level: usize,
        block: BlockNo,
        mapped: i64,
        places: &mut Places<'_>,
    ) -> Result<(), SyntheticError> {
        if level == self.levels.len() {
            self.levels.push(Level { last: GrowingNode::EMPTY, complete: 0 });
        }
        let node = &mut self.levels[level].last;
        let raw = MapEntry::Block(block).encode().to_le_bytes();
        node.bytes[map_node::entries_range(node.entries, 1)].copy_from_slice(&raw);
        node.entries += 1;
        node.mapped += mapped;
        if node.entries == FAN_OUT_LEN { self.complete(level, places).map(|_| ()) } else { Ok(()) }
    }

    /// Places the last node of a level and adds it to the level above.
    fn complete(&mut self, level: usize, places: &mut Places<'_>) -> Result<BlockNo, SyntheticError> {
        let GrowingNode { mut bytes, mapped, .. } = std::mem::replace(&mut self.levels[level].last, GrowingNode::EMPTY);
        self.levels[level].complete += 1;
        let totals = map_node::encode_totals(MapTotals { mapped, reserved: 0 }).expect("blocks are counted upwards");
        bytes[TOTALS_RANGE].copy_from_slice(&totals);
        let kind = BlockKind::MapNode(u8::try_from(level).expect("a map has few levels"));
        let pool_tag = self.pool_tag;
        let at = places.take_node(|at| {
            header::stamp(&mut bytes, pool_tag, kind, at);
            bytes
        })?;
        self.push(level + 1, at, mapped, places)?;
        Ok(at)
    }

    /// Completes the map, which has at least one block, and returns its root.
    pub(crate) fn finish(mut self, places: &mut Places<'_>) -> Result<MapRoot, SyntheticError> {
        for level in 0.. {
            if self.levels[level].last.entries > 0 {
                self.complete(level, places)?;
            }
            if self.levels[level].complete == 1 {
                // The level above has only this one node: it is the root.
                let above = &self.levels[level + 1].last.bytes;
                let Some(MapEntry::Block(root)) = map_node::entry(above, 0) else { break };
                return Ok(MapRoot::Tree { levels: u8::try_from(level + 1).expect("few levels"), root });
            }
        }
        Err(SyntheticError::Plan("a map has no root"))
    }
}
