//! The running transaction: the changes that the next commit makes durable together.

use onefold_block::BlockNo;

use crate::format::journal;

/// Changes since the last commit.
#[derive(Debug)]
pub(crate) struct RunningTransaction {
    /// Sequence number of the transaction.
    pub(crate) sequence: u64,
    /// Changed blocks, each once.
    pub(crate) dirty: Vec<BlockNo>,
    /// Upper bound of the transaction's bytes in the journal.
    pub(crate) bytes_bound: usize,
    /// Freed metadata blocks: recovery must not write the journal's content for them.
    pub(crate) forgotten: Vec<BlockNo>,
    /// Freed data blocks, reusable once the commit is durable.
    pub(crate) freed: Vec<BlockNo>,
    /// Whether it names new data blocks: those still in memory must be written, and the device flushed, before the
    /// commit.
    pub(crate) wrote_data: bool,
    /// Number of checkpoints begun, plus one: a block is logged whole if it has not been logged in this epoch.
    pub(crate) epoch: u64,
    /// Size of the journal's log, in bytes.
    pub(crate) log_bytes: usize,
    /// Size in bytes from which on it is committed without waiting for the timer: a commit holds it in memory twice.
    commit_bytes: usize,
}

impl RunningTransaction {
    /// Returns the first running transaction of an opened pool. A commit may take `memory_bytes` of memory.
    pub(crate) fn new(sequence: u64, log_bytes: usize, memory_bytes: u64) -> RunningTransaction {
        let affordable = usize::try_from(memory_bytes / 2).unwrap_or(usize::MAX);
        RunningTransaction {
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

    /// Returns whether a commit has nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.forgotten.is_empty() && self.freed.is_empty()
    }

    /// Returns whether the transaction would take only its opening in the log.
    pub(crate) fn has_no_records(&self) -> bool {
        self.dirty.is_empty() && self.forgotten.is_empty()
    }

    /// Returns whether the transaction has grown enough to be committed without waiting for the timer.
    pub(crate) fn wants_commit(&self) -> bool {
        self.bytes_bound > self.commit_bytes || self.worst_bytes() > 2 * self.commit_bytes
    }

    /// Returns whether the transaction has grown to half of the size at which operations commit it.
    pub(crate) fn wants_commit_soon(&self) -> bool {
        self.bytes_bound > self.commit_bytes / 2 || self.worst_bytes() > self.commit_bytes
    }

    /// Returns whether the transaction is too large to be committed, so that the latest operation must be rolled back.
    pub(crate) fn is_too_large(&self) -> bool {
        self.worst_bytes() + 2 * onefold_block::BLOCK_BYTES > self.log_bytes
    }

    /// Returns an upper bound of the transaction's size in the log.
    pub(crate) fn bytes_in_log(&self) -> usize {
        let extra = journal::OPENING_BYTES + self.forgotten.len() * journal::FORGET_RECORD_BYTES;
        (self.bytes_bound + extra).next_multiple_of(onefold_block::BLOCK_BYTES)
    }

    /// Returns an upper bound for the case that a checkpoint comes first, after which every block is logged whole.
    pub(crate) fn worst_bytes(&self) -> usize {
        journal::OPENING_BYTES
            + self.dirty.len() * journal::WHOLE_RECORD_BYTES
            + self.forgotten.len() * journal::FORGET_RECORD_BYTES
    }
}
