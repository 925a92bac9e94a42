//! Reading data blocks by their physical numbers.

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
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let mut rest = &mut *into;
        let mut at = 0;
        while at < entries.len() {
            let run = match entries[at] {
                MapEntry::Hole | MapEntry::Reserved => {
                    let (into, after) = rest.split_at_mut(BLOCK_BYTES);
                    into.fill(0);
                    rest = after;
                    at += 1;
                    continue;
                }
                MapEntry::Block(first) => consecutive(&entries[at..], first),
            };
            let MapEntry::Block(first) = entries[at] else { continue };
            let run = if cached { 1 } else { run };
            let (into, after) = rest.split_at_mut(run * BLOCK_BYTES);
            rest = after;
            if !(cached && self.data_cache.read(first, into)) {
                runs.push((at, run));
                batch.push(ReadOp { first, into });
            }
            at += run;
        }
        if batch.is_empty() {
            return Ok(());
        }
        let block = batch[0].first;
        self.device.read_batch(&mut batch).map_err(|source| PoolError::Io { action: "read", block, source })?;
        drop(batch);
        if cached {
            for (at, _) in runs {
                if let MapEntry::Block(block) = entries[at] {
                    self.data_cache.insert(block, &into[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES]);
                }
            }
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

/// Returns how many entries from the first on name consecutive blocks.
fn consecutive(entries: &[MapEntry], first: BlockNo) -> usize {
    (0..).zip(entries).take_while(|(offset, entry)| **entry == MapEntry::Block(first.plus(*offset))).count()
}
