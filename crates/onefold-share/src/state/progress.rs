//! Progress of interrupted passes: places of write logs that need no further work, so that the next pass leaves them
//! out of its plan.
//!
//! It holds whichever host reads it: the shares of such a place were durable, and an entry named its slot, before it
//! was written. Only whether an entry still names the slot has to be checked. Losing a file costs time. The name of a
//! log is never given out again, so a file that is left over does no harm. It goes with its logs.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::{State, StateError};
use crate::format::FormatError;
use crate::format::progress::{self, DoneRun, LogProgress};

pub(super) const FOLDER: &str = "progress";

/// Maximum number of runs of all logs together, which are in memory: 2 MiB. Places beyond that are planned again.
pub(crate) const RUNS_MAX: usize = 1 << 16;

/// The progress of earlier passes.
#[derive(Debug, Default)]
pub(crate) struct StoredProgress {
    /// Names of the files that it was read from, and for each the logs that it is about.
    files: BTreeMap<String, Vec<String>>,
    /// The places of each log, disjoint and in order, by the name of the log.
    pub(crate) logs: BTreeMap<String, Vec<DoneRun>>,
}

impl<S: Substrate> State<'_, S> {
    /// Returns the progress of earlier passes. Files that cannot be used are dropped: their places are planned again.
    ///
    /// # Errors
    /// `Untrusted` for a file that must not be used; errors of the device.
    pub(crate) fn progress(&self) -> Result<StoredProgress, StateError> {
        let (mut stored, mut left) = (StoredProgress::default(), RUNS_MAX);
        for name in self.names(FOLDER)? {
            let path = progress_path(self, &name);
            let read = match self.open_own(&path, Access::Read) {
                // Another host has replaced it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => Err(FormatError::Io(error)),
                Ok(file) => progress::read(self.substrate(), file, &self.identity().uuid, left),
            };
            match read {
                Ok(logs) => {
                    left = left.saturating_sub(logs.iter().map(|log| log.runs.len()).sum());
                    stored.files.insert(name, logs.iter().map(|log| log.log.clone()).collect());
                    for LogProgress { log, runs } in logs {
                        stored.logs.entry(log).or_default().extend(runs);
                    }
                }
                Err(why) => self.refuse(path, why)?,
            }
        }
        stored.logs.values_mut().for_each(put_in_order);
        Ok(stored)
    }

    /// Writes the progress of a pass that was interrupted, `more` to what it has read. Nothing is written, without an
    /// error, if there is no room.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn keep_progress(
        &self,
        stored: StoredProgress,
        more: BTreeMap<String, Vec<DoneRun>>,
    ) -> Result<(), StateError> {
        let StoredProgress { files, mut logs } = stored;
        for (log, runs) in more {
            logs.entry(log).or_default().extend(runs);
        }
        let (existing, mut left) = (self.log_names()?, RUNS_MAX);
        logs.retain(|log, runs| {
            put_in_order(runs);
            runs.truncate(left);
            left -= runs.len();
            !runs.is_empty() && existing.contains(log)
        });
        let logs: Vec<LogProgress> = logs.into_iter().map(|(log, runs)| LogProgress { log, runs }).collect();
        let name = format!("{}.{}", self.host(), self.next_name());
        let uuid = self.identity().uuid;
        let published = self
            .write_scratch(|file| progress::write(self.substrate(), file, uuid, &logs))
            .and_then(|scratch| self.publish(&scratch, &progress_path(self, &name)));
        match published {
            Err(error) if error.is_lack_of_room() => return Ok(()),
            published => published?,
        };
        // The new file has all of it.
        files.keys().try_for_each(|name| self.remove(&progress_path(self, name)))
    }

    /// Removes the files of which no log is left.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn remove_progress(&self, stored: &StoredProgress) -> Result<(), StateError> {
        if stored.files.is_empty() {
            return Ok(());
        }
        let existing = self.log_names()?;
        let mut used_up = stored.files.iter().filter(|(_, logs)| !logs.iter().any(|log| existing.contains(log)));
        used_up.try_for_each(|(name, _)| self.remove(&progress_path(self, name)))
    }
}

/// Puts runs in order, joins those that continue each other, and drops each that overlaps one before it.
fn put_in_order(runs: &mut Vec<DoneRun>) {
    runs.sort_unstable();
    let mut kept: Vec<DoneRun> = Vec::with_capacity(runs.len());
    for run in runs.iter() {
        let is_known = kept.last_mut().is_some_and(|last| last.join(run) || last.end() > run.first);
        if !is_known {
            kept.push(*run);
        }
    }
    *runs = kept;
}

fn progress_path<S: Substrate>(state: &State<'_, S>, name: &str) -> PathBuf {
    state.path(FOLDER, name)
}
