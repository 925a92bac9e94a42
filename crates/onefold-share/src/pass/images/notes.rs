//! Notes of a pass about images: a mark is changed only while this host has the image.

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
    /// Changes a file's mark while this pass has the file: a host that reads the file at the same time would overwrite
    /// the change with its own mark. Returns false if another host has the file.
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

    /// Notes a change of a file's attributes alone, as [`Marks::restamp`]. If another host has the file, it is read
    /// again.
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

    /// Returns the files whose times this pass has set without a change of their content, with their stamps before and
    /// after all of these changes.
    pub(in crate::pass) fn into_restamped(self) -> BTreeMap<FileNo, StampChange> {
        self.restamped
    }

    /// Notes that a file must be read again. To be called before entries of the file are dropped: a host that dies in
    /// between has lost nothing. Returns false if another host has the file; nothing is noted then.
    pub(in crate::pass) fn forget_scan(&mut self, number: FileNo) -> Result<bool, StateError> {
        self.change_mark(number, |files, state| files.forget_scan(state, number))
    }

    /// Notes that ranges of a file must be read again, as [`Marks::read_again`]. Returns false if another host has the
    /// file; nothing is noted then.
    pub(in crate::pass) fn read_again(
        &mut self,
        number: FileNo,
        ranges: &[(Range<u64>, bool)],
        now: Timestamp,
    ) -> Result<bool, StateError> {
        self.change_mark(number, |files, state| files.read_again(state, number, ranges, now))
    }

    /// Does the same as [`Images::forget_scan`], unless that was noted already, or the file is known to be gone for
    /// good.
    pub(super) fn forget_scan_once(&mut self, number: FileNo) -> Result<bool, StateError> {
        let is_needed = |mark: &Mark| mark.scanned.is_some() && !mark.is_forgotten();
        if self.files.get(number).is_some_and(is_needed) { self.forget_scan(number) } else { Ok(true) }
    }

    /// Notes that all files must be read again.
    pub(in crate::pass) fn forget_scans(&mut self) -> Result<(), StateError> {
        self.files.forget_scans(self.state)
    }

    /// Notes that no entry names a gone file any more, for a pass that began at `now`; unless the file has come back.
    pub(in crate::pass) fn let_go(&mut self, number: FileNo, now: Timestamp) -> Result<(), StateError> {
        match self.hold(number)? {
            Hold::Ours { .. } if !self.is_there(number)? => self.files.let_go(self.state, number, now),
            _ => Ok(()),
        }
    }
}
