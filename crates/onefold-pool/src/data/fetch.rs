//! Reading data blocks by their physical numbers.

use std::ops::Range;

use onefold_block::device::runs;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockNo, ReadOp};

use super::around::beside;
use super::cache::{CACHED_READ_BLOCKS, Cause, Found};
use crate::attr::Ino;
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::map_node::MapEntry;

/// Blocks that a map's entries name, and where they are to go: one block for each entry.
pub(crate) struct Part<'a> {
    pub(crate) entries: &'a [MapEntry],
    pub(crate) into: &'a mut [u8],
    /// What may be brought with them.
    pub(crate) around: Option<Around<'a>>,
}

impl Part<'_> {
    fn may_bring(&self) -> bool {
        self.around.as_ref().is_some_and(|around| around.entries.len() > self.entries.len())
    }
}

/// Entries of a file's map among which those of a [`Part`] are. The caller's range lock is on all of them.
pub(crate) struct Around<'a> {
    pub(crate) ino: Ino,
    pub(crate) entries: &'a [MapEntry],
    /// Where the part's begin.
    pub(crate) at: usize,
}

/// A block that the cache does not have: the entry `at` of a part.
struct Missed {
    part: usize,
    at: usize,
    block: BlockNo,
}

/// Blocks beside each other on the device, some of which a part asks for.
struct Brought {
    part: usize,
    first: BlockNo,
    /// Which entries of the part's [`Around`] name them.
    places: Range<usize>,
    buffer: AlignedBuffer,
}

impl Engine {
    /// Fills `into` (one block for each entry) with what a map's entries name; holes are zeros. The caller's range lock
    /// keeps the blocks from being freed.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn fetch(&self, entries: &[MapEntry], into: &mut [u8]) -> Result<()> {
        self.fetch_each(&mut [Part { entries, into, around: None }])
    }

    /// As [`Engine::fetch`], for several parts together.
    ///
    /// # Errors
    /// Device errors; nothing is known of any part then.
    pub(crate) fn fetch_each(&self, parts: &mut [Part<'_>]) -> Result<()> {
        match self.try_fetch_each(parts) {
            // What nobody asked for may be what cannot be read.
            Err(_) if parts.iter().any(Part::may_bring) => {
                parts.iter_mut().for_each(|part| part.around = None);
                self.try_fetch_each(parts)
            }
            done => done,
        }
    }

    fn try_fetch_each(&self, parts: &mut [Part<'_>]) -> Result<()> {
        let mut batch: Vec<ReadOp<'_>> = Vec::new();
        let mut missed: Vec<Missed> = Vec::new();
        let mut brought: Vec<Brought> = Vec::new();
        // Blocks to be copied: which of `brought`, which of its blocks, and where to.
        let mut copies: Vec<(usize, usize, &mut [u8])> = Vec::new();
        for (part, Part { entries, into, around }) in parts.iter_mut().enumerate() {
            debug_assert_eq!(entries.len() * BLOCK_BYTES, into.len());
            let is_cached = entries.len() <= CACHED_READ_BLOCKS;
            let mut as_brought = 0;
            let mut rest = &mut **into;
            for run in runs(entries, MapEntry::block) {
                let (into, after) = rest.split_at_mut(run.places.len() * BLOCK_BYTES);
                rest = after;
                let Some(first) = run.first else {
                    into.fill(0);
                    continue;
                };
                if !is_cached {
                    batch.push(ReadOp { first, into });
                    continue;
                }
                let blocks = run.places.zip((first.0..).map(BlockNo));
                for ((at, block), into) in blocks.zip(into.chunks_exact_mut(BLOCK_BYTES)) {
                    if let Some((last, of)) = brought.last().zip(around.as_ref())
                        && last.part == part
                        && last.places.contains(&(of.at + at))
                    {
                        copies.push((brought.len() - 1, of.at + at - last.places.start, into));
                        continue;
                    }
                    match self.data_cache.read(block, into) {
                        Found::Yes => continue,
                        Found::AsBrought => {
                            as_brought += 1;
                            continue;
                        }
                        Found::No => {}
                    }
                    if let Some(found) = around.as_ref().and_then(|around| self.to_bring(around, entries.len(), at)) {
                        let offset = around.as_ref().map_or(0, |around| around.at + at - found.places.start);
                        copies.push((brought.len(), offset, into));
                        brought.push(Brought { part, ..found });
                        continue;
                    }
                    missed.push(Missed { part, at, block });
                    batch.push(ReadOp { first: block, into });
                }
            }
            if let Some(around) = around {
                self.read_around.earn(around.ino, as_brought);
            }
        }
        batch.extend(brought.iter_mut().map(|brought| ReadOp { first: brought.first, into: &mut brought.buffer }));
        if batch.is_empty() {
            return Ok(());
        }
        let block = batch[0].first;
        self.device.read_batch(&mut batch).map_err(|source| PoolError::Io { action: "read", block, source })?;
        drop(batch);
        for (of, at, into) in copies {
            into.copy_from_slice(&brought[of].buffer[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES]);
        }
        for Missed { part, at, block } in missed {
            let bytes = &parts[part].into[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES];
            self.data_cache.insert(block, bytes, Cause::Asked);
        }
        for Brought { part, first, places, buffer } in brought {
            let Part { entries, around: Some(around), .. } = &parts[part] else { continue };
            self.read_around.spend(around.ino);
            let asked = around.at..around.at + entries.len();
            for ((place, block), bytes) in places.zip((first.0..).map(BlockNo)).zip(buffer.chunks_exact(BLOCK_BYTES)) {
                let cause = if asked.contains(&place) { Cause::Asked } else { Cause::Beside };
                self.data_cache.insert(block, bytes, cause);
            }
        }
        Ok(())
    }

    /// Returns what is to be read together with the entry `at` of a part of `count`, which is missed; none where it is no
    /// more than the part asks for.
    fn to_bring(&self, around: &Around<'_>, count: usize, at: usize) -> Option<Brought> {
        let places = beside(around.entries, around.at + at, |block| self.data_cache.has(block));
        let first = around.entries.get(places.start)?.block()?;
        let is_more = places.start < around.at || places.end > around.at + count;
        is_more.then(|| Brought { part: 0, first, buffer: AlignedBuffer::zeroed(places.len()), places })
    }

    /// Reads one data block.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn fetch_block(&self, block: BlockNo) -> Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(1);
        self.fetch(&[MapEntry::Block(block)], &mut buffer)?;
        Ok(buffer)
    }
}
