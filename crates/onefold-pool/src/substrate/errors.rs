//! Translates a pool's errors into those of the substrate.

use std::io::{self, ErrorKind};

use onefold_substrate::{Refusal, ShareError};

use crate::error::PoolError;

/// Translates any failure except of sharing and cloning.
pub(super) fn io_error(error: PoolError) -> io::Error {
    let kind = match &error {
        PoolError::NotFound => ErrorKind::NotFound,
        PoolError::Exists => ErrorKind::AlreadyExists,
        PoolError::NotADirectory => ErrorKind::NotADirectory,
        PoolError::IsADirectory => ErrorKind::IsADirectory,
        PoolError::NotEmpty => ErrorKind::DirectoryNotEmpty,
        PoolError::NameTooLong => ErrorKind::InvalidFilename,
        PoolError::NoSpace | PoolError::TooLargeForJournal => ErrorKind::StorageFull,
        PoolError::FileTooLarge => ErrorKind::FileTooLarge,
        PoolError::CrossDomain => ErrorKind::CrossesDevices,
        PoolError::Invalid(_) | PoolError::NoSuchOffset => ErrorKind::InvalidInput,
        PoolError::TooManyLinks => ErrorKind::TooManyLinks,
        PoolError::NotPermitted(_) => ErrorKind::PermissionDenied,
        PoolError::Unsupported(_) => ErrorKind::Unsupported,
        PoolError::ReadOnly => ErrorKind::ReadOnlyFilesystem,
        PoolError::Damaged { .. } => ErrorKind::InvalidData,
        PoolError::Io { source, .. } => source.kind(),
        PoolError::WritesLost { .. }
        | PoolError::Stopped { .. }
        | PoolError::NoAttribute
        | PoolError::AttributeTooLarge
        | PoolError::TooManyAttributes
        | PoolError::JournalTooSmall { .. }
        | PoolError::NotAPool(_)
        | PoolError::NewerFormat(_)
        | PoolError::InUse(_)
        | PoolError::DeviceTooSmall { .. }
        | PoolError::UnprovenNames { .. }
        | PoolError::MemoryTooSmall { .. } => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// Translates the failure of sharing or cloning between two files.
pub(super) fn share_error(error: PoolError) -> ShareError {
    match error {
        PoolError::CrossDomain => ShareError::Refused(Refusal::Apart),
        PoolError::NotPermitted(_) => ShareError::Refused(Refusal::SwitchedOff),
        PoolError::NoSpace | PoolError::TooLargeForJournal => ShareError::Full,
        other => ShareError::Io(io_error(other)),
    }
}
