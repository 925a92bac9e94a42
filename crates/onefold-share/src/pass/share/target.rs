//! The file into which runs are shared. It is opened for its first run, and left when the next file begins.

use std::rc::Rc;

use onefold_substrate::{Access, ShareError, Substrate};

use super::Sharer;
use super::between::Facts;
use super::mapped_file::MappedFile;
use crate::extents::Extents;
use crate::format::FileNo;
use crate::pass::PassError;
use crate::pass::images::Hold;
use crate::slices::Slices;
use crate::state::StateError;
use crate::state::maps::MovedRange;

/// The current target file.
pub(super) struct TargetFile<S: Substrate> {
    pub(super) number: FileNo,
    /// Released before the file is closed.
    pub(super) hold: Hold<S>,
    /// `None` if it cannot be opened, or does not share.
    pub(super) opened: Option<MappedFile<S>>,
    /// Whether opening it failed for a reason that may pass.
    pub(super) is_failing: bool,
    /// New places of its shared ranges.
    pub(super) moved: Vec<MovedRange>,
    /// The whole extents of its data, if the file system frees whole extents only.
    pub(super) slices: Slices,
    /// Facts that runs from other files need, once there is such a run.
    pub(super) facts: Option<Facts>,
}

impl<S: Substrate> Sharer<'_, '_, '_, S> {
    /// Returns the current file, if it is open.
    pub(super) fn opened(&self) -> Option<Rc<S::File>> {
        self.target.as_ref()?.opened.as_ref().map(|opened| Rc::clone(&opened.file))
    }

    /// Ends sharing in the current file.
    pub(super) fn close(&mut self) {
        if let Some(target) = &mut self.target {
            target.opened = None;
        }
    }

    /// Takes the lock of a file and opens it.
    pub(super) fn take_up(&mut self, number: FileNo) -> Result<TargetFile<S>, PassError> {
        let hold = self.images.hold(number)?;
        let (mut opened, mut is_failing) = (None, false);
        if !matches!(hold, Hold::Others) {
            match self.open(number) {
                Ok(file) => opened = Some(MappedFile { file: Rc::new(file), map: Extents::new() }),
                Err(why) => {
                    is_failing = !matches!(why, ShareError::Refused(_));
                    self.trouble.note(self.images.path(number), why);
                }
            }
        }
        let (moved, slices) = (Vec::new(), Slices::default());
        Ok(TargetFile { number, hold, opened, is_failing, moved, slices, facts: None })
    }

    fn open(&self, number: FileNo) -> Result<S::File, ShareError> {
        let file = self.images.open(number, Access::Write)?;
        if self.is_left(&file)? { Err(ShareError::Busy) } else { Ok(file) }
    }

    /// Notes the new places of the shared ranges of the current file. This comes after the shares are durable, if they
    /// become so file by file: `resumption` believes in a map that tells of a share, and a share that was lost in a
    /// power failure would never be repeated. If the shares cannot be made durable, the next scan finds the ranges
    /// changed.
    pub(super) fn note_moved_of_file(&mut self) -> Result<(), StateError> {
        let Some(target) = &mut self.target else { return Ok(()) };
        let moved = std::mem::take(&mut target.moved);
        let Some(MappedFile { file, .. }) = target.opened.as_ref().filter(|_| !moved.is_empty()) else { return Ok(()) };
        let number = target.number;
        if !self.state.substrate().syncs_all_shares() {
            let synced = self.state.substrate().sync_shares(file);
            let is_synced = synced.is_ok();
            self.trouble.note_unsynced(&[number], self.images, synced);
            if !is_synced {
                return Ok(());
            }
        }
        self.state.move_kept(number, &moved)
    }

    /// Makes the shares of a file durable, now or together with all others, before the index names them: a lost share
    /// would never be repeated. If the pass ends in between, the index does not name them.
    pub(super) fn leave_file(&mut self) -> Result<(), PassError> {
        self.share_gathered()?;
        let is_synced = self.target.as_ref().is_some_and(|target| !target.moved.is_empty());
        self.note_moved_of_file()?;
        let Some(target) = self.target.take() else { return Ok(()) };
        if let Some(MappedFile { file, .. }) = &target.opened {
            if self.state.substrate().syncs_all_shares() {
                self.unsynced.push(target.number);
            } else if !is_synced {
                let synced = self.state.substrate().sync_shares(file);
                self.trouble.note_unsynced(&[target.number], self.images, synced);
            }
        }
        if let Some(facts) = &target.facts {
            // A source may get another owner, leave the selection or be opted out. This is checked again for each
            // target.
            self.sources.close_files(&facts.handle);
            self.images.forget_opt_outs();
        }
        Ok(self.note_mark(target.number)?)
    }

    /// Updates the mark of a file, while this host has it.
    fn note_mark(&mut self, number: FileNo) -> Result<(), StateError> {
        if let Some(change) = self.noted.retimed.remove(&number) {
            self.images.restamp(number, change)?;
        }
        // If the file system is full, the logs stay.
        if self.trouble.again.has(number) && !self.trouble.is_full {
            let now = self.state.now()?;
            self.trouble.again.note_file(self.images, number, now)?;
        }
        Ok(())
    }

    /// Makes the shares durable for which that was put off.
    pub(super) fn sync(&mut self) {
        if !self.unsynced.is_empty() {
            // Any file of the file system will do.
            let synced = self.state.substrate().sync_shares(self.sources.zeros());
            self.trouble.note_unsynced(&self.unsynced, self.images, synced);
        }
    }
}
