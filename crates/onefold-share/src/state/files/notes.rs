//! Notes about files: their paths, their stamps, and the ranges to be read again. If several hosts may change a mark,
//! the caller has the file's lock.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use onefold_block::Timestamp;
use onefold_substrate::Substrate;

use super::{Marks, mark_path};
use crate::domain::Membership;
use crate::format::FileNo;
use crate::format::mark::{Mark, MarkFlags};
use crate::format::reading::{ReadingState, Round};
use crate::format::stamp::Stamp;
use crate::state::logs::LogOrder;
use crate::state::{State, StateError};

/// Time after which file systems have dropped the references of a removed file. XFS does so in the background, and
/// until then its maps show blocks as shared that only the arena has. Chosen by reasoning, not by measurement.
const GONE_SETTLED: Duration = Duration::from_secs(60);

/// New content of a mark after a look at its file.
pub(crate) struct MarkUpdate<'a> {
    /// The stamp before it was last read to its end.
    pub(crate) scanned: Option<Stamp>,
    /// Further findings.
    pub(crate) flags: MarkFlags,
    /// Its domain, which is that of its number; its tenant and its owner.
    pub(crate) membership: &'a Membership,
}

/// The stamp of a file before and after an attribute was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StampChange {
    /// The stamp before.
    pub(crate) before: Stamp,
    /// The stamp afterwards.
    pub(crate) after: Stamp,
}

