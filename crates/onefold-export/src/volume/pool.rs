//! A volume in a file of a pool.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::BLOCK_BYTES_U64;
use onefold_pool::{
    AllocateMode, Durability, FileKind, Ino, OwnedWrite, Pool, PoolError, ReadRequest, SeekTarget, WriteStart,
};

use super::{
    ExtentContent, Result, SECTOR_BYTES, Volume, VolumeError, VolumeExtent, VolumeRead, WriteData, ZeroSpace,
    check_range,
};

/// Whether a volume can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeAccess {
    /// Every change is refused.
    ReadOnly,
    /// It can be read and written.
    ReadWrite,
}

/// A regular file of a pool as a volume. The file lives at least as long as this value, even if it loses its last name.
///
/// - Writes of whole blocks are answered once they are accepted ([`Pool::write_behind`]), all others once they are
///   carried out.
/// - The unit that a power cut leaves whole is a block of the pool, 4 KiB. A write within a block reads and rewrites
///   it.
/// - A lost write is remembered as long as the pool is open, even if the volume is closed and opened again, unless the
///   file is truncated to nothing.
/// - Users of the file must not truncate it meanwhile. If they do, reads past its end fail with
///   [`VolumeError::PastEnd`], and a write there lengthens it again.
pub struct PoolVolume {
    pool: Arc<Pool>,
    ino: Ino,
    access: VolumeAccess,
    length_bytes: AtomicU64,
}

impl PoolVolume {
    /// Opens the file `ino`, which has at least one name. The caller has checked the permissions.
    ///
    /// # Errors
    /// [`VolumeError::Failed`] for a missing file or one that is not regular; damage; device errors.
    pub fn open(pool: Arc<Pool>, ino: Ino, access: VolumeAccess) -> Result<PoolVolume> {
        // This takes the hold that keeps the file alive.
        let attr = pool.lookup(ino, b".").map_err(|error| failed("open", error))?;
        let length_bytes = AtomicU64::new(whole_sectors(attr.size_bytes));
        let volume = PoolVolume { pool, ino, access, length_bytes };
        match attr.kind {
            FileKind::Regular => Ok(volume),
            _ => Err(failed("open", PoolError::Invalid("not a regular file"))),
        }
    }

    /// Returns the present length of the file in bytes, without a tail shorter than a sector.
    fn file_length_bytes(&self) -> Result<u64> {
        let attr = self.pool.attr(self.ino).map_err(|error| failed("measure", error))?;
        Ok(whole_sectors(attr.size_bytes))
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<Range<u64>> {
        check_range(offset, bytes, self.length_bytes())
    }

    /// Checks a range before it is changed.
    fn check_change(&self, offset: u64, bytes: u64) -> Result<Range<u64>> {
        if self.is_read_only() {
            return Err(VolumeError::ReadOnly);
        }
        self.check(offset, bytes)
    }

    /// Checks a range, given by its ends, before it is changed.
    fn check_change_of(&self, range: &Range<u64>) -> Result<()> {
        self.check_change(range.start, range.end.saturating_sub(range.start)).map(drop)
    }

    /// Fails if an accepted write to the file was lost.
    fn ensure_nothing_is_lost(&self) -> Result<()> {
        match self.pool.loss_of(self.ino) {
            None => Ok(()),
            Some(cause) => Err(VolumeError::Lost(Box::new(cause))),
        }
    }

    /// Returns the outcome of a read of `bytes` bytes at `offset`, from the pool's count of bytes read.
    fn finish_read(&self, offset: u64, bytes: usize, outcome: std::result::Result<usize, PoolError>) -> Result<()> {
        match outcome {
            Ok(count) if count == bytes => Ok(()),
            // The error has the file's length; the volume's own length does not become shorter.
            Ok(_) => Err(VolumeError::PastEnd { offset, bytes: bytes as u64, length_bytes: self.file_length_bytes()? }),
            Err(error) => Err(failed("read", error)),
        }
    }
}

impl Volume for PoolVolume {
    fn length_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    fn measure(&self) -> Result<u64> {
        let length_bytes = self.file_length_bytes()?;
        // A volume does not become shorter: a longer measurement, by this thread or another, stays.
        Ok(self.length_bytes.fetch_max(length_bytes, Ordering::AcqRel).max(length_bytes))
    }

    fn atomic_bytes(&self) -> u64 {
        BLOCK_BYTES_U64
    }

    fn is_read_only(&self) -> bool {
        self.access == VolumeAccess::ReadOnly || self.pool.is_read_only()
    }

