//! Reads data blocks by their physical numbers.

use onefold_block::device::runs;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockNo, ReadOp};

use super::Data;
use crate::error::{PoolError, Result};
use crate::format::map_node::MapEntry;
use crate::readers::cache::CACHED_READ_BLOCKS;

/// Blocks that a map's entries name, and the memory to fill: one block for each entry.
pub(crate) struct FetchPart<'a> {
    pub(crate) entries: &'a [MapEntry],
    pub(crate) into: &'a mut [u8],
}

/// A block that is not in the cache: the entry `at` of a part.
struct CacheMiss {
    part: usize,
    at: usize,
    block: BlockNo,
}

impl Data {
    /// Fills `into` (one block for each entry) with the blocks that a map's entries name; holes are zeros. The caller's
    /// range lock keeps the blocks from being freed.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn fetch(&self, entries: &[MapEntry], into: &mut [u8]) -> Result<()> {
        self.fetch_each(&mut [FetchPart { entries, into }])
    }

    /// Like [`Data::fetch`], for several parts together.
    ///
    /// # Errors
    /// Device errors. The content of all parts is unknown then.
    pub(crate) fn fetch_each(&self, parts: &mut [FetchPart<'_>]) -> Result<()> {
        let mut batch: Vec<ReadOp<'_>> = Vec::new();
        let mut missed: Vec<CacheMiss> = Vec::new();
        for (part, FetchPart { entries, into }) in parts.iter_mut().enumerate() {
            debug_assert_eq!(entries.len() * BLOCK_BYTES, into.len());
            let is_cached = entries.len() <= CACHED_READ_BLOCKS;
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
                    if !self.readers.cache.read(block, into) {
                        missed.push(CacheMiss { part, at, block });
                        batch.push(ReadOp { first: block, into });
                    }
                }
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        let block = batch[0].first;
        self.engine.device.read_batch(&mut batch).map_err(|source| PoolError::Io { action: "read", block, source })?;
        drop(batch);
        for CacheMiss { part, at, block } in missed {
            self.readers.cache.insert(block, &parts[part].into[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES]);
        }
        Ok(())
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
