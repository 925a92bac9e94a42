//! The filter saved at a clean close, so that the next opening need not read every fingerprint store.
//!
//! It is written to *free* blocks, which cost nothing: a closed pool writes nothing any more, and the next opening
//! hands out none of them before it has read them. Items of the names tree, committed by the close, say where; the
//! opening removes them durably before it serves. A small filter is read before that; the others are read while the
//! pool serves, a step at a time ([`super::index`]): what is written meanwhile is found by a small filter of its own,
//! which joins the other in the end. A chunk that is not what was saved makes the filter be rebuilt.

use std::ops::ControlFlow;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, ReadOp};

use super::Engine;
use super::index::Stage;
use crate::error::{PoolError, Result};
use crate::filter::{CHUNK_BYTES, Filter, FilterOptions, Loader};
use crate::format::geometry::{GROUP_BLOCKS, STORE_PAGES_PER_GROUP};
use crate::format::items::{self, FilterRun};
use crate::format::state::Field;
use crate::meta::Privilege;
use crate::meta::allocate::{EMERGENCY_BLOCKS, Run};
use crate::options::Journaling;
use crate::tree;

/// Blocks of a chunk. Runs need not be multiples of it: the chunks are one stream of blocks.
const CHUNK_BLOCKS: usize = CHUNK_BYTES / BLOCK_BYTES;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(BLOCK_BYTES));
/// Blocks written or read at once.
const PIECE_BLOCKS: usize = 256;
/// Pieces that are read side by side.
const PIECES_PER_STEP: usize = 8;
/// In tests that look between the steps: pieces of which no whole number makes a chunk.
const PIECE_BLOCKS_FEW: u64 = 5;
/// More runs than this are not worth it: the free space is in pieces, and rebuilding is as fast.
const RUNS_MAX: usize = 4096;
/// A saved filter of so many blocks, 16 MiB, is read before the pool serves: it takes a few hundredths of a second.
const BLOCKS_READ_AT_ONCE: u64 = 4096;

/// A saved filter that is being read. Its blocks are busy.
pub(crate) struct Loading {
    loader: Loader,
    blocks: Vec<Run>,
    /// The next piece: which run, and the first block in it.
    run: usize,
    within: u64,
    /// The front of a chunk whose end has not been read yet.
    front: Vec<u8>,
    blocks_read: u64,
}

impl Engine {
    /// Saves the filter to free blocks, if it is complete and they suffice with some to spare for the names tree. The
    /// pool writes nothing but its last commit after this.
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

    /// Takes free runs of `needed` blocks together out of allocation's reach. `None` if there are not enough.
    fn free_runs(&self, needed: u64) -> Result<Option<Vec<Run>>> {
        let (ready, start, group_count) = {
            let meta = self.meta();
            (meta.state(Field::GroupsReady), meta.groups.data_cursor.group, meta.geometry.group_count())
        };
        let mut runs: Vec<Run> = Vec::new();
        let mut missing = needed;
        // Where data was written last there is most likely to be room; at the latest in groups that were never used.
        for group in (0..ready).map(|step| (start + step) % ready).chain(ready..group_count) {
            if missing == 0 || runs.len() >= RUNS_MAX {
                break;
            }
            if group >= ready {
                self.init_group(group)?;
            }
            if self.meta().groups.free_runs.get(group).is_some_and(|known| known.free == 0) {
                // Its bitmaps need not be read for that.
                continue;
            }
            let mut from = 0;
            while missing > 0 && runs.len() < RUNS_MAX && from < GROUP_BLOCKS {
                // No more than is needed: the names tree may need a block, too.
                let run = self.run(Privilege::Freeing, |op| op.reserve_free_run(group, from, missing))?;
                let Some(run) = run else { break };
                from = run.first.0 % GROUP_BLOCKS + run.count;
                missing -= run.count;
                runs.push(run);
            }
        }
        Ok((missing == 0).then_some(runs))
    }

