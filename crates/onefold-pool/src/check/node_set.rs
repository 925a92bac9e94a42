//! The map nodes that a walk has visited, with their levels.
//!
//! Map nodes lie in runs, so they are recorded in chunks of 256 blocks: about half a byte for each node if they are
//! close together, and one chunk for each if a hostile pool scatters them.

use std::collections::HashMap;

use onefold_block::BlockNo;

const CHUNK_BLOCKS: u64 = 256;
/// Two blocks per byte: 0 for never visited, otherwise level + 1.
type Chunk = Box<[u8; 128]>;
/// Memory of a chunk and of its place in the table, in bytes.
const CHUNK_BYTES: u64 = 192;

/// The earlier visits of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visit {
    /// It was not visited before.
    First,
    /// It was visited before, at this level.
    Again(u8),
}

/// The visited map nodes, with their levels.
#[derive(Debug, Default)]
pub(super) struct NodeSet {
    chunks: HashMap<u64, Chunk>,
}

impl NodeSet {
    /// Records a visit of `node`, of a level below 8.
    pub(super) fn visit(&mut self, node: BlockNo, level: u8) -> Visit {
        let chunk = self.chunks.entry(node.0 / CHUNK_BLOCKS).or_insert_with(|| Box::new([0; 128]));
        let within = node.0 % CHUNK_BLOCKS;
        let byte = &mut chunk[usize::try_from(within / 2).expect("below 128")];
        let shift = within % 2 * 4;
        match *byte >> shift & 0xf {
            0 => {
                *byte |= (level + 1) << shift;
                Visit::First
            }
            known => Visit::Again(known - 1),
        }
    }

    /// Returns whether the walk has visited `node`.
    pub(super) fn has(&self, node: BlockNo) -> bool {
        let within = node.0 % CHUNK_BLOCKS;
        let chunk = self.chunks.get(&(node.0 / CHUNK_BLOCKS));
        chunk.is_some_and(|chunk| chunk[usize::try_from(within / 2).expect("below 128")] >> (within % 2 * 4) & 0xf != 0)
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_new_once_and_its_level_is_remembered() {
        let mut set = NodeSet::default();
        for (block, level) in [(0, 3), (1, 0), (255, 1), (256, 2), (1 << 47, 0)] {
            assert!(!set.has(BlockNo(block)));
            assert_eq!(set.visit(BlockNo(block), level), Visit::First, "{block}");
            assert!(set.has(BlockNo(block)));
            assert_eq!(set.visit(BlockNo(block), 1), Visit::Again(level), "{block}");
        }
        assert_eq!(set.memory_bytes(), 3 * CHUNK_BYTES);
    }
}
