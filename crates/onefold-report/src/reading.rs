//! The first stage of an analysis: each image is opened when its turn comes, and passed over once or several times.

use std::ops::ControlFlow;

use onefold_block::BLOCK_BYTES_U64;
use onefold_disk::{CachedDisk, Disk};
use onefold_guest::Partition;
use onefold_sort::Batch;

use crate::files::{BlockOwners, ImageSurvey, Survey, SurveyError};
use crate::image::{Image, WatchedDisk};
use crate::options::{AnalyzeError, Options, Progress, Stage};
use crate::padded::Padded;
use crate::realign::{Realigned, is_misaligned};
use crate::record::{BLOCKS_MAX, Lists};
use crate::sample::{Extent, Sample, Sampled};
use crate::scan::{Grid, Hasher, ScanError, Scanned, scan};

const SECTOR_BYTES: u64 = 512;
/// What is kept of a disk while its partition tables are read: entry after entry, a few bytes each.
const TABLES_CACHED_BYTES: usize = 64 << 10;

/// What was learned of an image when it was read, or why nothing of it counts.
pub(crate) type Read = Result<Whole, String>;

/// An image that was read to its end.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) scanned: Scanned,
    /// Its partitions that begin inside a block.
    pub(crate) misaligned: Vec<Partition>,
    pub(crate) has_changed: bool,
    /// Only of a sample.
    pub(crate) extent: Option<Extent>,
    /// What its blocks belong to, where that is asked for.
    pub(crate) survey: Option<ImageSurvey>,
}

/// The reading of all images.
pub(crate) struct Reading<'a> {
    pub(crate) images: &'a [Image],
    pub(crate) options: &'a Options,
    /// What is read of each image; all of it without a sample.
    pub(crate) sample: Option<&'a Sample>,
    pub(crate) hasher: Hasher,
    pub(crate) progress: &'a dyn Progress,
}

impl Reading<'_> {
    /// Reads one image after the other, with one thread for each of `batches`, which get the records. Where `survey` is
    /// there, it takes what the blocks belong to.
    pub(crate) fn all(
        &self,
        batches: &mut [Batch<'_>],
        mut survey: Option<&mut Survey<'_>>,
    ) -> Result<Vec<Read>, AnalyzeError> {
        let mut read = Vec::with_capacity(self.images.len());
        let total = self.images.iter().fold(0_u64, |sum, image| sum.saturating_add(image.about_bytes));
        let mut before = 0_u64;
        for (at, image) in self.images.iter().enumerate() {
            // How much is left is told in the given lengths, which a compressed image's own may exceed.
            let tell = |done: u64| {
                self.progress.update(Stage::Reading, before.saturating_add(done.min(image.about_bytes)), total)
            };
            if tell(0).is_break() {
                return Err(AnalyzeError::Interrupted);
            }
            match self.one(at, image, batches, survey.as_deref_mut(), &tell) {
                Ok(whole) => read.push(Ok(whole)),
                Err(ScanError::Disk(error)) => read.push(Err((self.options.explain)(&error))),
                Err(ScanError::TooLong) => read.push(Err("it is longer than 4 PiB".to_owned())),
                Err(ScanError::Interrupted) => return Err(AnalyzeError::Interrupted),
                Err(ScanError::Spill(source)) => {
                    return Err(AnalyzeError::Spill { folder: self.options.folder.clone(), source });
                }
            }
            before = before.saturating_add(image.about_bytes);
        }
        Ok(read)
    }

    fn one(
        &self,
        at: usize,
        image: &Image,
        batches: &mut [Batch<'_>],
        survey: Option<&mut Survey<'_>>,
        tell: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
    ) -> Result<Whole, ScanError> {
        let WatchedDisk { disk, has_changed, has_writer } = (image.open)().map_err(ScanError::Disk)?;
        let disk = disk.as_ref();
        if disk.size_bytes() / BLOCK_BYTES_U64 >= BLOCKS_MAX {
            return Err(ScanError::TooLong);
        }
        let tables = CachedDisk::new(disk, TABLES_CACHED_BYTES);
        let partitions = onefold_guest::partitions(&tables).map_err(ScanError::Disk)?;
        let misaligned: Vec<Partition> = partitions.iter().copied().filter(is_misaligned).collect();
        if let Some(sample) = self.sample {
            let sampled = Sampled::new(disk, sample);
            let scanned = scan(&sampled, at, Grid::plain(Lists::AS_IT_IS), &self.hasher, None, batches, tell)?;
            let extent = Some(sampled.into_extent());
            return Ok(Whole { scanned, misaligned, has_changed: has_changed(), extent, survey: None });
        }
        let lists = if misaligned.is_empty() { Lists::BOTH } else { Lists::AS_IT_IS };
        let realigned = (!misaligned.is_empty()).then(|| Realigned::new(disk, &partitions));
        let shifts = self.options.shifts.steps();
        let passes = 1 + u64::from(realigned.is_some()) + u64::from(shifts);
        // Each pass is an equal part of what there is to do.
        let part = |pass: u64| {
            move |done: u64| {
                tell(pass.saturating_mul(image.about_bytes).saturating_add(done.min(image.about_bytes)) / passes)
            }
        };
        let (survey, owners) = surveyed(survey, disk, at, has_writer, &|| tell(0))?;
        let scanned = scan(disk, at, Grid::plain(lists), &self.hasher, owners, batches, &part(0))?;
        for steps in 1..=shifts {
            let shifted = Padded::new(disk, u64::from(steps) * SECTOR_BYTES);
            scan(&shifted, at, Grid::shifted(steps), &self.hasher, None, batches, &part(u64::from(steps)))?;
        }
        if let Some(realigned) = realigned {
            scan(&realigned, at, Grid::realigned(), &self.hasher, None, batches, &part(passes - 1))?;
        }
        Ok(Whole { scanned, misaligned, has_changed: has_changed(), extent: None, survey })
    }
}

/// Returns what the blocks of a disk belong to, where that is asked for.
fn surveyed(
    survey: Option<&mut Survey<'_>>,
    disk: &dyn Disk,
    image: usize,
    has_writer: bool,
    go_on: &dyn Fn() -> ControlFlow<()>,
) -> Result<(Option<ImageSurvey>, Option<BlockOwners>), ScanError> {
    let Some(survey) = survey else { return Ok((None, None)) };
    match survey.read(disk, image, has_writer, go_on) {
        Ok((found, owners)) => Ok((Some(found), owners)),
        Err(SurveyError::Disk(error)) => Err(ScanError::Disk(error)),
        Err(SurveyError::Temporary(error)) => Err(ScanError::Spill(error)),
        Err(SurveyError::Interrupted) => Err(ScanError::Interrupted),
    }
}
