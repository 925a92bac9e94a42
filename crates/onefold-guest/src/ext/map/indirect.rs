//! Maps of ext2 and ext3: twelve blocks in the inode, then blocks of block numbers, one to three levels deep.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Direct/Indirect Block Addressing". Numbers
//! have four bytes, little-endian; 0 is a hole.
//!
//! A walk ends: levels decrease, and a block of numbers that a file reaches twice is damage.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::{FILE_BLOCKS_MAX, MapPiece, MapRun, PieceVisit};
use crate::error::GuestError;
use crate::ext::inode::Inode;
use crate::ext::tables::Tables;

const STRUCTURE: &str = "block map";
const DIRECT: usize = 12;

struct Walk<'w, 'a, 'v> {
    tables: &'w Tables<'a>,
    from: u64,
    visit: &'w mut PieceVisit<'v>,
    /// The blocks of numbers that were visited in this file.
    seen: HashSet<u64>,
    /// The run that grows while blocks are consecutive.
    run: Option<MapRun>,
}

/// Visits the map of an inode.
pub(super) fn walk(
    tables: &Tables<'_>,
    inode: &Inode,
    from: u64,
    visit: &mut PieceVisit<'_>,
) -> Result<(), GuestError> {
    let mut walk = Walk { tables, from, visit, seen: HashSet::new(), run: None };
    let outcome = walk.inode(inode);
    // Blocks that were found before the damage count.
    if !matches!(outcome, Ok(ControlFlow::Break(()))) {
        let _ = walk.flush();
    }
    outcome.map(|_| ())
}

impl Walk<'_, '_, '_> {
    fn inode(&mut self, inode: &Inode) -> Result<ControlFlow<()>, GuestError> {
        let mut first = 0;
        for index in 0..DIRECT + 3 {
            let level = index.saturating_sub(DIRECT - 1);
            let block = u64::from(inode.map_bytes().le32(index * 4).unwrap_or(0));
            if self.entry(block, first, level)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            first += self.span(level);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the number of blocks of the file that an entry covers, `level` levels above the content.
    fn span(&self, level: usize) -> u64 {
        (0..level).fold(1, |span, _| span * (self.tables.superblock.block_bytes / 4))
    }

    fn entry(&mut self, block: u64, first: u64, level: usize) -> Result<ControlFlow<()>, GuestError> {
        if block == 0 || first + self.span(level) <= self.from || first >= FILE_BLOCKS_MAX {
            return Ok(ControlFlow::Continue(()));
        }
        if !self.tables.superblock.has_blocks(block, 1) {
            let offset = block * self.tables.superblock.block_bytes;
            return Err(self.tables.source.damage(offset, STRUCTURE, "a block lies outside of the file system").into());
        }
        if level == 0 { Ok(self.grow(first, block)) } else { self.node(block, first, level) }
    }

    fn node(&mut self, block: u64, first: u64, level: usize) -> Result<ControlFlow<()>, GuestError> {
        let superblock = &self.tables.superblock;
        let offset = block * superblock.block_bytes;
        if !self.seen.insert(block) {
            return Err(self.tables.source.damage(offset, STRUCTURE, "two parts of one file lead to it").into());
        }
        if self.flush().is_break() || (self.visit)(MapPiece::Node(block)).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let bytes = self.tables.source.bytes(offset, superblock.block_length, STRUCTURE)?;
        let (mut at, span) = (first, self.span(level - 1));
        for entry in bytes.chunks_exact(4) {
            let block = u32::from_le_bytes(entry.try_into().unwrap_or_default());
            // Most entries of most such blocks are holes.
            if block != 0 && self.entry(u64::from(block), at, level - 1)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            at += span;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn grow(&mut self, first: u64, block: u64) -> ControlFlow<()> {
        if let Some(run) = &mut self.run
            && run.end() == first
            && run.block + run.count == block
        {
            run.count += 1;
            return ControlFlow::Continue(());
        }
        self.flush()?;
        self.run = Some(MapRun { first, block, count: 1, is_written: true });
        ControlFlow::Continue(())
    }

    fn flush(&mut self) -> ControlFlow<()> {
        match self.run.take() {
            Some(run) => (self.visit)(MapPiece::Run(run)),
            None => ControlFlow::Continue(()),
        }
    }
}
