//! Files that an interrupted pass has completed: their logs go, so that the next pass has less to plan.
//!
//! Candidates come in the order of their files, and a candidate is the first place of its content in any log. So all
//! places below the first candidate without a complete batch are done: each was a candidate itself, or shares with a
//! slot of an earlier batch or of the index. The files before that candidate's are as at the end of a pass, except that
//! the index does not name their contents that occur once. These become merge requests: the next pass plans them anew.
//! Then the logs are removed.
//!
//! A file keeps its logs if the plan drops an entry that names one of its blocks, because that change is not published
//! yet. All logs stay if the index has changed since the plan. Otherwise a place that a log of this pass reports, and
//! the entry that it agreed with, could be gone at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onefold_sort::{Merge, Row, SortWriter};
use onefold_substrate::Substrate;

use super::PassError;
use super::intake::TakenLog;
use super::lists::part_bytes;
use super::publish_batch::PlannedChanges;
use super::requests;
use super::rows::{Candidate, Change, Step};
use super::run::Pass;
use crate::format::FileNo;
use crate::format::entry::ContentPlace;
use crate::format::log::LogKind;
use crate::format::prefix::Prefix;
use crate::state::locks::Subject;
use crate::state::shards::{NextGeneration, PublishOutcome};
use crate::state::{State, StateError};

/// Maximum number of files whose logs are removed: each costs a file that is made durable, and the process that told
/// the pass to end waits.
const FILES_MAX: usize = 256;
/// Maximum number of planned changes, all of which are read: about 0.1 s.
const CHANGES_MAX: u64 = 1 << 22;

impl<S: Substrate> Pass<'_, '_, S> {
    /// Removes the logs of the files before `frontier` that this pass has completed. `entered` has the changes beside
    /// the planned ones. All stretches of known contents have to be shared, and all batches with candidates before
    /// `frontier` to be published. If the file system is full, the logs stay.
    pub(super) fn remove_complete_logs(
        &mut self,
        frontier: FileNo,
        planned: &PlannedChanges,
        entered: SortWriter,
        logs: &[TakenLog],
    ) -> Result<(), PassError> {
        let is_full = self.engine.passed.trouble.is_full;
        if is_full || planned.changes.len() > CHANGES_MAX || self.engine.state.policy().is_declared() {
            return Ok(());
        }
        match self.replace_logs(frontier, planned, entered, logs) {
            Err(PassError::State(StateError::Io { source, .. })) if source.kind() == io::ErrorKind::StorageFull => {
                Ok(())
            }
            replaced => replaced,
        }
    }

    /// Writes merge requests for what the index does not name yet, and removes the logs.
    fn replace_logs(
        &mut self,
        frontier: FileNo,
        planned: &PlannedChanges,
        entered: SortWriter,
        logs: &[TakenLog],
    ) -> Result<(), PassError> {
        self.engine.note_again()?;
        let mut files = self.files_before(frontier, logs)?;
        let once = self.contents_once(&mut files, planned, entered)?;
        if files.is_empty() || !self.is_index_as_planned(planned)? {
            return Ok(());
        }
        requests::write(self.engine.state, once.filter(|row| is_of(row, &files)))?;
        for (_, log) in logs.iter().filter(|(file, _)| files.contains(file)) {
            self.engine.state.remove_log(log)?;
        }
        Ok(())
    }

    /// Returns the files before `frontier` that have logs, unless something of them is left to be done.
    fn files_before(&mut self, frontier: FileNo, logs: &[TakenLog]) -> Result<BTreeSet<FileNo>, PassError> {
        // A file that has merge requests only has mostly contents that occur once, which would be written anew.
        let reported = logs.iter().filter(|(file, log)| *file < frontier && log.kind == LogKind::Log);
        let mut files: BTreeSet<FileNo> = reported.map(|(file, _)| *file).collect();
        for number in self.engine.passed.trouble.again.files() {
            files.remove(&self.engine.images.first_number(number)?);
        }
        files.retain(|file| !self.indexing.left.contains(file));
        Ok(files)
    }

    /// Returns the places of contents that occur once in `files`, in order, and perhaps of other files. Removes files
    /// of which entries are to be dropped.
    fn contents_once(
        &mut self,
        files: &mut BTreeSet<FileNo>,
        planned: &PlannedChanges,
        entered: SortWriter,
    ) -> Result<Merge, PassError> {
        let options = self.engine.options;
        let mut once = SortWriter::new(options.temporary_folder, part_bytes(options) / 8);
        let mut dropped = BTreeSet::new();
        for row in planned.changes.read(0, planned.changes.len()).chain(entered.finish()?) {
            let Change { digest, step } = Change::of(row?);
            match step {
                Step::Drop(ContentPlace::Unique(number, _)) => {
                    if dropped.insert(number) {
                        files.remove(&number);
                        files.remove(&self.engine.images.first_number(number)?);
                    }
                }
                Step::Put(ContentPlace::Unique(file, block)) if files.contains(&file) => {
                    once.push(Candidate { file, block, digest }.row())?;
                }
                Step::Drop(ContentPlace::Shared(_)) | Step::Put(_) | Step::Agree(_) => {}
            }
        }
        while files.len() > FILES_MAX {
            files.pop_last();
        }
        Ok(once.finish()?)
    }

    /// Returns whether the index has what it had when the plan was made, and what this pass has published. If no pass
    /// has published a shard before, publishes an empty one: without any, a scan would read all files without logs.
    fn is_index_as_planned(&mut self, planned: &PlannedChanges) -> Result<bool, PassError> {
        let (state, index) = (self.engine.state, &mut self.indexing.index);
        let is_first = index.planned.is_empty() && !state.had_index()?;
        if !is_first && !state.has_index()? || state.newest_generations()? != index.planned {
            return Ok(false);
        }
        index.read_news(state, Some(&planned.seen))?;
        // A host that publishes a shard from now on sees what this pass has shared.
        if !index.met.is_empty() || is_being_published(state, Prefix::WHOLE, &index.planned)? {
            return Ok(false);
        }
        if is_first {
            let first = NextGeneration { prefix: Prefix::WHOLE, generation: 1, is_split: false };
            return Ok(matches!(state.publish_shard(first, |_| Ok(Some(())))?, PublishOutcome::Done(_)));
        }
        Ok(state.newest_generations()? == index.planned)
    }
}

fn is_of(row: &io::Result<Row>, files: &BTreeSet<FileNo>) -> bool {
    row.as_ref().map_or(true, |row| files.contains(&Candidate::of(*row).file))
}

/// Returns whether some host is about to publish a shard of a prefix. Hosts that do not know yet how it was split lock
/// the shard that was there before.
fn is_being_published<S: Substrate>(
    state: &State<'_, S>,
    prefix: Prefix,
    shards: &BTreeMap<Prefix, u64>,
) -> Result<bool, PassError> {
    if state.try_lock(&Subject::Shard(prefix))?.is_none() {
        return Ok(true);
    }
    let is_split = shards.keys().any(|shard| *shard != prefix && prefix.covers(*shard));
    for half in prefix.halves().into_iter().flatten().filter(|_| is_split) {
        if is_being_published(state, half, shards)? {
            return Ok(true);
        }
    }
    Ok(false)
}
