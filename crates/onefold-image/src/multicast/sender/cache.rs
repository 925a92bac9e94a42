//! Chunks that were built, within a bounded memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::multicast::coding::RepairBlock;

/// A chunk as it is sent.
#[derive(Clone, Debug)]
pub(super) struct BuiltChunk {
    pub(super) form: u32,
    pub(super) bytes: Arc<Vec<u8>>,
    /// Repair symbols that were made; `None` if they cannot be made.
    pub(super) repairs: Option<Arc<RepairBlock>>,
}

impl BuiltChunk {
    /// Returns the bytes that count. Repair symbols come on top: if they counted, they would drive out chunks whose
    /// repair symbols are still to be made.
    fn length(&self) -> usize {
        self.bytes.len()
    }
}

/// Chunks that were built. Those that no machine lacks go first, and of these the least recently used one.
#[derive(Debug)]
pub(super) struct ChunkCache {
    chunks: BTreeMap<u32, CacheEntry>,
    bytes: usize,
    bytes_max: usize,
    uses: u64,
}

#[derive(Debug)]
struct CacheEntry {
    chunk: BuiltChunk,
    last_use: u64,
}

impl ChunkCache {
    pub(super) fn new(bytes_max: usize) -> ChunkCache {
        ChunkCache { chunks: BTreeMap::new(), bytes: 0, bytes_max, uses: 0 }
    }

    /// Keeps a chunk. At least the new chunk stays, however long it is.
    pub(super) fn insert(&mut self, index: u32, chunk: BuiltChunk, is_wanted: impl Fn(u32) -> bool) {
        self.uses += 1;
        self.bytes += chunk.length();
        let replaced = self.chunks.insert(index, CacheEntry { chunk, last_use: self.uses });
        self.bytes -= replaced.map_or(0, |entry| entry.chunk.length());
        while self.bytes > self.bytes_max && self.chunks.len() > 1 {
            let others = self.chunks.iter().filter(|(other, _)| **other != index);
            let first = others.min_by_key(|(other, entry)| (is_wanted(**other), entry.last_use));
            let removed = first.map(|(other, _)| *other).and_then(|other| self.chunks.remove(&other));
            self.bytes -= removed.map_or(0, |entry| entry.chunk.length());
        }
    }

    /// Returns a chunk without using it.
    pub(super) fn look(&self, index: u32) -> Option<&BuiltChunk> {
        self.chunks.get(&index).map(|entry| &entry.chunk)
    }

    /// Returns a chunk, which counts as used.
    pub(super) fn get(&mut self, index: u32) -> Option<BuiltChunk> {
        self.uses += 1;
        let entry = self.chunks.get_mut(&index)?;
        entry.last_use = self.uses;
        Some(entry.chunk.clone())
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.chunks.contains_key(&index)
    }

    /// Returns the indices of all chunks.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.chunks.keys().copied()
    }

    /// Returns how many of the chunks are wanted.
    pub(super) fn count(&self, is_wanted: impl Fn(u32) -> bool) -> usize {
        self.indices().filter(|chunk| is_wanted(*chunk)).count()
    }
}
