//! Maps of files: convert blocks of a file to blocks of the volume.

mod extents;
mod indirect;

use std::ops::ControlFlow;

use super::inode::{Inode, flags};
use super::tables::Tables;
use crate::error::GuestError;

/// One more than the last possible block of a file.
const FILE_BLOCKS_MAX: u64 = 1 << 32;

/// A part of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapPiece {
    /// Consecutive blocks with content.
    Run(MapRun),
    /// A block of the map itself.
    Node(u64),
}

/// Consecutive blocks of a file that are consecutive in the volume. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MapRun {
    /// The first block in the file.
    pub(super) first: u64,
    /// The first block in the volume.
    pub(super) block: u64,
    pub(super) count: u64,
    /// Whether the blocks were written. Otherwise they read as zeros.
    pub(super) is_written: bool,
}

impl MapRun {
    /// Returns the block of the file after the last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.count
    }
}

/// Receives the parts of a map.
type PieceVisit<'v> = dyn FnMut(MapPiece) -> ControlFlow<()> + 'v;

impl Tables<'_> {
    /// Calls `visit` with each part of a file's map that reaches past block `from` of the file, in order, until it
    /// breaks.
    ///
    /// # Errors
    /// When the map is damaged; parts before the damage have been visited.
    pub(super) fn each_piece(&self, inode: &Inode, from: u64, visit: &mut PieceVisit<'_>) -> Result<(), GuestError> {
        if !inode.has_map(&self.superblock) {
            return Ok(());
        }
        if inode.has(flags::EXTENTS) {
            extents::walk(self, inode, from, visit)
        } else {
            indirect::walk(self, inode, from, visit)
        }
    }

    /// As [`Tables::each_piece`], with runs only.
    pub(super) fn each_run(
        &self,
        inode: &Inode,
        from: u64,
        visit: &mut dyn FnMut(MapRun) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        self.each_piece(inode, from, &mut |piece| match piece {
            MapPiece::Run(run) => visit(run),
            MapPiece::Node(_) => ControlFlow::Continue(()),
        })
    }
}
