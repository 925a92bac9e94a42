//! Looking after a pool: reclaim, grow, trim.

use onefold_block::AlignedBuffer;
use onefold_block::block::BLOCK_BYTES_U64;

use super::Pool;
use crate::error::{PoolError, Result};
use crate::format::geometry::{GROUP_BLOCKS, Geometry, SUPERBLOCK, SUPERBLOCK_COPY};
use crate::format::state::Field;
use crate::meta::Privilege;
use crate::options::StorePlacement;
use crate::progress::Progress;

/// Blocks discarded at once: they are out of everybody's reach meanwhile.
const TRIM_BLOCKS: u64 = 2048;

impl Pool {
    /// Does one bounded step of background work: finding out where free blocks are, reading fingerprints into the
    /// filter, reclaim of deleted files. Returns false when nothing is left. Pools opened with `background` do this by
    /// themselves.
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn reclaim(&self) -> Result<bool> {
        Ok(self.engine.survey_some()? || self.engine.index_some()? || self.engine.reclaim_one()?)
    }

    /// Takes in what the device has gained since the pool was created. Returns the new size in bytes.
    ///
    /// The superblock and its copy are rewritten one at a time with a flush between, so a crash finds the old size or
    /// the new one. Nothing else changes: groups are initialised when they are first used.
    ///
    /// # Errors
    /// [`PoolError::Unsupported`] for a pool with its stores at the end; [`PoolError::JournalTooSmall`] where the
    /// larger pool would need a larger journal; device errors.
    pub fn grow(&self) -> Result<u64> {
        let engine = self.settled();
        engine.ensure_writable()?;
        let mut superblock = engine.superblock.lock();
        if superblock.geometry.placement == StorePlacement::AtEnd {
            return Err(PoolError::Unsupported("a pool with its fingerprint stores at the end cannot grow"));
        }
        let found = engine.device.block_count().map_err(|source| PoolError::Io {
            action: "measure",
            block: SUPERBLOCK,
            source,
        })?;
        let old = superblock.geometry;
        if found <= old.total_blocks {
            return Ok(old.total_blocks * BLOCK_BYTES_U64);
        }
        let new = Geometry::new(found, old.journal_first, old.journal_blocks, old.placement)
            .ok_or(PoolError::Invalid("the device is larger than any pool can be"))?;
        new.ensure_journal_suffices()?;
        let mut grown = superblock.clone();
        grown.geometry = new;
        grown.generation += 1;
        for at in [SUPERBLOCK_COPY, SUPERBLOCK] {
            let bytes = AlignedBuffer::copy_of(&grown.encode(at)[..]);
            let written = engine.device.write(at, &bytes).and_then(|()| engine.device.sync());
            written.map_err(|source| {
                let error = PoolError::Io { action: "write", block: at, source };
                engine.stop(&error);
                error
            })?;
        }
        *superblock = grown;
        {
            let mut meta = engine.meta();
            meta.geometry = new;
            meta.filter.write().grow(new.store_page_count());
            // The last group may have been short and said to be full.
            meta.groups.forget_runs(old.group_count() - 1);
            meta.indexing.grow(old.store_page_count(), new.store_page_count());
        }
        Ok(new.total_blocks * BLOCK_BYTES_U64)
    }

    /// Tells the device which blocks are free, so that a sparse file shrinks and a solid-state disk can plan. Returns
    /// the bytes discarded.
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn trim(&self, progress: &dyn Progress) -> Result<u64> {
        let engine = self.settled();
        // Frees that are not durable must not be discarded: their blocks are busy and stay out of the runs below.
        engine.commit()?;
        let (geometry, ready) = {
            let meta = engine.meta();
            (meta.geometry, meta.state(Field::GroupsReady))
        };
        let mut discarded = 0;
        for group in 0..ready {
            let mut from = 0;
            while from < geometry.group_blocks(group) {
                // The run is busy while it is discarded: nobody gets it meanwhile. What was promised must stay there for
                // those who come to take it, and most of the rest, so that hardly anybody is told that there is no room.
                let run = engine.run(Privilege::Freeing, |op| match (op.blocks_unpromised() / 8).min(TRIM_BLOCKS) {
                    0 => Ok(None),
                    most => op.reserve_free_run(group, from, most),
                })?;
                let Some(run) = run else { break };
                let result = engine.device.discard(run.first, run.count);
                let mut meta = engine.meta();
                // The backing file has no room for them any more.
                meta.give_up_kept();
                meta.free_again(&[run]);
                drop(meta);
                result.map_err(|source| PoolError::Io { action: "discard", block: run.first, source })?;
                discarded += run.count;
                from = run.first.0 % GROUP_BLOCKS + run.count;
            }
            if progress.update((group + 1) * GROUP_BLOCKS, ready * GROUP_BLOCKS).is_break() {
                break;
            }
        }
        Ok(discarded * BLOCK_BYTES_U64)
    }
}
