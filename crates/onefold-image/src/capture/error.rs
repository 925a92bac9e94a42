//! Errors of a capture.

use std::io;

use onefold_block::size::human;
use onefold_disk::DiskError;
use onefold_guest::error::GuestError;

use super::PlanError;
use crate::archive::ArchiveError;
use crate::format::FormatError;

/// Why a disk cannot be captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The disk cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The partitions of the disk cannot be read.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The plan of units cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The archive fails.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The format cannot represent the header of a chunk.
    #[error("a chunk cannot be stored")]
    Chunk(#[from] FormatError),
    /// The disk is longer than an image may be.
    #[error("the disk has {}, and an image of this archive at most {}", human(*size_bytes), human(*size_max))]
    TooLarge {
        /// Its length.
        size_bytes: u64,
        /// Maximum length.
        size_max: u64,
    },
    /// The source was written during the capture.
    #[error("the source changed while it was captured")]
    Changed,
    /// It cannot be determined whether the source was written.
    #[error("cannot see whether the source has changed")]
    State(#[source] io::Error),
    /// At the end of each attempt, units that the image needs had been removed.
    #[error("other hosts remove what the image needs faster than it is captured")]
    Restless,
    /// Units cannot be compressed.
    #[error("cannot compress")]
    Compress(#[source] io::Error),
    /// The progress callback stopped the capture.
    #[error("the capture was interrupted")]
    Stopped,
}
