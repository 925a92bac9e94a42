//! Carries out each request.

use std::os::fd::OwnedFd;

use onefold_pool::check::{CheckReport, ScrubOptions};
use onefold_pool::{Ino, Pool, PoolError, Progress};

use super::message::{ControlAnswer, ControlRequest, FailureKind, ScrubProblem, ScrubReport};
use super::open_file::{OpenFile, OpenFileError};
use super::served::{ServedMount, ServedPool};
use crate::door::EndError;
use crate::fuse::drop_privileges_from;

/// Why a request failed, in the form that the client gets.
#[derive(Debug)]
pub(super) struct RequestFailure {
    pub(super) kind: FailureKind,
    pub(super) message: String,
}

impl RequestFailure {
    pub(super) fn new(kind: FailureKind, message: impl Into<String>) -> RequestFailure {
        RequestFailure { kind, message: message.into() }
    }
}

/// Carries out `request`. The caller has checked that the peer may make it.
pub(super) fn run(
    served: &ServedPool,
    request: &ControlRequest,
    files: Vec<OwnedFd>,
    progress: &dyn Progress,
) -> Result<ControlAnswer, RequestFailure> {
    let pool = &served.pool;
    match request {
        ControlRequest::Stat => Ok(ControlAnswer::Stat { stat: Box::new(pool.stat()?) }),
        ControlRequest::FileStat => {
            let [file] = inspect(mount_of(served)?, files)?;
            Ok(ControlAnswer::FileStat { stat: pool.file_stat(file.readable()?, progress)? })
        }
        ControlRequest::Clone => {
            let mount = mount_of(served)?;
            clone(pool, mount, &inspect(mount, files)?)
        }
        ControlRequest::Grow => Ok(ControlAnswer::Bytes { bytes: pool.grow()? }),
        ControlRequest::Trim => Ok(ControlAnswer::Bytes { bytes: pool.trim(progress)? }),
        ControlRequest::Scrub { bytes_per_second } => {
            let options = ScrubOptions { bytes_per_second: *bytes_per_second };
            let report = pool.scrub(&options, progress)?;
            if !report.stopped {
                // The findings matter more than a failure to note the time, which a damaged or full pool may cause.
                let _ = pool.note_scrub();
            }
            Ok(ControlAnswer::Scrub { report: scrub_report(report) })
        }
        ControlRequest::Sync => {
            if !pool.is_read_only() {
                // Unlike a sync, this reports losses of accepted writes.
                pool.fsync(Ino::ROOT)?;
            }
            Ok(ControlAnswer::Nothing)
        }
        ControlRequest::Umount => {
            // A file sent along would keep the mount busy.
            drop(files);
            if let Err(error) = served.stopper.try_end() {
                // Even if the end was refused, earlier writes are on disk when the answer arrives.
                let committed = served.stopper.commit();
                let failure = RequestFailure::from(error);
                return Err(match committed {
                    Ok(()) => failure,
                    Err(error) => {
                        let message = format!("{}; and not everything is on disk: {error}", failure.message);
                        RequestFailure::new(failure.kind, message)
                    }
                });
            }
            match served.ending.wait() {
                Ok(()) => Ok(ControlAnswer::Nothing),
                Err(message) => Err(RequestFailure::new(FailureKind::Failed, message)),
            }
        }
    }
}

/// Returns the mount that holds the files of a request.
fn mount_of(served: &ServedPool) -> Result<&ServedMount, RequestFailure> {
    served.mount.as_ref().ok_or_else(not_mounted)
}

fn not_mounted() -> RequestFailure {
    RequestFailure::new(FailureKind::BadRequest, "the pool is not mounted: no open file belongs to it")
}

fn inspect<const COUNT: usize>(mount: &ServedMount, files: Vec<OwnedFd>) -> Result<[OpenFile; COUNT], RequestFailure> {
    let found: Vec<_> = files.into_iter().map(|file| OpenFile::inspect(file, mount.device)).collect();
    // After the mount has ended, the kernel may give its device number to any other file system, with any inode
    // numbers. It does not do so while the connection lives. So this check comes after the numbers are read, while the
    // files are held.
    if !mount.invalidator.is_connected() {
        return Err(not_mounted());
    }
    let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
    <[OpenFile; COUNT]>::try_from(found)
        .map_err(|_| RequestFailure::new(FailureKind::BadRequest, format!("the request takes {COUNT} open files")))
}

