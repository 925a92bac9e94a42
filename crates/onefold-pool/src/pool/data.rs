//! Data: reading, writing, length and holes, clones, durability.

use super::Pool;
use crate::attr::{AllocateMode, Durability, Ino, SeekTarget};
use crate::error::Result;

impl Pool {
    /// Reads into `into`; short only where the file ends. Page-aligned buffers save a copy.
    ///
    /// # Errors
    /// [`crate::PoolError::IsADirectory`], damage, device errors.
    pub fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.engine.read_file(ino, offset, into)
    }

    /// Writes all of `from`, growing the file where it ends past its end. Each mebibyte happens whole or not at all.
    ///
    /// # Errors
    /// [`crate::PoolError::NoSpace`], [`crate::PoolError::FileTooLarge`], device errors.
    pub fn write(&self, ino: Ino, offset: u64, from: &[u8], durability: Durability) -> Result<()> {
        self.engine.write_file(ino, offset, from, durability)
    }

    /// Makes a file durable: data, length, times, and everything that happened before.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped.
    pub fn fsync(&self, _ino: Ino) -> Result<()> {
        self.engine.ensure_writable()?;
        self.engine.commit()
    }

    /// Makes everything durable that has happened so far.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped.
    pub fn sync(&self) -> Result<()> {
        self.engine.ensure_writable()?;
        self.engine.commit()
    }

    /// Commits the running transaction: what the commit interval does by itself.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped.
    pub fn commit(&self) -> Result<()> {
        self.engine.commit()
    }

    /// Puts all that is committed in place and empties the journal.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint()
    }

    /// Reserves, punches or zeroes a range (`fallocate`).
    ///
    /// # Errors
    /// [`crate::PoolError::NoSpace`], [`crate::PoolError::FileTooLarge`], [`crate::PoolError::Invalid`].
    pub fn allocate(&self, ino: Ino, offset: u64, bytes: u64, mode: AllocateMode) -> Result<()> {
        self.engine.allocate_range(ino, offset, bytes, mode)
    }

    /// Returns the offset of the next data or hole at or after `offset`. The end of the file counts as a hole.
    ///
    /// # Errors
    /// [`crate::PoolError::NoSuchOffset`].
    pub fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        self.engine.seek_file(ino, offset, target)
    }

    /// Makes the empty file `target` a clone of `source`: the whole map is shared, whatever its size.
    ///
    /// # Errors
    /// [`crate::PoolError::CrossDomain`], [`crate::PoolError::Invalid`] if the target is not empty.
    pub fn clone_file(&self, source: Ino, target: Ino) -> Result<()> {
        self.engine.clone_whole(source, target)
    }

    /// Clones a range: whole blocks are shared, edges copied. Returns the bytes done, at most 1 GiB; 0 at the source's
    /// end.
    ///
    /// # Errors
    /// [`crate::PoolError::Invalid`] where the ranges overlap in one file; as [`Pool::write`].
    pub fn clone_range(
        &self,
        source: Ino,
        source_offset: u64,
        target: Ino,
        target_offset: u64,
        bytes: u64,
    ) -> Result<u64> {
        self.engine.clone_part(source, source_offset, target, target_offset, bytes)
    }
}
