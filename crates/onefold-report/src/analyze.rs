//! The analysis from end to end: one pass over each image, then counting, then the report.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::thread;

use onefold_block::Show;
use onefold_guest::Partition;

use crate::analysis::{Analysis, LeftOut, Misaligned};
use crate::assemble::{Findings, assemble};
use crate::count::{Counted, Counts, Further, add_group_references, count, count_filed_offsets};
use crate::realign::{Realigned, is_misaligned};
use crate::record::{BLOCKS_MAX, IMAGES_MAX, Lists};
use crate::runs::{RunCount, count_runs};
use crate::sample::{
    Extent, Histogram, Sample, Sampled, SampledAnalysis, SampledFindings, SampledWhole, Share,
    assemble as assemble_sample,
};
use crate::scan::{Grid, Hasher, ScanError, Scanned, scan};
use crate::source::{Image, Padded, Source, SourceError};
use onefold_sort::{Batch, ROW_BYTES, Row, Sorter};

/// Groups that can be named.
pub const GROUPS_MAX: usize = 64;
/// Steps by which images are shifted on request: all that a 4 KiB block has, in sectors.
const SHIFTS: u8 = 7;
const SECTOR_BYTES: u64 = 512;
/// More threads than this have not been tried.
const THREADS_MAX: usize = 8;

/// How to analyse.
#[derive(Clone, Debug)]
pub struct Options {
    /// What rows may take in memory; about 16 MiB of buffers come besides.
    pub memory_bytes: u64,
    /// Where rows go that do not fit into memory. The files there have no names.
    pub folder: PathBuf,
    /// A secret for the fingerprints: nobody can prepare images whose different blocks look equal.
    pub key: [u8; 32],
    /// Names of the groups, at most [`GROUPS_MAX`].
    pub groups: Vec<String>,
    /// Whether to look at shifted images too.
    pub shifts: Shifts,
}

/// Whether images are looked at as they would be with sectors of zeros before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shifts {
    /// Only as they are.
    No,
    /// By one to seven sectors too: each byte is read and hashed eight times.
    All,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The images are read. Progress is in bytes.
    Reading,
    /// What was read is counted. Progress is in rows, of [`ROW_BYTES`] bytes.
    Counting,
}

/// Is told how far an analysis is, by several threads.
pub trait Progress: Sync {
    /// Takes note of `done` of about `total`; `Break` ends the analysis.
    fn update(&self, stage: Stage, done: u64, total: u64) -> ControlFlow<()>;
}

/// Why there is no analysis.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// The user wanted to stop.
    #[error("interrupted")]
    Interrupted,
    /// The temporary folder cannot hold what does not fit into memory.
    #[error("cannot use the temporary folder `{}`", folder.shown())]
    Spill {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// More images than can be told apart.
    #[error("{0} images are too many: {IMAGES_MAX} are the most")]
    TooManyImages(usize),
    /// More groups than can be counted.
    #[error("{0} groups are too many: {GROUPS_MAX} are the most")]
    TooManyGroups(usize),
}

/// Analyses `images`. Those that cannot be read are left out and named in the result.
///
/// # Errors
/// When the user stops it, or temporary files cannot be written.
pub fn analyze(images: &[Image], options: &Options, progress: &dyn Progress) -> Result<Analysis, AnalyzeError> {
    let found = walk(images, options, None, progress)?;
    Ok(assemble(&Findings {
        images,
        read: &found.read,
        groups: &options.groups,
        counts: &found.counts,
        runs: &found.runs,
        spilled_bytes: found.spilled_bytes,
    }))
}

/// Analyses `images` by reading `share` of their regions. Those that cannot be read are left out and named in the result.
/// Groups and shifts are not looked at.
///
/// # Errors
/// When the user stops it, or temporary files cannot be written.
pub fn analyze_sample(
    images: &[Image],
    options: &Options,
    share: Share,
    progress: &dyn Progress,
) -> Result<SampledAnalysis, AnalyzeError> {
    let options = Options { groups: Vec::new(), shifts: Shifts::No, ..options.clone() };
    let sample = Sample::new(options.key, share);
    let found = walk(images, &options, Some(&sample), progress)?;
    Ok(assemble_sample(found.of_sample(images, &sample)))
}

/// What was found in one walk over all images.
struct Walked {
    read: Vec<Read>,
    counts: Counts,
    runs: RunCount,
    /// Only of a sample; empty otherwise.
    histogram: Histogram,
    spilled_bytes: u64,
}

