//! The analysis from end to end: one pass over each image, then counting, then the report.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::{ROW_BYTES, Row, SortBatch, Sorter};

use crate::analysis::{Analysis, MisalignedPartition, SkippedImage};
use crate::assemble::{Findings, assemble};
use crate::count::{Counts, ImageProperties, OnTop, RowOutputs, add_group_references, count, count_filed_offsets};
use crate::files::{
    FilesAnalysis, GroupName, MisalignedCause, OwnedPlaces, OwnerCounts, Survey, SurveyedImage, TopPlaces,
};
use crate::histogram::Histogram;
use crate::image::Image;
use crate::options::{AnalyzeError, GROUPS_MAX, Options, Progress, Shifts, Stage};
use crate::reading::{ReadResult, ReadingStage, ReportedProgress};
use crate::record::IMAGES_MAX;
use crate::runs::{RunCount, count_runs};
use crate::sample::{CompleteSample, Sample, SampledFindings, Share, assemble as assemble_sample};
use crate::sampled_analysis::SampledAnalysis;
use crate::scan::Hasher;
use crate::top::TopBlock;
use crate::top_paths::TopPaths;

/// Maximum number of threads. More have not been tested.
const THREADS_MAX: usize = 8;

/// Analyses `images`. Images that cannot be read are left out and named in the result.
///
/// # Errors
/// When the user stops it, or temporary files cannot be written.
pub fn analyze(images: &[Image], options: &Options, progress: &dyn Progress) -> Result<Analysis, AnalyzeError> {
    let name_bytes = || images.iter().map(|image| image.name.len()).collect();
    let mut survey = options.files.then(|| Survey::new(&options.folder, options.memory_bytes, name_bytes()));
    let found = walk(images, options, None, survey.as_mut(), progress)?;
    let mut analysis = assemble(&Findings {
        images,
        read: &found.read,
        groups: &options.groups,
        counts: &found.counts,
        runs: &found.runs,
        spilled_bytes: found.spilled_bytes,
    });
    analysis.files = survey.map(|survey| files(images, &found, &analysis, &survey));
    Ok(analysis)
}

/// Analyses `images` by reading `share` of their regions. Images that cannot be read are left out and named in the
/// result. Groups and shifts are ignored.
///
/// # Errors
/// When the user stops it, or temporary files cannot be written.
pub fn analyze_sample(
    images: &[Image],
    options: &Options,
    share: Share,
    progress: &dyn Progress,
) -> Result<SampledAnalysis, AnalyzeError> {
    let options = Options { groups: Vec::new(), shifts: Shifts::No, files: false, ..options.clone() };
    let sample = Sample::new(options.key, share);
    let found = walk(images, &options, Some(&sample), None, progress)?;
    Ok(assemble_sample(found.of_sample(images, &sample)))
}

