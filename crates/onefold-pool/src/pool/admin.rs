//! Maintenance of a pool: reclaim, grow, trim.

use onefold_block::AlignedBuffer;
use onefold_block::block::BLOCK_BYTES_U64;

use super::Pool;
use crate::error::{PoolError, Result};
use crate::format::geometry::{GROUP_BLOCKS, Geometry, SUPERBLOCK, SUPERBLOCK_COPY};
use crate::format::state::Field;
use crate::meta::Privilege;
use crate::options::StorePlacement;
use crate::progress::Progress;

/// Number of blocks discarded at once: no operation can use them meanwhile.
const TRIM_BLOCKS: u64 = 2048;

impl Pool {
    /// Does one bounded step of background work: locating free blocks, reading fingerprints into the filter, reclaiming
    /// deleted files, finding places for the summaries of the groups. Returns false when none is left. Pools opened
    /// with `background` do this by themselves.
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn reclaim(&self) -> Result<bool> {
        let engine = &self.engine;
        Ok(engine.survey_some()? || engine.index_some()? || engine.reclaim_one()? || engine.place_summaries())
    }

    /// Extends the pool to the present size of the device. Returns the new size in bytes.
    ///
    /// The superblock and its copy are rewritten one at a time with a flush between, so a crash leaves either the old
    /// size or the new one. Nothing else changes: groups are initialised when they are first used.
    ///
    /// # Errors
    /// [`PoolError::Unsupported`] for a pool with its stores at the end; [`PoolError::JournalTooSmall`] if the larger
    /// pool would need a larger journal; device errors.
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
        // Nobody has vouched for the new blocks.
        engine.room.note_change();
        {
            let mut meta = engine.meta();
            meta.geometry = new;
            meta.filter.write().grow(new.store_page_count());
            // The last group may have been short and marked as full.
            meta.groups.forget_runs(old.group_count() - 1);
            meta.indexing.grow(old.store_page_count(), new.store_page_count());
        }
        Ok(new.total_blocks * BLOCK_BYTES_U64)
    }

    /// Discards free blocks on the device, so that a sparse file shrinks and a solid-state disk can reuse their space.
    /// Frees the blocks of deleted files first, so that a caller who has deleted files gets their space. Returns the
    /// number of bytes discarded.
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn trim(&self, progress: &dyn Progress) -> Result<u64> {
        let engine = self.settled();
        let (geometry, ready) = {
            let meta = engine.meta();
            (meta.geometry, meta.state(Field::GroupsReady))
        };
        while engine.reclaim_one()? {
            if progress.update(0, ready * GROUP_BLOCKS).is_break() {
                return Ok(0);
            }
        }
        // Blocks whose free is not durable must not be discarded: they are busy, so the runs below leave them out.
        engine.commit()?;
        let mut discarded = 0;
        for group in 0..ready {
            let mut from = 0;
            while from < geometry.group_blocks(group) {
                // The run is busy while it is discarded: no operation gets its blocks. All promised blocks stay
                // available for their owners, and so do most of the others, so that hardly any operation fails for lack
                // of room.
                let run = engine.run(Privilege::Freeing, |op| match (op.blocks_unpromised() / 8).min(TRIM_BLOCKS) {
                    0 => Ok(None),
                    most => op.reserve_free_run(group, from, most),
                })?;
                let Some(run) = run else { break };
                let result = engine.device.discard(run.first, run.count);
                let mut meta = engine.meta();
                // The backing file may no longer have room for them.
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
