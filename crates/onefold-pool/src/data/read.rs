//! Reading files.

use onefold_block::{AlignedBuffer, BLOCK_BYTES, block::BLOCK_BYTES_U64};

use super::range_lock::Access;
use crate::attr::{FileKind, Ino};
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::format::map_node::MapEntry;
use crate::meta::{Op, OpResult};

/// Blocks that one turn of a long read takes.
const READ_BLOCKS: usize = 512;

impl Op<'_> {
    /// Reads an inode that must have data.
    ///
    /// # Errors
    /// [`PoolError::IsADirectory`]; [`PoolError::Invalid`] for other kinds; as [`Op::inode`].
    pub(crate) fn regular(&mut self, ino: Ino) -> OpResult<Inode> {
        let inode = self.inode(ino)?;
        match inode.attr.kind {
            FileKind::Regular => Ok(inode),
            FileKind::Directory => Err(PoolError::IsADirectory.into()),
            _ => Err(PoolError::Invalid("not a regular file").into()),
        }
    }
}

impl Engine {
    /// Reads from a file; short only where it ends.
    ///
    /// # Errors
    /// No such file; damage; device errors.
    pub(crate) fn read_file(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let at = offset.checked_add(done as u64).ok_or(PoolError::Invalid("offset past the largest number"))?;
            let within = usize::try_from(at % BLOCK_BYTES_U64).expect("below 4096");
            let first = at / BLOCK_BYTES_U64;
            let wanted = (into.len() - done).min(READ_BLOCKS * BLOCK_BYTES - within);
            let count = (within + wanted).div_ceil(BLOCK_BYTES);
            let _guard = self.range_locks.lock(ino, first..first + count as u64, Access::Shared);
            let (size, entries) = self.view(|op| {
                let inode = op.regular(ino)?;
                let mut entries = vec![MapEntry::Hole; count];
                if at < inode.attr.size_bytes {
                    op.map_read(&inode, first, &mut entries)?;
                }
                Ok((inode.attr.size_bytes, entries))
            })?;
            let left = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX);
            let got = wanted.min(left);
            if got == 0 {
                break;
            }
            let entries = &entries[..(within + got).div_ceil(BLOCK_BYTES)];
            let target = &mut into[done..done + got];
            if within == 0 && got % BLOCK_BYTES == 0 && onefold_block::buffer::is_aligned(target) {
                self.fetch(entries, target)?;
            } else {
                let mut buffer = AlignedBuffer::zeroed(entries.len());
                self.fetch(entries, &mut buffer)?;
                target.copy_from_slice(&buffer[within..within + got]);
            }
            done += got;
            if got < wanted {
                break;
            }
        }
        Ok(done)
    }
}
