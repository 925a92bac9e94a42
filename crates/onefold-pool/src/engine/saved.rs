//! A close saves facts that the next opening would have to find out again: the filter ([`super::filter_image`]) and the
//! summaries of the groups ([`super::summary_image`]). They go to free blocks, which costs no space.
//!
//! Items of the names tree hold the places ([`super::saved_runs`]): first those of the filter, then those of the
//! summaries. The summaries of a large pool keep their places while the pool is open ([`super::summary_places`]).

use super::Engine;
use super::index::IndexStage;
use crate::error::{PoolError, Result};
use crate::format::items::{FilterRun, SUMMARIES_GENERATION};
use crate::meta::group_run::GroupRun;
use crate::options::Journaling;

/// Returns the named runs of blocks that a save with this generation has.
pub(super) fn named(runs: &[GroupRun], generation: u64) -> impl Iterator<Item = FilterRun> + use<'_> {
    runs.iter().map(move |run| FilterRun { generation, first: run.first, count: run.count })
}

impl Engine {
    /// Saves what helps the next opening, commits, and marks the journal as cleanly closed. Returns the error of a
    /// device that failed only after that: nothing is lost by it.
    ///
    /// Saving is a convenience. It needs free blocks, which a full pool or a sparse backing file may not have; the next
    /// opening then reads fingerprint stores and bitmaps. (A write that failed for another reason has stopped the pool,
    /// so that the last commit fails as well.)
    ///
    /// # Errors
    /// See [`Engine::commit`].
    pub(crate) fn save_and_close(&self) -> Result<Option<PoolError>> {
        let (filter, summaries) = match self.options.journaling {
            Journaling::On => self.save(),
            Journaling::Off => (Vec::new(), Vec::new()),
        };
        self.commit_and_close()?;
        self.meta().free_again(&filter);
        self.replace_places(summaries.clone());
        let written = self.write_summaries(&summaries);
        // Only now: nobody else may have written to them meanwhile.
        self.replace_places(Vec::new());
        match written {
            Ok(()) | Err(PoolError::NoSpace) => Ok(None),
            Err(error) => {
                self.stop(&error);
                Ok(Some(error))
            }
        }
    }

    /// Saves the filter, and finds places for the summaries. Returns the runs of both, which are busy and named.
    fn save(&self) -> (Vec<GroupRun>, Vec<GroupRun>) {
        let generation = self.meta().running.sequence;
        // One may have room where the other has none.
        let filter = self.end_loading().and_then(|()| self.save_filter(generation)).unwrap_or_default();
        let summaries = self.reserve_lasting_places().unwrap_or_default();
        let of_summaries: Vec<FilterRun> = named(&summaries, SUMMARIES_GENERATION).collect();
        let of_both: Vec<FilterRun> = named(&filter, generation).chain(of_summaries.iter().copied()).collect();
        let filter = match self.name_saved_runs(&of_both) {
            Ok(()) => filter,
            Err(_) => {
                self.meta().free_again(&filter);
                if self.name_saved_runs(&of_summaries).is_err() {
                    // The pool closes with the names that it has. Others stay busy until then.
                    return (Vec::new(), Vec::new());
                }
                Vec::new()
            }
        };
        if self.meta().groups.summary_places != summaries {
            // Only now: until then the items named the others.
            self.replace_places(Vec::new());
        }
        (filter, summaries)
    }

    /// Saves the filter to free blocks. Returns the runs, which are busy.
    fn save_filter(&self, generation: u64) -> Result<Vec<GroupRun>> {
        let runs = self.reserve_filter_runs()?;
        self.write_filter(&runs, generation)?;
        Ok(runs)
    }

    /// Takes what the last close saved, and what a pool that was not closed has noted since. Removes the items that
    /// hold the places, except those of summaries that keep theirs.
    ///
    /// # Errors
    /// Device errors; damage of the names tree.
    pub(crate) fn take_saved(&self) -> Result<()> {
        let runs = self.saved_runs()?;
        if runs.is_empty() {
            return Ok(());
        }
        if let Some(pulse) = &self.pulse {
            // The first write of an opening. If another host has the pool, its name is still known here.
            pulse.ensure_held()?;
        }
        let (summaries, filter): (Vec<FilterRun>, Vec<FilterRun>) =
            runs.into_iter().partition(|run| run.generation == SUMMARIES_GENERATION);
        self.take_summaries(&summaries);
        // Before the items are removed, which may take a block.
        let places = self.keep_places(&summaries)?;
        let blocks = self.reserve_saved(&filter);
        let kept: Vec<FilterRun> = named(&places, SUMMARIES_GENERATION).collect();
        match self.name_saved_runs(&kept) {
            // A pool must open however full it is. To remove items takes less than to write them anew.
            Err(PoolError::NoSpace) if !kept.is_empty() => {
                self.replace_places(Vec::new());
                self.name_saved_runs(&[])?;
            }
            named => named?,
        }
        // The next change makes what was saved wrong. So before it, the items of the filter must be gone, and the next
        // transaction must have another number than the summaries.
        self.commit()?;
        let (Some(blocks), Some(first)) = (blocks, filter.first()) else { return Ok(()) };
        let (loading, is_small) = self.begin_loading(blocks, first.generation);
        *self.indexer.lock() = IndexStage::Loading(loading);
        if is_small {
            self.end_loading()?;
        }
        Ok(())
    }
}
