//! The comparison goes ahead of chunks that arrive in an order of their own: while packets come, one thread compares
//! chunk after chunk with the target and the seeds, so that those which lack little need not arrive.
//!
//! A chunk that arrives before its turn is compared by the thread that installs it, as without this. Once a thread has
//! begun to install a chunk, its places may be half written: no comparison counts any more then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::InstallError;
use super::threads::{StepProgress, on_threads};
use super::work::{Job, Step};
use crate::UnitName;
use crate::format::chunk_header::ChunkHeader;
use crate::image_source::{Arrivals, LackingPart, WantedUnits};

/// Memory for comparisons that go ahead. Chunks beyond that are compared again when they are installed.
const FOUND_BYTES_MAX: usize = 4 << 20;
/// Memory of an entry of a hash table beside the flags of a chunk's units.
const ENTRY_BYTES: usize = 128;
/// Number of threads at least: one compares while another one installs what has arrived.
const THREADS_MIN: usize = 2;

/// Result of the comparison of a chunk.
pub(super) struct ComparedChunk {
    /// The units that the target lacks.
    pub(super) wanted: WantedUnits,
    /// Bytes of the other ones.
    pub(super) found_bytes: u64,
}

/// Chunks that arrive, and the comparison ahead of them.
pub(super) struct Ahead<'a> {
    arrivals: &'a dyn Arrivals,
    /// The chunks in groups that are compared at once, and the number of the next group. Its lock is held while a
    /// thread compares.
    groups: Vec<&'a [UnitName]>,
    next: Mutex<usize>,
    found: Mutex<FoundChunks>,
    /// Whether a thread has left: it has failed or panicked, or all chunks have arrived. The others leave then, too.
    is_over: AtomicBool,
}

/// Ends the work of all threads when the thread that has it leaves, however that happens.
struct WorkEnd<'a>(&'a AtomicBool);

impl Drop for WorkEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct FoundChunks {
    /// Whether a thread has begun to install a chunk, by its index.
    is_begun: Vec<bool>,
    /// Chunks that no thread has begun to install.
    compared: HashMap<UnitName, ComparedChunk>,
    left_bytes: usize,
}

impl ComparedChunk {
    fn bytes(&self) -> usize {
        let flags = if let WantedUnits::Some(flags) = &self.wanted { flags.len() } else { 0 };
        ENTRY_BYTES + flags
    }
}

impl<'a> Ahead<'a> {
    /// Returns the comparison of these chunks, of which `group_chunks` are compared at once. Nothing is compared if the
    /// machine has nothing of the image.
    fn new(arrivals: &'a dyn Arrivals, chunks: &'a [UnitName], group_chunks: usize, is_compared: bool) -> Ahead<'a> {
        let groups = if is_compared { chunks.chunks(group_chunks).collect() } else { Vec::new() };
        let found =
            FoundChunks { is_begun: vec![false; chunks.len()], compared: HashMap::new(), left_bytes: FOUND_BYTES_MAX };
        Ahead { arrivals, groups, next: Mutex::new(0), found: Mutex::new(found), is_over: AtomicBool::new(false) }
    }

    /// Returns the chunks that arrive.
    pub(super) fn arrivals(&self) -> &dyn Arrivals {
        self.arrivals
    }

    /// Returns whether there is nothing to wait for any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Notes that a thread begins to install chunks.
    pub(super) fn begin(&self, indices: &[usize]) {
        let mut found = self.found.lock();
        for index in indices {
            if let Some(is_begun) = found.is_begun.get_mut(*index) {
                *is_begun = true;
            }
        }
    }

    /// Returns what a comparison has found of a chunk before a thread began to install it, once.
    pub(super) fn take(&self, name: &UnitName) -> Option<ComparedChunk> {
        let mut found = self.found.lock();
        let chunk = found.compared.remove(name)?;
        found.left_bytes += chunk.bytes();
        Some(chunk)
    }

    fn has_begun(&self, index: usize) -> bool {
        self.found.lock().is_begun.get(index).copied().unwrap_or(true)
    }

    /// Keeps what a comparison has found, and passes it on. Does neither if a thread has begun to install the chunk.
    fn note(&self, index: usize, name: &UnitName, chunk: Option<ComparedChunk>, part: LackingPart) {
        let mut found = self.found.lock();
        if found.is_begun.get(index).copied().unwrap_or(true) {
            return;
        }
        if let Some(chunk) = chunk
            && !found.compared.contains_key(name)
            && let Some(left_bytes) = found.left_bytes.checked_sub(chunk.bytes())
        {
            found.left_bytes = left_bytes;
            found.compared.insert(*name, chunk);
        }
        drop(found);
        self.arrivals.compared(index, part);
    }
}

impl Job<'_> {
    /// Installs chunks as they arrive. If this machine may have a part of the image, one thread at a time compares.
    pub(super) fn run_arrivals(&self, step: Step, arrivals: &dyn Arrivals) -> Result<StepProgress, InstallError> {
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

    /// Returns whether the target or a seed may have a part of the image.
    pub(super) fn may_have_parts(&self) -> bool {
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
