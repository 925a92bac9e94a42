//! The view that a pass has of the index and the arena, and the publication of new generations of the shards.

use std::collections::BTreeSet;

use onefold_sort::{SortWriter, Spool, SpoolWriter};
use onefold_substrate::Substrate;

use super::engine::Engine;
use super::lists::part_bytes;
use super::outcome::PassError;
use super::publish::{self, KnownShards, News};
use super::publish_batch::PlannedChanges;
use super::requests;
use super::since::SeenIndex;
use super::slots::SlotSet;
use crate::format::FileNo;
use crate::state::State;
use crate::state::batches::{BATCHES_MAX, MERGE_BYTES_MIN, MERGE_PART};

/// State of the scan's finder besides its lists.
#[derive(Default)]
pub(super) struct FinderState {
    /// The part of the index that was read.
    pub(super) index: SeenIndex,
    /// Arena files that were filled.
    pub(super) filled: BTreeSet<u32>,
    /// Files whose logs stay, because another host had them locked at their turn.
    pub(super) left: BTreeSet<FileNo>,
}

impl FinderState {
    /// Publishes new generations of the shards with the changes, and with the entries of batches. Returns false if
    /// other hosts published first each time.
    pub(super) fn publish<S: Substrate>(
        &mut self,
        engine: &Engine<'_, '_, S>,
        changes: &Spool,
        planned: &PlannedChanges,
        known: &mut KnownShards,
    ) -> Result<bool, PassError> {
        let options = engine.options;
        let mut again = SortWriter::new(options.temporary_folder, part_bytes(options) / 8);
        let news = News {
            changes,
            planned: &planned.changes,
            seen: &planned.seen,
            suspects: &engine.noted.suspects,
            unneeded: &SlotSet::default(),
            keys: &engine.images.keys(),
            merges: true,
            entries_max: options.shard_entries_max,
            folder: options.temporary_folder,
            pace: options.pace,
        };
        let named = &mut self.index.named;
        let is_all_there = publish::publish(engine.state, options.clock, &news, known, named, &mut again)?;
        // The logs are removed only after these are written: nothing is lost between the two.
        requests::write(engine.state, again.finish()?)?;
        Ok(is_all_there)
    }

    /// Merges the entries of batches into the shards.
    pub(super) fn merge_batches<S: Substrate>(
        &mut self,
        engine: &Engine<'_, '_, S>,
        planned: &PlannedChanges,
        known: &mut KnownShards,
    ) -> Result<(), PassError> {
        // The new generations also have what other hosts have published since; these are read like those of other
        // hosts.
        let nothing = SpoolWriter::new(engine.options.temporary_folder, 0).finish()?;
        self.publish(engine, &nothing, planned, known).map(drop)
    }
}

/// Returns whether there are enough batches, or long enough ones, to merge their entries into the shards.
pub(super) fn are_batches_worth_merging<S: Substrate>(
    state: &State<'_, S>,
    index_bytes: u64,
) -> Result<bool, PassError> {
    let numbers = state.batch_numbers()?;
    if numbers.len() >= BATCHES_MAX {
        return Ok(true);
    }
    if numbers.len() < 2 {
        return Ok(false);
    }
    let bytes = state.open_batches()?.bytes();
    Ok(bytes >= MERGE_BYTES_MIN.max(index_bytes / MERGE_PART))
}
