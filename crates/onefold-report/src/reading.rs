//! The first stage of an analysis: opens each image when its turn comes, and reads it in one or several passes.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use onefold_block::BLOCK_BYTES_U64;
use onefold_disk::{CachedDisk, Disk};
use onefold_guest::Partition;
use onefold_sort::SortBatch;

use crate::claims::{Claims, Source, Wait};
use crate::files::{ImageSurvey, Survey, SurveyError};
use crate::image::{Image, WatchedDisk};
use crate::options::{AnalyzeError, Options, Progress, Stage};
use crate::padded::PaddedDisk;
use crate::parallel_survey::{ParallelSurvey, SurveyResult};
use crate::realign::{RealignedDisk, is_misaligned};
use crate::record::{BLOCKS_MAX, ListSet};
use crate::sample::{Sample, SampleExtent, SampledDisk};
use crate::scan::{Grid, Hasher, ScanResult, scan};
use crate::scan_error::ScanError;

const SECTOR_BYTES: u64 = 512;
/// Cache of a disk while its partition tables are read: entry after entry, a few bytes each.
const TABLES_CACHED_BYTES: usize = 64 << 10;

/// Result of reading an image, or the reason why it does not count.
pub(crate) type ReadResult = Result<CompleteImage, String>;

/// An image that was read completely.
#[derive(Debug)]
pub(crate) struct CompleteImage {
    pub(crate) scanned: ScanResult,
    /// Its partitions that begin inside a block.
    pub(crate) misaligned: Vec<Partition>,
    pub(crate) has_changed: bool,
    /// Only for a sample.
    pub(crate) extent: Option<SampleExtent>,
    /// The owners of its blocks, if requested.
    pub(crate) survey: Option<ImageSurvey>,
}

/// The reading of all images.
pub(crate) struct ReadingStage<'a> {
    pub(crate) images: &'a [Image],
    pub(crate) options: &'a Options,
    /// The sample to read of each image. Without a sample, images are read completely.
    pub(crate) sample: Option<&'a Sample>,
    pub(crate) hasher: Hasher,
    pub(crate) told: ReportedProgress<'a>,
    /// Memory for contents of blocks that wait for a survey.
    pub(crate) held_bytes: usize,
}

