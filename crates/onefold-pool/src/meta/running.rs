//! The running transaction: what the next commit makes durable together.

use onefold_block::BlockNo;

use crate::format::journal;

/// What has changed since the last commit.
#[derive(Debug)]
pub(crate) struct Running {
    /// Number that the transaction will have.
    pub(crate) sequence: u64,
    /// Blocks with changes, each once.
    pub(crate) dirty: Vec<BlockNo>,
    /// Upper bound of the transaction's bytes in the journal.
    pub(crate) bytes_bound: usize,
    /// Metadata blocks freed: recovery must not write what the journal says of them.
    pub(crate) forgotten: Vec<BlockNo>,
    /// Data blocks freed: reusable once the commit is durable.
    pub(crate) freed: Vec<BlockNo>,
    /// Data blocks were written to the device: it must be flushed before the commit.
    pub(crate) wrote_data: bool,
    /// Checkpoints begun, plus one: a block is logged whole when it was not yet logged in this epoch.
    pub(crate) epoch: u64,
    /// The journal's log, in bytes.
    pub(crate) log_bytes: usize,
    /// From so many bytes on it is committed without waiting for the timer: a commit holds them in memory twice.
    commit_bytes: usize,
}

impl Running {
    /// Returns the first running transaction of an opened pool.
    /// A commit may take `memory_bytes` of memory.
    pub(crate) fn new(sequence: u64, log_bytes: usize, memory_bytes: u64) -> Running {
        let affordable = usize::try_from(memory_bytes / 2).unwrap_or(usize::MAX);
        Running {
            commit_bytes: (log_bytes / 4).min(affordable),
            sequence,
            dirty: Vec::new(),
            bytes_bound: 0,
            forgotten: Vec::new(),
            freed: Vec::new(),
            wrote_data: false,
            epoch: 1,
            log_bytes,
        }
    }

    /// Returns whether there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.forgotten.is_empty() && self.freed.is_empty()
    }

    /// Returns whether the transaction would take nothing of the log but its opening.
    pub(crate) fn has_no_records(&self) -> bool {
        self.dirty.is_empty() && self.forgotten.is_empty()
    }

    /// Returns whether the transaction has grown enough to be committed without waiting for the timer.
    pub(crate) fn wants_commit(&self) -> bool {
        self.bytes_bound > self.commit_bytes || self.worst_bytes() > 2 * self.commit_bytes
    }

    /// Returns whether the transaction has grown to half of what makes others commit it.
    pub(crate) fn wants_commit_soon(&self) -> bool {
        self.bytes_bound > self.commit_bytes / 2 || self.worst_bytes() > self.commit_bytes
    }

    /// Returns whether the transaction could no longer be committed: the operation that made it so must be taken back.
    pub(crate) fn is_too_large(&self) -> bool {
        self.worst_bytes() + 2 * onefold_block::BLOCK_BYTES > self.log_bytes
    }

    /// Upper bound of what the transaction takes in the log.
    pub(crate) fn bytes_in_log(&self) -> usize {
        let extra = journal::OPENING_BYTES + self.forgotten.len() * journal::FORGET_RECORD_BYTES;
        (self.bytes_bound + extra).next_multiple_of(onefold_block::BLOCK_BYTES)
    }

    /// Bytes if a checkpoint came first, after which every block is logged whole.
    pub(crate) fn worst_bytes(&self) -> usize {
        journal::OPENING_BYTES
            + self.dirty.len() * journal::WHOLE_RECORD_BYTES
            + self.forgotten.len() * journal::FORGET_RECORD_BYTES
    }
}
