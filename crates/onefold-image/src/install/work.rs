//! The work of an installation's threads on each chunk.

use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::zero::is_zero;
use onefold_disk::{OnProgress, Progress};

use super::ends::Ends;
use super::headers::ImageHeaders;
use super::target::Target;
use super::threads::{StepProgress, on_threads};
use super::window::{Window, parts};
use super::{InstallError, InstallOptions, failed};
use crate::UnitName;
use crate::archive::WantedUnit;
use crate::format::chunk_header::{CHUNK_STORED_BYTES_MAX, ChunkHeader, PlacedUnit};
use crate::format::manifest::Manifest;
use crate::image_source::ChunkReader;
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
/// Zeros that are read back at once.
const ZEROS_READ: usize = 256 << 10;

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

/// One installation, shared by all its threads.
pub(super) struct Job<'a> {
    headers: &'a ImageHeaders<'a>,
    pub(super) manifest: &'a Manifest,
    pub(super) target: &'a dyn Target,
    pub(super) ends: &'a Ends,
    threads: usize,
    window_bytes: u64,
    ahead_bytes: u64,
    /// Chunks that a thread reads at once.
    group_chunks: usize,
    progress: OnProgress<'a>,
    done_bytes: AtomicU64,
    total_bytes: u64,
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
        }
    }

    /// Runs one step on all chunks. The first error ends the work of all threads.
    pub(super) fn run(&self, step: Step) -> Result<StepProgress, InstallError> {
        let groups: Vec<&[UnitName]> = self.manifest.chunks.chunks(self.group_chunks).collect();
        let done = on_threads(self.threads, groups.len(), &|index, sum| self.group(step, groups[index], sum));
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

    /// Processes consecutive chunks. Their headers come in few reads, and so do their units.
    fn group(&self, step: Step, names: &[UnitName], sum: &mut StepProgress) -> Result<(), InstallError> {
        self.check_interrupt()?;
        let headers = self.headers.of(names)?;
        let mut units = match step {
            Step::Write { .. } => Some(self.headers.source.chunks(names, &headers, self.ahead_bytes)?),
            Step::ReadBack => None,
        };
        names.iter().enumerate().try_for_each(|(index, name)| {
            let header = headers.get(index)?;
            check(name, &header, self.manifest.size_bytes)?;
            self.chunk(step, (index, &header), &mut units, sum)
        })
    }

    /// Processes one chunk of a group. `reader` has its units if they are to be written.
    fn chunk(
        &self,
        step: Step,
        (index, header): (usize, &ChunkHeader),
        reader: &mut Option<Box<dyn ChunkReader + '_>>,
        sum: &mut StepProgress,
    ) -> Result<(), InstallError> {
        for units in parts(&header.units, self.window_bytes) {
            self.check_interrupt()?;
            let mut window = Window::new(units, self.manifest.size_bytes);
            match reader {
                Some(reader) => self.write(&mut window, index, &mut **reader)?,
                None => self.read_back(&mut window)?,
            }
            let bytes = units.iter().map(|unit| u64::from(unit.plain_bytes)).sum();
            self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
            sum.data_bytes += bytes;
        }
        self.zeros(step, header, sum)
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
            self.ends.write(self.target, run.offset, run.bytes).map_err(failed("write"))?;
        }
        Ok(())
    }

    /// Reads the places of a window back, and verifies the bytes by the units' names.
    fn read_back(&self, window: &mut Window<'_>) -> Result<(), InstallError> {
        window.read(|offset, into| self.ends.read(self.target, offset, into)).map_err(failed("read back"))?;
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

    /// Writes or verifies the zeros of a chunk.
    fn zeros(&self, step: Step, header: &ChunkHeader, sum: &mut StepProgress) -> Result<(), InstallError> {
        for run in &header.zeros {
            let range = bytes_of(*run, self.manifest.size_bytes);
            match step {
                Step::Write { is_blank: true } => {}
                Step::Write { is_blank: false } => {
                    if let Some((offset, length_bytes)) = self.ends.between(range.start, range.end) {
                        self.target.zero(offset, length_bytes).map_err(failed("write"))?;
                    }
                }
                Step::ReadBack => self.read_zeros(range.clone())?,
            }
            let bytes = range.end - range.start;
            self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
            sum.zero_bytes += bytes;
        }
        self.check_interrupt()
    }

    fn read_zeros(&self, range: std::ops::Range<u64>) -> Result<(), InstallError> {
        let mut buffer = vec![0; ZEROS_READ];
        let mut offset = range.start;
        while offset < range.end {
            self.check_interrupt()?;
            let length = usize::try_from(range.end - offset).unwrap_or(usize::MAX).min(buffer.len());
            self.ends.read(self.target, offset, &mut buffer[..length]).map_err(failed("read back"))?;
            if !is_zero(&buffer[..length]) {
                return Err(InstallError::ReadBack { offset });
            }
            offset += length as u64;
        }
        Ok(())
    }
}
