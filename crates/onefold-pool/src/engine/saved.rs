//! A close saves facts that the next opening would have to find out again: the filter ([`super::filter_image`]) and the
//! summaries of the groups ([`super::summary_image`]). They go to free blocks, which costs no space.
//!
//! Items of the names tree hold the places ([`super::saved_runs`]): first those of the filter, then those of the
//! summaries.

use super::Engine;
use super::index::IndexStage;
use crate::error::{PoolError, Result};
use crate::format::items::{self, FilterRun};
use crate::meta::Privilege;
use crate::meta::group_run::GroupRun;
use crate::options::Journaling;

/// The runs of free blocks that a close writes to. They are busy meanwhile.
#[derive(Default)]
struct SavedRuns {
    filter: Vec<GroupRun>,
    summaries: Vec<GroupRun>,
}

impl Engine {
    /// Saves what helps the next opening, commits, and marks the journal as cleanly closed.
    ///
    /// Saving is a convenience. It needs free blocks, which a full pool or a sparse backing file may not have; the next
    /// opening then reads fingerprint stores and bitmaps. (A write that failed for another reason has stopped the pool,
    /// so that the last commit fails as well.)
    ///
    /// # Errors
    /// See [`Engine::commit`]. After an error of the summaries, the journal is cleanly closed all the same.
    pub(crate) fn save_and_close(&self) -> Result<()> {
        let saved = self.end_loading().and_then(|()| self.save()).unwrap_or_default();
        self.commit_and_close()?;
        // The next opening finds them free.
        self.meta().free_again(&saved.filter);
        self.meta().free_again(&saved.summaries);
        match self.write_summaries(&saved.summaries) {
            Ok(()) | Err(PoolError::NoSpace) => Ok(()),
            // Nothing is lost, but the caller is to hear that the device fails.
            Err(error) => {
                self.stop(&error);
                Err(error)
            }
        }
    }

    /// Reserves the places, writes the filter, and puts the items. After this, the pool writes only its last commit and
    /// the summaries.
    fn save(&self) -> Result<SavedRuns> {
        if self.options.journaling == Journaling::Off {
            return Ok(SavedRuns::default());
        }
        let generation = self.meta().running.sequence;
        let saved = SavedRuns { filter: self.reserve_filter_runs()?, summaries: self.reserve_summary_runs()? };
        self.write_filter(&saved.filter, generation)?;
        self.run(Privilege::Freeing, |op| {
            for (number, run) in (0..).zip(saved.filter.iter().chain(&saved.summaries)) {
                let value = FilterRun { generation, first: run.first, count: run.count }.encode();
                op.put_item(&items::filter_run_key(number), &value)?;
            }
            op.wrote_data();
            Ok(())
        })?;
        Ok(saved)
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
        self.run(Privilege::Freeing, |op| {
            for (number, _) in (0..).zip(&runs) {
                op.remove_item(&items::filter_run_key(number))?;
            }
            Ok(())
        })?;
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
