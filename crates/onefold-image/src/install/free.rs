//! The free sectors of an image on the target, and the rest of a longer target: they stay, become zeros, or are
//! discarded, before anything else is written between the ends.

use std::ops::Range;

use onefold_block::BLOCK_BYTES;

use super::ends::Ends;
use super::examine::each_free_range;
use super::work::Job;
use super::{FreeSectorPolicy, InstallError, InstallOptions, failed, failed_at};

/// Bytes that are zeroed between two calls of the progress callback.
const ZEROED_AT_ONCE: u64 = 256 << 20;

/// State of the target before the image is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetState {
    /// Whether all of it reads as zeros.
    pub(super) is_blank: bool,
    /// Bytes that were given back to what lies below the target.
    pub(super) discarded_bytes: u64,
}

/// Does with the target what is to be done with its free sectors, save for the ends, which are zeros. Where nothing of
/// the target is kept, that is done with all sectors, in few calls.
///
/// # Errors
/// When the target fails, or the user has interrupted the work.
pub(super) fn prepare(job: &Job<'_>, options: &InstallOptions) -> Result<TargetState, InstallError> {
    let target = job.target;
    if target.is_blank() || options.free == FreeSectorPolicy::Leave {
        return Ok(TargetState { is_blank: target.is_blank(), discarded_bytes: 0 });
    }
    let mut discarded_bytes = 0;
    let mut treat = |range| treat(job, options.free, range, &mut discarded_bytes);
    match job.is_comparing() {
        true => each_free_range(job, options, &mut |range| match job.ends.between(range.start, range.end) {
            Some((start, length_bytes)) => treat(start..start + length_bytes),
            None => Ok(()),
        })?,
        false => treat(job.ends.middle())?,
    }
    treat(job.manifest.size_bytes..target.length_bytes())?;
    // Discarded sectors may read as anything, including old bytes.
    Ends::wipe_backup_tables(target).map_err(failed("write"))?;
    let is_blank = options.free == FreeSectorPolicy::Zero && !job.is_comparing();
    Ok(TargetState { is_blank, discarded_bytes })
}

/// Treats a range as free.
fn treat(
    job: &Job<'_>,
    free: FreeSectorPolicy,
    range: Range<u64>,
    discarded_bytes: &mut u64,
) -> Result<(), InstallError> {
    let mut offset = range.start;
    while offset < range.end {
        job.check_interrupt()?;
        // Each piece but the first begins where a block of the target does, if the target begins where one does.
        let length_bytes = (ZEROED_AT_ONCE - offset % BLOCK_BYTES as u64).min(range.end - offset);
        match free {
            FreeSectorPolicy::Leave => {}
            FreeSectorPolicy::Zero => {
                job.target.zero(offset, length_bytes).map_err(failed_at("write", offset))?;
            }
            FreeSectorPolicy::Discard => {
                let discarded = job.target.discard(offset, length_bytes);
                *discarded_bytes += discarded.map_err(failed_at("discard sectors of", offset))?;
            }
        }
        offset += length_bytes;
    }
    Ok(())
}
