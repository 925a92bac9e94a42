//! Maps failures of the pool to errnos. No other module decides this.

use onefold_pool::PoolError;
use rustix::io::Errno;

/// Whether a failure must be reported to the operator, or its errno tells the caller everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reportee {
    /// The caller caused it, and the errno says so.
    Caller,
    /// Something is wrong with the pool or its device.
    Operator,
}

/// Returns the errno for `error`, and the [`Reportee`] who hears of it.
pub(super) fn errno_of(error: &PoolError) -> (Errno, Reportee) {
    use Reportee::{Caller, Operator};
    match error {
        PoolError::NotFound => (Errno::NOENT, Caller),
        PoolError::Exists => (Errno::EXIST, Caller),
        PoolError::NotADirectory => (Errno::NOTDIR, Caller),
        PoolError::IsADirectory => (Errno::ISDIR, Caller),
        PoolError::NotEmpty => (Errno::NOTEMPTY, Caller),
        PoolError::NameTooLong => (Errno::NAMETOOLONG, Caller),
        PoolError::NoSpace | PoolError::TooLargeForJournal => (Errno::NOSPC, Caller),
        PoolError::FileTooLarge => (Errno::FBIG, Caller),
        PoolError::CrossDomain => (Errno::XDEV, Caller),
        PoolError::Invalid(_) => (Errno::INVAL, Caller),
        PoolError::NoSuchOffset => (Errno::NXIO, Caller),
        PoolError::NoAttribute => (Errno::NODATA, Caller),
        PoolError::AttributeTooLarge | PoolError::TooManyAttributes => (Errno::TOOBIG, Caller),
        PoolError::TooManyLinks => (Errno::MLINK, Caller),
        PoolError::NotPermitted(_) => (Errno::PERM, Caller),
        PoolError::Unsupported(_) => (Errno::OPNOTSUPP, Caller),
        PoolError::ReadOnly => (Errno::ROFS, Caller),
        PoolError::WritesLost { cause, .. } => (errno_of(cause).0, Operator),
        PoolError::Stopped { .. } | PoolError::Damaged { .. } | PoolError::Io { .. } => (Errno::IO, Operator),
        // These errors belong to opening a pool. From a mounted pool they would surprise the operator.
        PoolError::NotAPool(_)
        | PoolError::NewerFormat(_)
        | PoolError::InUse(_)
        | PoolError::DeviceTooSmall { .. }
        | PoolError::JournalTooSmall { .. }
        | PoolError::UnprovenNames { .. }
        | PoolError::MemoryTooSmall { .. } => (Errno::IO, Operator),
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::BlockNo;
    use onefold_pool::Ino;

    use super::*;

    #[test]
    fn a_callers_own_mistake_gets_its_posix_number_and_no_log_line() {
        let table = [
            (PoolError::NotFound, Errno::NOENT),
            (PoolError::Exists, Errno::EXIST),
            (PoolError::NotADirectory, Errno::NOTDIR),
            (PoolError::IsADirectory, Errno::ISDIR),
            (PoolError::NotEmpty, Errno::NOTEMPTY),
            (PoolError::NameTooLong, Errno::NAMETOOLONG),
            (PoolError::NoSpace, Errno::NOSPC),
            (PoolError::TooLargeForJournal, Errno::NOSPC),
            (PoolError::FileTooLarge, Errno::FBIG),
            (PoolError::CrossDomain, Errno::XDEV),
            (PoolError::Invalid("overlap"), Errno::INVAL),
            (PoolError::NoSuchOffset, Errno::NXIO),
            (PoolError::NoAttribute, Errno::NODATA),
            (PoolError::AttributeTooLarge, Errno::TOOBIG),
            (PoolError::TooManyAttributes, Errno::TOOBIG),
            (PoolError::TooManyLinks, Errno::MLINK),
            (PoolError::NotPermitted("link to a directory"), Errno::PERM),
            (PoolError::Unsupported("collapse"), Errno::OPNOTSUPP),
            (PoolError::ReadOnly, Errno::ROFS),
        ];
        for (error, errno) in table {
            assert_eq!(errno_of(&error), (errno, Reportee::Caller), "{error}");
        }
    }

    #[test]
    fn trouble_of_the_pool_is_an_io_error_and_is_reported() {
        let block = BlockNo(7);
        let source = std::io::Error::other("cable");
        let damaged = PoolError::Damaged { structure: "bitmap", block, what: "bad checksum".into() };
        let lost = PoolError::WritesLost { count: 3, ino: Ino(5), cause: PoolError::NoSpace.into() };
        assert_eq!(errno_of(&lost), (Errno::NOSPC, Reportee::Operator));
        let table = [
            PoolError::WritesLost { count: 3, ino: Ino(5), cause: damaged.into() },
            PoolError::Stopped { cause: "cannot write".into() },
            PoolError::Damaged { structure: "bitmap", block, what: "bad checksum".into() },
            PoolError::Io { action: "read", block, source },
            PoolError::InUse("by another daemon".into()),
        ];
        for error in table {
            assert_eq!(errno_of(&error), (Errno::IO, Reportee::Operator), "{error}");
        }
    }
}