impl Walked {
    fn of_sample<'a>(&'a self, images: &'a [Image], sample: &'a Sample) -> SampledFindings<'a> {
        let both = || images.iter().zip(&self.read);
        let sampled = |(image, read): (&'a Image, &'a Read)| {
            let whole = read.as_ref().ok()?;
            Some(SampledWhole {
                name: &image.name,
                is_plain: image.is_plain,
                allocated_bytes: image.allocated_bytes,
                changed_meanwhile: whole.has_changed,
                size_bytes: whole.scanned.size_bytes,
                read_bytes: whole.scanned.read_bytes,
                extent: whole.extent.as_ref()?,
            })
        };
        let misaligned = |(image, read): (&Image, &Read)| -> Vec<Misaligned> {
            let partitions = read.iter().flat_map(|whole| &whole.misaligned);
            partitions.map(|partition| Misaligned::new(&image.name, partition)).collect()
        };
        let left_out = |(image, read): (&Image, &Read)| {
            Some(LeftOut { name: image.name.clone(), why: read.as_ref().err()?.to_string() })
        };
        SampledFindings {
            sample,
            images: both().filter_map(sampled).collect(),
            left_out: both().filter_map(left_out).collect(),
            misaligned: both().flat_map(misaligned).collect(),
            variants: &self.counts.variants,
            histogram: &self.histogram,
            spilled_bytes: self.spilled_bytes,
        }
    }
}

/// Reads `images`, or `sample` of them, and counts what is in them.
fn walk(
    images: &[Image],
    options: &Options,
    sample: Option<&Sample>,
    progress: &dyn Progress,
) -> Result<Walked, AnalyzeError> {
    if images.len() > IMAGES_MAX {
        return Err(AnalyzeError::TooManyImages(images.len()));
    }
    if options.groups.len() > GROUPS_MAX {
        return Err(AnalyzeError::TooManyGroups(options.groups.len()));
    }
    let spill = |source| AnalyzeError::Spill { folder: options.folder.clone(), source };
    let memory = Memory::of(options.memory_bytes);
    let records = Sorter::new(&options.folder);
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
    let mut batches: Vec<Batch<'_>> = (0..threads).map(|_| records.batch(memory.records / threads)).collect();

    let read = Reading { images, options, sample, hasher: Hasher::new(options.key), progress };
    let read = read.all(&mut batches)?;
    // Sorted side by side, as they were filled.
    let sorted: Vec<Vec<Row>> = thread::scope(|scope| {
        let sorting: Vec<_> = batches.into_iter().map(|batch| scope.spawn(|| batch.finish())).collect();
        sorting.into_iter().map(|thread| thread.join().expect("sorting does not panic")).collect()
    });

    let counted: Vec<Counted> = images.iter().zip(&read).map(|(image, read)| counted(image, read)).collect();
    let counting = Counting { options, counted: &counted, memory: &memory, progress };
    let mut histogram = if sample.is_some() { Histogram::new() } else { Histogram::default() };
    let (counts, runs, further_bytes) = counting
        .all(&records, sorted, sample.map(|_| &mut histogram))
        .map_err(spill)?
        .ok_or(AnalyzeError::Interrupted)?;
    Ok(Walked { read, counts, runs, histogram, spilled_bytes: records.spilled_bytes() + further_bytes })
}

/// Bytes of memory for each use.
struct Memory {
    records: usize,
    runs: usize,
    offsets: usize,
}

impl Memory {
    /// Shares `bytes` out; an eighth is for all else.
    fn of(bytes: u64) -> Memory {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Memory { records: bytes / 16 * 9, runs: bytes / 4, offsets: bytes / 16 }
    }
}

/// What was learned of an image when it was read.
pub(crate) type Read = Result<Whole, SourceError>;

/// An image that was read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) scanned: Scanned,
    /// Its partitions that begin inside a block.
    pub(crate) misaligned: Vec<Partition>,
    pub(crate) has_changed: bool,
    /// Only of a sample.
    pub(crate) extent: Option<Extent>,
}

fn counted(image: &Image, read: &Read) -> Counted {
    Counted { is_whole: read.is_ok(), group: image.group, is_plain: image.is_plain }
}

/// The first stage.
struct Reading<'a> {
    images: &'a [Image],
    options: &'a Options,
    sample: Option<&'a Sample>,
    hasher: Hasher,
    progress: &'a dyn Progress,
}

