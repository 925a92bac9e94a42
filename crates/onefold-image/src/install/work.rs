//! The work of an installation's threads on each chunk.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::zero::is_zero;
use onefold_disk::{OnProgress, Progress};

use super::ahead::{Ahead, ComparedChunk};
use super::compare::Comparison;
use super::ends::Ends;
use super::headers::ImageHeaders;
use super::target::Target;
use super::threads::{StepProgress, on_threads};
use super::window::{Window, parts};
use super::{InstallError, InstallOptions, failed_at};
use crate::UnitName;
use crate::archive::{Headers, WantedUnit};
use crate::format::chunk_header::{CHUNK_STORED_BYTES_MAX, ChunkHeader, PlacedUnit};
use crate::format::manifest::Manifest;
use crate::image_source::{ChunkReader, WantedUnits};
use crate::placed::{bytes_of, check};

/// Bounds of the plain bytes in one window. A unit has at most 1 MiB.
const WINDOW_BYTES_MIN: u64 = 1 << 20;
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// A thread's memory divided by its windows' bytes. A window takes its buffer, and stored bytes that were not planned.
const WINDOW_SHARE: u64 = 8;
/// Divisor for the share that the units which are read ahead take. The headers of their chunks take as much at most.
const AHEAD_SHARE: u64 = 3;
/// Bounds of that share.
const AHEAD_BYTES_MIN: u64 = CHUNK_STORED_BYTES_MAX;
const AHEAD_BYTES_MAX: u64 = 48 << 20;
/// The chunks are divided into so many groups for each thread at least, so that all threads end at about the same time.
const GROUPS_MIN: usize = 2;
/// A thread takes at least so many bytes: a window, its header, and what is read of the store. A hostile header of
/// 500,000 runs takes up to 16 MiB more.
const THREAD_BYTES_MIN: u64 = 8 << 20;
/// Zeros that are compared between two looks whether the user has interrupted the work.
const ZEROS_COMPARED: u64 = 16 << 20;
/// Zeros that are read back at once.
const ZEROS_READ: usize = 256 << 10;
/// Length of the pieces in which a write that failed is repeated.
const LOCATED_BYTES: usize = 4096;

/// The threads' work on each chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Fetch its units and write them.
    Write {
        /// Whether the target still reads as zeros.
        is_blank: bool,
    },
    /// Read its places and compare them with its names. Those in the ends are not written yet.
    ReadBack,
}

/// The work of a thread on consecutive chunks, which have these names.
pub(super) type GroupWork<'w> = dyn Fn(&[UnitName], &mut StepProgress) -> Result<(), InstallError> + Sync + 'w;

/// One installation, shared by all its threads.
pub(super) struct Job<'a> {
    pub(super) headers: &'a ImageHeaders<'a>,
    pub(super) manifest: &'a Manifest,
    pub(super) target: &'a dyn Target,
    pub(super) ends: &'a Ends,
    pub(super) threads: usize,
    window_bytes: u64,
    ahead_bytes: u64,
    /// Chunks that a thread reads at once.
    pub(super) group_chunks: usize,
    pub(super) progress: OnProgress<'a>,
    done_bytes: AtomicU64,
    total_bytes: u64,
    /// The comparison with what the target has already, unless that is nothing.
    comparison: Option<Comparison<'a>>,
}

/// Returns how many threads work on an image.
pub(super) fn threads_of(options: &InstallOptions, manifest: &Manifest) -> usize {
    let fitting = usize::try_from(options.memory_bytes / THREAD_BYTES_MIN).unwrap_or(usize::MAX);
    options.threads.min(fitting).clamp(1, manifest.chunks.len().max(1))
}

/// Returns the memory for units that a thread reads ahead.
fn ahead_bytes(options: &InstallOptions, manifest: &Manifest) -> u64 {
    let share = options.memory_bytes / threads_of(options, manifest) as u64 / AHEAD_SHARE;
    share.clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX)
}

/// Returns how many consecutive chunks a thread takes at once, if each thread is to have `groups` groups at least.
pub(super) fn group_chunks(options: &InstallOptions, manifest: &Manifest, groups: usize) -> usize {
    let fitting = usize::try_from(ahead_bytes(options, manifest) / CHUNK_STORED_BYTES_MAX).unwrap_or(1);
    fitting.min(manifest.chunks.len().div_ceil(threads_of(options, manifest) * groups)).max(1)
}

