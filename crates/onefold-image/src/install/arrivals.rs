//! Runs a step on all chunks: in their order, or in the order in which they arrive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::InstallError;
use super::ahead::{Ahead, ComparedChunk};
use super::threads::{StepProgress, on_threads};
use super::work::{Job, Step};
use crate::UnitName;
use crate::format::chunk_header::ChunkHeader;
use crate::image_source::{Arrivals, LackingPart};

/// Number of threads at least: one compares while another one installs what has arrived.
const THREADS_MIN: usize = 2;
/// How long a thread waits for a chunk before it looks whether the user has interrupted the work.
const ARRIVAL_PATIENCE: Duration = Duration::from_millis(100);

/// Ends the work of all threads when the thread that has it leaves, however that happens.
struct WorkEnd<'a>(&'a AtomicBool);

impl Drop for WorkEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Job<'_> {
    /// Runs one step on all chunks. The first error ends the work of all threads.
    pub(super) fn run(&self, step: Step) -> Result<StepProgress, InstallError> {
        let arrivals = match step {
            Step::Write { .. } => self.headers.source.arrivals(&self.manifest.chunks, self.may_have_parts()),
            Step::ReadBack => None,
        };
        match arrivals {
            None => self.each_group(&|names, sum| self.group(step, names, None, sum)),
            Some(arrivals) => self.of_image(self.run_arrivals(step, &*arrivals)),
        }
    }

    /// Installs chunks as they arrive. If this machine may have a part of the image, one thread at a time compares.
    fn run_arrivals(&self, step: Step, arrivals: &dyn Arrivals) -> Result<StepProgress, InstallError> {
        let chunks = &self.manifest.chunks;
        let ahead = Ahead::new(arrivals, chunks, self.group_chunks, self.may_have_parts());
        let threads = if ahead.groups.is_empty() { self.threads } else { self.threads.max(THREADS_MIN) };
        on_threads(threads, threads, &|_, sum| self.install_arrivals(step, &ahead, sum))
    }

    /// The work of one thread until the end: it compares while no other thread does, and otherwise installs what has
    /// arrived. Thus one thread compares as long as chunks are left to compare, which may be what the others wait for.
    fn install_arrivals(&self, step: Step, ahead: &Ahead<'_>, sum: &mut StepProgress) -> Result<(), InstallError> {
        let _end = WorkEnd(&ahead.is_over);
        while !ahead.is_over() {
            if !self.compare_next(ahead)? && !self.arrived(step, ahead, sum)? {
                break;
            }
        }
        Ok(())
    }

    /// Waits for the next chunks that arrive, and processes them. Returns false once all have arrived, or another
    /// thread has left.
    fn arrived(&self, step: Step, ahead: &Ahead<'_>, sum: &mut StepProgress) -> Result<bool, InstallError> {
        while !ahead.is_over()
            && let Some(indices) = ahead.arrivals().next(ARRIVAL_PATIENCE)
        {
            self.check_interrupt()?;
            if !indices.is_empty() {
                let names: Vec<UnitName> = indices.iter().map(|index| self.manifest.chunks[*index]).collect();
                ahead.begin(&indices);
                self.group(step, &names, Some(ahead), sum)?;
                ahead.arrivals().finish(&indices);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the target or a seed may have a part of the image.
    fn may_have_parts(&self) -> bool {
        self.is_comparing() || self.headers.source.has_seeds()
    }

    /// Compares the next group of chunks. Returns false if another thread does, or all have been compared.
    fn compare_next(&self, ahead: &Ahead<'_>) -> Result<bool, InstallError> {
        let Some(mut next) = ahead.next.try_lock() else { return Ok(false) };
        let Some(names) = ahead.groups.get(*next) else { return Ok(false) };
        let first = *next * self.group_chunks;
        *next += 1;
        self.check_interrupt()?;
        if (first..first + names.len()).all(|index| ahead.has_begun(index)) {
            return Ok(true);
        }
        let headers = self.headers.of(names)?;
        for (at, name) in names.iter().enumerate() {
            if !ahead.has_begun(first + at) {
                let header = self.header(name, &headers, at)?;
                let chunk = self.compared(&header)?;
                let part = self.lacking_part(&header, chunk.as_ref());
                ahead.note(first + at, name, chunk, part);
            }
        }
        Ok(true)
    }

    /// Returns the part of a chunk that neither the target nor a seed has.
    fn lacking_part(&self, header: &ChunkHeader, chunk: Option<&ComparedChunk>) -> LackingPart {
        let mut part = LackingPart { lacking_bytes: 0, bytes: 0 };
        for (index, unit) in header.units.iter().enumerate() {
            let bytes = u64::from(unit.plain_bytes);
            let is_wanted = chunk.is_none_or(|chunk| chunk.wanted.has(index));
            part.bytes += bytes;
            part.lacking_bytes += if is_wanted && !self.headers.source.is_in_seed(&unit.name) { bytes } else { 0 };
        }
        part
    }
}