impl Reading<'_> {
    fn all(&self, batches: &mut [Batch<'_>]) -> Result<Vec<Read>, AnalyzeError> {
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
            match self.one(at, image, batches, &tell) {
                Ok(whole) => read.push(Ok(whole)),
                Err(ScanError::Source(error)) => read.push(Err(error)),
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
        tell: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
    ) -> Result<Whole, ScanError> {
        let source = (image.open)().map_err(ScanError::Source)?;
        let source: &dyn Source = source.as_ref();
        if source.size_bytes() / onefold_block::BLOCK_BYTES_U64 >= BLOCKS_MAX {
            return Err(ScanError::Source(SourceError("it is longer than 4 PiB".to_owned())));
        }
        let partitions = onefold_guest::partitions(source.size_bytes(), |offset, into| source.read(offset, into))
            .map_err(ScanError::Source)?;
        let misaligned: Vec<Partition> = partitions.iter().copied().filter(is_misaligned).collect();
        if let Some(sample) = self.sample {
            let sampled = Sampled::new(source, sample);
            let scanned = scan(&sampled, at, Grid::plain(Lists::AS_IT_IS), &self.hasher, batches, tell)?;
            let extent = Some(sampled.into_extent());
            return Ok(Whole { scanned, misaligned, has_changed: source.has_changed(), extent });
        }
        let lists = if misaligned.is_empty() { Lists::BOTH } else { Lists::AS_IT_IS };
        let realigned = (!misaligned.is_empty()).then(|| Realigned::new(source, &partitions));
        let shifts = if self.options.shifts == Shifts::All { SHIFTS } else { 0 };
        let passes = 1 + u64::from(realigned.is_some()) + u64::from(shifts);
        // Each pass is an equal part of what there is to do.
        let part = |pass: u64| {
            move |done: u64| {
                tell(pass.saturating_mul(image.about_bytes).saturating_add(done.min(image.about_bytes)) / passes)
            }
        };
        let scanned = scan(source, at, Grid::plain(lists), &self.hasher, batches, &part(0))?;
        for steps in 1..=shifts {
            let shifted = Padded::new(source, u64::from(steps) * SECTOR_BYTES);
            scan(&shifted, at, Grid::shifted(steps), &self.hasher, batches, &part(u64::from(steps)))?;
        }
        if let Some(realigned) = realigned {
            scan(&realigned, at, Grid::realigned(), &self.hasher, batches, &part(passes - 1))?;
        }
        Ok(Whole { scanned, misaligned, has_changed: source.has_changed(), extent: None })
    }
}

/// The second stage.
struct Counting<'a> {
    options: &'a Options,
    counted: &'a [Counted],
    memory: &'a Memory,
    progress: &'a dyn Progress,
}

impl Counting<'_> {
    /// Returns all counts and what was spilled for them, or nothing where the user wants to stop.
    fn all(
        &self,
        records: &Sorter,
        sorted: Vec<Vec<Row>>,
        mut histogram: Option<&mut Histogram>,
    ) -> io::Result<Option<(Counts, RunCount, u64)>> {
        let in_memory: u64 = sorted.iter().map(|rows| rows.len() as u64).sum();
        let total = in_memory + records.spilled_bytes() / ROW_BYTES as u64;
        let run_sorter = Sorter::new(&self.options.folder);
        let offset_sorter = Sorter::new(&self.options.folder);
        let mut runs = run_sorter.batch(self.memory.runs);
        let mut offsets = offset_sorter.batch(self.memory.offsets);
        let shifts = if self.options.shifts == Shifts::All { SHIFTS } else { 0 };
        let counts = count(
            records.merged(sorted)?,
            self.counted,
            self.options.groups.len(),
            shifts,
            Further {
                runs: &mut runs,
                offsets: &mut offsets,
                offsets_max: self.memory.offsets / 64,
                histogram: histogram.as_deref_mut(),
            },
            &|done| self.progress.update(Stage::Counting, done, total),
        )?;
        let ControlFlow::Continue(mut counts) = counts else { return Ok(None) };
        add_group_references(&mut counts, self.counted);
        count_filed_offsets(offset_sorter.merged(vec![offsets.finish()])?, &mut counts.variants, histogram)?;
        let runs = count_runs(run_sorter.merged(vec![runs.finish()])?)?;
        Ok(Some((counts, runs, run_sorter.spilled_bytes() + offset_sorter.spilled_bytes())))
    }
}
