//! Files and disks.

mod behind;
mod disk;
mod open;
mod places;
mod ring;
mod room;
mod runs;
mod transfer;
mod unmap;

use std::fs::{File, Metadata};
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub use open::{DeviceError, OpenMode};
use open::{DeviceKind, TransferMode};
use ring::Rings;
pub use room::FileRoom;
use runs::{Transfer, into_runs};
use rustix::io::Errno;

use super::range::{check_on_device, whole_blocks};
use super::{BlockDevice, ReadOp, WriteOp};
use crate::buffer::{BufferPool, is_aligned};
use crate::{BLOCK_BYTES_U64, BlockNo};

/// A regular file or a block device of the operating system, held locked while it is open.
///
/// All transfers are O_DIRECT where the file system allows it ([`FileDevice::is_direct`]); elsewhere they go through
/// the page cache and `sync` makes them durable.
///
/// A child made by `fork` inherits the lock, but must not use a device on which its parent has run batches: the rings
/// of those batches are not shared with the child. Open the device after the fork.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// The backing file of a loop device, open for its lock and its room.
    behind: Option<File>,
    /// It is a disk, or a part of one, that has a place for each of its blocks, as far as the system knows.
    is_full_disk: bool,
    path: PathBuf,
    kind: DeviceKind,
    mode: OpenMode,
    is_direct: bool,
    /// The number of blocks when last measured; it is measured again when a transfer does not fit.
    block_count: AtomicU64,
    /// For callers whose buffers are not aligned.
    bounce: BufferPool,
    rings: Rings,
}

/// Unaligned transfers are copied in pieces of this many blocks (1 MiB).
const BOUNCE_BLOCKS: usize = 256;
const BOUNCE_BYTES_MAX: usize = 4 << 20;

impl FileDevice {
    /// Opens the file or block device at `path` and locks it: any number of readers, or one that writes.
    ///
    /// # Errors
    /// [`DeviceError::InUse`] when a conflicting opening exists, in this process or another;
    /// [`DeviceError::Unsuitable`] when the path leads to neither a file nor a block device; [`DeviceError::Io`]
    /// otherwise.
    pub fn open(path: &Path, mode: OpenMode) -> Result<FileDevice, DeviceError> {
        open::open(path, mode, &[TransferMode::Direct, TransferMode::Buffered])
    }

