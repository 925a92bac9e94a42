//! Errors of a pool, as facts.

use std::sync::Arc;

use onefold_block::size::human;
use onefold_block::{BLOCK_BYTES_U64, BlockNo};

use crate::attr::Ino;

/// Result of a pool operation.
pub type Result<T> = std::result::Result<T, PoolError>;

/// Why a pool operation failed. An operation that fails has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No entry of that name, or no inode of that number.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotADirectory,
    /// Something other than a directory was needed.
    #[error("is a directory")]
    IsADirectory,
    /// The directory still has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// Longer than 255 bytes (a name) or 4095 bytes (a symbolic link's target).
    #[error("name too long")]
    NameTooLong,
    /// No block is left for this operation.
    #[error("no space left in the pool")]
    NoSpace,
    /// Beyond the maximum file size, [`crate::FILE_BYTES_MAX`].
    #[error("file too large")]
    FileTooLarge,
    /// The two files belong to different sharing domains.
    #[error("the files belong to different sharing domains")]
    CrossDomain,
    /// The arguments are invalid.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The offset lies past the last data or past the end (`SEEK_DATA`, `SEEK_HOLE`).
    #[error("no data or hole past that offset")]
    NoSuchOffset,
    /// No extended attribute of that name.
    #[error("no such attribute")]
    NoAttribute,
    /// An extended attribute larger than 64 KiB.
    #[error("attribute value too large")]
    AttributeTooLarge,
    /// The names of a file's extended attributes do not fit one list, [`crate::XATTR_LIST_BYTES_MAX`].
    #[error("too many attributes to list")]
    TooManyAttributes,
    /// The link count is at its maximum.
    #[error("too many links")]
    TooManyLinks,
    /// The operation is not permitted on this kind of file.
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// The pool cannot do this.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// Opened read-only.
    #[error("the pool is open read-only")]
    ReadOnly,
    /// An earlier write or flush failed; the pool accepts no changes until it is reopened.
    #[error("the pool stopped after a failure: {cause}")]
    Stopped {
        /// The first failure.
        cause: String,
    },
    /// Accepted writes could not be stored.
    #[error("{count} accepted writes were lost, the last one to inode {ino}: {cause}")]
    WritesLost {
        /// Number of lost writes, in all files of the pool.
        count: u64,
        /// The file of the last one.
        ino: Ino,
        /// Why the last one failed.
        #[source]
        cause: Arc<PoolError>,
    },
    /// The operation changes more metadata than the journal can hold.
    #[error("the operation is too large for the journal")]
    TooLargeForJournal,
    /// The journal cannot hold the largest operation of a pool of this size.
    #[error(
        "a journal of {} is too small for this pool: {} ({needed_bytes} bytes) are needed",
        human(*.given_bytes),
        human(*.needed_bytes)
    )]
    JournalTooSmall {
        /// The journal's size, in bytes.
        given_bytes: u64,
        /// The minimum size, in bytes.
        needed_bytes: u64,
    },
    /// A structure is damaged.
    #[error("damaged {structure} at block {block}: {what}")]
    Damaged {
        /// The kind of structure.
        structure: &'static str,
        /// Its block.
        block: BlockNo,
        /// The problem.
        what: String,
    },
    /// Blocks that users may have written look like pages of names.
    #[error(
        "blocks look like pages of names, but nothing else proves that users have not written them: {count}, of which \
         the first is block {first}"
    )]
    UnprovenNames {
        /// Number of these blocks.
        count: usize,
        /// The first one.
        first: BlockNo,
    },
    /// A device call failed.
    #[error("cannot {action} block {block}: {source}")]
    Io {
        /// The failed action: `read`, `write`, `flush`, `discard`.
        action: &'static str,
        /// The first block of the call.
        block: BlockNo,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The device holds no Onefold pool.
    #[error("not a Onefold pool: {0}")]
    NotAPool(String),
    /// The pool has features that this version does not know.
    #[error("the pool needs a newer Onefold: {0}")]
    NewerFormat(String),
    /// Another daemon uses the pool, on this host or another one.
    #[error("the pool is in use: {0}")]
    InUse(String),
    /// The device is too small, or shrank.
    #[error("the device has {}, and at least {} are needed", of_blocks(*.found), of_blocks(*.needed))]
    DeviceTooSmall {
        /// Blocks that the device has.
        found: u64,
        /// Blocks that it must have.
        needed: u64,
    },
    /// The `memory` setting is below the minimum.
    #[error("memory of {} is too little, at least {} are needed", human(*.given), human(*.needed))]
    MemoryTooSmall {
        /// The setting, in bytes.
        given: u64,
        /// The minimum, in bytes.
        needed: u64,
    },
}

impl PoolError {
    /// Returns the error for a failed write outside the journal: a full backing file does not stop the pool.
    pub(crate) fn of_write(block: BlockNo, source: std::io::Error) -> PoolError {
        if source.kind() == std::io::ErrorKind::StorageFull {
            PoolError::NoSpace
        } else {
            PoolError::Io { action: "write", block, source }
        }
    }
}

/// Returns the size of blocks for a message. Their number tells sizes apart that look the same.
fn of_blocks(blocks: u64) -> String {
    format!("{} ({blocks} blocks)", human(blocks.saturating_mul(BLOCK_BYTES_U64)))
}
