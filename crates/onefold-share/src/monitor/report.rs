//! Reports of a monitor about itself.

use std::io;
use std::path::PathBuf;

use onefold_block::Show;

use crate::state::StateError;
use crate::state::logs::WrittenLog;

/// Work of a monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorCounts {
    /// Whole blocks that were hashed when they were reported, or reported with their digest.
    pub in_band_blocks: u64,
    /// Blocks read and hashed later.
    pub deferred_blocks: u64,
    /// Blocks that were written in part.
    pub parts: u64,
    /// Blocks whose content, or whose being unchanged, was forgotten for want of memory.
    pub shed_blocks: u64,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Logs that were written.
    pub logs: u64,
    /// Blocks in these logs.
    pub logged_blocks: u64,
    /// Length of these logs, in bytes.
    pub log_bytes: u64,
}

/// Result of a tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickReport {
    /// Bytes that were read to be hashed.
    pub read_bytes: u64,
    /// The log, if one was written.
    pub logged: Option<WrittenLog>,
    /// Whether more work is due at once.
    pub is_behind: bool,
}

/// Result of closing a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseReport {
    /// Whether the image is completely known, so that the next scan does not read it.
    pub is_known: bool,
    /// The work done.
    pub counts: MonitorCounts,
}

/// Why an image is not watched.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// It cannot be opened.
    #[error("`{}` cannot be watched: {source}", path.shown())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Its lock is taken.
    #[error("`{}` belongs to another door, host or pass: try again later, or use it unwatched", path.shown())]
    Elsewhere {
        /// Its path.
        path: PathBuf,
    },
    /// The state folder failed.
    #[error(transparent)]
    State(#[from] StateError),
}
