//! The filter saved at a clean close, so that the next opening need not read every fingerprint store.
//!
//! It is written to *free* blocks, which costs no space: a closed pool writes nothing, and the next opening hands out
//! none of these blocks before it has read them. Items of the names tree, committed by the close, hold their places.
//! The opening removes these items durably before it serves. It also reads a small filter before it serves; a larger
//! one is read while the pool serves, a step at a time ([`super::index`]). Blocks that are written meanwhile enter a
//! small filter of their own, which joins the saved one in the end. If a chunk differs from what was saved, the filter
//! is rebuilt.

use std::ops::ControlFlow;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, ReadOp};

use super::Engine;
use super::index::IndexStage;
use crate::error::{PoolError, Result};
use crate::filter::{CHUNK_BYTES, Filter, FilterOptions, Loader};
use crate::format::geometry::{GROUP_BLOCKS, STORE_PAGES_PER_GROUP};
use crate::format::items::{self, FilterRun};
use crate::format::state::Field;
use crate::meta::Privilege;
use crate::meta::allocate::EMERGENCY_BLOCKS;
use crate::meta::group_run::GroupRun;
use crate::options::Journaling;
use crate::tree;

/// Number of blocks in a chunk. Runs need not be multiples of it: the chunks form one stream of blocks.
const CHUNK_BLOCKS: usize = CHUNK_BYTES / BLOCK_BYTES;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(BLOCK_BYTES));
/// Number of blocks written or read at once.
const PIECE_BLOCKS: usize = 256;
/// Number of pieces that are read side by side.
const PIECES_PER_STEP: usize = 8;
/// Size of a piece in tests that look between the steps: no whole number of these pieces makes a chunk.
const PIECE_BLOCKS_FEW: u64 = 5;
/// Maximum number of runs. With more, free space is too fragmented, and rebuilding the filter is as fast.
const RUNS_MAX: usize = 4096;
/// A saved filter of up to this many blocks, 16 MiB, is read before the pool serves, within a few hundredths of a
/// second.
const BLOCKS_READ_AT_ONCE: u64 = 4096;

/// A saved filter that is being read. Its blocks are busy meanwhile.
pub(crate) struct FilterLoad {
    loader: Loader,
    blocks: Vec<GroupRun>,
    /// The next piece: its run, and its first block in that run.
    run: usize,
    within: u64,
    /// The beginning of a chunk whose end has not been read yet.
    front: Vec<u8>,
    blocks_read: u64,
}

