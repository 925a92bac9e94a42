//! What a pass did, and what went wrong.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use onefold_block::Show;
use onefold_substrate::{Refusal, ShareError, Substrate};

use super::again::{Again, Because};
use super::images::Images;
use super::plan::PlanCounts;
use super::room::RecordsRoom;
use super::share::Shared;
use crate::format::mark::Stamp;
use crate::format::prefix::Prefix;
use crate::format::shard::EntryCounts;
use crate::format::{FileBlock, FileNo, FormatError};
use crate::pace::Stopped;
use crate::state::files::StampChange;
use crate::state::shards::Shard;
use crate::state::{State, StateError};

/// How long the parts of a pass took, in all of its batches. What a pass does at its end is in none of them: it removes
/// logs, looks for what only the arena refers to where maps do not tell, and empties slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTimes {
    /// Reading the logs and sorting what they tell.
    pub logs: Duration,
    /// Going through the index.
    pub plan: Duration,
    /// Putting blocks into the arena.
    pub promote: Duration,
    /// Sharing with the arena.
    pub share: Duration,
    /// Bringing the index up to date.
    pub publish: Duration,
}

/// What a pass did.
#[derive(Debug, Default)]
pub struct Passed {
    /// Logs that were taken in.
    pub logs: u64,
    /// Logs left to other hosts, which have the files.
    pub logs_elsewhere: u64,
    /// Logs left to runs that include their files.
    pub logs_outside: u64,
    /// What was decided.
    pub planned: PlanCounts,
    /// What came of it.
    pub shared: Shared,
    /// The index afterwards: what it holds, and its length in bytes. None where there was nothing to do, where the file
    /// system is full, or other hosts were always first: then the logs are still there.
    pub index: Option<(EntryCounts, u64)>,
    /// Slots that were emptied.
    pub swept_slots: u64,
    /// How long it took; nothing for parts that it did not come to.
    pub times: PassTimes,
    /// What went wrong, with files.
    pub trouble: Trouble,
    /// Files whose times this pass has set without a change of their content.
    pub(crate) restamped: BTreeMap<FileNo, StampChange>,
}

impl Passed {
    /// Returns whether another pass would find nothing to do as long as no file changes. So this one has left nothing
    /// undone, and has shared nothing: a source that moves takes along only those of its targets that come later.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        let Trouble { refused, failed, busy, is_full, again, .. } = &self.trouble;
        let is_untroubled = refused.is_empty() && failed.is_empty() && busy.is_empty() && !is_full && again.is_empty();
        let Shared { now, refused, elsewhere, barred, .. } = self.shared;
        is_untroubled && (now, refused, elsewhere, barred) == (0, 0, 0, 0)
    }

    /// Returns the stamp that a file has since this pass, where it had this one before and nobody else has changed it.
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

/// What went wrong with files, and how often. The pass goes on.
#[derive(Debug, Default)]
pub struct Trouble {
    /// Files that the file system refuses, and why.
    pub refused: BTreeMap<PathBuf, Refusal>,
    /// Files whose reading or sharing failed, with the first reason.
    pub failed: BTreeMap<PathBuf, io::Error>,
    /// Files that were busy.
    pub busy: BTreeMap<PathBuf, u64>,
    /// The file system is full: nothing more was tried.
    pub is_full: bool,
    /// Nothing more was tried, before the file system was full: so many bytes were left for its own records.
    pub records_left: Option<u64>,
    /// Blocks that were overwritten between their reading and their sharing.
    pub changed: u64,
    /// Where something was left undone that may succeed another time: that is read again then.
    pub(super) again: Again,
}

impl Trouble {
    /// Ends all sharing where too little is left for records; tells whether it does.
    pub(super) fn is_short_of_records<S: Substrate>(&mut self, room: &mut RecordsRoom, substrate: &S) -> bool {
        if !self.is_full
            && let Some(left) = room.lacks(substrate)
        {
            (self.is_full, self.records_left) = (true, Some(left));
        }
        self.is_full
    }

    /// Notes that what files share was not made durable, if that failed.
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

    /// Notes why blocks of a file were left alone, and has them read again where that may not be for good.
    pub(super) fn note_blocks(&mut self, file: FileNo, first: FileBlock, count: u64, path: PathBuf, why: ShareError) {
        if !matches!(why, ShareError::Refused(_)) {
            self.again.add(file, first, count, Because::Failed);
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

/// Why a pass did not come to its end. Nothing is lost but its work.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// Temporary files, mostly: no space.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file system shares in two steps: what is shared there is declared by arena slots, and runs from file to file
    /// have none.
    #[error("on this file system blocks are shared by their contents only")]
    Undeclared,
    /// The index turned out to be damaged. It was dropped; the next pass begins with an empty one.
    #[error("shard {prefix} of the index cannot be read: {why}")]
    Index {
        /// Which.
        prefix: Prefix,
        /// Why.
        why: FormatError,
    },
    /// A share was cut short, and what it took away could not be put back at once, or not be made durable. What is
    /// needed for it is kept.
    #[error("`{}` may read zeros in some places now: {why}", path.shown())]
    Unmended {
        /// The image.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
}

impl From<Stopped> for PassError {
    fn from(stopped: Stopped) -> PassError {
        PassError::State(stopped.into())
    }
}

impl PassError {
    /// Returns whether the work ended because it was told to.
    pub(super) fn is_interruption(&self) -> bool {
        matches!(self, PassError::State(StateError::Interrupted))
    }

    /// Drops a shard that is damaged, and returns that this is why the pass ends.
    pub(super) fn damaged<S: Substrate>(
        state: &State<'_, S>,
        shard: &Shard<'_, S>,
        why: FormatError,
    ) -> Result<Self, Self> {
        state.refuse_shard(shard, FormatError::Damaged("its entries cannot be read"))?;
        Ok(PassError::Index { prefix: shard.prefix, why })
    }
}