impl<'a> Job<'a> {
    pub(super) fn new(
        headers: &'a ImageHeaders<'a>,
        manifest: &'a Manifest,
        target: &'a dyn Target,
        ends: &'a Ends,
        options: &InstallOptions,
        progress: OnProgress<'a>,
        total_bytes: u64,
    ) -> Job<'a> {
        let threads = threads_of(options, manifest);
        let share = options.memory_bytes / threads as u64 / WINDOW_SHARE;
        let window_bytes = share.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        Job {
            headers,
            manifest,
            target,
            ends,
            threads,
            window_bytes,
            ahead_bytes: ahead_bytes(options, manifest),
            group_chunks: group_chunks(options, manifest, GROUPS_MIN),
            progress,
            done_bytes: AtomicU64::new(0),
            total_bytes,
            comparison: None,
        }
    }

    /// Has the target compared with the image if it seems to have units of it. The ends must have been remembered, and
    /// not wiped yet.
    pub(super) fn compare(&mut self) -> Result<(), InstallError> {
        let comparison = Comparison::new(self.headers, self.manifest, self.target, self.ends);
        self.comparison = comparison.is_worthwhile(&|| self.check_interrupt())?.then_some(comparison);
        Ok(())
    }

    /// Returns whether the target is compared with the image.
    pub(super) fn is_comparing(&self) -> bool {
        self.comparison.is_some()
    }

    /// Returns whether so many reads of the comparison failed that it has ended.
    pub(super) fn has_given_up(&self) -> bool {
        self.comparison.as_ref().is_some_and(|comparison| !comparison.is_going_on())
    }

    /// Calls `work` with the header of each chunk, in several threads. The first error ends the work of all.
    pub(super) fn each_chunk(
        &self,
        work: &(dyn Fn(&ChunkHeader, &mut StepProgress) -> Result<(), InstallError> + Sync),
    ) -> Result<StepProgress, InstallError> {
        self.each_group(&|names, sum| {
            self.check_interrupt()?;
            let headers = self.headers.of(names)?;
            let mut numbered = names.iter().enumerate();
            numbered.try_for_each(|(index, name)| work(&self.header(name, &headers, index)?, sum))
        })
    }

    pub(super) fn each_group(&self, work: &GroupWork<'_>) -> Result<StepProgress, InstallError> {
        let groups: Vec<&[UnitName]> = self.manifest.chunks.chunks(self.group_chunks).collect();
        self.of_image(on_threads(self.threads, groups.len(), &|index, sum| work(groups[index], sum)))
    }

    /// Has an error of the source say whether the image was removed meanwhile.
    pub(super) fn of_image(&self, done: Result<StepProgress, InstallError>) -> Result<StepProgress, InstallError> {
        done.map_err(|error| match error {
            InstallError::Archive(error) => self.headers.source.of_image(&self.manifest.image, error).into(),
            error => error,
        })
    }

    /// Fails if the user has interrupted the work.
    pub(super) fn check_interrupt(&self) -> Result<(), InstallError> {
        let done_bytes = self.done_bytes.load(Ordering::Relaxed);
        match (self.progress)(Progress { done_bytes, total_bytes: self.total_bytes }) {
            flow if flow.is_break() => Err(InstallError::Stopped),
            _ => Ok(()),
        }
    }

    /// Processes some chunks. Their headers come in few reads, and so do their units.
    pub(super) fn group(
        &self,
        step: Step,
        names: &[UnitName],
        ahead: Option<&Ahead<'_>>,
        sum: &mut StepProgress,
    ) -> Result<(), InstallError> {
        self.check_interrupt()?;
        let headers = self.headers.of(names)?;
        match step {
            Step::Write { is_blank } => self.write_group(names, &headers, is_blank, ahead, sum),
            Step::ReadBack => names.iter().enumerate().try_for_each(|(index, name)| {
                let header = self.header(name, &headers, index)?;
                self.read_chunk_back(&header, sum)
            }),
        }
    }

    pub(super) fn header(&self, name: &UnitName, headers: &Headers, index: usize) -> Result<ChunkHeader, InstallError> {
        let header = headers.get(index)?;
        check(name, &header, self.manifest.size_bytes)?;
        Ok(header)
    }

    /// Finds out which units of some chunks the target lacks, fetches them, and writes them.
    fn write_group(
        &self,
        names: &[UnitName],
        headers: &Headers,
        is_blank: bool,
        ahead: Option<&Ahead<'_>>,
        sum: &mut StepProgress,
    ) -> Result<(), InstallError> {
        let mut wanted = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let header = self.header(name, headers, index)?;
            wanted.push(match ahead.and_then(|ahead| ahead.take(name)) {
                Some(chunk) => self.note_found(chunk, sum),
                None => self.lacking(&header, sum)?,
            });
        }
        let mut reader = self.headers.source.chunks(names, headers, &wanted, self.ahead_bytes)?;
        for (index, wanted) in wanted.iter().enumerate() {
            let mut header = headers.get(index)?;
            let mut unit = 0..;
            header.units.retain(|_| unit.next().is_some_and(|unit| wanted.has(unit)));
            for units in parts(&header.units, self.window_bytes) {
                self.check_interrupt()?;
                self.write(&mut Window::new(units, self.manifest.size_bytes), index, &mut *reader)?;
                self.note_done(bytes_in(units), sum);
            }
            self.write_zeros(&header, is_blank, sum)?;
        }
        Ok(())
    }

    /// Returns the units of a chunk that the target lacks. The others count as done.
    pub(super) fn lacking(&self, header: &ChunkHeader, sum: &mut StepProgress) -> Result<WantedUnits, InstallError> {
        let compared = self.compared(header)?;
        Ok(compared.map_or(WantedUnits::All, |chunk| self.note_found(chunk, sum)))
    }

    /// Compares a chunk with the target; `None` if the target has nothing of the image.
    pub(super) fn compared(&self, header: &ChunkHeader) -> Result<Option<ComparedChunk>, InstallError> {
        let Some(comparison) = &self.comparison else { return Ok(None) };
        self.check_interrupt()?;
        let (wanted, found_bytes) = comparison.lacking(header, self.window_bytes, &|| self.check_interrupt())?;
        Ok(Some(ComparedChunk { wanted, found_bytes }))
    }

    /// Counts what the target has of a chunk. Returns the units that it lacks.
    fn note_found(&self, chunk: ComparedChunk, sum: &mut StepProgress) -> WantedUnits {
        sum.found_bytes += chunk.found_bytes;
        self.note_done(chunk.found_bytes, sum);
        chunk.wanted
    }

    pub(super) fn note_done(&self, data_bytes: u64, sum: &mut StepProgress) {
        self.done_bytes.fetch_add(data_bytes, Ordering::Relaxed);
        sum.data_bytes += data_bytes;
    }

    /// Reads a chunk back, and verifies it.
    fn read_chunk_back(&self, header: &ChunkHeader, sum: &mut StepProgress) -> Result<(), InstallError> {
        for units in parts(&header.units, self.window_bytes) {
            self.check_interrupt()?;
            self.read_back(&mut Window::new(units, self.manifest.size_bytes))?;
            self.note_done(bytes_in(units), sum);
        }
        for run in &header.zeros {
            let range = bytes_of(*run, self.manifest.size_bytes);
            self.read_zeros(range.clone())?;
            self.note_zeros(range.end - range.start, sum);
        }
        self.check_interrupt()
    }

    /// Fetches the units of a window, which are of the chunk with an index, and writes them.
    fn write(
        &self,
        window: &mut Window<'_>,
        chunk: usize,
        reader: &mut (dyn ChunkReader + '_),
    ) -> Result<(), InstallError> {
        let want = |unit: &PlacedUnit| WantedUnit { name: unit.name, plain_bytes: Some(unit.plain_bytes) };
        let wanted: Vec<WantedUnit> = window.units.iter().map(want).collect();
        reader.read(chunk, &wanted, &mut |index, plain| window.fill(index, plain))?;
        for run in window.runs() {
            self.write_run(run.offset, run.bytes)?;
        }
        Ok(())
    }

    /// Writes bytes in a row. If that fails, it writes them in small pieces, and reports the place of the failure.
    fn write_run(&self, offset: u64, bytes: &[u8]) -> Result<(), InstallError> {
        let Err(error) = self.ends.write(self.target, offset, bytes) else { return Ok(()) };
        // Pieces end where blocks of the disk do.
        let first = LOCATED_BYTES - usize::try_from(offset % LOCATED_BYTES as u64).unwrap_or(0);
        let (first, others) = bytes.split_at(first.min(bytes.len()));
        let mut place = offset;
        for piece in std::iter::once(first).chain(others.chunks(LOCATED_BYTES)) {
            self.ends.write(self.target, place, piece).map_err(failed_at("write", place))?;
            place += piece.len() as u64;
        }
        Err(failed_at("write", offset)(error))
    }

    /// Reads the places of a window back, and verifies the bytes by the units' names.
    fn read_back(&self, window: &mut Window<'_>) -> Result<(), InstallError> {
        let place = Cell::new(0);
        let read = window.read(|offset, into| {
            place.set(offset);
            self.ends.read(self.target, offset, into)
        });
        read.map_err(failed_at("read back", place.get()))?;
        let key = self.headers.source.key();
        let mut plain = Vec::new();
        for (index, unit) in window.units.iter().enumerate() {
            window.collect(index, &mut plain);
            if key.name(&plain) != unit.name {
                let offset = unit.runs.first().map_or(0, |run| run.start_bytes());
                return Err(InstallError::ReadBack { offset });
            }
        }
        Ok(())
    }

    /// Makes the zeros of a chunk.
    fn write_zeros(&self, header: &ChunkHeader, is_blank: bool, sum: &mut StepProgress) -> Result<(), InstallError> {
        for run in &header.zeros {
            let range = bytes_of(*run, self.manifest.size_bytes);
            if let Some((offset, length_bytes)) = self.ends.between(range.start, range.end).filter(|_| !is_blank) {
                let zeros = self.zeros_there(offset, length_bytes)?;
                if zeros < length_bytes {
                    let (offset, length_bytes) = (offset + zeros, length_bytes - zeros);
                    self.target.zero(offset, length_bytes).map_err(failed_at("write", offset))?;
                    sum.zeroed_bytes += length_bytes;
                }
            }
            self.note_zeros(range.end - range.start, sum);
        }
        self.check_interrupt()
    }

    /// Returns how many of the first bytes of a range of the target are known to be zeros.
    fn zeros_there(&self, offset: u64, length_bytes: u64) -> Result<u64, InstallError> {
        let Some(comparison) = &self.comparison else { return Ok(0) };
        let mut zeros = 0;
        while zeros < length_bytes {
            self.check_interrupt()?;
            let length = ZEROS_COMPARED.min(length_bytes - zeros);
            let found = comparison.zeros(offset + zeros, length);
            zeros += found;
            if found < length {
                break;
            }
        }
        Ok(zeros)
    }

    /// Calls `each` with the offsets and lengths of parts of a chunk's zeros that read otherwise on the target.
    pub(super) fn each_nonzero(
        &self,
        header: &ChunkHeader,
        sum: &mut StepProgress,
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<(), InstallError> {
        let Some(comparison) = &self.comparison else { return Ok(()) };
        for run in &header.zeros {
            let range = bytes_of(*run, self.manifest.size_bytes);
            let mut offset = range.start;
            while offset < range.end {
                self.check_interrupt()?;
                let length_bytes = (ZEROS_READ as u64).min(range.end - offset);
                if comparison.zeros(offset, length_bytes) < length_bytes {
                    sum.zeroed_bytes += length_bytes;
                    each(offset, length_bytes);
                }
                self.note_zeros(length_bytes, sum);
                offset += length_bytes;
            }
        }
        Ok(())
    }

    fn note_zeros(&self, bytes: u64, sum: &mut StepProgress) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        sum.zero_bytes += bytes;
    }

    fn read_zeros(&self, range: std::ops::Range<u64>) -> Result<(), InstallError> {
        let mut buffer = vec![0; ZEROS_READ];
        let mut offset = range.start;
        while offset < range.end {
            self.check_interrupt()?;
            let length = usize::try_from(range.end - offset).unwrap_or(usize::MAX).min(buffer.len());
            self.ends.read(self.target, offset, &mut buffer[..length]).map_err(failed_at("read back", offset))?;
            if !is_zero(&buffer[..length]) {
                return Err(InstallError::ReadBack { offset });
            }
            offset += length as u64;
        }
        Ok(())
    }
}

/// Returns how many plain bytes units have.
fn bytes_in(units: &[PlacedUnit]) -> u64 {
    units.iter().map(|unit| u64::from(unit.plain_bytes)).sum()
}
