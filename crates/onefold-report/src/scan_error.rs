//! Errors of the pass over an image.

use std::io;

use onefold_disk::DiskError;

/// Why a pass ended before its end.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The image cannot be read. Other images may be readable.
    Disk(DiskError),
    /// The image has more blocks than can be counted. Other images may have fewer.
    TooLong,
    /// Rows could not be spilled.
    Spill(io::Error),
    /// The user wants to stop.
    Interrupted,
}
