//! Reads files.

use std::ops::Range;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, block::BLOCK_BYTES_U64};

use super::Data;
use super::fetch::FetchPart;
use crate::attr::{FileKind, Ino};
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::format::map_node::MapEntry;
use crate::meta::{Op, OpError, OpResult};
use crate::readers::range_lock::{LockMode, RangeGuard};

/// Maximum number of blocks that one step of a long read takes.
const READ_BLOCKS: usize = 512;

impl Op<'_> {
    /// Reads an inode of a file that can have data.
    ///
    /// # Errors
    /// [`PoolError::IsADirectory`]; [`PoolError::Invalid`] for other kinds; see [`Op::inode`].
    pub(crate) fn regular(&mut self, ino: Ino) -> OpResult<Inode> {
        let inode = self.inode(ino)?;
        match inode.attr.kind {
            FileKind::Regular => Ok(inode),
            FileKind::Directory => Err(PoolError::IsADirectory.into()),
            _ => Err(PoolError::Invalid("not a regular file").into()),
        }
    }
}

/// One of several reads that are done together.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// The file.
    pub ino: Ino,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The buffer to fill. Whole blocks at a page-aligned address save a copy.
    pub into: &'a mut [u8],
}

impl ReadRequest<'_> {
    /// Returns the blocks to read, if they are whole, few, and can be read in place.
    fn whole_blocks(&self) -> Option<Range<u64>> {
        let is_fit = self.offset.is_multiple_of(BLOCK_BYTES_U64)
            && !self.into.is_empty()
            && self.into.len() <= READ_BLOCKS * BLOCK_BYTES
            && onefold_block::buffer::is_aligned(self.into);
        let (first, count) = (self.offset / BLOCK_BYTES_U64, (self.into.len() / BLOCK_BYTES) as u64);
        is_fit.then_some(first..first + count)
    }
}

/// The map's answer for a read of whole blocks: the number of bytes, and their places.
struct ReadMapping {
    bytes: usize,
    entries: Vec<MapEntry>,
}

impl Op<'_> {
    /// Looks up the places for a read of whole blocks. Returns `None` if the file ends within a block, or does not
    /// exist.
    fn locate(&mut self, reading: &ReadRequest<'_>) -> OpResult<Option<ReadMapping>> {
        let inode = match self.regular(reading.ino) {
            Ok(inode) => inode,
            Err(OpError::Fault) => return Err(OpError::Fault),
            Err(_) => return Ok(None),
        };
        let left = usize::try_from(inode.attr.size_bytes.saturating_sub(reading.offset)).unwrap_or(usize::MAX);
        let bytes = reading.into.len().min(left);
        if !bytes.is_multiple_of(BLOCK_BYTES) {
            return Ok(None);
        }
        let mut entries = vec![MapEntry::Hole; bytes / BLOCK_BYTES];
        self.map_read(&inode, reading.offset / BLOCK_BYTES_U64, &mut entries)?;
        Ok(Some(ReadMapping { bytes, entries }))
    }
}

impl Data {
    /// Reads several places together. The outcome of each is that of [`Data::read_file`].
    pub(crate) fn read_each(&self, readings: &mut [ReadRequest<'_>]) -> Vec<Result<usize>> {
        let mut outcomes: Vec<Option<Result<usize>>> = readings.iter().map(|_| None).collect();
        if let Ok(done) = self.read_together(readings) {
            for (outcome, done) in outcomes.iter_mut().zip(done) {
                *outcome = done.map(Ok);
            }
        }
        // Reads that do not fit, must wait, or have failed are done one by one, so that each has its own outcome.
        let alone = |(reading, outcome): (&mut ReadRequest<'_>, Option<Result<usize>>)| {
            outcome.unwrap_or_else(|| self.read_file(reading.ino, reading.offset, reading.into))
        };
        readings.iter_mut().zip(outcomes).map(alone).collect()
    }

    /// Reads the places that are whole blocks of files and whose locks are free; the others are `None`. While it holds
    /// locks it waits for no other lock, because the holder of that one may wait for these.
    fn read_together(&self, readings: &mut [ReadRequest<'_>]) -> Result<Vec<Option<usize>>> {
        let guards: Vec<Option<RangeGuard<'_>>> = readings
            .iter()
            .map(|reading| self.readers.range_locks.try_lock(reading.ino, reading.whole_blocks()?, LockMode::Shared))
            .collect();
        let located = self.engine.view(|op| {
            let mut located = Vec::with_capacity(readings.len());
            for (reading, guard) in readings.iter().zip(&guards) {
                located.push(match guard {
                    // A missing block does not keep the other reads from requesting theirs.
                    Some(_) => match op.locate(reading) {
                        Ok(found) => found,
                        Err(OpError::Fault) => None,
                        Err(error) => return Err(error),
                    },
                    None => None,
                });
            }
            op.settle()?;
            Ok(located)
        })?;
        let mut parts: Vec<FetchPart<'_>> = readings
            .iter_mut()
            .zip(&located)
            .filter_map(|(reading, located)| {
                let ReadMapping { bytes, entries } = located.as_ref()?;
                Some(FetchPart { entries, into: &mut reading.into[..*bytes] })
            })
            .collect();
        self.fetch_each(&mut parts)?;
        Ok(located.iter().map(|located| Some(located.as_ref()?.bytes)).collect())
    }

    /// Reads from a file. Returns fewer bytes than requested only at the file's end.
    ///
    /// # Errors
    /// If the file does not exist; damage; device errors.
    pub(crate) fn read_file(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let at = offset.checked_add(done as u64).ok_or(PoolError::Invalid("offset past the largest number"))?;
            let within = usize::try_from(at % BLOCK_BYTES_U64).expect("below 4096");
            let first = at / BLOCK_BYTES_U64;
            let wanted = (into.len() - done).min(READ_BLOCKS * BLOCK_BYTES - within);
            let count = (within + wanted).div_ceil(BLOCK_BYTES);
            let _guard = self.readers.range_locks.lock(ino, first..first + count as u64, LockMode::Shared);
            let (size, entries) = self.engine.view(|op| {
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
