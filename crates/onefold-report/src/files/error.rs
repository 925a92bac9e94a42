//! Errors of the search for owners of blocks.

use std::io;

use onefold_disk::DiskError;
use onefold_guest::error::GuestError;

/// Why the survey of an image ended.
#[derive(Debug)]
pub(crate) enum SurveyError {
    /// The disk cannot be read.
    Disk(DiskError),
    /// Temporary files cannot be written or read.
    Temporary(io::Error),
    /// The user wants to stop.
    Interrupted,
}

/// Why the map of a guest cannot be read.
#[derive(Debug)]
pub(super) enum MapError {
    /// The guest is damaged, or the disk contains no guest. Its blocks can still be read.
    Guest(GuestError),
    /// The survey ended.
    Ended(SurveyError),
}

impl From<GuestError> for MapError {
    fn from(error: GuestError) -> MapError {
        match error {
            GuestError::Disk(error) => MapError::Ended(SurveyError::Disk(error)),
            error => MapError::Guest(error),
        }
    }
}

impl From<io::Error> for MapError {
    fn from(error: io::Error) -> MapError {
        MapError::Ended(SurveyError::Temporary(error))
    }
}
