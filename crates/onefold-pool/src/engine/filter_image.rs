//! The filter saved at a clean close, so that the next opening need not read every fingerprint store.
//!
//! It is written to *free* blocks ([`super::saved`]): a closed pool writes nothing, and the next opening hands out none
//! of these blocks before it has read them. Items of the names tree, committed by the close, hold their places. The
//! opening removes these items durably before it serves. It also reads a small filter before it serves; a larger
//! one is read while the pool serves, a step at a time ([`super::index`]). Blocks that are written meanwhile enter a
//! small filter of their own, which joins the saved one in the end. If a chunk differs from what was saved, the filter
//! is rebuilt.

use onefold_block::{AlignedBuffer, BLOCK_BYTES, ReadOp};

use super::Engine;
use super::saved_runs::RUNS_MAX;
use crate::error::{PoolError, Result};
use crate::filter::{CHUNK_BYTES, Filter, KeyedPage, Loader};
use crate::format::geometry::STORE_PAGES_PER_GROUP;
use crate::format::state::Field;
use crate::meta::allocate::EMERGENCY_BLOCKS;
use crate::meta::group_run::GroupRun;

/// Number of blocks in a chunk. Runs need not be multiples of it: the chunks form one stream of blocks.
const CHUNK_BLOCKS: usize = CHUNK_BYTES / BLOCK_BYTES;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(BLOCK_BYTES));
/// Number of blocks written or read at once.
const PIECE_BLOCKS: usize = 256;
/// Number of pieces that are read side by side.
const PIECES_PER_STEP: usize = 8;
/// Size of a piece in tests that look between the steps: no whole number of these pieces makes a chunk.
const PIECE_BLOCKS_FEW: u64 = 5;
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

/// Outcome of a step of reading a saved filter.
pub(super) enum LoadResult {
    /// More is to be read.
    Unfinished,
    /// The filter is unusable. Its blocks are free again.
    GivenUp,
    /// The filter is in force, and its blocks are free again. `others` are the entries that came meanwhile.
    InForce { others: Vec<KeyedPage> },
}

impl Engine {
    /// Takes free runs for the filter out of allocation's reach; none if the filter is incomplete, or if there are not
    /// enough free blocks, with some to spare for the names tree.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(super) fn reserve_filter_runs(&self) -> Result<Vec<GroupRun>> {
        if self.groups_pending() > 0 {
            return Ok(Vec::new());
        }
        let (mut missing, available, ready, start, group_count) = {
            let meta = self.meta();
            let needed = meta.filter.read().saved_bytes().div_ceil(BLOCK_BYTES as u64);
            let available = meta.blocks_free().saturating_sub(meta.groups.busy.count());
            let ready = meta.state(Field::GroupsReady);
            (needed, available, ready, meta.groups.data_cursor.group, meta.geometry.group_count())
        };
        let mut runs: Vec<GroupRun> = Vec::new();
        if available < missing + EMERGENCY_BLOCKS {
            return Ok(runs);
        }
        // Groups that took the last data are most likely to have room; groups that were never used certainly do.
        for group in (0..ready).map(|step| (start + step) % ready).chain(ready..group_count) {
            if missing == 0 || runs.len() >= RUNS_MAX {
                break;
            }
            if group >= ready {
                self.init_group(group)?;
            }
            if let Err(error) = self.reserve_free_runs(group, &mut missing, &mut runs) {
                self.meta().free_again(&runs);
                return Err(error);
            }
        }
        if missing > 0 {
            self.meta().free_again(&std::mem::take(&mut runs));
        }
        Ok(runs)
    }

    /// Writes the filter to reserved runs.
    ///
    /// # Errors
    /// Device errors, after which the pool is stopped unless the backing file is full.
    pub(super) fn write_filter(&self, runs: &[GroupRun], generation: u64) -> Result<()> {
        let Some(first) = runs.first() else { return Ok(()) };
        self.write_chunks(runs, generation).inspect_err(|error| self.write_failed(error, first.first))
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

    /// Begins to read the filter that was saved as `generation` to reserved `blocks`. Also returns whether it is small
    /// enough to be read before the pool serves.
    pub(super) fn begin_loading(&self, blocks: Vec<GroupRun>, generation: u64) -> (FilterLoad, bool) {
        let total: u64 = blocks.iter().map(|run| run.count).sum();
        let options = {
            let mut meta = self.meta();
            let page_count = meta.geometry.store_page_count();
            meta.indexing.begin_loading(page_count);
            self.filter_options(&meta.geometry)
        };
        let loader = Loader::new(&options, generation);
        let loading = FilterLoad { loader, blocks, run: 0, within: 0, front: Vec::new(), blocks_read: 0 };
        (loading, total <= BLOCKS_READ_AT_ONCE && !self.options.test_limits.index_in_steps)
    }

    /// Reads the next pieces of a saved filter.
    pub(super) fn load_some(&self, loading: &mut FilterLoad) -> LoadResult {
        let is_usable = self.load_pieces(loading).is_some();
        let is_at_end = loading.run == loading.blocks.len();
        if is_usable && !loading.loader.is_complete() && !is_at_end {
            let total: u64 = loading.blocks.iter().map(|run| run.count).sum();
            let mut meta = self.meta();
            let pages = meta.state(Field::GroupsReady) * STORE_PAGES_PER_GROUP;
            let share = u128::from(pages) * u128::from(loading.blocks_read) / u128::from(total.max(1));
            meta.indexing.note_progress(u64::try_from(share).unwrap_or(0).min(pages.saturating_sub(1)));
            return LoadResult::Unfinished;
        }
        let options = self.filter_options(&self.meta().geometry);
        let loader = std::mem::replace(&mut loading.loader, Loader::new(&options, 0));
        let Some(filter) = is_usable.then(|| loader.finish().ok()).flatten() else {
            self.give_up_loading(loading);
            return LoadResult::GivenUp;
        };
        let meanwhile = {
            let mut meta = self.meta();
            meta.free_again(&std::mem::take(&mut loading.blocks));
            let mut in_force = meta.filter.write();
            let mut meanwhile = std::mem::replace(&mut *in_force, filter);
            // The filter in force has heard of a growth; the saved one has not.
            let pages = meta.geometry.store_page_count();
            in_force.grow(pages);
            meanwhile.grow(pages);
            meanwhile
        };
        // Without the locks, as there may be millions of entries.
        LoadResult::InForce { others: meanwhile.into_entries() }
    }

    /// Gives up a saved filter that is being read. The filter is then rebuilt.
    pub(super) fn give_up_loading(&self, loading: &mut FilterLoad) {
        let mut meta = self.meta();
        meta.free_again(&std::mem::take(&mut loading.blocks));
        let options = self.filter_options(&meta.geometry);
        meta.begin_filter_anew(Filter::new(&options));
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
}
