//! What a pass notes of images: a mark is changed only while the image is this host's.

use std::collections::BTreeMap;
use std::ops::Range;

use onefold_block::Timestamp;
use onefold_substrate::Substrate;

use super::{Hold, Images};
use crate::format::FileNo;
use crate::format::mark::Mark;
use crate::state::files::{Marks, StampChange};
use crate::state::{State, StateError};

impl<'b, S: Substrate> Images<'_, 'b, S> {
    /// Changes a file's mark while the file is this pass's: a host that reads the file at the same time would write its
    /// own mark over the change. Returns false where another host has the file.
    fn change_mark(
        &mut self,
        number: FileNo,
        change: impl FnOnce(&mut Marks, &State<'b, S>) -> Result<(), StateError>,
    ) -> Result<bool, StateError> {
        let Some(handle) = self.files.get(number).map(|mark| mark.handle.clone()) else { return Ok(true) };
        let is_held = self.held.borrow().contains(&handle);
        let lock = if is_held { None } else { self.lock(handle)? };
        if !is_held && lock.is_none() {
            return Ok(false);
        }
        change(self.files, self.state)?;
        Ok(true)
    }

    /// Notes that only what is said about a file has changed, as [`Marks::restamp`]. Where another host has the file,
    /// it is read again.
    pub(in crate::pass) fn restamp(&mut self, number: FileNo, change: StampChange) -> Result<(), StateError> {
        if self.change_mark(number, |files, state| files.restamp(state, number, change))? {
            let is_same = |change: &StampChange| {
                let StampChange { before, after } = change;
                (before.length, before.modified) == (after.length, after.modified)
            };
            match self.restamped.get_mut(&number) {
                Some(known) if known.after == change.before && is_same(&change) => known.after = change.after,
                Some(_) => {}
                None if is_same(&change) => _ = self.restamped.insert(number, change),
                None => {}
            }
        }
        Ok(())
    }

    /// Returns the files whose times this pass has set without a change of their content, with their stamps before all
    /// of that and afterwards.
    pub(in crate::pass) fn into_restamped(self) -> BTreeMap<FileNo, StampChange> {
        self.restamped
    }

    /// Takes note that a file must be read again. To be done before what was known of it goes: who dies in between has
    /// lost nothing. Returns false where another host has the file, and nothing is noted.
    pub(in crate::pass) fn forget_scan(&mut self, number: FileNo) -> Result<bool, StateError> {
        self.change_mark(number, |files, state| files.forget_scan(state, number))
    }

    /// Takes note that ranges of a file must be read again, as [`Marks::read_again`]. Returns false where another host
    /// has the file, and nothing is noted.
    pub(in crate::pass) fn read_again(
        &mut self,
        number: FileNo,
        ranges: &[(Range<u64>, bool)],
        now: Timestamp,
    ) -> Result<bool, StateError> {
        self.change_mark(number, |files, state| files.read_again(state, number, ranges, now))
    }

    /// As [`Images::forget_scan`], where that is not known to have been noted, nor the file to be gone for good.
    pub(super) fn forget_scan_once(&mut self, number: FileNo) -> Result<bool, StateError> {
        let is_needed = |mark: &Mark| mark.scanned.is_some() && !mark.is_forgotten();
        if self.files.get(number).is_some_and(is_needed) { self.forget_scan(number) } else { Ok(true) }
    }

    /// Takes note that all files must be read again.
    pub(in crate::pass) fn forget_scans(&mut self) -> Result<(), StateError> {
        self.files.forget_scans(self.state)
    }

    /// Takes note that no entry names a file any more that is gone, for a pass that began at `now`; unless it has come
    /// back.
    pub(in crate::pass) fn let_go(&mut self, number: FileNo, now: Timestamp) -> Result<(), StateError> {
        match self.hold(number)? {
            Hold::Ours { .. } if !self.is_there(number)? => self.files.let_go(self.state, number, now),
            _ => Ok(()),
        }
    }
}
