//! Trees of extents.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Extent Tree". A node is a header of 12 bytes
//! and entries of 12 bytes. The root is in the inode. Other nodes are blocks, with a checksum behind the last possible
//! entry.
//!
//! | byte | header | extent (depth 0) | index (depth above 0) |
//! |------|--------|------------------|------------------------|
//! | 0    | magic 0xf30a | first block of the file, 4 bytes | first block of the file, 4 bytes |
//! | 2    | number of entries | | |
//! | 4    | room for entries | blocks; above 32768: unwritten, 32768 more | node, low 4 bytes |
//! | 6    | depth | block, high 2 bytes | |
//! | 8    | generation, 4 bytes | block, low 4 bytes | node, high 2 bytes |
//!
//! A walk ends: depth decreases by one from node to node, and a node describes only blocks of the file in the range
//! that its parent names. The ranges of a node's children do not overlap, and no child is empty, so no block is read
//! twice.

use std::ops::{ControlFlow, Range};

use super::{FILE_BLOCKS_MAX, MapPiece, MapRun, PieceVisit};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::ext::checksum::crc32c;
use crate::ext::inode::{Inode, MAP_AT};
use crate::ext::superblock::features;
use crate::ext::tables::Tables;

const STRUCTURE: &str = "extent tree";
const MAGIC: u16 = 0xf30a;
const ENTRY_BYTES: usize = 12;
/// Maximum depth. More levels are not needed for 2^32 blocks.
const DEPTH_MAX: u16 = 5;
/// Longer extents are unwritten.
const WRITTEN_MAX: u16 = 1 << 15;

struct Walk<'w, 'a, 'v> {
    tables: &'w Tables<'a>,
    inode: &'w Inode,
    /// The first relevant block of the file.
    from: u64,
    visit: &'w mut PieceVisit<'v>,
}

/// A node that was read, and the expectations of its parent.
struct Node<'b> {
    bytes: Bytes<'b>,
    /// First byte in the volume.
    offset: u64,
    depth: u16,
    entries: usize,
    /// The blocks of the file that it may describe.
    range: Range<u64>,
}

/// Visits the tree of an inode.
pub(super) fn walk(
    tables: &Tables<'_>,
    inode: &Inode,
    from: u64,
    visit: &mut PieceVisit<'_>,
) -> Result<(), GuestError> {
    let mut walk = Walk { tables, inode, from, visit };
    let root = walk.check(inode.map_bytes(), inode.offset + MAP_AT as u64, None, 0..FILE_BLOCKS_MAX)?;
    walk.node(&root).map(|_| ())
}

