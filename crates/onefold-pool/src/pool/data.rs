//! Data: reading, writing, length and holes, clones, durability.

use std::sync::Arc;

use super::Pool;
use crate::attr::{AllocateMode, Durability, Ino, RangePair, SeekTarget};
use crate::data::behind::{OwnedWrite, SeenLosses, WriteStart};
use crate::data::read::ReadRequest;
use crate::error::{PoolError, Result};

impl Pool {
    /// Reads into `into`; a short read happens only at the end of the file. Page-aligned buffers save a copy.
    ///
    /// # Errors
    /// [`crate::PoolError::IsADirectory`], damage, device errors.
    pub fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.data.settle_for_read(ino, offset, into.len());
        self.data.read_file(ino, offset, into)
    }

    /// Reads several places, of any files, together: their reads from the device are in flight at the same time.
    /// Returns the result of [`Pool::read`] for each, in order.
    pub fn read_each(&self, readings: &mut [ReadRequest<'_>]) -> Vec<Result<usize>> {
        for reading in &*readings {
            self.data.settle_for_read(reading.ino, reading.offset, reading.into.len());
        }
        self.data.read_each(readings)
    }

    /// Writes all of `from`, and extends the file if the write ends past its end. Each mebibyte is written completely
    /// or not at all.
    ///
    /// # Errors
    /// [`crate::PoolError::NoSpace`], [`crate::PoolError::FileTooLarge`], device errors.
    pub fn write(&self, ino: Ino, offset: u64, from: &[u8], durability: Durability) -> Result<()> {
        self.data.write_file(ino, offset, from, durability)
    }

    /// Writes like [`Pool::write`], but may return before the write is carried out. The write then takes effect in
    /// order, before anything that is called after this has returned, and every call reports the pool as if it had.
    /// Meant for large requests; others are written at once. A caller that may begin with the write itself
    /// ([`WriteStart::ByCaller`]) spares the waking of a thread.
    ///
    /// # Errors
    /// See [`Pool::write`]. A failure after the return (a damaged structure, a host file system that fills up at that
    /// moment) is reported by [`Pool::fsync`], [`Pool::fsync_opened`] and [`Pool::close`]; a failing device stops the
    /// pool.
    pub fn write_behind(&self, write: OwnedWrite, begins: WriteStart) -> Result<()> {
        self.data.write_behind(write, begins)
    }

    /// Carries out accepted writes that were left to callers and that no thread has begun.
    pub fn begin_accepted(&self) {
        self.data.begin_accepted();
    }

    /// Wakes a worker for accepted writes that were left to callers and that no thread has begun.
    pub fn hand_over_accepted(&self) {
        self.data.hand_over_accepted();
    }

    /// Returns the number of blocks in accepted writes that have not taken effect yet: other verbs may wait for them.
    pub fn blocks_behind(&self) -> usize {
        self.data.behind.blocks()
    }

    /// Makes a file durable: data, length, times, and every earlier change in the whole pool. For callers without an
    /// opened file.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped; [`crate::PoolError::WritesLost`] if writes of any file were lost
    /// and no caller of this has been told yet.
    pub fn fsync(&self, _ino: Ino) -> Result<()> {
        self.fsync_opened(&self.data.losses_seen)
    }

    /// Makes all changes so far durable, for an opened file or folder that has already seen the losses in `seen`.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped; [`crate::PoolError::WritesLost`] if writes of any file were lost
    /// that the opening has not seen. It has seen them afterwards, and everything else is durable.
    pub fn fsync_opened(&self, seen: &SeenLosses) -> Result<()> {
        let engine = self.settled();
        engine.ensure_writable()?;
        engine.commit()?;
        self.data.losses.report(seen)
    }

    /// Returns the losses of the pool that a new opening of a file or folder counts as known: all except those of its
    /// own file and those that were never reported.
    pub fn losses_seen_by_opening(&self, ino: Ino) -> SeenLosses {
        self.data.losses.seen_by_opening(ino)
    }

    /// Returns why accepted writes of a file were lost since the pool was opened, for callers that report it
    /// themselves, as often as they like. `None` if none were lost, or the file was truncated to nothing since. If the
    /// pool lost writes of very many files, every file counts as one of them.
    pub fn loss_of(&self, ino: Ino) -> Option<Arc<PoolError>> {
        self.data.losses.of_file(ino)
    }

    /// Returns whether no accepted write was lost since the pool was opened.
    pub fn is_without_losses(&self) -> bool {
        self.data.losses.is_empty()
    }

    /// Makes all changes so far durable. Does not report lost writes; [`Pool::close`] does.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped.
    pub fn sync(&self) -> Result<()> {
        let engine = self.settled();
        engine.ensure_writable()?;
        engine.commit()
    }

    /// Commits the running transaction, as happens by itself after the commit interval.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped.
    pub fn commit(&self) -> Result<()> {
        self.settled().commit()
    }

    /// Writes all committed changes to their places and empties the journal.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped.
    pub fn checkpoint(&self) -> Result<()> {
        self.settled().checkpoint()
    }

    /// Reserves, punches or zeroes a range (`fallocate`).
    ///
    /// # Errors
    /// [`crate::PoolError::NoSpace`], [`crate::PoolError::FileTooLarge`], [`crate::PoolError::Invalid`].
    pub fn allocate(&self, ino: Ino, offset: u64, bytes: u64, mode: AllocateMode) -> Result<()> {
        self.settled_data().allocate_range(ino, offset, bytes, mode)
    }

    /// Returns the offset of the next data or hole at or after `offset`. The end of the file counts as a hole.
    ///
    /// # Errors
    /// [`crate::PoolError::NoSuchOffset`].
    pub fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        self.settled_data().seek_file(ino, offset, target)
    }

    /// Makes the empty file `target` a clone of `source`: the whole map is shared, whatever its size.
    ///
    /// # Errors
    /// [`crate::PoolError::CrossDomain`], [`crate::PoolError::Invalid`] if the target is not empty.
    pub fn clone_file(&self, source: Ino, target: Ino) -> Result<()> {
        self.settled_data().clone_whole(source, target)
    }

    /// Clones a range: whole blocks are shared, edges copied. Returns the number of bytes done, at most 1 GiB; 0 at the
    /// source's end.
    ///
    /// # Errors
    /// [`crate::PoolError::Invalid`] if the ranges overlap in one file; those of [`Pool::write`].
    pub fn clone_range(&self, ranges: RangePair) -> Result<u64> {
        self.settled_data().clone_part(ranges)
    }
}
