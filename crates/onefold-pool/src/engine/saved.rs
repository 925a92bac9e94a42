//! A close saves facts that the next opening would have to find out again: the filter ([`super::filter_image`]) and the
//! summaries of the groups ([`super::summary_image`]). They go to free blocks, which costs no space.
//!
//! Items of the names tree hold the places ([`super::saved_runs`]): first those of the filter, then those of the
//! summaries.

use super::Engine;
use super::index::IndexStage;
use crate::error::{PoolError, Result};
use crate::meta::group_run::GroupRun;
use crate::options::Journaling;

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
        let (mut filter, mut summaries) = (Vec::new(), Vec::new());
        if self.options.journaling == Journaling::On {
            // One may have room where the other has none.
            filter = self.end_loading().and_then(|()| self.save_filter()).unwrap_or_default();
            summaries = self.place_summaries(filter.len()).unwrap_or_default();
        }
        self.commit_and_close()?;
        // The next opening finds them free.
        self.meta().free_again(&filter);
        self.meta().free_again(&summaries);
        match self.write_summaries(&summaries) {
            Ok(()) | Err(PoolError::NoSpace) => Ok(None),
            Err(error) => {
                self.stop(&error);
                Ok(Some(error))
            }
        }
    }

    /// Saves the filter to free blocks, and puts the items. Returns the runs, which are busy.
    fn save_filter(&self) -> Result<Vec<GroupRun>> {
        let generation = self.meta().running.sequence;
        let runs = self.reserve_filter_runs()?;
        self.write_filter(&runs, generation)?;
        self.put_saved_runs(0, &runs, generation)?;
        Ok(runs)
    }

    /// Puts the items of the summaries behind `others` items. Returns the runs, which are busy.
    fn place_summaries(&self, others: usize) -> Result<Vec<GroupRun>> {
        let generation = self.meta().running.sequence;
        let runs = self.reserve_summary_runs()?;
        self.put_saved_runs(others as u64, &runs, generation)?;
        Ok(runs)
    }

    /// Takes what the last close saved, and removes the items that hold its places.
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
        self.take_summaries(&runs);
        // Before the items are removed, which may take a block.
        let blocks = self.reserve_saved(&runs)?;
        self.remove_saved_runs(runs.len())?;
        // The next change makes what was saved wrong, so the items must be gone before it.
        self.commit()?;
        let Some(blocks) = blocks else { return Ok(()) };
        let (loading, is_small) = self.begin_loading(blocks, runs[0].generation);
        *self.indexer.lock() = IndexStage::Loading(loading);
        if is_small {
            self.end_loading()?;
        }
        Ok(())
    }
}