    fn read_each(&self, reads: &mut [VolumeRead<'_>]) -> Vec<Result<()>> {
        let checked: Vec<Result<Range<u64>>> =
            reads.iter().map(|read| self.check(read.offset, read.into.len() as u64)).collect();
        let mut readings: Vec<ReadRequest<'_>> = reads
            .iter_mut()
            .zip(&checked)
            .filter(|(_, checked)| checked.is_ok())
            .map(|(read, _)| ReadRequest { ino: self.ino, offset: read.offset, into: &mut *read.into })
            .collect();
        let mut outcomes = self.pool.read_each(&mut readings).into_iter();
        let finish = |(read, checked): (&mut VolumeRead<'_>, Result<Range<u64>>)| {
            checked?;
            let outcome = outcomes.next().expect("one outcome for each read that was begun");
            self.finish_read(read.offset, read.into.len(), outcome)
        };
        reads.iter_mut().zip(checked).map(finish).collect()
    }

    fn write(&self, offset: u64, data: WriteData, durability: Durability) -> Result<()> {
        self.check_change(offset, data.range.len() as u64)?;
        if data.range.is_empty() {
            return Ok(());
        }
        match durability {
            Durability::Later => {
                let write = OwnedWrite { ino: self.ino, offset, buffer: data.buffer, range: data.range };
                self.pool.write_behind(write, WriteStart::ByWorker)
            }
            Durability::Now => self.pool.write(self.ino, offset, data.bytes(), durability),
        }
        .map_err(|error| failed("write", error))?;
        match durability {
            Durability::Later => Ok(()),
            Durability::Now => self.ensure_nothing_is_lost(),
        }
    }

    fn flush(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.pool.sync().map_err(|error| failed("flush", error))?;
        self.ensure_nothing_is_lost()
    }

    fn zero(&self, range: Range<u64>, space: ZeroSpace, durability: Durability) -> Result<()> {
        self.check_change_of(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let mode = match space {
            ZeroSpace::MayBeFreed => AllocateMode::PunchHole,
            ZeroSpace::Kept => AllocateMode::ZeroRangeKeepSize,
        };
        let zeroed = self.pool.allocate(self.ino, range.start, range.end - range.start, mode);
        zeroed.map_err(|error| failed("write zeros to", error))?;
        match durability {
            Durability::Later => Ok(()),
            Durability::Now => self.flush(),
        }
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.check_change_of(&range)?;
        // A part of a block would be rewritten, which takes space and frees none.
        let start = range.start.next_multiple_of(BLOCK_BYTES_U64);
        let end = range.end - range.end % BLOCK_BYTES_U64;
        if start >= end {
            return Ok(());
        }
        match self.pool.allocate(self.ino, start, end - start, AllocateMode::PunchHole) {
            // A clone's map may need a block before it can free one. Nothing is freed then.
            Ok(()) | Err(PoolError::NoSpace) => Ok(()),
            Err(error) => Err(failed("discard", error)),
        }
    }

    fn extents(&self, range: Range<u64>, extents_max: usize) -> Result<Vec<VolumeExtent>> {
        assert!(extents_max > 0, "no extents asked for");
        self.check(range.start, range.end.saturating_sub(range.start))?;
        let next = |at: u64, target: SeekTarget| match self.pool.seek(self.ino, at, target) {
            Ok(found) => Ok(found.min(range.end)),
            Err(PoolError::NoSuchOffset) => Ok(range.end),
            Err(error) => Err(failed("list the extents of", error)),
        };
        let mut extents = Vec::new();
        let mut at = range.start;
        while at < range.end && extents.len() < extents_max {
            let data = next(at, SeekTarget::Data)?;
            if data > at {
                extents.push(VolumeExtent { range: at..data, content: ExtentContent::Zeros });
                at = data;
                continue;
            }
            let hole = next(at, SeekTarget::Hole)?;
            // Another thread may just have made the data a hole.
            if hole > at {
                extents.push(VolumeExtent { range: at..hole, content: ExtentContent::Data });
                at = hole;
            }
        }
        Ok(extents)
    }
}

impl Drop for PoolVolume {
    fn drop(&mut self) {
        self.pool.release(self.ino, 1);
    }
}

impl std::fmt::Debug for PoolVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PoolVolume { ino, access, length_bytes, .. } = self;
        f.debug_struct("PoolVolume")
            .field("ino", ino)
            .field("access", access)
            .field("length_bytes", length_bytes)
            .finish_non_exhaustive()
    }
}

fn whole_sectors(bytes: u64) -> u64 {
    bytes - bytes % SECTOR_BYTES
}

/// Returns the volume's error for an error of the pool.
fn failed(action: &'static str, error: PoolError) -> VolumeError {
    match error {
        PoolError::ReadOnly => VolumeError::ReadOnly,
        PoolError::NoSpace => VolumeError::NoSpace,
        PoolError::WritesLost { .. } => VolumeError::Lost(Box::new(error)),
        error => VolumeError::Failed { action, source: Box::new(error) },
    }
}