/// Returns what the blocks belong to.
fn files(images: &[Image], found: &PassResult, analysis: &Analysis, survey: &Survey<'_>) -> FilesAnalysis {
    let whole = images.iter().zip(&found.read).enumerate().filter_map(|(at, (image, read))| {
        let whole = read.as_ref().ok()?;
        Some((at, image, whole, whole.survey.as_ref()?))
    });
    let surveyed: Vec<SurveyedImage<'_>> = whole
        .zip(&analysis.images)
        .map(|((at, image, whole, survey), report)| SurveyedImage {
            at,
            name: &image.name,
            survey,
            has_changed: whole.has_changed,
            zero_bytes: report.zero_bytes,
        })
        .collect();
    let places = found.counts.top.iter().filter_map(|top| {
        let places = found.counts.top_places.get(&(top.image, top.index))?;
        Some(TopPlaces { times: top.references, places })
    });
    let top: Vec<TopPlaces<'_>> = places.collect();
    let mut files = survey.analysis(&surveyed, &found.owners, &top);
    add_gains(found, analysis, &mut files);
    for (at, path) in &found.paths {
        let place = files.top_blocks.get_mut(*at).and_then(|block| block.places.first_mut());
        if let Some(place) = place {
            place.path = Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    files
}

/// Adds the savings from moving volumes and data areas to whole blocks.
fn add_gains(found: &PassResult, analysis: &Analysis, files: &mut FilesAnalysis) {
    let has_moved = !analysis.realignment.misaligned.is_empty();
    let surveys = found.read.iter().filter_map(|read| read.as_ref().ok()?.survey.as_ref());
    let has_areas = surveys.into_iter().any(|survey| !survey.data_areas().is_empty());
    let of_areas = found.counts.realigned_distinct.saturating_sub(found.counts.data_areas_distinct);
    for misaligned in &mut files.misaligned {
        misaligned.gained_bytes = match misaligned.cause {
            MisalignedCause::VolumeStart => has_moved.then_some(analysis.realignment.gained_bytes),
            MisalignedCause::DataArea => has_areas.then_some(of_areas.saturating_mul(BLOCK_BYTES_U64)),
            MisalignedCause::SmallBlocks => None,
        };
    }
}

/// Result of one pass over all images.
struct PassResult {
    read: Vec<ReadResult>,
    counts: Counts,
    runs: RunCount,
    /// Filled only for a sample.
    histogram: Histogram,
    /// Filled only if owners of blocks are requested.
    owners: OwnerCounts,
    /// The paths of files that have the most repeated blocks, by index into the list of these blocks.
    paths: BTreeMap<usize, Vec<u8>>,
    spilled_bytes: u64,
}

impl PassResult {
    fn of_sample<'a>(&'a self, images: &'a [Image], sample: &'a Sample) -> SampledFindings<'a> {
        let both = || images.iter().zip(&self.read);
        let sampled = |(image, read): (&'a Image, &'a ReadResult)| {
            let whole = read.as_ref().ok()?;
            Some(CompleteSample {
                name: &image.name,
                is_plain: image.is_plain,
                allocated_bytes: image.allocated_bytes,
                changed_meanwhile: whole.has_changed,
                size_bytes: whole.scanned.size_bytes,
                read_bytes: whole.scanned.read_bytes,
                extent: whole.extent.as_ref()?,
            })
        };
        let misaligned = |(image, read): (&Image, &ReadResult)| -> Vec<MisalignedPartition> {
            let partitions = read.iter().flat_map(|whole| &whole.misaligned);
            partitions.map(|partition| MisalignedPartition::new(&image.name, partition)).collect()
        };
        let left_out = |(image, read): (&Image, &ReadResult)| {
            Some(SkippedImage { name: image.name.clone(), why: read.as_ref().err()?.clone() })
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

/// Reads `images`, or `sample` of them, and counts their blocks.
fn walk(
    images: &[Image],
    options: &Options,
    sample: Option<&Sample>,
    mut survey: Option<&mut Survey<'_>>,
    progress: &dyn Progress,
) -> Result<PassResult, AnalyzeError> {
    if images.len() > IMAGES_MAX {
        return Err(AnalyzeError::TooManyImages(images.len()));
    }
    if options.groups.len() > GROUPS_MAX {
        return Err(AnalyzeError::TooManyGroups(options.groups.len()));
    }
    let spill = |source| AnalyzeError::Spill { folder: options.folder.clone(), source };
    let memory = Memory::of(options.memory_bytes, survey.is_some());
    let records = Sorter::new(&options.folder);
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
    let mut batches: Vec<SortBatch<'_>> = (0..threads).map(|_| records.batch(memory.records / threads)).collect();

    let told = ReportedProgress::new(images, progress);
    let read =
        ReadingStage { images, options, sample, hasher: Hasher::new(options.key), told, held_bytes: memory.held };
    let read = read.all(&mut batches, survey.as_deref_mut())?;
    let survey = survey.as_deref();
    // Batches are sorted in parallel, as they were filled.
    let sorted: Vec<Vec<Row>> = thread::scope(|scope| {
        let sorting: Vec<_> = batches.into_iter().map(|batch| scope.spawn(|| batch.finish())).collect();
        sorting.into_iter().map(|thread| thread.join().expect("sorting does not panic")).collect()
    });

    let counted: Vec<ImageProperties> = images.iter().zip(&read).map(|(image, read)| counted(image, read)).collect();
    let counting = CountingStage { options, counted: &counted, memory: &memory, progress };
    let mut histogram = if sample.is_some() { Histogram::new() } else { Histogram::default() };
    let surveys = read.iter().map(|read| read.as_ref().ok().and_then(|whole| whole.survey.as_ref()));
    let mut owners = if survey.is_some() { OwnerCounts::new(surveys) } else { OwnerCounts::default() };
    let is_over = AtomicBool::new(false);
    let (counted, paths) = thread::scope(|scope| {
        let mut reading = None;
        let on_top: OnTop<'_> = &mut |top, places| {
            let Some(survey) = survey else { return };
            let has_path = |block: &TopBlock| has_path(survey, &read, block, places);
            let paths = TopPaths::new(images, top, has_path, memory.whole, &is_over);
            reading = Some(scope.spawn(move || paths.read()));
        };
        let owners = survey.map(|_| &mut owners);
        let besides = ExtraCounts { histogram: sample.map(|_| &mut histogram), owners, on_top };
        let counted = counting.all(&records, sorted, besides);
        is_over.store(!matches!(counted, Ok(Some(_))), Ordering::Relaxed);
        let paths = reading.map(|thread| thread.join().expect("reading paths does not panic"));
        (counted, paths.unwrap_or_default())
    });
    let (counts, runs, further_bytes) = counted.map_err(spill)?.ok_or(AnalyzeError::Interrupted)?;
    let spilled_bytes = records.spilled_bytes() + further_bytes;
    Ok(PassResult { read, counts, runs, histogram, owners, paths, spilled_bytes })
}

/// Returns whether the first place of a block belongs to a file.
fn has_path(
    survey: &Survey<'_>,
    read: &[ReadResult],
    block: &TopBlock,
    places: &BTreeMap<(usize, u64), OwnedPlaces>,
) -> bool {
    let first = places.get(&(block.image, block.index)).and_then(|places| places.list().first());
    let group = first.and_then(|&(image, _, owner)| {
        let whole = read.get(image)?.as_ref().ok()?;
        survey.group(whole.survey.as_ref()?, owner)
    });
    matches!(group, Some(GroupName::Packages | GroupName::Files))
}

/// Bytes of memory for each purpose.
struct Memory {
    whole: usize,
    records: usize,
    held: usize,
    runs: usize,
    offsets: usize,
}

impl Memory {
    /// Divides `bytes`; an eighth is reserved for other purposes. Runs and offsets are counted after all images have
    /// been read. Until then a survey takes up to seven sixteenths, in addition to the records, and contents that wait
    /// for it take a little.
    fn of(bytes: u64, has_survey: bool) -> Memory {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let records = if has_survey { bytes / 64 * 27 } else { bytes / 16 * 9 };
        Memory { whole: bytes, records, held: bytes / 64, runs: bytes / 4, offsets: bytes / 16 }
    }
}

fn counted(image: &Image, read: &ReadResult) -> ImageProperties {
    ImageProperties { is_whole: read.is_ok(), group: image.group, is_plain: image.is_plain }
}

/// Counts that are only made on request.
struct ExtraCounts<'a> {
    histogram: Option<&'a mut Histogram>,
    owners: Option<&'a mut OwnerCounts>,
    on_top: OnTop<'a>,
}

/// The second stage.
struct CountingStage<'a> {
    options: &'a Options,
    counted: &'a [ImageProperties],
    memory: &'a Memory,
    progress: &'a dyn Progress,
}

impl CountingStage<'_> {
    /// Returns all counts and the number of spilled bytes, or nothing if the user wants to stop.
    fn all(
        &self,
        records: &Sorter,
        sorted: Vec<Vec<Row>>,
        besides: ExtraCounts<'_>,
    ) -> io::Result<Option<(Counts, RunCount, u64)>> {
        let ExtraCounts { mut histogram, owners, on_top } = besides;
        let in_memory: u64 = sorted.iter().map(|rows| rows.len() as u64).sum();
        let total = in_memory + records.spilled_bytes() / ROW_BYTES as u64;
        let run_sorter = Sorter::new(&self.options.folder);
        let offset_sorter = Sorter::new(&self.options.folder);
        let mut runs = run_sorter.batch(self.memory.runs);
        let mut offsets = offset_sorter.batch(self.memory.offsets);
        let shifts = self.options.shifts.steps();
        let counts = count(
            records.merged(sorted)?,
            self.counted,
            self.options.groups.len(),
            shifts,
            RowOutputs {
                runs: &mut runs,
                offsets: &mut offsets,
                offsets_max: self.memory.offsets / 64,
                histogram: histogram.as_deref_mut(),
                owners,
                on_top,
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
