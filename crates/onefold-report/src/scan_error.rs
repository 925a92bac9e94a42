//! Why the pass over an image has no result.

use std::io;

use onefold_disk::DiskError;

/// Why a pass ended before its end.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The image cannot be read; other images can.
    Disk(DiskError),
    /// The image has more blocks than can be counted; other images can have fewer.
    TooLong,
    /// Rows could not be spilled.
    Spill(io::Error),
    /// The user wants to stop.
    Interrupted,
}