    /// Returns whether transfers bypass the page cache. A page cache can hide a failed flush.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Returns the path by which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata of the open file or block device, whatever lies at its path by now.
    ///
    /// # Errors
    /// Whatever the operating system reports.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    fn check(&self, first: BlockNo, count: u64) -> io::Result<()> {
        if check_on_device(first, count, self.block_count.load(Ordering::Relaxed)).is_err() {
            check_on_device(first, count, self.block_count()?)?;
        }
        Ok(())
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.mode {
            OpenMode::ReadWrite => Ok(()),
            OpenMode::ReadOnly => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Performs the runs in parallel if there are several.
    fn outcomes(&self, runs: &[Transfer], perform: impl FnOnce(&Rings) -> ring::Outcomes) -> ring::Outcomes {
        if runs.len() > 1 { perform(&self.rings) } else { vec![ring::NOT_DONE; runs.len()] }
    }

    fn must_copy(&self, bytes: &[u8]) -> bool {
        self.is_direct && !is_aligned(bytes)
    }
}

impl BlockDevice for FileDevice {
    fn block_count(&self) -> io::Result<u64> {
        let bytes = open::size_bytes(&self.file, self.kind)?;
        let block_count = bytes / BLOCK_BYTES_U64;
        self.block_count.store(block_count, Ordering::Relaxed);
        Ok(block_count)
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.check(first, whole_blocks(into.len())?)?;
        let mut offset = first.byte_offset();
        if !self.must_copy(into) {
            return transfer::read_at(&self.file, offset, &mut [IoSliceMut::new(into)]);
        }
        let mut bounce = self.bounce.take();
        for piece in into.chunks_mut(bounce.len()) {
            let aligned = &mut bounce[..piece.len()];
            transfer::read_at(&self.file, offset, &mut [IoSliceMut::new(aligned)])?;
            piece.copy_from_slice(aligned);
            offset += piece.len() as u64;
        }
        Ok(())
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.check(first, whole_blocks(from.len())?)?;
        let mut offset = first.byte_offset();
        if !self.must_copy(from) {
            return transfer::write_at(&self.file, offset, &mut [IoSlice::new(from)]);
        }
        let mut bounce = self.bounce.take();
        for piece in from.chunks(bounce.len()) {
            let aligned = &mut bounce[..piece.len()];
            aligned.copy_from_slice(piece);
            transfer::write_at(&self.file, offset, &mut [IoSlice::new(aligned)])?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes writes durable by `fdatasync`, which includes the extents needed to find them. Writes never change the
    /// file's size.
    fn sync(&self) -> io::Result<()> {
        // Not retried when interrupted: the system may report an error once and never again.
        rustix::fs::fdatasync(&self.file).map_err(transfer::io_error)
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.check_writable()?;
        self.check(first, count)?;
        if count == 0 {
            return Ok(());
        }
        unmap::unmap(&self.file, self.kind, first.byte_offset(), count * BLOCK_BYTES_U64)
    }

    fn room_blocks(&self) -> Option<u64> {
        match (self.kind, &self.behind) {
            (DeviceKind::Regular, _) => Some(room::room_blocks(&self.file)),
            (DeviceKind::BlockDevice, behind) => behind.as_ref().map(room::room_blocks),
        }
    }

    fn has_room_for_all_blocks(&self) -> bool {
        match (self.kind, &self.behind) {
            (DeviceKind::Regular, _) => room::has_room_for_all_blocks(&self.file),
            (DeviceKind::BlockDevice, Some(behind)) => room::has_room_for_all_blocks(behind),
            (DeviceKind::BlockDevice, None) => self.is_full_disk,
        }
    }

    fn read_batch(&self, batch: &mut [ReadOp<'_>]) -> io::Result<()> {
        for op in &*batch {
            self.check(op.first, whole_blocks(op.into.len())?)?;
        }
        let mut first_error = Ok(());
        let mut direct = Vec::with_capacity(batch.len());
        for op in batch {
            if self.must_copy(op.into) {
                first_error = first_error.and(self.read(op.first, op.into));
            } else {
                direct.push((op.first, IoSliceMut::new(op.into)));
            }
        }
        let (mut slices, runs) = into_runs(direct, |slice| slice.len());
        let outcomes = self.outcomes(&runs, |rings| rings.read(&self.file, &runs, &mut slices));
        for (run, outcome) in runs.into_iter().zip(outcomes) {
            let done =
                finish(outcome, &run, || transfer::read_at(&self.file, run.offset, &mut slices[run.slices.clone()]));
            first_error = first_error.and(done);
        }
        first_error
    }

    fn write_batch(&self, batch: &[WriteOp<'_>]) -> io::Result<()> {
        self.check_writable()?;
        for op in batch {
            self.check(op.first, whole_blocks(op.from.len())?)?;
        }
        let mut first_error = Ok(());
        let mut direct = Vec::with_capacity(batch.len());
        for op in batch {
            if self.must_copy(op.from) {
                first_error = first_error.and(self.write(op.first, op.from));
            } else {
                direct.push((op.first, IoSlice::new(op.from)));
            }
        }
        let (mut slices, runs) = into_runs(direct, |slice| slice.len());
        let outcomes = self.outcomes(&runs, |rings| rings.write(&self.file, &runs, &slices));
        for (run, outcome) in runs.into_iter().zip(outcomes) {
            let done =
                finish(outcome, &run, || transfer::write_at(&self.file, run.offset, &mut slices[run.slices.clone()]));
            first_error = first_error.and(done);
        }
        first_error
    }
}

/// Returns the final outcome of a run from its outcome in a ring. `again` repeats the whole run by plain calls, for a
/// run that had no ring, and for the rare one that was interrupted or incomplete.
fn finish(outcome: Result<usize, Errno>, run: &Transfer, again: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match outcome {
        Ok(bytes) if bytes == run.bytes => Ok(()),
        Ok(_) | ring::NOT_DONE | Err(Errno::INTR) => again(),
        Err(errno) => Err(transfer::io_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, BLOCK_BYTES};

    #[test]
    fn without_direct_io_the_page_cache_serves() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.as_file().set_len(8 * BLOCK_BYTES_U64).unwrap();
        let device = open::open(file.path(), OpenMode::ReadWrite, &[TransferMode::Buffered]).unwrap();
        assert!(!device.is_direct());
        let mut unaligned = AlignedBuffer::zeroed(2);
        unaligned.fill(7);
        device.write(BlockNo(3), &unaligned[1..=BLOCK_BYTES]).unwrap();
        device.sync().unwrap();
        let mut into = [0; BLOCK_BYTES];
        device.read(BlockNo(3), &mut into).unwrap();
        assert_eq!(into, [7; BLOCK_BYTES]);
    }
}
