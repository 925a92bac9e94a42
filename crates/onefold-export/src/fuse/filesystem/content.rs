//! Requests about content: reading, writing, holes, clones.

use onefold_pool::{Durability, Ino, OwnedWrite, PoolError, RangePair, ReadRequest, WriteStart};
use rustix::io::Errno;

use super::{PoolFilesystem, Result};
use crate::fuse::access_marks::relatime_wants_update;
use crate::fuse::flags::{OpenFlags, allocate_mode, seek_target};
use crate::fuse::privileges::{self, Caller};
use crate::options::AccessTimes;

/// Maximum number of bytes that one `copy_file_range` clones. The kernel passes large ranges on unchanged, and after a
/// shorter copy the caller continues from its end.
const CLONE_BYTES_MAX: u64 = 1 << 30;

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub(in crate::fuse) struct FileOffset {
    pub(in crate::fuse) ino: Ino,
    pub(in crate::fuse) offset: u64,
}

impl PoolFilesystem {
    /// Reads into `into` and returns the number of bytes: fewer than requested only at the end of the file.
    pub(in crate::fuse) fn read(
        &self,
        from: FileOffset,
        handle: u64,
        flags: OpenFlags,
        into: &mut [u8],
    ) -> Result<usize> {
        let count =
            self.pool.read(from.ino, from.offset, into).map_err(|error| self.failed("read", from.ino, &error))?;
        self.note_access(from.ino, (handle, flags));
        Ok(count)
    }

    /// Reads several places together; `opening_of` returns the handle and the flags of each.
    pub(in crate::fuse) fn read_each(
        &self,
        readings: &mut [ReadRequest<'_>],
        opening_of: impl Fn(usize) -> (u64, OpenFlags),
    ) -> Vec<Result<usize>> {
        let outcomes = self.pool.read_each(readings);
        let finish = |(at, outcome): (usize, std::result::Result<usize, PoolError>)| {
            let ino = readings[at].ino;
            let count = outcome.map_err(|error| self.failed("read", ino, &error))?;
            self.note_access(ino, opening_of(at));
            Ok(count)
        };
        outcomes.into_iter().enumerate().map(finish).collect()
    }

    fn note_access(&self, ino: Ino, (handle, flags): (u64, OpenFlags)) {
        let may_update = self.access_times != AccessTimes::Never && !flags.keeps_access_time();
        if may_update && self.marks.is_first_read(handle) {
            self.touch(ino);
        }
    }

    /// Writes all of `data` through the opening with this handle and these flags. A write that must be durable at once
    /// acts like a write followed by `fsync`: it also fails for losses that the opening has not seen yet.
    pub(in crate::fuse) fn write(&self, to: FileOffset, (handle, flags): (u64, OpenFlags), data: &[u8]) -> Result<()> {
        let durability = flags.durability();
        self.pool.write(to.ino, to.offset, data, durability).map_err(|error| self.failed("write", to.ino, &error))?;
        if durability == Durability::Now && !self.pool.is_without_losses() {
            return self.sync(to.ino, handle);
        }
        Ok(())
    }

    /// Does a write by the opening of this handle and with these flags, now, or a little later if no caller can notice
    /// the difference.
    pub(in crate::fuse) fn write_behind(
        &self,
        write: OwnedWrite,
        (handle, flags): (u64, OpenFlags),
        begins: WriteStart,
    ) -> Result<()> {
        let ino = write.ino;
        if flags.durability() == Durability::Now {
            return self.write(FileOffset { ino, offset: write.offset }, (handle, flags), write.bytes());
        }
        self.pool.write_behind(write, begins).map_err(|error| self.failed("write", ino, &error))
    }

    /// Carries out accepted writes that no thread has begun.
    pub(in crate::fuse) fn begin_accepted(&self) {
        self.pool.begin_accepted();
    }

    /// Wakes a worker for accepted writes that were left to this thread.
    pub(in crate::fuse) fn hand_over_accepted(&self) {
        self.pool.hand_over_accepted();
    }

    /// Returns the number of blocks of accepted writes that have not taken effect yet.
    pub(in crate::fuse) fn blocks_behind(&self) -> usize {
        self.pool.blocks_behind()
    }

    /// Removes the privileges of a program, because a process without the right to grant them writes to it. Returns
    /// whether that changed the mode.
    pub(in crate::fuse) fn drop_privileges(&self, ino: Ino, caller: Caller) -> Result<bool> {
        privileges::drop_from(&self.pool, ino, Some(caller)).map_err(|error| self.failed("write", ino, &error))
    }

    /// Removes the capabilities that a program gives, because a process that may grant them writes to it past the page
    /// cache. The kernel removes them before any other write.
    pub(in crate::fuse) fn drop_capabilities(&self, ino: Ino) -> Result<()> {
        privileges::drop_capabilities_from(&self.pool, ino).map_err(|error| self.failed("write", ino, &error))
    }

    pub(in crate::fuse) fn allocate(&self, at: FileOffset, bytes: u64, mode: i32) -> Result<()> {
        let mode = allocate_mode(mode)?;
        self.pool.allocate(at.ino, at.offset, bytes, mode).map_err(|error| self.failed("fallocate", at.ino, &error))
    }

    /// Returns the offset of the next data or hole.
    pub(in crate::fuse) fn seek(&self, ino: Ino, offset: i64, whence: i32) -> Result<i64> {
        let target = seek_target(whence)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let found = self.pool.seek(ino, offset, target).map_err(|error| self.failed("lseek", ino, &error))?;
        i64::try_from(found).map_err(|_| Errno::OVERFLOW)
    }

    /// Clones a range and returns the number of bytes, which may be less than requested. The kernel has written back
    /// the source's pages before, and drops the target's pages afterwards.
    pub(in crate::fuse) fn clone_range(&self, from: FileOffset, to: FileOffset, bytes: u64, flags: u64) -> Result<u32> {
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        let ranges = RangePair {
            source: from.ino,
            source_offset: from.offset,
            target: to.ino,
            target_offset: to.offset,
            bytes: bytes.min(CLONE_BYTES_MAX),
        };
        let cloned = self.pool.clone_range(ranges).map_err(|error| self.failed("copy_file_range", to.ino, &error))?;
        u32::try_from(cloned).map_err(|_| Errno::OVERFLOW)
    }

    /// Updates the access time if the mount's rule requires it. If the pool cannot store the change (full, stopped),
    /// the read still succeeds.
    fn touch(&self, ino: Ino) {
        let now = self.clock.now();
        let is_strict = self.access_times == AccessTimes::Strict;
        let touched = self.pool.touch(ino, |attr| is_strict || relatime_wants_update(attr, now));
        match touched {
            Ok(()) | Err(PoolError::NoSpace | PoolError::ReadOnly) => {}
            Err(error) => drop(self.failed("access time", ino, &error)),
        }
    }
}
