//! Results of a pass, and its failures.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use onefold_block::Show;
use onefold_substrate::{Refusal, ShareError, Substrate};

use super::again::{RereadCause, RereadSet};
use super::images::Images;
use super::plan::PlanCounts;
use super::room::RecordsRoom;
use super::share::ShareReport;
use crate::format::prefix::Prefix;
use crate::format::shard::EntryCounts;
use crate::format::stamp::Stamp;
use crate::format::{FileBlock, FileNo, FormatError};
use crate::pace::StopRequest;
use crate::state::files::StampChange;
use crate::state::shards::Shard;
use crate::state::{State, StateError};

/// Durations of the parts of a pass, over all of its batches. They exclude the last steps of a pass: removing logs,
/// collecting what only the arena refers to, and emptying slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTimes {
    /// Reading the logs and sorting their contents.
    pub logs: Duration,
    /// Planning, over the whole index.
    pub plan: Duration,
    /// Putting blocks into the arena.
    pub promote: Duration,
    /// Sharing with the arena.
    pub share: Duration,
    /// Updating the index.
    pub publish: Duration,
}

/// Results of a pass.
#[derive(Debug, Default)]
pub struct PassReport {
    /// Logs that were taken in.
    pub logs: u64,
    /// Logs left to other hosts, which have the files.
    pub logs_elsewhere: u64,
    /// Logs left to runs whose selection includes their files.
    pub logs_outside: u64,
    /// Counts of the plan.
    pub planned: PlanCounts,
    /// Bytes that a dry run would free, by the maps of the files; `None` if the file system shows no maps to this user,
    /// and for other passes.
    pub to_free: Option<u64>,
    /// Results of sharing.
    pub shared: ShareReport,
    /// The index afterwards: its entries, and its length in bytes. `None` if there was nothing to do, if the file
    /// system is full, or if other hosts published first each time: then the logs are still there.
    pub index: Option<(EntryCounts, u64)>,
    /// Slots that were emptied.
    pub swept_slots: u64,
    /// Durations; zero for parts that the pass did not reach.
    pub times: PassTimes,
    /// Failures with files.
    pub trouble: Trouble,
    /// Files whose times this pass has set without a change of their content.
    pub(crate) restamped: BTreeMap<FileNo, StampChange>,
}

impl PassReport {
    /// Adds what an earlier pass shared, and the files with which it failed.
    pub(crate) fn add_earlier(&mut self, earlier: PassReport) {
        let (ShareReport { now, freed, pinned, untold, rewritten, zeros, .. }, before) =
            (&mut self.shared, earlier.shared);
        *now = now.saturating_add(before.now);
        *freed = freed.saturating_add(before.freed);
        *pinned = pinned.saturating_add(before.pinned);
        *untold = untold.saturating_add(before.untold);
        *rewritten = rewritten.saturating_add(before.rewritten);
        *zeros = zeros.saturating_add(before.zeros);
        let Trouble { refused, failed, busy, changed, .. } = earlier.trouble;
        refused.into_iter().for_each(|(path, why)| {
            self.trouble.refused.entry(path).or_insert(why);
        });
        failed.into_iter().for_each(|(path, why)| {
            self.trouble.failed.entry(path).or_insert(why);
        });
        busy.into_iter().for_each(|(path, count)| {
            self.trouble.busy.entry(path).or_insert(count);
        });
        self.trouble.changed = self.trouble.changed.saturating_add(changed);
    }

    /// Returns whether another pass would have nothing to do as long as no file changes. So this pass has left nothing
    /// undone, and has shared nothing: a source that moves takes along only those of its targets that come later.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        let Trouble { refused, failed, busy, is_full, again, .. } = &self.trouble;
        let is_untroubled = refused.is_empty() && failed.is_empty() && busy.is_empty() && !is_full && again.is_empty();
        let ShareReport { now, refused, elsewhere, barred, .. } = self.shared;
        is_untroubled && (now, refused, elsewhere, barred) == (0, 0, 0, 0)
    }

    /// Returns the stamp of a file after this pass, if the file had the given stamp before and no other process has
    /// changed it.
    #[must_use]
    pub(crate) fn restamped(&self, number: FileNo, before: Stamp) -> Stamp {
        let change = self.restamped.get(&number).filter(|change| change.before == before);
        change.map_or(before, |change| change.after)
    }

    /// Returns whether there was something to do, for this host or another one.
    #[must_use]
    pub(crate) fn has_found_work(&self) -> bool {
        self.logs > 0 || self.logs_elsewhere > 0 || self.index.is_some()
    }
}

