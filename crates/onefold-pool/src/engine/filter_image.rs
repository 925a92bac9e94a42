//! The filter saved at a clean close, so that the next opening need not read every fingerprint store.
//!
//! It is written to *free* blocks, which cost nothing: a closed pool writes nothing any more, and the next opening reads
//! them before it hands out a block. Items of the names tree, committed by the close, say where; the opening removes
//! them durably before it serves. A chunk that is not what was saved makes the filter be rebuilt.

use std::ops::ControlFlow;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockNo};

use super::Engine;
use super::group_init::write_error;
use crate::error::Result;
use crate::filter::{CHUNK_BYTES, Filter, FilterOptions, Loader};
use crate::format::geometry::GROUP_BLOCKS;
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
/// More runs than this are not worth it: the free space is in pieces, and rebuilding is as fast.
const RUNS_MAX: usize = 4096;

impl Engine {
    /// Saves the filter to free blocks, if it is complete and they suffice with some to spare for the names tree. The pool writes nothing but its last commit
    /// after this.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(crate) fn save_filter(&self) -> Result<()> {
        if self.options.journaling == Journaling::Off || self.groups_pending() > 0 {
            return Ok(());
        }
        let (needed, generation, available) = {
            let meta = self.meta();
            let needed = meta.filter.saved_bytes().div_ceil(BLOCK_BYTES as u64);
            (needed, meta.running.sequence, meta.blocks_free().saturating_sub(meta.groups.busy_count()))
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
        let ready = self.meta().state(Field::GroupsReady);
        let mut runs: Vec<Run> = Vec::new();
        let mut missing = needed;
        for group in 0..ready {
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
        let meta = self.meta();
        let mut chunks = meta.filter.save(generation);
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
                self.device.write(at, &buffer).map_err(|source| write_error(at, source))?;
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
        let filter = self.read_chunks(&runs);
        if let Some(pulse) = &self.pulse {
            // The first write of an opening: here another host is still called by its name.
            pulse.ensure_held()?;
        }
        self.run(Privilege::Freeing, |op| {
            for (number, _) in (0..).zip(&runs) {
                op.remove_item(&items::filter_run_key(number))?;
            }
            Ok(())
        })?;
        // From the next change on the saved filter is a lie: the items must be gone first.
        self.commit()?;
        if let Some(filter) = filter {
            let mut meta = self.meta();
            meta.filter = filter;
            meta.filter_pages_ready = meta.geometry.store_page_count();
        }
        Ok(())
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

    /// Reads the saved filter. `None` if it can't be used, for whatever reason: it is rebuilt then.
    fn read_chunks(&self, runs: &[FilterRun]) -> Option<Filter> {
        let (options, total) = {
            let meta = self.meta();
            (self.filter_options(&meta.geometry), meta.geometry.total_blocks)
        };
        let mut loader = Loader::new(&options, runs.first()?.generation);
        let mut chunk: Vec<u8> = Vec::with_capacity(CHUNK_BYTES);
        for run in runs {
            let mut done = 0;
            while done < run.count && !loader.is_complete() {
                let count = (run.count - done).min(PIECE_BLOCKS as u64);
                let at = BlockNo(run.first.0 + done);
                if at.0 + count > total {
                    return None;
                }
                let mut buffer = AlignedBuffer::zeroed(usize::try_from(count).ok()?);
                self.device.read(at, &mut buffer).ok()?;
                for block in buffer.blocks() {
                    chunk.extend_from_slice(block);
                    if chunk.len() == CHUNK_BYTES && !loader.is_complete() {
                        loader.load(&chunk).ok()?;
                        chunk.clear();
                    }
                }
                done += count;
            }
        }
        loader.finish().ok()
    }

    /// Returns how the filter is made for a pool of this layout.
    pub(crate) fn filter_options(&self, geometry: &crate::format::geometry::Geometry) -> FilterOptions {
        super::open::filter_options(&self.options, geometry)
    }
}