impl Walk<'_, '_, '_> {
    /// Returns a node after checking its header; `depth` is the value that its parent requires.
    fn check<'b>(
        &self,
        bytes: Bytes<'b>,
        offset: u64,
        depth: Option<u16>,
        range: Range<u64>,
    ) -> Result<Node<'b>, GuestError> {
        let damage = |problem| self.tables.source.damage(offset, STRUCTURE, problem);
        let header = (bytes.le16(0), bytes.le16(2), bytes.le16(4), bytes.le16(6));
        let (Some(magic), Some(entries), Some(room), Some(found)) = header else {
            return Err(damage("it is too short").into());
        };
        if magic != MAGIC {
            return Err(damage("its magic is missing").into());
        }
        let entries = usize::from(entries);
        if entries > usize::from(room) || usize::from(room) > bytes.len() / ENTRY_BYTES - 1 {
            return Err(damage("it has more entries than room").into());
        }
        if found > DEPTH_MAX || depth.is_some_and(|depth| depth != found) {
            return Err(damage("its depth is wrong").into());
        }
        if depth.is_some() && entries == 0 {
            return Err(damage("it is empty").into());
        }
        Ok(Node { bytes, offset, depth: found, entries, range })
    }

    fn node(&mut self, node: &Node<'_>) -> Result<ControlFlow<()>, GuestError> {
        if node.depth == 0 { self.leaf(node) } else { self.children(node) }
    }

    fn leaf(&mut self, node: &Node<'_>) -> Result<ControlFlow<()>, GuestError> {
        let mut next = node.range.start;
        for index in 0..node.entries {
            let at = (index + 1) * ENTRY_BYTES;
            let run = extent(node.bytes, at).filter(|run| {
                run.first >= next
                    && run.end() <= node.range.end
                    && self.tables.superblock.has_blocks(run.block, run.count)
            });
            let Some(run) = run else {
                return Err(self.damage(node.offset, "an extent is out of place").into());
            };
            next = run.end();
            if next > self.from && (self.visit)(MapPiece::Run(run)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn children(&mut self, node: &Node<'_>) -> Result<ControlFlow<()>, GuestError> {
        let mut next = node.range.start;
        for index in 0..node.entries {
            let at = (index + 1) * ENTRY_BYTES;
            let (Some(first), Some(child)) = (first_block(node.bytes, at), child(node.bytes, at)) else {
                return Err(self.damage(node.offset, "it is too short").into());
            };
            let is_last = index + 1 == node.entries;
            let after = if is_last { None } else { first_block(node.bytes, at + ENTRY_BYTES) };
            let range = first..after.unwrap_or(node.range.end);
            if first < next || range.is_empty() || range.end > node.range.end {
                return Err(self.damage(node.offset, "its keys do not rise").into());
            }
            next = range.end;
            if range.end > self.from && self.child(child, node.depth - 1, range)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn child(&mut self, block: u64, depth: u16, range: Range<u64>) -> Result<ControlFlow<()>, GuestError> {
        let superblock = &self.tables.superblock;
        let offset = block.saturating_mul(superblock.block_bytes);
        if !superblock.has_blocks(block, 1) {
            return Err(self.damage(offset, "it lies outside of the file system").into());
        }
        let bytes = self.tables.source.bytes(offset, superblock.block_length, STRUCTURE)?;
        let node = self.check(Bytes(&bytes), offset, Some(depth), range.clone())?;
        if superblock.features.has(features::METADATA_CSUM) && !self.has_right_checksum(&node) {
            return Err(self.damage(offset, "its checksum is wrong").into());
        }
        if first_block(node.bytes, ENTRY_BYTES).is_none_or(|first| !range.contains(&first)) {
            return Err(self.damage(offset, "it is about another part of the file").into());
        }
        if (self.visit)(MapPiece::Node(block)).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        self.node(&node)
    }

    fn has_right_checksum(&self, node: &Node<'_>) -> bool {
        let end = node.bytes.le16(4).map(|room| (usize::from(room) + 1) * ENTRY_BYTES);
        let summed = end.and_then(|end| Some((node.bytes.part(0, end)?, node.bytes.le32(end)?)));
        summed.is_some_and(|(summed, sum)| crc32c(self.inode.checksum_seed, summed.0) == sum)
    }

    fn damage(&self, offset: u64, problem: &'static str) -> crate::error::Damage {
        self.tables.source.damage(offset, STRUCTURE, problem)
    }
}

/// Returns the first block of the file of the entry at `at`.
fn first_block(bytes: Bytes<'_>, at: usize) -> Option<u64> {
    bytes.le32(at).map(u64::from)
}

/// Returns the node of the index entry at `at`.
fn child(bytes: Bytes<'_>, at: usize) -> Option<u64> {
    Some(u64::from(bytes.le16(at + 8)?) << 32 | u64::from(bytes.le32(at + 4)?))
}

/// Returns the extent at `at`; `None` if it is empty.
fn extent(bytes: Bytes<'_>, at: usize) -> Option<MapRun> {
    let length = bytes.le16(at + 4)?;
    let block = u64::from(bytes.le16(at + 6)?) << 32 | u64::from(bytes.le32(at + 8)?);
    let is_written = length <= WRITTEN_MAX;
    let count = if is_written { length } else { length - WRITTEN_MAX };
    (count > 0).then(|| Some(MapRun { first: first_block(bytes, at)?, block, count: u64::from(count), is_written }))?
}
