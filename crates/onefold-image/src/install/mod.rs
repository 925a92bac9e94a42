//! Installs an image: writes the captured data to a target.
//!
//! Threads take the chunks in order. Each reads a chunk's header, fetches, decompresses and verifies its units, and
//! writes them in the order of the disk. While some threads wait for the store or the target, others decompress. A
//! window of plain bytes bounds the memory of a thread, however many units a header has. The header itself has at most
//! 1 MiB, and at most 16 times as much in memory.
//!
//! All headers are read before the target is touched ([`examine()`]), so an image that is damaged there costs no
//! target. Units that the target has in their places are neither fetched nor written ([`compare`]). Where chunks arrive
//! in another order, the comparison goes ahead of them ([`ahead`]).
//!
//! Both ends of the disk are wiped first and written last ([`ends`]), so a disk that is half installed never boots.
//! What lies between them is read back before that, and the ends afterwards: a disk that returns other bytes does not
//! boot, either.

mod ahead;
mod arrivals;
mod compare;
mod differences;
mod early_flush;
mod ends;
mod examine;
mod file;
mod fit;
mod free;
mod headers;
mod hidden;
mod place;
#[cfg(test)]
mod requests;
mod target;
#[cfg(test)]
mod tests;
mod threads;
mod window;
mod work;

use std::io;

use onefold_block::size::human;
use onefold_disk::{OnProgress, Progress};

use crate::archive::ArchiveError;
use crate::format::manifest::Manifest;
use crate::image_source::ImageSource;
use crate::placed::HeaderError;

pub use differences::{Differences, DifferentPlace, differences};
pub use ends::HEAD_BYTES;
pub use examine::examine;
pub use file::{Content, FileTarget, TargetError};
pub use fit::{FitError, check_fit};
pub use place::TargetPlace;
pub use target::Target;

use ends::Ends;
use examine::{beside_headers, read_examined};
use free::{TargetState, prepare};
use hidden::HiddenSectors;
use work::{Job, Step};

/// Treatment of the sectors of a target that no chunk names, and of the rest of a longer target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreeSectorPolicy {
    /// They stay unchanged, including data of a former user.
    #[default]
    Leave,
    /// They read as zeros.
    Zero,
    /// They are discarded, if the target supports that.
    Discard,
}

/// Parameters of an installation.
#[derive(Clone, Copy, Debug)]
pub struct InstallOptions {
    /// How to treat free sectors.
    pub free: FreeSectorPolicy,
    /// Whether the target is read and compared afterwards.
    pub verify: bool,
    /// Whether everything is fetched and written, without a comparison with what the target holds before.
    pub fresh: bool,
    /// Number of threads, at least 1.
    pub threads: usize,
    /// Memory for the content of units in all threads, in bytes.
    pub memory_bytes: u64,
    /// Whether the backup of a GPT moves to the end of a larger target.
    pub fit: bool,
    /// The byte of its disk at which the target begins. If the image is a FAT or NTFS volume, its boot sector gets the
    /// number of sectors before that byte, unless there are none.
    pub start_bytes: u64,
}

/// Result of an installation, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstallReport {
    /// Bytes of units that were in their places on the target before.
    pub found_bytes: u64,
    /// Bytes of units and headers that came from the archive or the server, as they are stored or sent.
    pub received_bytes: u64,
    /// Bytes of units that came from seeds.
    pub seed_bytes: u64,
    /// Bytes of units that were written.
    pub written_bytes: u64,
    /// Bytes that read as zeros as the image demands.
    pub zero_bytes: u64,
    /// Those of them between the ends that the target was asked to make, because it had other bytes or nobody looked.
    pub zeroed_bytes: u64,
    /// Bytes that were given back to what lies below the target.
    pub discarded_bytes: u64,
    /// Bytes that were read back and compared.
    pub verified_bytes: u64,
    /// Whether the backup of a GPT was moved to the end of the target.
    pub is_fitted: bool,
    /// The number of hidden sectors that the boot sector of a FAT or NTFS volume got.
    pub hidden_sectors: Option<u32>,
}

/// Why an image was not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The target is shorter than the disk.
    #[error("the target has {} and the image needs {} ({needed_bytes} bytes)", human(*target_bytes), human(*needed_bytes))]
    TooSmall {
        /// Length of the disk.
        needed_bytes: u64,
        /// Length of the target.
        target_bytes: u64,
    },
    /// The archive failed or is damaged.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The header of a chunk is intact, but invalid for this disk.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The target failed.
    #[error("cannot {action} the target{}", place_of(*offset))]
    Target {
        /// The operation: "write", "read back", "flush".
        action: &'static str,
        /// The byte of the image from which on it failed, if the operation has a place.
        offset: Option<u64>,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The target returns other bytes than were written.
    #[error("the target returns other bytes than were written, at byte {offset} of the image or behind it")]
    ReadBack {
        /// First byte of the unit or of the zeros.
        offset: u64,
    },
    /// The image is damaged, or the archive failed, before the target was touched.
    #[error(transparent)]
    Untouched(Box<InstallError>),
    /// The partition table cannot be fitted to the target.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// The ends were written, at least in part, and the target failed then. They could not be wiped again.
    #[error("{cause}, and its ends cannot be wiped again")]
    Unwiped {
        /// Why the installation failed.
        cause: Box<InstallError>,
        /// Why the ends cannot be wiped.
        #[source]
        source: io::Error,
    },
    /// The progress callback stopped the work.
    #[error("interrupted while installing")]
    Stopped,
}

