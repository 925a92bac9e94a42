//! The seam between the tree and the owner of its pages.

use std::ops::Range;

use onefold_block::{BLOCK_BYTES, BlockNo};

use super::TreeError;

/// The owner of the tree's pages.
///
/// Any call may fail, for example because a page is not in memory yet. The tree passes the error on at once. Its caller
/// then reverts every edit, allocation and free since the operation began, and may repeat the operation.
pub trait Pages {
    /// Why a page is unavailable. The tree adds its own errors and examines none.
    type Error: From<TreeError>;

    /// Returns the whole block, its common header (kind, own address, checksum) already checked.
    ///
    /// # Errors
    /// When the page is unavailable, now or permanently.
    fn page(&mut self, at: BlockNo) -> Result<&[u8; BLOCK_BYTES], Self::Error>;

    /// Returns exactly bytes `range` of the page, unchanged, for editing. The range is saved for a rollback and goes to
    /// the journal, so the tree asks for as few bytes as is reasonable. The range is never empty and never touches the
    /// common header.
    ///
    /// # Errors
    /// When the page is unavailable or cannot be changed now.
    fn edit(&mut self, at: BlockNo, range: Range<usize>) -> Result<&mut [u8], Self::Error>;

    /// Returns a fresh page: the common header is written, all other bytes are zero.
    ///
    /// # Errors
    /// When there is no space.
    fn allocate(&mut self) -> Result<BlockNo, Self::Error>;

    /// Frees a page. The tree does not touch it again.
    ///
    /// # Errors
    /// When the page cannot be freed now.
    fn free(&mut self, at: BlockNo) -> Result<(), Self::Error>;
}
