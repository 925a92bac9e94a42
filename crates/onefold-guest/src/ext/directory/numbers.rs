//! The inodes that directories name, without their names: for a pass over all directories.

use std::ops::Range;

use super::{INLINE_PARENT_BYTES, STRUCTURE, entries};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::ext::inode::Inode;
use crate::ext::tables::Tables;

/// Bytes of a directory that are read at once.
const READ_BYTES: usize = 64 << 10;

impl Tables<'_> {
    /// Calls `visit` with the number of each inode that blocks of directories name. Returns whether their entries can
    /// be followed to the end of each block. Checksums are not compared: the checker may keep a block with a wrong one.
    ///
    /// # Errors
    /// When the blocks cannot be read.
    pub(in crate::ext) fn each_number_in(
        &self,
        blocks: Range<u64>,
        memory: &mut Vec<u8>,
        visit: &mut dyn FnMut(u32),
    ) -> Result<bool, GuestError> {
        let (block_bytes, block_length) = (self.superblock.block_bytes, self.superblock.block_length);
        let at_once = (READ_BYTES / block_length).max(1);
        for first in blocks.clone().step_by(at_once) {
            let count = usize::try_from(blocks.end - first).unwrap_or(usize::MAX).min(at_once);
            memory.resize(count * block_length, 0);
            self.source.read(first * block_bytes, memory, STRUCTURE)?;
            if !memory.chunks_exact(block_length).all(|block| entries::each_number(Bytes(block), visit)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// As [`Tables::each_number_in`], for an inline directory.
    ///
    /// # Errors
    /// When its second part is damaged.
    pub(in crate::ext) fn each_inline_number(
        &self,
        inode: &Inode,
        visit: &mut dyn FnMut(u32),
    ) -> Result<bool, GuestError> {
        let parts = self.inline_parts(inode)?;
        let bytes = |index: usize| parts.get(index).map_or(Bytes(&[]), |(_, bytes)| Bytes(bytes));
        visit(bytes(0).le32(0).unwrap_or(0));
        let first = bytes(0).from(INLINE_PARENT_BYTES).unwrap_or(Bytes(&[]));
        Ok(entries::each_number(first, visit) && entries::each_number(bytes(1), visit))
    }
}