/// Installs an image to a target. All of it is durable when this returns.
///
/// # Errors
/// When the target is too small, or the image is found to be damaged ([`InstallError::Untouched`]), before anything is
/// written. Later errors leave a target that does not boot.
pub fn install(
    source: &dyn ImageSource,
    manifest: &Manifest,
    target: &dyn Target,
    options: &InstallOptions,
    progress: OnProgress<'_>,
) -> Result<InstallReport, InstallError> {
    let (needed_bytes, target_bytes) = (manifest.size_bytes, target.length_bytes());
    if target_bytes < needed_bytes {
        return Err(InstallError::TooSmall { needed_bytes, target_bytes });
    }
    let (received_before, seed_before) = (source.received_bytes(), source.seed_bytes());
    let headers = read_examined(source, manifest, options, progress);
    let headers = headers.map_err(|error| InstallError::Untouched(Box::new(error)))?;
    let mut ends = Ends::of(needed_bytes);
    let is_compared = !options.fresh && !target.is_blank();
    if is_compared {
        ends.remember(target);
    }
    let total_bytes = manifest.totals.data_bytes.saturating_add(manifest.totals.zero_bytes);
    let steps = if options.verify { 2 } else { 1 };
    let beside = beside_headers(options);
    let mut job = Job::new(&headers, manifest, target, &ends, &beside, progress, total_bytes.saturating_mul(steps));
    if is_compared {
        job.compare().map_err(|error| InstallError::Untouched(Box::new(error)))?;
    }

    ends.wipe(target).map_err(failed("write"))?;
    let TargetState { is_blank, discarded_bytes } = prepare(&job, &beside)?;
    let written = job.run(Step::Write { is_blank })?;
    target.sync().map_err(failed("flush"))?;
    let mut installed = InstallReport {
        found_bytes: written.found_bytes,
        written_bytes: written.data_bytes - written.found_bytes,
        zero_bytes: written.zero_bytes,
        zeroed_bytes: written.zeroed_bytes,
        discarded_bytes,
        ..InstallReport::default()
    };
    if options.verify {
        let read = job.run(Step::ReadBack)?;
        installed.verified_bytes = read.data_bytes + read.zero_bytes;
    }
    if options.fit {
        installed.is_fitted = ends.fit(target_bytes)?;
    }
    if let Some(hidden) = HiddenSectors::of(manifest, options.start_bytes) {
        installed.hidden_sectors = ends.hide(target, hidden, options.verify)?;
    }
    let published = ends.publish(target).map_err(failed("write")).and_then(|()| match options.verify {
        true => ends.read_back(target),
        false => Ok(()),
    });
    installed.received_bytes = source.received_bytes() - received_before;
    installed.seed_bytes = source.seed_bytes() - seed_before;
    match published {
        Ok(()) => Ok(installed),
        Err(cause) => Err(match ends.wipe_again(target) {
            Ok(()) => cause,
            Err(source) => InstallError::Unwiped { cause: Box::new(cause), source },
        }),
    }
}

/// Fails if the user has interrupted the work before anything of an image was written.
fn check_interrupt(progress: OnProgress<'_>, manifest: &Manifest) -> Result<(), InstallError> {
    let total_bytes = manifest.totals.data_bytes.saturating_add(manifest.totals.zero_bytes);
    let flow = progress(Progress { done_bytes: 0, total_bytes });
    if flow.is_break() { Err(InstallError::Stopped) } else { Ok(()) }
}

/// Returns a function that wraps an error of a call on the target.
fn failed(action: &'static str) -> impl Fn(io::Error) -> InstallError {
    move |source| InstallError::Target { action, offset: None, source }
}

/// Returns a function that wraps an error of a call on the target for bytes from `offset` on.
fn failed_at(action: &'static str, offset: u64) -> impl Fn(io::Error) -> InstallError {
    move |source| InstallError::Target { action, offset: Some(offset), source }
}

fn place_of(offset: Option<u64>) -> String {
    offset.map(|offset| format!(" at byte {offset} of the image or behind it")).unwrap_or_default()
}

impl InstallError {
    /// Returns the byte of the image at which the target failed, if that is known and has to do with the failure. A
    /// full file system fails at any byte.
    #[must_use]
    pub fn failed_byte(&self) -> Option<u64> {
        use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match self {
            InstallError::Target { source, .. }
                if matches!(source.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem) =>
            {
                None
            }
            InstallError::Target { offset, .. } => *offset,
            InstallError::ReadBack { offset } => Some(*offset),
            InstallError::Untouched(cause) | InstallError::Unwiped { cause, .. } => cause.failed_byte(),
            _ => None,
        }
    }
}
