//! Gains space before an operation fails for lack of it.

use super::Engine;
use super::index::ENTRIES_PER_HOLD;
use crate::attr::Ino;
use crate::error::{PoolError, Result};
use crate::format::state::Field;
use crate::meta::{Op, OpResult, Privilege};
use crate::sync;

/// Maximum number of operations that read the list of orphans for a caller that requests figures.
const ORPHAN_READS_MAX: u32 = 16;
/// Number of reclaim steps between two checks for free space.
const RECLAIM_STEPS: u32 = 64;

impl Engine {
    /// Turns freed blocks into free ones: does pending reclaim, then commits, then checkpoints. Returns false if
    /// nothing was left to gain.
    ///
    /// # Errors
    /// Device errors; damage found by reclaim.
    pub(crate) fn make_space(&self) -> Result<bool> {
        for step in 0..RECLAIM_STEPS {
            if !self.reclaim_one()? {
                if step > 0 {
                    break;
                }
                return self.settle_frees();
            }
        }
        self.settle_frees()?;
        Ok(true)
    }

    /// Runs an operation that frees space, and that may use all remaining space. Before it fails for lack of space,
    /// reclaim runs: truncates may have taken the last blocks, in return for those that they put on the reclaim list.
    ///
    /// # Errors
    /// See [`Engine::run`].
    pub(crate) fn run_with_reclaim<T>(&self, mut change: impl FnMut(&mut Op<'_>) -> OpResult<T>) -> Result<T> {
        loop {
            match self.run(Privilege::Freeing, &mut change) {
                Err(PoolError::NoSpace) if self.make_space()? => {}
                done => return done,
            }
        }
    }

    /// Makes frees durable, so that their blocks can be handed out. Also takes back blocks of a saved filter that is
    /// still being read. Returns false if there were no such blocks.
    pub(crate) fn settle_frees(&self) -> Result<bool> {
        if self.give_up_saved_filter() {
            return Ok(true);
        }
        let waiting = self.meta().groups.blocks_waiting();
        if waiting == 0 {
            return Ok(false);
        }
        self.commit()?;
        if self.meta().groups.blocks_waiting() >= waiting {
            self.checkpoint()?;
        }
        Ok(self.meta().groups.blocks_waiting() < waiting)
    }

    /// Makes frees durable because busy blocks take too much memory. If that is not enough, also empties the journal.
    ///
    /// # Errors
    /// See [`Engine::commit`]. A full backing file is no error: the current operation will show whether there is room.
    pub(super) fn relieve_of_busy_blocks(&self) -> Result<()> {
        let relieved = self.commit().and_then(|()| {
            let is_still_too_much = self.meta().groups.busy.is_too_much();
            if is_still_too_much { self.checkpoint() } else { Ok(()) }
        });
        match relieved {
            Err(PoolError::NoSpace) => Ok(()),
            relieved => relieved,
        }
    }

    /// Does one bounded step of reclaim: an entry of the reclaim list, or an orphan without holds.
    ///
    /// Threads that wait for the metadata get it after each step. Reclaim commits before a commit would be due:
    /// otherwise other threads would wait for the changes with which reclaim has filled the journal.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(crate) fn reclaim_one(&self) -> Result<bool> {
        let is_list_empty = self.meta().state(Field::ReclaimPending) == 0;
        let did_some = !is_list_empty && self.reclaim_from_list()?;
        if did_some || self.reap_one()? {
            self.take_out_late();
            if self.meta().running.wants_commit_soon() {
                self.commit()?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn reclaim_from_list(&self) -> Result<bool> {
        self.run(Privilege::Freeing, |op| {
            op.unindex_later();
            op.reclaim_step()
        })
    }

    /// Reaps an orphan or a part of its blocks, or reads a part of the orphan list. Returns false if there are no
    /// orphans.
    fn reap_one(&self) -> Result<bool> {
        let Some(orphan) = self.next_orphan()? else { return Ok(self.meta().orphans.has_unread()) };
        let reaped = self.run(Privilege::Freeing, |op| Ok(!op.can_be_reaped(orphan)? || op.reap_orphan(orphan)?));
        let orphans = &mut self.meta().orphans;
        match reaped {
            Ok(true) => orphans.done(orphan),
            Ok(false) => {}
            Err(_) => orphans.put_off(orphan),
        }
        reaped.map(|_| true)
    }

    /// Returns an orphan that can probably be reaped, if one is known, or is found by reading a part of the list.
    fn next_orphan(&self) -> Result<Option<Ino>> {
        let (known, has_unread) = {
            let orphans = &self.meta().orphans;
            (orphans.first(), orphans.has_unread())
        };
        if known.is_some() || !has_unread {
            return Ok(known);
        }
        self.view_in_background(|op| op.read_orphans())?;
        Ok(self.meta().orphans.first())
    }

    /// Reads the orphan list, as far as a caller that requests figures can wait for it. Ignores unreadable parts:
    /// operations that need them report the damage.
    pub(crate) fn find_orphans(&self) {
        for _ in 0..ORPHAN_READS_MAX {
            if !self.meta().orphans.has_unread() || self.view(|op| op.read_orphans()).is_err() {
                return;
            }
        }
    }

    /// Takes entries of freed blocks out of the filter, a few at a time.
    fn take_out_late(&self) {
        loop {
            let mut meta = self.meta();
            let has_more = meta.indexing.has_late();
            if has_more {
                let late = meta.indexing.take_late(ENTRIES_PER_HOLD);
                meta.filter.write().remove_each(&late);
            }
            sync::unlock_fairly(meta);
            if !has_more {
                return;
            }
        }
    }
}