fn clone(pool: &Pool, mount: &ServedMount, [source, target]: &[OpenFile; 2]) -> Result<ControlAnswer, RequestFailure> {
    let (source, target) = (source.readable()?, target.replaceable()?);
    // The kernel sees no write here, after which it would request this itself.
    drop_privileges_from(pool, target, None)?;
    let cloned = pool.clone_file(source, target);
    // The kernel does not know of the change to the target. Its cached pages are dropped even after a failure:
    // otherwise they would show a state that exists nowhere else.
    let told = mount.invalidator.invalidate(target);
    cloned?;
    told.map_err(|error| {
        RequestFailure::new(FailureKind::Failed, format!("cannot drop the cached pages of the target: {error}"))
    })?;
    Ok(ControlAnswer::Nothing)
}

fn scrub_report(report: CheckReport) -> ScrubReport {
    let problems = report.problems.into_iter().map(|problem| ScrubProblem {
        structure: problem.structure.to_owned(),
        block: problem.block.map(|block| block.0),
        files: problem.files,
        what: problem.what,
    });
    ScrubReport {
        problems: problems.collect(),
        problems_total: report.problems_total,
        data_blocks_hashed: report.data_blocks_hashed,
        stopped: report.stopped,
    }
}

impl From<PoolError> for RequestFailure {
    fn from(error: PoolError) -> RequestFailure {
        RequestFailure::new(kind_of(&error), error.to_string())
    }
}

impl From<OpenFileError> for RequestFailure {
    fn from(error: OpenFileError) -> RequestFailure {
        let kind = match &error {
            OpenFileError::Elsewhere | OpenFileError::NotRegular | OpenFileError::Io(_) => FailureKind::BadRequest,
            OpenFileError::NotOpenFor(_) => FailureKind::NotPermitted,
        };
        RequestFailure::new(kind, error.to_string())
    }
}

impl From<EndError> for RequestFailure {
    fn from(error: EndError) -> RequestFailure {
        match &error {
            EndError::Busy | EndError::Clients { .. } => RequestFailure::new(FailureKind::Busy, error.to_string()),
            EndError::Held(_) | EndError::StillHeld(_) => RequestFailure::new(FailureKind::Held, error.to_string()),
            EndError::Refused { source, .. } => RequestFailure::new(FailureKind::Failed, format!("{error}: {source}")),
        }
    }
}

fn kind_of(error: &PoolError) -> FailureKind {
    match error {
        PoolError::NoSpace => FailureKind::NoSpace,
        PoolError::Damaged { .. } => FailureKind::Damaged,
        PoolError::NotPermitted(_) | PoolError::ReadOnly => FailureKind::NotPermitted,
        PoolError::NotFound
        | PoolError::Exists
        | PoolError::NotADirectory
        | PoolError::IsADirectory
        | PoolError::NotEmpty
        | PoolError::NameTooLong
        | PoolError::FileTooLarge
        | PoolError::CrossDomain
        | PoolError::Invalid(_)
        | PoolError::NoSuchOffset
        | PoolError::NoAttribute
        | PoolError::AttributeTooLarge
        | PoolError::TooManyAttributes
        | PoolError::TooManyLinks
        | PoolError::Unsupported(_)
        | PoolError::TooLargeForJournal
        | PoolError::JournalTooSmall { .. }
        | PoolError::WritesLost { .. }
        | PoolError::Stopped { .. }
        | PoolError::Io { .. }
        | PoolError::NotAPool(_)
        | PoolError::NewerFormat(_)
        | PoolError::InUse(_)
        | PoolError::DeviceTooSmall { .. }
        | PoolError::UnprovenNames { .. }
        | PoolError::MemoryTooSmall { .. } => FailureKind::Failed,
    }
}