/// Failures with files, and their counts. The pass goes on despite them.
#[derive(Debug, Default)]
pub struct Trouble {
    /// Files that the file system refuses, and why.
    pub refused: BTreeMap<PathBuf, Refusal>,
    /// Files whose reading or sharing failed, with the first reason.
    pub failed: BTreeMap<PathBuf, io::Error>,
    /// Files that were busy.
    pub busy: BTreeMap<PathBuf, u64>,
    /// Whether the file system is full. Nothing more was tried then.
    pub is_full: bool,
    /// The bytes that were left for the file system's own records, if the pass stopped sharing because they were too
    /// few.
    pub records_left: Option<u64>,
    /// Blocks that were overwritten between their reading and their sharing.
    pub changed: u64,
    /// Ranges where something was left undone that may succeed another time. They are read again then.
    pub(super) again: RereadSet,
}

impl Trouble {
    /// Ends all sharing if too little space is left for records; returns whether it does.
    pub(super) fn is_short_of_records<S: Substrate>(&mut self, room: &mut RecordsRoom, substrate: &S) -> bool {
        if !self.is_full
            && let Some(left) = room.lacks(substrate)
        {
            (self.is_full, self.records_left) = (true, Some(left));
        }
        self.is_full
    }

    /// Notes it if the shares of files could not be made durable.
    pub(super) fn note_unsynced<S: Substrate>(
        &mut self,
        files: &[FileNo],
        images: &Images<'_, '_, S>,
        synced: io::Result<()>,
    ) {
        let Err(why) = synced else { return };
        for number in files {
            let why = io::Error::new(why.kind(), why.to_string());
            self.again.add_file(*number);
            self.note(images.path(*number), ShareError::Io(why));
        }
    }

    /// Notes why blocks of a file were skipped, and schedules another reading if the reason may pass.
    pub(super) fn note_blocks(&mut self, file: FileNo, first: FileBlock, count: u64, path: PathBuf, why: ShareError) {
        if !matches!(why, ShareError::Refused(_)) {
            self.again.add(file, first, count, RereadCause::Failed);
        }
        self.note(path, why);
    }

    pub(super) fn note(&mut self, path: PathBuf, why: ShareError) {
        match why {
            ShareError::Refused(refusal) => drop(self.refused.insert(path, refusal)),
            ShareError::Full => self.is_full = true,
            ShareError::Busy => *self.busy.entry(path).or_default() += 1,
            ShareError::Io(error) => drop(self.failed.entry(path).or_insert(error)),
        }
    }
}

/// Why a pass ended early. Only its work is lost.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The state folder failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// Temporary files failed, mostly for lack of space.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file system shares in two steps. Arena slots declare the shares there, and runs from file to file have no
    /// slots.
    #[error("on this file system blocks are shared by their contents only")]
    Undeclared,
    /// The index turned out to be damaged. It was dropped; the next pass begins with an empty one.
    #[error("shard {prefix} of the index cannot be read: {why}")]
    Index {
        /// The prefix of the shard.
        prefix: Prefix,
        /// The damage.
        why: FormatError,
    },
    /// A share was cut short, and the blocks that it removed could not be restored at once, or not durably. The data
    /// for the repair is kept.
    #[error("`{}` may read zeros in some places now: {why}", path.shown())]
    Unmended {
        /// The image.
        path: PathBuf,
        /// The reason.
        why: io::Error,
    },
}

impl From<StopRequest> for PassError {
    fn from(stopped: StopRequest) -> PassError {
        PassError::State(stopped.into())
    }
}

impl PassError {
    /// Returns whether the work ended because it was told to.
    pub(super) fn is_interruption(&self) -> bool {
        matches!(self, PassError::State(StateError::Interrupted))
    }

    /// Drops a damaged shard, and returns the error that ends the pass.
    pub(super) fn damaged<S: Substrate>(
        state: &State<'_, S>,
        shard: &Shard<'_, S>,
        why: FormatError,
    ) -> Result<Self, Self> {
        state.refuse_shard(shard, FormatError::Damaged("its entries cannot be read"))?;
        Ok(PassError::Index { prefix: shard.prefix, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_adds_what_an_earlier_one_shared_and_the_files_that_failed_then() {
        let path = |name: &str| PathBuf::from(name);
        let mut passed = PassReport::default();
        (passed.shared.now, passed.shared.freed, passed.shared.before) = (10, 4, 7);
        passed.trouble.busy.insert(path("both.raw"), 1);
        let mut earlier = PassReport::default();
        (earlier.shared.now, earlier.shared.freed, earlier.shared.before) = (5, 3, 2);
        earlier.trouble.busy.extend([(path("both.raw"), 9), (path("first.raw"), 2)]);
        (earlier.trouble.is_full, earlier.trouble.records_left) = (true, Some(1));
        passed.add_earlier(earlier);
        // The later pass finds as shared before what the earlier one shared.
        assert_eq!((passed.shared.now, passed.shared.freed, passed.shared.before), (15, 7, 7));
        assert_eq!(passed.trouble.busy, [(path("both.raw"), 1), (path("first.raw"), 2)].into());
        assert!(!passed.trouble.is_full && passed.trouble.records_left.is_none());
    }
}
