//! The first stage of an analysis: each image is opened when its turn comes, and passed over once or several times.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use onefold_block::BLOCK_BYTES_U64;
use onefold_disk::CachedDisk;
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
    pub(crate) told: Told<'a>,
}

impl Reading<'_> {
    /// Reads one image after the other, with one thread for each of `batches`, which get the records. Where `survey` is
    /// there, it takes what the blocks belong to: of the next image while the blocks of one are read.
    pub(crate) fn all(
        &self,
        batches: &mut [Batch<'_>],
        survey: Option<&mut Survey<'_>>,
    ) -> Result<Vec<Read>, AnalyzeError> {
        let Some(survey) = survey else {
            let images = self.images.iter().map(|image| self.opened(image));
            return self.each(images, batches);
        };
        let is_over = AtomicBool::new(false);
        let go_on = || if is_over.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { self.told.again() };
        thread::scope(|scope| {
            // A surveyed image is handed over when its turn comes: one is ahead, and no more.
            let (ahead, surveyed) = mpsc::sync_channel(0);
            let (end, ended) = mpsc::channel();
            let is_over = &is_over;
            let reading = scope.spawn(move || {
                // An image is closed when the next one is asked for.
                let turns = std::iter::from_fn(|| {
                    let _ = end.send(());
                    surveyed.recv().ok()
                });
                let read = self.each(turns, batches);
                // A survey that waits for the end of an image goes on with the channels closed, and ends.
                is_over.store(true, Ordering::Relaxed);
                read
            });
            // The survey allocates much, in small pieces, and other threads than the first one ask the kernel for each
            // page of them (glibc's arenas grow page by page).
            self.survey_all(survey, &go_on, &ended, &ahead);
            drop(ahead);
            reading.join().expect("reading does not panic")
        })
    }

    /// Opens and surveys one image after the other, and hands them over. `ended` says that the image before is closed:
    /// once for each image in turn, the first one too. Of two copies the second is made when the first is gone.
    fn survey_all(
        &self,
        survey: &mut Survey<'_>,
        go_on: &dyn Fn() -> ControlFlow<()>,
        ended: &mpsc::Receiver<()>,
        ahead: &mpsc::SyncSender<Result<Opened, ScanError>>,
    ) {
        let (mut is_before_copied, mut turns) = (false, 0);
        for (at, image) in self.images.iter().enumerate() {
            while is_before_copied && image.is_copied && turns <= at {
                if ended.recv().is_err() {
                    return;
                }
                turns += 1;
            }
            is_before_copied = image.is_copied;
            let surveyed = self.opened(image).and_then(|opened| opened.surveyed(survey, at, go_on));
            if ahead.send(surveyed).is_err() {
                return;
            }
        }
    }

    /// Reads images, each of which is opened when its turn comes.
    fn each(
        &self,
        mut opened: impl Iterator<Item = Result<Opened, ScanError>>,
        batches: &mut [Batch<'_>],
    ) -> Result<Vec<Read>, AnalyzeError> {
        let mut read = Vec::with_capacity(self.images.len());
        let mut before = 0_u64;
        for (at, image) in self.images.iter().enumerate() {
            // How much is left is told in the given lengths, which a compressed image's own may exceed.
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
    fn opened(&self, image: &Image) -> Result<Opened, ScanError> {
        let watched = (image.open)().map_err(ScanError::Disk)?;
        let disk = watched.disk.as_ref();
        if disk.size_bytes() / BLOCK_BYTES_U64 >= BLOCKS_MAX {
            return Err(ScanError::TooLong);
        }
        let tables = CachedDisk::new(disk, TABLES_CACHED_BYTES);
        let partitions = onefold_guest::partitions(&tables).map_err(ScanError::Disk)?;
        Ok(Opened { watched, partitions, survey: None, owners: None })
    }

    fn one(
        &self,
        at: usize,
        image: &Image,
        opened: Opened,
        batches: &mut [Batch<'_>],
        tell: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
    ) -> Result<Whole, ScanError> {
        let Opened { watched: WatchedDisk { disk, has_changed, .. }, partitions, survey, owners } = opened;
        let disk = disk.as_ref();
        let misaligned: Vec<Partition> = partitions.iter().copied().filter(is_misaligned).collect();
        if let Some(sample) = self.sample {
            let sampled = Sampled::new(disk, sample);
            let scanned = scan(&sampled, at, Grid::plain(Lists::AS_IT_IS), &self.hasher, None, batches, tell)?;
            let extent = Some(sampled.into_extent());
            return Ok(Whole { scanned, misaligned, has_changed: has_changed(), extent, survey: None });
        }
        let areas = survey.as_ref().map_or(&[][..], ImageSurvey::data_areas);
        // What nothing moves lies the same way in the lists that follow.
        let realigned_lists =
            if areas.is_empty() { Lists::REALIGNED.and(Lists::WITH_DATA_AREAS) } else { Lists::REALIGNED };
        let lists = if misaligned.is_empty() { Lists::AS_IT_IS.and(realigned_lists) } else { Lists::AS_IT_IS };
        let mut moved = Vec::new();
        if !misaligned.is_empty() {
            moved.push((Realigned::new(disk, &partitions, &[]), realigned_lists));
        }
        if !areas.is_empty() {
            moved.push((Realigned::new(disk, &partitions, areas), Lists::WITH_DATA_AREAS));
        }
        let shifts = self.options.shifts.steps();
        let passes = 1 + u64::from(shifts) + moved.len() as u64;
        // Each pass is an equal part of what there is to do.
        let part = |pass: u64| {
            move |done: u64| {
                tell(pass.saturating_mul(image.about_bytes).saturating_add(done.min(image.about_bytes)) / passes)
            }
        };
        let scanned = scan(disk, at, Grid::plain(lists), &self.hasher, owners, batches, &part(0))?;
        for steps in 1..=shifts {
            let shifted = Padded::new(disk, u64::from(steps) * SECTOR_BYTES);
            scan(&shifted, at, Grid::shifted(steps), &self.hasher, None, batches, &part(u64::from(steps)))?;
        }
        for (pass, (moved, lists)) in (1 + u64::from(shifts)..).zip(moved) {
            scan(&moved, at, Grid::realigned(lists), &self.hasher, None, batches, &part(pass))?;
        }
        Ok(Whole { scanned, misaligned, has_changed: has_changed(), extent: None, survey })
    }
}

/// An image whose turn has come, or comes next.
struct Opened {
    watched: WatchedDisk,
    partitions: Vec<Partition>,
    /// What its blocks belong to, and the owner of each, where that is asked for.
    survey: Option<ImageSurvey>,
    owners: Option<BlockOwners>,
}

impl Opened {
    /// Reads what the blocks belong to.
    fn surveyed(
        mut self,
        survey: &mut Survey<'_>,
        image: usize,
        go_on: &dyn Fn() -> ControlFlow<()>,
    ) -> Result<Opened, ScanError> {
        match survey.read(self.watched.disk.as_ref(), image, self.watched.has_writer, go_on) {
            Ok((found, owners)) => {
                (self.survey, self.owners) = (Some(found), owners);
                Ok(self)
            }
            Err(SurveyError::Disk(error)) => Err(ScanError::Disk(error)),
            Err(SurveyError::Temporary(error)) => Err(ScanError::Spill(error)),
            Err(SurveyError::Interrupted) => Err(ScanError::Interrupted),
        }
    }
}

/// How much of all images is read, as the user was told.
pub(crate) struct Told<'a> {
    progress: &'a dyn Progress,
    bytes: AtomicU64,
    total: u64,
}

impl<'a> Told<'a> {
    /// Returns that nothing of `images` is read, which nobody was told yet.
    pub(crate) fn new(images: &[Image], progress: &'a dyn Progress) -> Told<'a> {
        let total = images.iter().fold(0_u64, |sum, image| sum.saturating_add(image.about_bytes));
        Told { progress, bytes: AtomicU64::new(0), total }
    }

    /// Tells how much is read.
    fn update(&self, bytes: u64) -> ControlFlow<()> {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.again()
    }

    /// Tells the same again, to learn whether to go on.
    fn again(&self) -> ControlFlow<()> {
        self.progress.update(Stage::Reading, self.bytes.load(Ordering::Relaxed), self.total)
    }
}
