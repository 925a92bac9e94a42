//! Compares a target with an image and writes nothing: whether it is still as the image was installed.

use std::io;

use onefold_disk::OnProgress;
use parking_lot::Mutex;

use super::ends::Ends;
use super::examine::{beside_headers, read_examined};
use super::target::Target;
use super::threads::StepProgress;
use super::work::Job;
use super::{InstallError, InstallOptions, failed};
use crate::format::chunk_header::ChunkHeader;
use crate::format::manifest::Manifest;
use crate::image_source::{ImageSource, WantedUnits};

/// Maximum number of places that are listed.
const PLACES_MAX: usize = 4096;

/// Differences of a target from an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Bytes of units that are in their places.
    pub same_bytes: u64,
    /// Bytes of all other units.
    pub other_bytes: u64,
    /// Bytes of zeros of the image that read otherwise on the target, in steps of 256 KiB. All zeros count if the
    /// target has nothing of the image, and was not read to its end.
    pub nonzero_bytes: u64,
    /// Where some of these units and zeros lie, in the order of the disk: at most 4,096 of them.
    pub places: Vec<DifferentPlace>,
    /// Bytes that differ at places that are not listed.
    pub unlisted_bytes: u64,
}

/// A unit, or zeros, that the target has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DifferentPlace {
    /// First byte on the disk.
    pub offset: u64,
    /// Length of the unit or of the zeros, in bytes.
    pub length_bytes: u64,
}

impl Differences {
    /// Returns whether the target has all that the image defines.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.other_bytes == 0 && self.nonzero_bytes == 0
    }
}

/// Returns how a target differs from an image. Examines the image first, as an installation does. A target that seems
/// to have nothing of the image is not read to its end.
///
/// # Errors
/// When the image is damaged, the target is too small or often fails, or the user has interrupted the work.
pub fn differences(
    source: &dyn ImageSource,
    manifest: &Manifest,
    target: &dyn Target,
    options: &InstallOptions,
    progress: OnProgress<'_>,
) -> Result<Differences, InstallError> {
    let (needed_bytes, target_bytes) = (manifest.size_bytes, target.length_bytes());
    if target_bytes < needed_bytes {
        return Err(InstallError::TooSmall { needed_bytes, target_bytes });
    }
    let headers = read_examined(source, manifest, options, progress)?;
    let mut ends = Ends::of(needed_bytes);
    ends.remember(target);
    let beside = beside_headers(options);
    let total_bytes = manifest.totals.data_bytes.saturating_add(manifest.totals.zero_bytes);
    let mut job = Job::new(&headers, manifest, target, &ends, &beside, progress, total_bytes);
    job.compare()?;
    if !job.is_comparing() {
        let (other_bytes, nonzero_bytes) = (manifest.totals.data_bytes, manifest.totals.zero_bytes);
        let unlisted_bytes = other_bytes + nonzero_bytes;
        return Ok(Differences { other_bytes, nonzero_bytes, unlisted_bytes, ..Differences::default() });
    }
    let listed = Mutex::new(Vec::new());
    let compared = job.each_chunk(&|header, sum| compare_chunk(&job, header, &listed, sum))?;
    if job.has_given_up() {
        return Err(failed("read")(io::Error::other("too many places cannot be read")));
    }
    let mut places = listed.into_inner();
    places.sort_unstable();
    let (other_bytes, nonzero_bytes) = (compared.data_bytes - compared.found_bytes, compared.zeroed_bytes);
    let listed_bytes: u64 = places.iter().map(|place| place.length_bytes).sum();
    Ok(Differences {
        same_bytes: compared.found_bytes,
        other_bytes,
        nonzero_bytes,
        unlisted_bytes: (other_bytes + nonzero_bytes).saturating_sub(listed_bytes),
        places,
    })
}

/// Compares one chunk, and lists what differs.
fn compare_chunk(
    job: &Job<'_>,
    header: &ChunkHeader,
    listed: &Mutex<Vec<DifferentPlace>>,
    sum: &mut StepProgress,
) -> Result<(), InstallError> {
    let wanted: WantedUnits = job.lacking(header, sum)?;
    let units = header.units.iter().enumerate().filter(|(index, _)| wanted.has(*index));
    let mut others: Vec<DifferentPlace> = Vec::new();
    for (_, unit) in units {
        let length_bytes = u64::from(unit.plain_bytes);
        job.note_done(length_bytes, sum);
        others.extend(unit.runs.first().map(|run| DifferentPlace { offset: run.start_bytes(), length_bytes }));
    }
    job.each_nonzero(header, sum, &mut |offset, length_bytes| others.push(DifferentPlace { offset, length_bytes }))?;
    let mut listed = listed.lock();
    let room = PLACES_MAX.saturating_sub(listed.len());
    listed.extend(others.into_iter().take(room));
    Ok(())
}