impl Engine {
    /// Saves the filter to free blocks, if it is complete and there are enough of them, with some to spare for the
    /// names tree. After this, the pool writes only its last commit.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(crate) fn save_filter(&self) -> Result<()> {
        if self.options.journaling == Journaling::Off || self.groups_pending() > 0 {
            return Ok(());
        }
        let (needed, generation, available) = {
            let meta = self.meta();
            let needed = meta.filter.read().saved_bytes().div_ceil(BLOCK_BYTES as u64);
            (needed, meta.running.sequence, meta.blocks_free().saturating_sub(meta.groups.busy.count()))
        };
        if available < needed + EMERGENCY_BLOCKS {
            return Ok(());
        }
        let Some(runs) = self.free_runs(needed)? else { return Ok(()) };
        self.write_chunks(&runs, generation).inspect_err(|error| self.write_failed(error, runs[0].first))?;
        self.run(Privilege::Freeing, |op| {
            for (number, run) in (0..).zip(&runs) {
                let value = FilterRun { generation, first: run.first, count: run.count }.encode();
                op.put_item(&items::filter_run_key(number), &value)?;
            }
            op.wrote_data();
            Ok(())
        })
    }

    /// Takes free runs of `needed` blocks in total out of allocation's reach. `None` if there are not enough.
    fn free_runs(&self, needed: u64) -> Result<Option<Vec<GroupRun>>> {
        let (ready, start, group_count) = {
            let meta = self.meta();
            (meta.state(Field::GroupsReady), meta.groups.data_cursor.group, meta.geometry.group_count())
        };
        let mut runs: Vec<GroupRun> = Vec::new();
        let mut missing = needed;
        // Groups that took the last data are most likely to have room; groups that were never used certainly do.
        for group in (0..ready).map(|step| (start + step) % ready).chain(ready..group_count) {
            if missing == 0 || runs.len() >= RUNS_MAX {
                break;
            }
            if group >= ready {
                self.init_group(group)?;
            }
            if self.meta().groups.free_runs.get(group).is_some_and(|known| known.free == 0) {
                // Skipped without reading its bitmaps.
                continue;
            }
            let mut from = 0;
            while missing > 0 && runs.len() < RUNS_MAX && from < GROUP_BLOCKS {
                // Takes no more than needed, because the names tree may need a block, too.
                let run = self.run(Privilege::Freeing, |op| op.reserve_free_run(group, from, missing))?;
                let Some(run) = run else { break };
                from = run.first.0 % GROUP_BLOCKS + run.count;
                missing -= run.count;
                runs.push(run);
            }
        }
        Ok((missing == 0).then_some(runs))
    }

    fn write_chunks(&self, runs: &[GroupRun], generation: u64) -> Result<()> {
        let _meta = self.meta();
        let filter = self.filter.read();
        let mut chunks = filter.save(generation);
        let mut chunk = Vec::new();
        let mut next = CHUNK_BLOCKS;
        for run in runs {
            let mut done = 0;
            while done < run.count {
                let count = (run.count - done).min(PIECE_BLOCKS as u64);
                let mut buffer = AlignedBuffer::zeroed(usize::try_from(count).expect("at most 256"));
                for place in buffer.blocks_mut() {
                    if next == CHUNK_BLOCKS {
                        chunk = chunks.next().unwrap_or_else(|| vec![0; CHUNK_BYTES]);
                        next = 0;
                    }
                    place.copy_from_slice(&chunk[next * BLOCK_BYTES..(next + 1) * BLOCK_BYTES]);
                    next += 1;
                }
                let at = run.first.plus(done);
                // An exception to the rule of no I/O under the metadata lock: the pool is closing, so nothing waits for
                // it.
                self.device.write(at, &buffer).map_err(|source| PoolError::of_write(at, source))?;
                done += count;
            }
        }
        Ok(())
    }

    /// Takes the saved filter, if there is a whole one, and removes the items that hold its places.
    ///
    /// # Errors
    /// Device errors; damage of the names tree.
    pub(crate) fn take_saved_filter(&self) -> Result<()> {
        let runs = self.saved_runs()?;
        if runs.is_empty() {
            return Ok(());
        }
        if let Some(pulse) = &self.pulse {
            // The first write of an opening. If another host has the pool, its name is still known here.
            pulse.ensure_held()?;
        }
        // Before the items are removed, which may take a block.
        let blocks = self.reserve_saved(&runs)?;
        self.run(Privilege::Freeing, |op| {
            for (number, _) in (0..).zip(&runs) {
                op.remove_item(&items::filter_run_key(number))?;
            }
            Ok(())
        })?;
        // The next change makes the saved filter wrong, so the items must be gone before it.
        self.commit()?;
        let Some(blocks) = blocks else { return Ok(()) };
        let total: u64 = blocks.iter().map(|run| run.count).sum();
        let options = {
            let mut meta = self.meta();
            let page_count = meta.geometry.store_page_count();
            meta.indexing.begin_loading(page_count);
            self.filter_options(&meta.geometry)
        };
        let loader = Loader::new(&options, runs[0].generation);
        let loading = FilterLoad { loader, blocks, run: 0, within: 0, front: Vec::new(), blocks_read: 0 };
        *self.indexer.lock() = IndexStage::Loading(loading);
        if total <= BLOCKS_READ_AT_ONCE && !self.options.test_limits.index_in_steps {
            self.end_loading()?;
        }
        Ok(())
    }

    /// Keeps the blocks of a saved filter from being handed out. `None` if they are not all free, so that it cannot be
    /// used.
    fn reserve_saved(&self, runs: &[FilterRun]) -> Result<Option<Vec<GroupRun>>> {
        let mut reserved = Vec::new();
        for run in runs {
            let run = GroupRun { first: run.first, count: run.count };
            let is_free = self.run(Privilege::Freeing, |op| {
                let (geometry, ready) = (op.meta.geometry, op.state(Field::GroupsReady));
                let (group, within) = (geometry.group_of(run.first), run.first.0 % GROUP_BLOCKS);
                let is_in_group = group < ready
                    && run.count > 0
                    && within.checked_add(run.count).is_some_and(|end| end <= geometry.group_blocks(group));
                if is_in_group { op.reserve_runs(&[run]) } else { Ok(false) }
            })?;
            if !is_free {
                self.free_saved(&reserved);
                return Ok(None);
            }
            reserved.push(run);
        }
        Ok(Some(reserved))
    }

    fn free_saved(&self, blocks: &[GroupRun]) {
        self.meta().free_again(blocks);
    }

    /// Reads the next pieces of a saved filter. Returns the next stage when all have been read, or when the filter
    /// turned out to be unusable.
    pub(super) fn load_some(&self, loading: &mut FilterLoad) -> Result<Option<IndexStage>> {
        let is_usable = self.load_pieces(loading).is_some();
        let is_at_end = loading.run == loading.blocks.len();
        if is_usable && !loading.loader.is_complete() && !is_at_end {
            let total: u64 = loading.blocks.iter().map(|run| run.count).sum();
            let mut meta = self.meta();
            let pages = meta.state(Field::GroupsReady) * STORE_PAGES_PER_GROUP;
            let share = u128::from(pages) * u128::from(loading.blocks_read) / u128::from(total.max(1));
            meta.indexing.note_progress(u64::try_from(share).unwrap_or(0).min(pages.saturating_sub(1)));
            return Ok(None);
        }
        let options = self.filter_options(&self.meta().geometry);
        let loader = std::mem::replace(&mut loading.loader, Loader::new(&options, 0));
        let loaded = if is_usable { loader.finish().ok() } else { None };
        self.free_saved(&std::mem::take(&mut loading.blocks));
        let Some(filter) = loaded else {
            self.meta().begin_filter_anew(Filter::new(&options));
            return Ok(Some(IndexStage::Idle));
        };
        let meanwhile = {
            let meta = self.meta();
            let mut in_force = meta.filter.write();
            let mut meanwhile = std::mem::replace(&mut *in_force, filter);
            // The filter in force has heard of a growth; the saved one has not.
            let pages = meta.geometry.store_page_count();
            in_force.grow(pages);
            meanwhile.grow(pages);
            meanwhile
        };
        Ok(Some(Engine::after_loading(meanwhile.into_entries())))
    }

    /// Reads up to [`PIECES_PER_STEP`] pieces and gives them to the loader. `None` if they are unusable.
    fn load_pieces(&self, loading: &mut FilterLoad) -> Option<()> {
        let (pieces, piece_blocks) = match self.options.test_limits.index_in_steps {
            true => (1, PIECE_BLOCKS_FEW),
            false => (PIECES_PER_STEP, PIECE_BLOCKS as u64),
        };
        let mut places = Vec::new();
        while places.len() < pieces
            && let Some(run) = loading.blocks.get(loading.run)
        {
            let count = (run.count - loading.within).min(piece_blocks);
            places.push(GroupRun { first: run.first.plus(loading.within), count });
            loading.within += count;
            if loading.within == run.count {
                (loading.run, loading.within) = (loading.run + 1, 0);
            }
        }
        let blocks: u64 = places.iter().map(|piece| piece.count).sum();
        let mut buffer = AlignedBuffer::zeroed(usize::try_from(blocks).ok()?);
        let mut rest = &mut buffer[..];
        let mut batch = Vec::new();
        for piece in &places {
            let (into, after) = rest.split_at_mut(usize::try_from(piece.count).ok()? * BLOCK_BYTES);
            batch.push(ReadOp { first: piece.first, into });
            rest = after;
        }
        self.device.read_batch(&mut batch).ok()?;
        drop(batch);
        loading.blocks_read += blocks;
        let mut bytes = &buffer[..];
        while !bytes.is_empty() && !loading.loader.is_complete() {
            let taken = (CHUNK_BYTES - loading.front.len()).min(bytes.len());
            let (more, after) = bytes.split_at(taken);
            bytes = after;
            if taken == CHUNK_BYTES {
                loading.loader.load(more).ok()?;
                continue;
            }
            loading.front.extend_from_slice(more);
            if loading.front.len() == CHUNK_BYTES {
                loading.loader.load(&loading.front).ok()?;
                loading.front.clear();
            }
        }
        Some(())
    }

    /// Gives up a saved filter that is still being read, because its blocks are needed. The filter is then rebuilt.
    /// Returns false if there is no such filter.
    pub(crate) fn give_up_saved_filter(&self) -> bool {
        let mut stage = self.indexer.lock();
        let IndexStage::Loading(loading) = &*stage else { return false };
        self.free_saved(&loading.blocks);
        let options = self.filter_options(&self.meta().geometry);
        self.meta().begin_filter_anew(Filter::new(&options));
        *stage = IndexStage::Idle;
        true
    }

    fn saved_runs(&self) -> Result<Vec<FilterRun>> {
        self.view(|op| {
            let root = op.tree_root();
            let (first, last) = items::filter_run_bounds();
            let mut runs = Vec::new();
            let _ = tree::scan(op, root, first..=last, |_, value| -> ControlFlow<()> {
                runs.extend(FilterRun::decode(value));
                ControlFlow::Continue(())
            })?;
            Ok(runs)
        })
    }

    /// Returns the options of the filter for a pool of this layout.
    pub(crate) fn filter_options(&self, geometry: &crate::format::geometry::Geometry) -> FilterOptions {
        super::open::filter_options(&self.options, geometry)
    }
}