    fn write_chunks(&self, runs: &[Run], generation: u64) -> Result<()> {
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
                // Under the metadata lock, against the rule: the pool is closing, nobody waits for it.
                self.device.write(at, &buffer).map_err(|source| PoolError::of_write(at, source))?;
                done += count;
            }
        }
        Ok(())
    }

    /// Takes the saved filter, if there is one and it is whole, and removes what says where it is.
    ///
    /// # Errors
    /// Device errors; damage of the names tree.
    pub(crate) fn take_saved_filter(&self) -> Result<()> {
        let runs = self.saved_runs()?;
        if runs.is_empty() {
            return Ok(());
        }
        if let Some(pulse) = &self.pulse {
            // The first write of an opening: here another host is still called by its name.
            pulse.ensure_held()?;
        }
        // Before the items go, which may take a block.
        let blocks = self.reserve_saved(&runs)?;
        self.run(Privilege::Freeing, |op| {
            for (number, _) in (0..).zip(&runs) {
                op.remove_item(&items::filter_run_key(number))?;
            }
            Ok(())
        })?;
        // From the next change on the saved filter is a lie: the items must be gone first.
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
        let loading = Loading { loader, blocks, run: 0, within: 0, front: Vec::new(), blocks_read: 0 };
        *self.indexer.lock() = Stage::Loading(loading);
        if total <= BLOCKS_READ_AT_ONCE && !self.options.test_limits.index_in_steps {
            self.end_loading()?;
        }
        Ok(())
    }

    /// Keeps the blocks of a saved filter from being handed out. `None` where they are not all free: it can't be used.
    fn reserve_saved(&self, runs: &[FilterRun]) -> Result<Option<Vec<Run>>> {
        let mut reserved = Vec::new();
        for run in runs {
            let run = Run { first: run.first, count: run.count };
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

    fn free_saved(&self, blocks: &[Run]) {
        self.meta().free_again(blocks);
    }

    /// Reads the next pieces of a saved filter. Returns what follows when all has been read, or turned out to be of no
    /// use.
    pub(super) fn load_some(&self, loading: &mut Loading) -> Result<Option<Stage>> {
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
            return Ok(Some(Stage::Idle));
        };
        let meanwhile = {
            let meta = self.meta();
            let mut in_force = meta.filter.write();
            let mut meanwhile = std::mem::replace(&mut *in_force, filter);
            // It was told of a growth; the one that was saved was not.
            let pages = meta.geometry.store_page_count();
            in_force.grow(pages);
            meanwhile.grow(pages);
            meanwhile
        };
        Ok(Some(Engine::after_loading(meanwhile.into_entries())))
    }

    /// Reads up to [`PIECES_PER_STEP`] pieces and gives them to the loader. `None` where they are of no use.
    fn load_pieces(&self, loading: &mut Loading) -> Option<()> {
        let (pieces, piece_blocks) = match self.options.test_limits.index_in_steps {
            true => (1, PIECE_BLOCKS_FEW),
            false => (PIECES_PER_STEP, PIECE_BLOCKS as u64),
        };
        let mut places = Vec::new();
        while places.len() < pieces
            && let Some(run) = loading.blocks.get(loading.run)
        {
            let count = (run.count - loading.within).min(piece_blocks);
            places.push(Run { first: run.first.plus(loading.within), count });
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

    /// Gives up a saved filter that is still being read: its blocks are needed. The filter is rebuilt then. Returns
    /// false where there is none.
    pub(crate) fn give_up_saved_filter(&self) -> bool {
        let mut stage = self.indexer.lock();
        let Stage::Loading(loading) = &*stage else { return false };
        self.free_saved(&loading.blocks);
        let options = self.filter_options(&self.meta().geometry);
        self.meta().begin_filter_anew(Filter::new(&options));
        *stage = Stage::Idle;
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

    /// Returns how the filter is made for a pool of this layout.
    pub(crate) fn filter_options(&self, geometry: &crate::format::geometry::Geometry) -> FilterOptions {
        super::open::filter_options(&self.options, geometry)
    }
}
