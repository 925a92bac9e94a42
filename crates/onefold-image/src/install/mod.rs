//! Installs an image: writes the captured data to a target.
//!
//! Threads take the chunks in order. Each reads a chunk's header, fetches, decompresses and verifies its units, and
//! writes them in the order of the disk. While some threads wait for the store or the target, others decompress. A
//! window of plain bytes bounds the memory of a thread, however many units a header has. The header itself has at most
//! 1 MiB, and at most 16 times as much in memory.
//!
//! All headers are read before the target is touched ([`examine()`]), so an image that is damaged there costs no
//! target.
//!
//! Both ends of the disk are wiped first and written last ([`ends`]), so a disk that is half installed never boots.
//! What lies between them is read back before that, and the ends afterwards: a disk that returns other bytes does not
//! boot, either.

mod ends;
mod examine;
mod file;
mod fit;
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

use onefold_block::BLOCK_BYTES;
use onefold_block::size::human;
use onefold_disk::{OnProgress, Progress};

use crate::archive::ArchiveError;
use crate::format::manifest::Manifest;
use crate::image_source::ImageSource;
use crate::placed::HeaderError;

pub use ends::HEAD_BYTES;
pub use examine::examine;
pub use file::{Content, FileTarget, TargetError};
pub use fit::{FitError, check_fit};
pub use place::TargetPlace;
pub use target::Target;

use ends::Ends;
use examine::{beside_headers, read_examined};
use hidden::HiddenSectors;
use work::{Job, Step};

/// Bytes that are zeroed between two calls of the progress callback.
const ZEROED_AT_ONCE: u64 = 256 << 20;

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
    /// Bytes of units that were written.
    pub written_bytes: u64,
    /// Bytes that read as zeros as the image demands.
    pub zero_bytes: u64,
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
    #[error("cannot {action} the target")]
    Target {
        /// The operation: "write", "read back", "flush".
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The target returns other bytes than were written.
    #[error("the target returns other bytes than were written, at byte {offset} or behind it")]
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
    let headers = read_examined(source, manifest, options, progress);
    let headers = headers.map_err(|error| InstallError::Untouched(Box::new(error)))?;
    let ends = Ends::of(needed_bytes);
    let total_bytes = manifest.totals.data_bytes.saturating_add(manifest.totals.zero_bytes);
    let steps = if options.verify { 2 } else { 1 };
    let job = Job::new(
        &headers,
        manifest,
        target,
        &ends,
        &beside_headers(options),
        progress,
        total_bytes.saturating_mul(steps),
    );

    ends.wipe(target).map_err(failed("write"))?;
    let TargetState { is_blank, discarded_bytes } = prepare(&job, options.free)?;
    let written = job.run(Step::Write { is_blank })?;
    target.sync().map_err(failed("flush"))?;
    let mut installed = InstallReport {
        written_bytes: written.data_bytes,
        zero_bytes: written.zero_bytes,
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

/// State of the target before the image is written.
struct TargetState {
    /// Whether all of it reads as zeros.
    is_blank: bool,
    discarded_bytes: u64,
}

/// Does with the target what is to be done with its free sectors, save for the ends, which are zeros.
fn prepare(job: &Job<'_>, free: FreeSectorPolicy) -> Result<TargetState, InstallError> {
    let target = job.target;
    if target.is_blank() || free == FreeSectorPolicy::Leave {
        return Ok(TargetState { is_blank: target.is_blank(), discarded_bytes: 0 });
    }
    let mut discarded_bytes = 0;
    for range in [job.ends.middle(), job.manifest.size_bytes..target.length_bytes()] {
        let mut offset = range.start;
        while offset < range.end {
            job.check_interrupt()?;
            // Each piece but the first begins where a block of the target does, if the target begins where one does.
            let length_bytes = (ZEROED_AT_ONCE - offset % BLOCK_BYTES as u64).min(range.end - offset);
            match free {
                FreeSectorPolicy::Leave => {}
                FreeSectorPolicy::Zero => {
                    target.zero(offset, length_bytes).map_err(failed("write"))?;
                }
                FreeSectorPolicy::Discard => {
                    discarded_bytes += target.discard(offset, length_bytes).map_err(failed("discard sectors of"))?;
                }
            }
            offset += length_bytes;
        }
    }
    // Discarded sectors may read as anything, including old bytes.
    Ends::wipe_backup_tables(target).map_err(failed("write"))?;
    Ok(TargetState { is_blank: free == FreeSectorPolicy::Zero, discarded_bytes })
}

/// Returns a function that wraps an error of a call on the target.
fn failed(action: &'static str) -> impl Fn(io::Error) -> InstallError {
    move |source| InstallError::Target { action, source }
}
