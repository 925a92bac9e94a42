//! The seam between the tree and whoever keeps its pages.

use std::ops::Range;

use onefold_block::{BLOCK_BYTES, BlockNo};

use super::TreeError;

/// Keeps the tree's pages.
///
/// Any call may fail, for instance because a page is not in memory yet. The tree passes the error on at once; its
/// caller then takes back every edit, allocation and free since the operation began, and may try it again.
pub trait Pages {
    /// Why a page cannot be had. The tree adds its own errors to it and looks at none.
    type Error: From<TreeError>;

    /// Returns the whole block, its common header (kind, own address, checksum) already checked.
    ///
    /// # Errors
    /// When the page cannot be had now or at all.
    fn page(&mut self, at: BlockNo) -> Result<&[u8; BLOCK_BYTES], Self::Error>;

    /// Returns exactly bytes `range` of the page, as they are, for changing. The range is saved for a rollback and
    /// goes to the journal, so the tree asks for as few bytes as is reasonable; it is never empty and never touches
    /// the common header.
    ///
    /// # Errors
    /// When the page cannot be had or changed now.
    fn edit(&mut self, at: BlockNo, range: Range<usize>) -> Result<&mut [u8], Self::Error>;

    /// Returns a fresh page: the common header is written, all other bytes are zero.
    ///
    /// # Errors
    /// When there is no space.
    fn allocate(&mut self) -> Result<BlockNo, Self::Error>;

    /// Gives a page back. The tree does not touch it again.
    ///
    /// # Errors
    /// When the page cannot be freed now.
    fn free(&mut self, at: BlockNo) -> Result<(), Self::Error>;
}
