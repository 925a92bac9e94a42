//! Reading data blocks by their physical numbers.

use onefold_block::device::runs;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockNo, ReadOp};

use super::cache::CACHED_READ_BLOCKS;
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::map_node::MapEntry;

impl Engine {
    /// Fills `into` (one block for each entry) with what a map's entries name; holes are zeros. The caller's range lock
    /// keeps the blocks from being freed.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn fetch(&self, entries: &[MapEntry], into: &mut [u8]) -> Result<()> {
        debug_assert_eq!(entries.len() * BLOCK_BYTES, into.len());
        let cached = entries.len() <= CACHED_READ_BLOCKS;
        let mut batch: Vec<ReadOp<'_>> = Vec::new();
        let mut missed: Vec<(usize, BlockNo)> = Vec::new();
        let mut rest = &mut *into;
        for run in runs(entries, MapEntry::block) {
            let (into, after) = rest.split_at_mut(run.places.len() * BLOCK_BYTES);
            rest = after;
            let Some(first) = run.first else {
                into.fill(0);
                continue;
            };
            if !cached {
                batch.push(ReadOp { first, into });
                continue;
            }
            let blocks = run.places.zip((first.0..).map(BlockNo));
            for ((at, block), into) in blocks.zip(into.chunks_exact_mut(BLOCK_BYTES)) {
                if !self.data_cache.read(block, into) {
                    missed.push((at, block));
                    batch.push(ReadOp { first: block, into });
                }
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        let block = batch[0].first;
        self.device.read_batch(&mut batch).map_err(|source| PoolError::Io { action: "read", block, source })?;
        drop(batch);
        for (at, block) in missed {
            self.data_cache.insert(block, &into[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES]);
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
