//! What a monitor tells about itself.

use std::io;
use std::path::PathBuf;

use onefold_block::Show;

use crate::state::StateError;
use crate::state::logs::Logged;

/// What a monitor did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorCounts {
    /// Whole blocks hashed as they were told of, or told of with their digest.
    pub in_band_blocks: u64,
    /// Blocks read and hashed later.
    pub deferred_blocks: u64,
    /// Blocks that were written in part.
    pub parts: u64,
    /// Blocks of which was forgotten what they hold, or that they had not changed, for want of memory.
    pub shed_blocks: u64,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Logs that were written.
    pub logs: u64,
    /// Blocks that they tell of.
    pub logged_blocks: u64,
    /// Their length, in bytes.
    pub log_bytes: u64,
}

/// What a tick did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Bytes that were read to be hashed.
    pub read_bytes: u64,
    /// The log, if one was written.
    pub logged: Option<Logged>,
    /// Whether there is more to be done at once.
    pub is_behind: bool,
}

/// How a monitor came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Whether the image is known as a whole: the next scan does not read it. Otherwise it does.
    pub is_known: bool,
    /// What was done.
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
        /// Why.
        source: io::Error,
    },
    /// Its lock is taken.
    #[error("`{}` belongs to another door, host or pass: try again later, or use it unwatched", path.shown())]
    Elsewhere {
        /// Its path.
        path: PathBuf,
    },
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
}