impl Marks {
    /// Notes that a file has other times because an attribute was set, though its content did not change. Does nothing
    /// if the file had another stamp before than its mark, or if its content changed meanwhile.
    ///
    /// # Errors
    /// As [`Marks::note`].
    pub(crate) fn restamp<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        change: StampChange,
    ) -> Result<(), StateError> {
        state.restamp_guest(number, change)?;
        let StampChange { before, after } = change;
        let is_same = (before.length, before.modified) == (after.length, after.modified);
        let path = match self.reload(state, number)? {
            Some(mark) if is_same && mark.scanned == Some(before) => mark.path.clone(),
            Some(mark) if is_same && mark.reading.round.is_some_and(|round| round.stamp == before) => {
                let mark = mark.clone();
                let round = mark.reading.round.map(|round| Round { stamp: after, ..round });
                return self.replace(state, Mark { reading: ReadingState { round, ..mark.reading.clone() }, ..mark });
            }
            _ => return Ok(()),
        };
        self.note(state, number, &path, Some(after))
    }

    /// Notes how far a file is read, its stamp if all of it is known as it was then, and the last of its logs. The
    /// caller has its lock.
    ///
    /// # Errors
    /// As [`Marks::note`].
    pub(crate) fn note_reading<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        scanned: Option<Stamp>,
        reading: ReadingState,
        flags: MarkFlags,
        last_log: LogOrder,
    ) -> Result<(), StateError> {
        let Some(known) = self.by_number.get(&number) else { return Ok(()) };
        let last_log = Some(last_log.number()).filter(|order| *order > 0).max(known.last_log);
        self.replace(state, Mark { scanned, reading, flags, last_log, ..known.clone() })
    }

    /// Notes that a file was given to another owner within its domain, or got an attribute of Onefold's, by its stamps
    /// before and after. The caller has its lock. The knowledge of its content stays, whether the file is read to its
    /// end or its round is unfinished.
    ///
    /// # Errors
    /// As [`Marks::note`].
    pub(crate) fn note_owner<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        path: &Path,
        change: StampChange,
        membership: &Membership,
    ) -> Result<(), StateError> {
        state.restamp_guest(number, change)?;
        let StampChange { before, after } = change;
        let Some(mut mark) = self.by_number.get(&number).cloned() else { return Ok(()) };
        assert_eq!(mark.membership.domain, membership.domain, "a number keeps its domain");
        (mark.path, mark.membership) = (path.to_owned(), membership.clone());
        mark.scanned = mark.scanned.map(|then| if then == before { after } else { then });
        mark.reading.round =
            mark.reading.round.map(|round| if round.stamp == before { Round { stamp: after, ..round } } else { round });
        self.replace(state, mark)
    }

    /// Notes that ranges of a file must be read again, in bytes: at once, or after a pause if they failed.
    ///
    /// # Errors
    /// As [`Marks::note`].
    pub(crate) fn read_again<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        ranges: &[(Range<u64>, bool)],
        now: Timestamp,
    ) -> Result<(), StateError> {
        let Some(mut mark) = self.reload(state, number)?.filter(|mark| !mark.is_forgotten()).cloned() else {
            return Ok(());
        };
        for (range, has_failed) in ranges {
            mark.reading.read_again(range.clone(), *has_failed, now);
        }
        self.replace(state, mark)
    }

    /// Notes that a file is gone and that no entry names it, for a pass that began at `now`. Only a pass that begins
    /// some time after the first forgets the file: by then it shows which of its blocks only the arena still has.
    ///
    /// # Errors
    /// As [`Marks::note`].
    pub fn let_go<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        now: Timestamp,
    ) -> Result<(), StateError> {
        if !self.is_still(state, number)? {
            return Ok(());
        }
        match self.get(number).and_then(Mark::gone_since) {
            None => {
                let gone = Stamp { length: 0, modified: now, changed: now };
                self.note(state, number, Path::new(""), Some(gone))
            }
            // A clock that was ahead gave this time. The real time is not known, so it counts from now on.
            Some(since) if since > now => {
                let gone = Stamp { length: 0, modified: now, changed: now };
                self.note(state, number, Path::new(""), Some(gone))
            }
            Some(since) if now.as_nanoseconds().abs_diff(since.as_nanoseconds()) < GONE_SETTLED.as_nanos() => Ok(()),
            Some(_) => self.forget(state, number),
        }
    }

    /// Forgets a file that is gone and to which nothing refers any more. The highest number is kept without a path, so
    /// that it is not given out again. A lower one is free: a host that has not seen the higher ones may give it to
    /// another file. So nothing is forgotten if the number has become another file's.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn forget<S: Substrate>(&mut self, state: &State<'_, S>, number: FileNo) -> Result<(), StateError> {
        if !self.is_still(state, number)? {
            return Ok(());
        }
        state.forget_map(number)?;
        state.forget_guest(number)?;
        if self.by_number.last_key_value().is_none_or(|(highest, _)| *highest == number) {
            return self.note(state, number, Path::new(""), None);
        }
        state.remove(&mark_path(state, number))?;
        self.remove(number);
        Ok(())
    }

    /// Reads a mark again, and returns whether its number is still that of the file that was known by it.
    fn is_still<S: Substrate>(&mut self, state: &State<'_, S>, number: FileNo) -> Result<bool, StateError> {
        let Some(known) = self.get(number).map(|mark| mark.handle.clone()) else { return Ok(false) };
        Ok(self.reload(state, number)?.is_some_and(|mark| mark.handle == known))
    }

    /// Notes the path of a file and its stamp when it was last read.
    ///
    /// # Errors
    /// No space; errors of the device.
    pub fn note<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        path: &Path,
        scanned: Option<Stamp>,
    ) -> Result<(), StateError> {
        let flags = self.by_number.get(&number).map_or_else(MarkFlags::default, |known| known.flags);
        self.note_with(state, number, path, scanned, flags)
    }

    /// Does the same as [`Marks::note`], with further findings of a reading.
    ///
    /// # Errors
    /// As [`Marks::note`].
    pub(crate) fn note_with<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        path: &Path,
        scanned: Option<Stamp>,
        flags: MarkFlags,
    ) -> Result<(), StateError> {
        let Some(known) = self.by_number.get(&number) else { return Ok(()) };
        let membership = known.membership.clone();
        self.note_read(state, number, path, &MarkUpdate { scanned, flags, membership: &membership })
    }

    /// Does the same as [`Marks::note`], with all findings of a look at the file.
    ///
    /// # Errors
    /// As [`Marks::note`].
    ///
    /// # Panics
    /// If the domain is not that of the number.
    pub(crate) fn note_read<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        path: &Path,
        noted: &MarkUpdate<'_>,
    ) -> Result<(), StateError> {
        let Some(known) = self.by_number.get(&number) else { return Ok(()) };
        let MarkUpdate { scanned, flags, membership } = *noted;
        assert_eq!(known.membership.domain, membership.domain, "a number keeps its domain");
        let mut mark = Mark { path: path.to_owned(), scanned, flags, membership: membership.clone(), ..known.clone() };
        if scanned.is_some() {
            // All of it is known: no round is left.
            (mark.reading.is_known, mark.reading.round) = (true, None);
        }
        if mark.is_forgotten() {
            mark.reading = ReadingState::default();
        }
        self.replace(state, mark)
    }

    /// Records the present path of a file in memory only.
    pub(crate) fn see_at(&mut self, number: FileNo, path: &Path) {
        if let Some(mark) = self.by_number.get_mut(&number) {
            mark.path = path.to_owned();
        }
    }

    /// Notes the present path of a file. The caller has its lock. Its stamp at the last reading stays as the latest
    /// mark says: another host may have noted since that it must be read again.
    ///
    /// # Errors
    /// As [`Marks::note`].
    pub(crate) fn note_path<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        path: &Path,
    ) -> Result<(), StateError> {
        match self.reload(state, number)? {
            Some(mark) if !mark.is_forgotten() => {
                let scanned = mark.scanned;
                self.note(state, number, path, scanned)
            }
            _ => Ok(()),
        }
    }

    /// Notes that a file must be read again, whether it changes or not.
    ///
    /// # Errors
    /// As [`Marks::note`].
    pub fn forget_scan<S: Substrate>(&mut self, state: &State<'_, S>, number: FileNo) -> Result<(), StateError> {
        // Another host may have noted something since.
        self.reload(state, number)?;
        // A file that is gone is not read.
        let there = self.by_number.get(&number).filter(|mark| !mark.is_forgotten());
        let Some(mark) = there.cloned() else { return Ok(()) };
        self.replace(state, Mark { scanned: None, reading: ReadingState::default(), ..mark })
    }

    /// Notes that all files must be read again.
    ///
    /// # Errors
    /// As [`Marks::note`].
    pub(crate) fn forget_scans<S: Substrate>(&mut self, state: &State<'_, S>) -> Result<(), StateError> {
        let numbers: Vec<FileNo> = self.by_number.keys().copied().collect();
        numbers.into_iter().try_for_each(|number| self.forget_scan(state, number))
    }
}
