//! Installs an image: writes what was captured to a target.
//!
//! Threads take the chunks in order. Each reads a chunk's header, has its units fetched, decompressed and verified, and
//! writes them in the order of the disk. While some threads wait for the store or the target, others decompress. What a
//! thread holds at once is bounded by a window of plain bytes, whatever a header claims.
//!
//! Both ends of the disk are wiped first and written last ([`ends`]), so a disk that is half installed never boots.

mod ends;
mod file;
mod target;
#[cfg(test)]
mod tests;
mod window;
mod work;

use std::io;

use onefold_block::size::human;
use onefold_disk::OnProgress;

use crate::archive::{Archive, ArchiveError};
use crate::format::manifest::Manifest;
use crate::placed::HeaderError;

pub use file::{Content, FileTarget, TargetError};
pub use target::Target;

use ends::Ends;
use work::{Job, Step};

/// Bytes that are made zero between two looks at the progress callback.
const ZEROED_AT_ONCE: u64 = 256 << 20;

/// What becomes of the sectors of a target that no chunk names, and of the rest of a longer target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Free {
    /// They stay as they are, with whatever a former user has left there.
    #[default]
    Leave,
    /// They read as zeros.
    Zero,
    /// They are given back to what lies below the target, if it takes them.
    Discard,
}

/// How an image is installed.
#[derive(Clone, Copy, Debug)]
pub struct InstallOptions {
    /// What becomes of free sectors.
    pub free: Free,
    /// Whether the target is read and compared afterwards.
    pub verify: bool,
    /// Number of threads, at least 1.
    pub threads: usize,
    /// Bytes of memory for the content of units in all threads.
    pub memory_bytes: u64,
}

/// What was installed, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// Bytes of units that were written.
    pub written_bytes: u64,
    /// Bytes that read as zeros because the image says so.
    pub zero_bytes: u64,
    /// Bytes that were read back and compared.
    pub verified_bytes: u64,
}

/// Why an image was not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The target is shorter than the disk was.
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
    /// The header of a chunk is whole, but makes no sense for this disk.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The target failed.
    #[error("cannot {action} the target")]
    Target {
        /// What was tried: "write", "read back", "flush".
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The target does not return what was written.
    #[error("the target returns other bytes than were written, at byte {offset} or behind it")]
    ReadBack {
        /// First byte of the unit or of the zeros.
        offset: u64,
    },
    /// The progress callback stopped the work.
    #[error("interrupted while installing")]
    Stopped,
}

/// Installs an image to a target, and returns when all of it is durable.
///
/// # Errors
/// When the target is too small, before anything is written. Later errors leave a target that does not boot.
pub fn install(
    archive: &Archive,
    manifest: &Manifest,
    target: &dyn Target,
    options: &InstallOptions,
    progress: OnProgress<'_>,
) -> Result<Installed, InstallError> {
    let (needed_bytes, target_bytes) = (manifest.size_bytes, target.length_bytes());
    if target_bytes < needed_bytes {
        return Err(InstallError::TooSmall { needed_bytes, target_bytes });
    }
    let ends = Ends::of(needed_bytes);
    let total_bytes = manifest.totals.data_bytes.saturating_add(manifest.totals.zero_bytes);
    let steps = if options.verify { 2 } else { 1 };
    let job = Job::new(archive, manifest, target, &ends, options, progress, total_bytes.saturating_mul(steps));

    ends.wipe(target).map_err(failed("write"))?;
    let is_blank = prepare(&job, options.free)?;
    let written = job.run(Step::Write { is_blank })?;
    target.sync().map_err(failed("flush"))?;
    ends.publish(target).map_err(failed("write"))?;
    let mut installed =
        Installed { written_bytes: written.data_bytes, zero_bytes: written.zero_bytes, verified_bytes: 0 };
    if options.verify {
        let read = job.run(Step::ReadBack)?;
        installed.verified_bytes = read.data_bytes + read.zero_bytes;
    }
    Ok(installed)
}

/// Does with the target what is to be done with its free sectors, save for the ends, which are zeros. Returns whether all of
/// it reads as zeros now.
fn prepare(job: &Job<'_>, free: Free) -> Result<bool, InstallError> {
    let target = job.target;
    if target.is_blank() || free == Free::Leave {
        return Ok(target.is_blank());
    }
    for range in [job.ends.middle(), job.manifest.size_bytes..target.length_bytes()] {
        let mut offset = range.start;
        while offset < range.end {
            job.check_interrupt()?;
            let length_bytes = ZEROED_AT_ONCE.min(range.end - offset);
            match free {
                Free::Leave => {}
                Free::Zero => target.zero(offset, length_bytes).map_err(failed("write"))?,
                Free::Discard => {
                    if !target.discard(offset, length_bytes).map_err(failed("discard sectors of"))? {
                        return Ok(false);
                    }
                }
            }
            offset += length_bytes;
        }
    }
    // What was discarded may read as anything, old bytes too.
    Ends::wipe_backup_tables(target).map_err(failed("write"))?;
    Ok(free == Free::Zero)
}

/// Returns what makes an error of a call on the target.
fn failed(action: &'static str) -> impl Fn(io::Error) -> InstallError {
    move |source| InstallError::Target { action, source }
}
