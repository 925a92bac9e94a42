//! The comparison goes ahead of chunks that arrive in an order of their own: while packets come, one thread compares
//! chunk after chunk with the target and the seeds, so that those which lack little need not arrive.
//!
//! A chunk that arrives before its turn is compared by the thread that installs it, as without this. Once a thread has
//! begun to install a chunk, its places may be half written: no comparison counts any more then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::UnitName;
use crate::image_source::{Arrivals, LackingPart, WantedUnits};

/// Memory for comparisons that go ahead. Chunks beyond that are compared again when they are installed.
const FOUND_BYTES_MAX: usize = 4 << 20;
/// Memory of an entry of a hash table beside the flags of a chunk's units.
const ENTRY_BYTES: usize = 128;
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
    pub(super) groups: Vec<&'a [UnitName]>,
    pub(super) next: Mutex<usize>,
    found: Mutex<FoundChunks>,
    /// Whether a thread has left: it has failed or panicked, or all chunks have arrived. The others leave then, too.
    pub(super) is_over: AtomicBool,
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
    pub(super) fn new(
        arrivals: &'a dyn Arrivals,
        chunks: &'a [UnitName],
        group_chunks: usize,
        is_compared: bool,
    ) -> Ahead<'a> {
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

    pub(super) fn has_begun(&self, index: usize) -> bool {
        self.found.lock().is_begun.get(index).copied().unwrap_or(true)
    }

    /// Keeps what a comparison has found, and passes it on. Does neither if a thread has begun to install the chunk.
    pub(super) fn note(&self, index: usize, name: &UnitName, chunk: Option<ComparedChunk>, part: LackingPart) {
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
