//! Places that need no further work: a pass that is told to end notes them, and the next one leaves them out of its
//! plan.
//!
//! A place is done once it shares with a slot, durably, and an entry that others read names the slot. So only places of
//! complete batches count. If another host had one of a batch's contents in the arena, too, none of the batch does: its
//! places become merge requests, which count for nothing as long as a log has them.
//!
//! A place that is left out is as good as one of a log that was taken in. But its log is still there, so more can be
//! asked: the slot must have an entry after the plan that is not to be dropped. Otherwise the place is read again.

use std::collections::BTreeMap;

use onefold_substrate::Substrate;

use super::again::{RereadCause, RereadSet};
use super::slots::SlotSet;
use crate::format::log::LogKind;
use crate::format::progress::DoneRun;
use crate::format::{FileBlock, FileNo, Slot};
use crate::state::logs::LogName;
use crate::state::progress::{RUNS_MAX, StoredProgress};
use crate::state::{State, StateError};

/// The places of a pass that need no further work.
#[derive(Debug, Default)]
pub(super) struct DonePlaces {
    /// Those of earlier passes.
    stored: StoredProgress,
    /// The names of the logs that this pass has taken in, by their files.
    logs: BTreeMap<FileNo, Vec<String>>,
    /// Those of complete batches of this pass.
    complete: Vec<(FileNo, DoneRun)>,
    /// Those of the current batch, as long as it may fail.
    batch: Vec<(FileNo, DoneRun)>,
}

impl DonePlaces {
    /// Takes in the places of earlier passes.
    pub(super) fn load<S: Substrate>(&mut self, state: &State<'_, S>) -> Result<(), StateError> {
        self.stored = state.progress()?;
        Ok(())
    }

    /// Notes that this pass takes in a log of a file.
    pub(super) fn take_log(&mut self, file: FileNo, log: &LogName) {
        if log.kind == LogKind::Log {
            self.logs.entry(file).or_default().push(log.name().to_owned());
        }
    }

    /// Returns the places of a log that earlier passes have done.
    pub(super) fn of_log(&self, log: &LogName) -> DoneInLog<'_> {
        let runs = self.stored.logs.get(log.name()).filter(|_| log.kind == LogKind::Log);
        DoneInLog(runs.map_or(&[], Vec::as_slice))
    }

    /// Makes the next scan read places again that were left out, and whose slots no entry names any more.
    pub(super) fn check(&self, named: &SlotSet, again: &mut RereadSet) {
        for (file, logs) in &self.logs {
            for run in logs.iter().filter_map(|log| self.stored.logs.get(log)).flatten() {
                let lost = run.places().filter(|(_, slot)| !named.contains(*slot));
                lost.for_each(|(block, _)| again.add(*file, block, 1, RereadCause::Changed));
            }
        }
    }

    /// Notes that blocks share with slots, in the current batch.
    pub(super) fn note(&mut self, file: FileNo, first: FileBlock, slot: Slot, count: u64) {
        let run = DoneRun { first, slot, count };
        let joined = self.batch.last_mut().is_some_and(|(last, before)| *last == file && before.join(&run));
        // Further ones are planned again.
        if !joined && self.complete.len() + self.batch.len() < RUNS_MAX {
            self.batch.push((file, run));
        }
    }

    /// Drops the places of the current batch.
    pub(super) fn drop_batch(&mut self) {
        self.batch.clear();
    }

    /// Notes that the current batch is complete: its entries are published, and its shares are durable, except in files
    /// that are read again as a whole.
    pub(super) fn complete_batch(&mut self, again: &RereadSet) {
        self.complete.extend(self.batch.drain(..).filter(|(file, _)| !again.has_all_of(*file)));
    }

    /// Writes the places for the next pass, if this one has added some.
    pub(super) fn keep<S: Substrate>(&mut self, state: &State<'_, S>) -> Result<(), StateError> {
        let mut more: BTreeMap<String, Vec<DoneRun>> = BTreeMap::new();
        for (file, run) in self.complete.drain(..) {
            for log in self.logs.get(&file).into_iter().flatten() {
                more.entry(log.clone()).or_default().push(run);
            }
        }
        if more.is_empty() { Ok(()) } else { state.keep_progress(std::mem::take(&mut self.stored), more) }
    }

    /// Removes the record of earlier passes, now that its logs are gone.
    pub(super) fn remove<S: Substrate>(&self, state: &State<'_, S>) -> Result<(), StateError> {
        state.remove_progress(&self.stored)
    }
}

/// The places of a log that were done before.
pub(super) struct DoneInLog<'a>(&'a [DoneRun]);

impl DoneInLog<'_> {
    /// Returns whether a block is one of them. Blocks have to be given in their order.
    pub(super) fn contains(&mut self, block: FileBlock) -> bool {
        while let [first, rest @ ..] = self.0 {
            if first.end() > block {
                return first.first <= block;
            }
            self.0 = rest;
        }
        false
    }
}
