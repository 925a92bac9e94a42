//! Writes that begin or end within a block: the rest of the block is filled with the file's content.

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, Timestamp};

use super::Data;
use super::write::{BATCH_BLOCKS, StoreRequest};
use crate::attr::{Durability, Ino};
use crate::engine::late_writes::LATE_BLOCKS_MAX;
use crate::error::{PoolError, Result};
use crate::format::map_node::MapEntry;
use crate::meta::Privilege;
use crate::readers::range_lock::LockMode;

/// A piece of a write that fits in one batch.
struct WritePiece<'a> {
    first: u64,
    within: usize,
    bytes: &'a [u8],
}

impl WritePiece<'_> {
    fn block_count(&self) -> usize {
        (self.within + self.bytes.len()).div_ceil(BLOCK_BYTES)
    }
}

/// A write to a file.
pub(crate) struct WriteRequest<'a> {
    pub(crate) ino: Ino,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// When the write was requested.
    pub(crate) now: Timestamp,
    /// The write takes effect after all accepted writes below this number ([`super::behind`]).
    pub(crate) after: u64,
    pub(crate) privilege: Privilege,
    /// Like [`StoreRequest::may_be_late`], provided that the write is small.
    pub(crate) may_be_late: bool,
}

impl Data {
    /// Writes to a file, and lengthens it if the write ends past its end.
    ///
    /// # Errors
    /// [`PoolError::FileTooLarge`]; no space (earlier batches of a long write may have happened); device errors.
    pub(crate) fn write_file(&self, ino: Ino, offset: u64, from: &[u8], durability: Durability) -> Result<()> {
        let may_be_late = durability == Durability::Later;
        self.store_file(ino, offset, from, may_be_late)?;
        match durability {
            Durability::Later => Ok(()),
            Durability::Now => self.engine.commit(),
        }
    }

    /// Like [`Data::write_file`], but not durable. New blocks may be kept in memory until the next commit only if
    /// `may_be_late`.
    ///
    /// # Errors
    /// See [`Data::write_file`].
    pub(super) fn store_file(&self, ino: Ino, offset: u64, from: &[u8], may_be_late: bool) -> Result<()> {
        self.settle_writes();
        self.engine.ensure_writable()?;
        let end = offset.checked_add(from.len() as u64).ok_or(PoolError::FileTooLarge)?;
        if end > crate::FILE_BYTES_MAX {
            return Err(PoolError::FileTooLarge);
        }
        let request = WriteRequest {
            ino,
            offset,
            bytes: from,
            now: self.engine.environment.clock.now(),
            after: 0,
            privilege: Privilege::Normal,
            may_be_late,
        };
        in_pieces(&request, |piece| {
            let range = piece.first..piece.first + piece.block_count() as u64;
            let _guard = self.readers.range_locks.lock(ino, range, LockMode::Exclusive);
            self.write_piece(&request, piece, &mut 0)
        })
    }

    /// Writes to a file in a range that the caller has locked. `set_aside` blocks are kept for the write, and it
    /// subtracts those that it uses.
    ///
    /// # Errors
    /// See [`Data::write_file`].
    pub(crate) fn write_locked(&self, request: &WriteRequest<'_>, set_aside: &mut u64) -> Result<()> {
        in_pieces(request, |piece| self.write_piece(request, piece, set_aside))
    }

    fn write_piece(&self, request: &WriteRequest<'_>, piece: &WritePiece<'_>, set_aside: &mut u64) -> Result<()> {
        let count = piece.block_count();
        let end = piece.first * BLOCK_BYTES_U64 + (piece.within + piece.bytes.len()) as u64;
        let filled = self.fill_edges(request.ino, piece)?;
        let mut blocks: Vec<(u64, &[u8])> = Vec::with_capacity(count);
        let mut rest = piece.bytes;
        for (index, edge) in (0..count).map(|index| (index, filled.iter().find(|edge| edge.index == index))) {
            let covered = if index == 0 { BLOCK_BYTES - piece.within } else { BLOCK_BYTES }.min(rest.len());
            let (bytes, after) = rest.split_at(covered);
            rest = after;
            blocks.push((piece.first + index as u64, edge.map_or(bytes, |edge| &edge.block[..])));
        }
        let store = StoreRequest {
            ino: request.ino,
            data: &blocks,
            side_by_side: filled.is_empty().then_some(piece.bytes),
            privilege: request.privilege,
            after: request.after,
            may_be_late: request.may_be_late && blocks.len() <= LATE_BLOCKS_MAX,
        };
        self.store_blocks(&store, set_aside, &mut |op, inode| {
            if end > inode.attr.size_bytes {
                op.set_length(inode, end);
            }
            inode.attr.modified = request.now;
            inode.attr.changed = request.now;
            Ok(())
        })
    }

    /// Returns the first and last block of a piece, as far as the piece covers them only in part, with the piece laid
    /// over the file's content.
    fn fill_edges(&self, ino: Ino, piece: &WritePiece<'_>) -> Result<Vec<Edge>> {
        let count = piece.block_count();
        let mut edges = Vec::new();
        for index in [0, count - 1] {
            let from = if index == 0 { piece.within } else { 0 };
            let to = (piece.within + piece.bytes.len() - index * BLOCK_BYTES).min(BLOCK_BYTES);
            let whole = from == 0 && to == BLOCK_BYTES;
            if whole || edges.iter().any(|edge: &Edge| edge.index == index) {
                continue;
            }
            let mut block = self.file_block(ino, piece.first + index as u64)?;
            let first = (index * BLOCK_BYTES + from) - piece.within;
            block[from..to].copy_from_slice(&piece.bytes[first..first + (to - from)]);
            edges.push(Edge { index, block });
        }
        Ok(edges)
    }

    /// Reads one block of a file whose range the caller has locked. Past the end, it is zeros.
    pub(crate) fn file_block(&self, ino: Ino, index: u64) -> Result<AlignedBuffer> {
        let entry = self.engine.view(|op| {
            let inode = op.regular(ino)?;
            let mut entry = [MapEntry::Hole];
            op.map_read(&inode, index, &mut entry)?;
            Ok(entry)
        })?;
        let mut block = AlignedBuffer::zeroed(1);
        self.fetch(&entry, &mut block)?;
        Ok(block)
    }
}

/// Splits a write into pieces that fit in a batch, or into smaller ones if the journal is small.
fn in_pieces(request: &WriteRequest<'_>, mut write: impl FnMut(&WritePiece<'_>) -> Result<()>) -> Result<()> {
    let mut batch_blocks = BATCH_BLOCKS;
    let mut done = 0;
    while done < request.bytes.len() {
        let at = request.offset + done as u64;
        let within = usize::try_from(at % BLOCK_BYTES_U64).expect("below 4096");
        let length = (request.bytes.len() - done).min(batch_blocks * BLOCK_BYTES - within);
        let piece = WritePiece { first: at / BLOCK_BYTES_U64, within, bytes: &request.bytes[done..done + length] };
        match write(&piece) {
            Ok(()) => done += length,
            // A small journal takes a large write in several transactions.
            Err(PoolError::TooLargeForJournal) if batch_blocks > 1 => batch_blocks = batch_blocks.div_ceil(2).max(1),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A block at the edge of a piece, filled with the file's content.
struct Edge {
    index: usize,
    block: AlignedBuffer,
}
