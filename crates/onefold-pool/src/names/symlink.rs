//! Targets of symbolic links, in chunks.

use onefold_block::BlockNo;

use crate::attr::{FileKind, Ino};
use crate::error::PoolError;
use crate::format::items::{self, CHUNK_BYTES};
use crate::meta::op::damaged;
use crate::meta::{Op, OpResult};

impl Op<'_> {
    /// Stores a link's target.
    pub(crate) fn put_target(&mut self, ino: Ino, target: &[u8]) -> OpResult<()> {
        for (number, chunk) in (0..).zip(target.chunks(CHUNK_BYTES)) {
            self.put_item(&items::symlink_key(ino, number), chunk)?;
        }
        Ok(())
    }

    /// Reads a link's target.
    pub(crate) fn target(&mut self, ino: Ino) -> OpResult<Vec<u8>> {
        let inode = self.inode(ino)?;
        if inode.attr.kind != FileKind::Symlink {
            return Err(PoolError::Invalid("not a symbolic link").into());
        }
        let mut target = Vec::new();
        for number in 0..=(crate::SYMLINK_BYTES_MAX / CHUNK_BYTES) as u64 {
            match self.item(&items::symlink_key(ino, number))? {
                Some(chunk) => target.extend_from_slice(&chunk),
                None => break,
            }
        }
        if target.len() as u64 == inode.attr.size_bytes {
            Ok(target)
        } else {
            Err(damaged(
                "symbolic link",
                BlockNo(0),
                format!("target of link {ino} is not {} bytes long", inode.attr.size_bytes),
            ))
        }
    }
}