impl ReadingStage<'_> {
    /// Reads one image after another. Each of `batches` has a thread and receives its records. If there is a `survey`,
    /// it finds the owners of blocks while they are read, and then starts with the next image.
    pub(crate) fn all(
        &self,
        batches: &mut [SortBatch<'_>],
        survey: Option<&mut Survey<'_>>,
    ) -> Result<Vec<ReadResult>, AnalyzeError> {
        let Some(survey) = survey else {
            let images = self.images.iter().map(|image| self.opened(image));
            return self.each(images, batches);
        };
        let is_over = AtomicBool::new(false);
        let go_on = || if is_over.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { self.told.again() };
        thread::scope(|scope| {
            let (ahead, opened) = mpsc::channel();
            let (end, ended) = mpsc::channel();
            let is_over = &is_over;
            let reading = scope.spawn(move || {
                // The iterator closes an image when its caller asks for the next one.
                let turns = std::iter::from_fn(|| {
                    let _ = end.send(());
                    opened.recv().ok()
                });
                let read = self.each(turns, batches);
                // A survey that waits for the end of an image continues when the channels are closed, and ends.
                is_over.store(true, Ordering::Relaxed);
                read
            });
            // The survey makes many small allocations, and threads other than the first one ask the kernel for each
            // page of them (glibc's arenas grow page by page).
            self.survey_all(survey, &go_on, &ended, &ahead);
            survey.end();
            drop(ahead);
            reading.join().expect("reading does not panic")
        })
    }

    /// Opens one image after another, passes it on, and surveys it. `ended` says that the previous image is closed; it
    /// does so once for each image, including the first. At most one image is open ahead of its turn. If both images
    /// are copies, the second is made after the first is removed.
    fn survey_all(
        &self,
        survey: &mut Survey<'_>,
        go_on: &dyn Fn() -> ControlFlow<()>,
        ended: &mpsc::Receiver<()>,
        ahead: &mpsc::Sender<Result<OpenedImage, ScanError>>,
    ) {
        let (mut is_before_copied, mut turns) = (false, 0);
        for (at, image) in self.images.iter().enumerate() {
            let turn = if is_before_copied && image.is_copied { at + 1 } else { at };
            while turns < turn {
                if ended.recv().is_err() {
                    return;
                }
                turns += 1;
            }
            is_before_copied = image.is_copied;
            let (surveyed, survey_of) = mpsc::channel();
            let opened = self.opened(image).map(|opened| OpenedImage { survey: Some(survey_of), ..opened });
            let disk = opened.as_ref().ok().map(|opened| (Arc::clone(&opened.disk), opened.has_writer));
            if ahead.send(opened).is_err() {
                return;
            }
            if let Some((disk, has_writer)) = disk {
                let found = survey.read(disk.as_ref(), at, has_writer, go_on).map_err(scan_error);
                // The image's reader is the last owner of the disk.
                drop(disk);
                let _ = surveyed.send(found);
            }
        }
    }

    /// Reads images, each of which is opened when its turn comes.
    fn each(
        &self,
        mut opened: impl Iterator<Item = Result<OpenedImage, ScanError>>,
        batches: &mut [SortBatch<'_>],
    ) -> Result<Vec<ReadResult>, AnalyzeError> {
        let mut read = Vec::with_capacity(self.images.len());
        let mut before = 0_u64;
        for (at, image) in self.images.iter().enumerate() {
            // Progress is in the given lengths, which the real length of a compressed image may exceed.
            let tell = |done: u64| self.told.update(before.saturating_add(done.min(image.about_bytes)));
            if tell(0).is_break() {
                return Err(AnalyzeError::Interrupted);
            }
            let Some(opened) = opened.next() else { return Err(AnalyzeError::Interrupted) };
            match opened.and_then(|opened| self.one(at, image, opened, batches, &tell)) {
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

    /// Opens an image and reads its partition tables.
    fn opened(&self, image: &Image) -> Result<OpenedImage, ScanError> {
        let watched = (image.open)().map_err(ScanError::Disk)?;
        let disk = watched.disk.as_ref();
        if disk.size_bytes() / BLOCK_BYTES_U64 >= BLOCKS_MAX {
            return Err(ScanError::TooLong);
        }
        let tables = CachedDisk::new(disk, TABLES_CACHED_BYTES);
        let partitions = onefold_guest::partitions(&tables).map_err(ScanError::Disk)?;
        let WatchedDisk { disk, has_changed, has_writer } = watched;
        Ok(OpenedImage { disk: Arc::from(disk), has_changed, has_writer, partitions, survey: None })
    }

    fn one(
        &self,
        at: usize,
        image: &Image,
        opened: OpenedImage,
        batches: &mut [SortBatch<'_>],
        tell: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
    ) -> Result<CompleteImage, ScanError> {
        let OpenedImage { disk, has_changed, partitions, survey, .. } = opened;
        let disk = disk.as_ref();
        let misaligned: Vec<Partition> = partitions.iter().copied().filter(is_misaligned).collect();
        if let Some(sample) = self.sample {
            let sampled = SampledDisk::new(disk, sample);
            let scanned = scan(&sampled, at, Grid::plain(), &self.hasher, of(ListSet::AS_IT_IS), batches, tell)?;
            let extent = Some(sampled.into_extent());
            return Ok(CompleteImage { scanned, misaligned, has_changed: has_changed(), extent, survey: None });
        }
        let shifts = self.options.shifts.steps();
        // Each pass is an equal part of the work. Whether there is a pass for data areas may be known only after the
        // first pass: the displayed progress then goes back a little.
        let part = |pass: u64, passes: u64| {
            move |done: u64| {
                tell(pass.saturating_mul(image.about_bytes).saturating_add(done.min(image.about_bytes)) / passes)
            }
        };
        let first = |source: Source<'_>, batches: &mut [SortBatch<'_>]| {
            let passes = 1 + u64::from(shifts) + u64::from(!misaligned.is_empty());
            scan(disk, at, Grid::plain(), &self.hasher, source, batches, &part(0, passes))
        };
        let has_moved = !misaligned.is_empty();
        let (scanned, survey) = match survey {
            None => (first(of(ListSet::as_they_lie(has_moved, false)), batches)?, None),
            Some(survey) => {
                let mut beside = ParallelSurvey::new(survey, has_moved);
                let mut ask = |wait: Wait| beside.ask(wait);
                let scanned = first(Source::Awaited { ask: &mut ask, held_bytes: self.held_bytes }, batches);
                beside.end(scanned)?
            }
        };
        let areas = survey.as_ref().map_or(&[][..], ImageSurvey::data_areas);
        let mut moved = Vec::new();
        if has_moved {
            moved.push((RealignedDisk::new(disk, &partitions, &[]), ListSet::with_partitions_moved(!areas.is_empty())));
        }
        if !areas.is_empty() {
            moved.push((RealignedDisk::new(disk, &partitions, areas), ListSet::WITH_DATA_AREAS));
        }
        let passes = 1 + u64::from(shifts) + moved.len() as u64;
        for steps in 1..=shifts {
            let shifted = PaddedDisk::new(disk, u64::from(steps) * SECTOR_BYTES);
            let part = part(u64::from(steps), passes);
            scan(&shifted, at, Grid::shifted(steps), &self.hasher, of(ListSet::AS_IT_IS), batches, &part)?;
        }
        for (pass, (moved, lists)) in (1 + u64::from(shifts)..).zip(moved) {
            scan(&moved, at, Grid::realigned(), &self.hasher, of(lists), batches, &part(pass, passes))?;
        }
        Ok(CompleteImage { scanned, misaligned, has_changed: has_changed(), extent: None, survey })
    }
}

/// Returns claims of these lists, without owners.
fn of(lists: ListSet) -> Source<'static> {
    Source::Known(Claims::new(lists, None))
}

/// An image whose turn has come or comes next.
struct OpenedImage {
    disk: Arc<dyn Disk>,
    has_changed: Box<dyn Fn() -> bool + Send>,
    has_writer: bool,
    partitions: Vec<Partition>,
    /// Receives the owners of its blocks, if requested.
    survey: Option<mpsc::Receiver<SurveyResult>>,
}

fn scan_error(error: SurveyError) -> ScanError {
    match error {
        SurveyError::Disk(error) => ScanError::Disk(error),
        SurveyError::Temporary(error) => ScanError::Spill(error),
        SurveyError::Interrupted => ScanError::Interrupted,
    }
}

/// Progress over all images that was reported to the user.
pub(crate) struct ReportedProgress<'a> {
    progress: &'a dyn Progress,
    bytes: AtomicU64,
    total: u64,
}

impl<'a> ReportedProgress<'a> {
    /// Returns the progress before anything is read. The user is not notified.
    pub(crate) fn new(images: &[Image], progress: &'a dyn Progress) -> ReportedProgress<'a> {
        let total = images.iter().fold(0_u64, |sum, image| sum.saturating_add(image.about_bytes));
        ReportedProgress { progress, bytes: AtomicU64::new(0), total }
    }

    /// Reports the progress.
    fn update(&self, bytes: u64) -> ControlFlow<()> {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.again()
    }

    /// Reports the same progress again, to learn whether to continue.
    fn again(&self) -> ControlFlow<()> {
        self.progress.update(Stage::Reading, self.bytes.load(Ordering::Relaxed), self.total)
    }
}
