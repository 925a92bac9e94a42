//! Why an image cannot be examined, or only in part.

use std::io;

use onefold_disk::{DiskError, ImageFormat};
use onefold_guest::error::GuestError;
use onefold_substrate::Refusal;

use crate::state::StateError;

/// Why an image has no candidates, or no more.
#[derive(Debug, thiserror::Error)]
pub(in crate::files) enum IdentifyError {
    /// The image, or its content, cannot be read.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// Its own file cannot be used.
    #[error(transparent)]
    File(io::Error),
    /// Its name leads to another file by now.
    #[error("another file has its name now")]
    Replaced,
    /// The file system shares nothing of it.
    #[error("it cannot share: {0}")]
    Refused(Refusal),
    /// It has a format whose guests are not read yet.
    #[error("guests in images of the format {} are not read yet", .0.name())]
    Format(ImageFormat),
    /// Files of this substrate are read by their own thread only.
    #[error("files of this file system cannot be read as disks")]
    Unreadable,
    /// The readers of its guest have asked for too many bytes.
    #[error("its guest would have to be searched for too long")]
    Exhausted,
    /// A part of it could not be read, which may pass.
    #[error("a part of it could not be read")]
    Unread,
    /// Temporary files failed. This ends the work.
    #[error("{0}")]
    Temporary(io::Error),
    /// The user ended the work, or the state folder cannot be used.
    #[error(transparent)]
    Stopped(StateError),
}

impl IdentifyError {
    /// Returns whether another try may examine the image, though it has not changed.
    pub(in crate::files) fn may_pass(&self) -> bool {
        match self {
            IdentifyError::Guest(GuestError::Disk(_)) | IdentifyError::File(_) => true,
            IdentifyError::Replaced | IdentifyError::Unread => true,
            IdentifyError::Temporary(_) | IdentifyError::Stopped(_) => true,
            IdentifyError::Guest(_) | IdentifyError::Refused(_) | IdentifyError::Format(_) => false,
            IdentifyError::Unreadable | IdentifyError::Exhausted => false,
        }
    }
}

impl From<DiskError> for IdentifyError {
    fn from(error: DiskError) -> IdentifyError {
        IdentifyError::Guest(error.into())
    }
}
