//! What is done before an operation is told that there is no space.

use super::Engine;
use crate::attr::Ino;
use crate::error::Result;
use crate::format::state::Field;
use crate::meta::Privilege;

/// Steps of reclaim between two looks at whether there is space now.
const RECLAIM_STEPS: u32 = 64;

impl Engine {
    /// Turns freed blocks into free ones: does pending reclaim, then commits, then checkpoints. Returns false if there
    /// was nothing left to gain.
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

    /// Makes frees durable, so that their blocks can be handed out, and takes those back that hold a saved filter which
    /// is still being read. Returns false if there were none.
    pub(crate) fn settle_frees(&self) -> Result<bool> {
        if self.give_up_saved_filter() {
            return Ok(true);
        }
        let waiting = self.meta().groups.busy_count();
        if waiting == 0 {
            return Ok(false);
        }
        self.commit()?;
        if self.meta().groups.busy_count() >= waiting {
            self.checkpoint()?;
        }
        Ok(self.meta().groups.busy_count() < waiting)
    }

    /// Does one bounded step of reclaim: an entry of the reclaim list, or an orphan that nobody holds.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(crate) fn reclaim_one(&self) -> Result<bool> {
        if self.meta().state(Field::ReclaimPending) > 0 && self.run(Privilege::Freeing, |op| op.reclaim_step())? {
            return Ok(true);
        }
        if self.view(|op| op.next_orphan(Ino(0)))?.is_none() {
            return Ok(false);
        }
        self.run(Privilege::Freeing, |op| match op.next_orphan(Ino(0))? {
            // It may have been held again or reaped in between: the operation looks itself.
            None => Ok(()),
            Some(orphan) => op.reap_orphan(orphan).map(|_| ()),
        })?;
        Ok(true)
    }
}
