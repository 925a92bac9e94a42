//! The log's head: the place of the next transaction, and the room that is left.

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, BlockNo};

use crate::error::{PoolError, Result};
use crate::format::geometry::Geometry;
use crate::format::journal::{HEADER_SLOTS, JournalHeader, TransactionBuilder, TransactionIdentity};
use crate::format::superblock::Superblock;

/// The journal as the committer sees it.
#[derive(Debug)]
pub(crate) struct JournalLog {
    first: BlockNo,
    log_blocks: u64,
    pool_tag: u32,
    identity: TransactionIdentity,
    /// Random number of the opening that writes it, as in header slots.
    run: u64,
    /// Block index at which the next transaction begins.
    head: u64,
    /// Blocks between tail and head.
    used: u64,
    /// Checksum of the last transaction.
    chain: u32,
    /// Generation of the newest header slot.
    generation: u64,
    /// Buffer from which transactions are written.
    buffer: AlignedBuffer,
}

/// Maximum size of a buffer that is kept for the next transaction, in blocks: most transactions are smaller.
const KEPT_BLOCKS_MAX: usize = 512;

/// Position of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) head: u64,
    pub(crate) used: u64,
    pub(crate) chain: u32,
    pub(crate) generation: u64,
}

/// Returns the number of blocks in the log of a journal.
pub(crate) fn log_blocks(geometry: &Geometry) -> u64 {
    geometry.journal_blocks - HEADER_SLOTS
}

impl JournalLog {
    /// Returns the log of a pool that was opened as `run`; 0 if no other host can reach the pool.
    pub(crate) fn new(superblock: &Superblock, position: LogPosition, run: u64) -> JournalLog {
        JournalLog {
            first: superblock.geometry.journal_first,
            log_blocks: log_blocks(&superblock.geometry),
            pool_tag: superblock.pool_tag(),
            identity: superblock.transaction_identity(),
            run,
            head: position.head,
            used: position.used,
            chain: position.chain,
            generation: position.generation,
            buffer: AlignedBuffer::zeroed(0),
        }
    }

    /// Gives later transactions another identity. Must be called while the log is empty: transactions of both
    /// identities must not follow one another.
    pub(crate) fn identify_by(&mut self, identity: TransactionIdentity) {
        assert_eq!(self.used, 0, "the log is empty");
        self.identity = identity;
    }

    /// Returns the number of bytes that a transaction may take without a checkpoint.
    pub(crate) fn bytes_left(&self) -> usize {
        usize::try_from(self.log_blocks - self.used).unwrap_or(usize::MAX).saturating_mul(BLOCK_BYTES)
    }

    /// Returns whether a checkpoint should come soon.
    pub(crate) fn is_half_full(&self) -> bool {
        self.used > self.log_blocks / 2
    }

    /// Writes a transaction at the head and returns when it is durable.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`] if the backing file is full: the log is unchanged, and the call may be repeated.
    /// Otherwise the device's error; the pool must then stop, as the device's content is unknown.
    pub(crate) fn append(
        &mut self,
        device: &dyn BlockDevice,
        builder: TransactionBuilder,
        sequence: u64,
    ) -> Result<()> {
        let (bytes, chain) = builder.finish(self.identity, self.chain, sequence, self.head);
        let (length, blocks) = (bytes.len(), (bytes.len() / BLOCK_BYTES) as u64);
        assert!(self.used + blocks <= self.log_blocks, "the committer made room before");
        let until_end = usize::try_from(self.log_blocks - self.head).unwrap_or(usize::MAX).saturating_mul(BLOCK_BYTES);
        if self.buffer.len() < bytes.len() {
            self.buffer = AlignedBuffer::zeroed(bytes.len().div_ceil(BLOCK_BYTES));
        }
        self.buffer[..bytes.len()].copy_from_slice(&bytes);
        drop(bytes);
        let (front, wrapped) = self.buffer[..length].split_at(length.min(until_end));
        self.write(device, self.head, front)?;
        if !wrapped.is_empty() {
            self.write(device, 0, wrapped)?;
        }
        sync(device, self.first)?;
        if self.buffer.block_count() > KEPT_BLOCKS_MAX {
            self.buffer = AlignedBuffer::zeroed(0);
        }
        self.head = (self.head + blocks) % self.log_blocks;
        self.used += blocks;
        self.chain = chain;
        Ok(())
    }

    fn write(&self, device: &dyn BlockDevice, position: u64, bytes: &[u8]) -> Result<()> {
        let at = self.first.plus(HEADER_SLOTS + position);
        device.write(at, bytes).map_err(|source| PoolError::of_write(at, source))
    }

    /// Makes the log begin at its head, as everything in it is in place. `next_sequence` is that of the next
    /// transaction. Returns when that is durable; only then may old transactions be overwritten.
    ///
    /// # Errors
    /// See [`JournalLog::append`].
    pub(crate) fn move_tail(&mut self, device: &dyn BlockDevice, next_sequence: u64, clean: bool) -> Result<()> {
        let header = JournalHeader {
            generation: self.generation + 1,
            tail_sequence: next_sequence,
            tail_position: self.head,
            tail_chain: self.chain,
            clean,
            run: self.run,
        };
        // Writes the older slot, so that a torn write leaves the newer one.
        let at = self.first.plus(header.generation % HEADER_SLOTS);
        let bytes = AlignedBuffer::copy_of(&header.encode(self.pool_tag, at));
        device.write(at, &bytes).map_err(|source| PoolError::of_write(at, source))?;
        sync(device, at)?;
        self.generation = header.generation;
        self.used = 0;
        Ok(())
    }
}

/// Flushes the device; `near` is the place of the work, for the error.
pub(crate) fn sync(device: &dyn BlockDevice, near: BlockNo) -> Result<()> {
    device.sync().map_err(|source| PoolError::Io { action: "flush", block: near, source })
}
