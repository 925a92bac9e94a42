//! Holds of doors on inodes, and the orphans without holds, which can be reaped.
//!
//! The durable list in the names tree has all orphans. It is read once, in steps, after the pool is opened. From then
//! on changes keep the queue current: an inode that loses its last name without being held, and an orphan that loses
//! its last hold, go to the end of a queue. Held orphans are marked in their holds, and cost nothing until the holds
//! are returned, however many there are.
//!
//! The queue has a maximum. An inode that does not fit makes the list be read again from there on. So the queue may
//! have an inode twice, or one that has a name again: before reaping, the list is checked.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::hash::PlainMap;
use super::{Op, OpResult};
use crate::attr::Ino;
use crate::format::items;
use crate::tree;

/// Maximum number of inodes in the queue: half a mebibyte.
const QUEUE_MAX: usize = 1 << 16;
/// Number of entries of the list that one operation reads.
const ENTRIES_PER_STEP: usize = 128;

/// Holds on one inode.
#[derive(Clone, Copy, Debug, Default)]
struct HoldCount {
    count: u64,
    /// Whether the inode has lost its last name, and goes to the queue with its last hold.
    is_orphan: bool,
}

/// Holds, and orphans that can be reaped.
#[derive(Debug)]
pub(crate) struct Orphans {
    holds: PlainMap<u64, HoldCount>,
    queue: VecDeque<Ino>,
    /// The list must be read behind this inode; `None` if all of it is known.
    unread_behind: Option<Ino>,
    /// Number of entries of the list that were read since the pool was opened.
    pub(crate) entries_read: u64,
}

impl Default for Orphans {
    /// Starts with an unknown list.
    fn default() -> Orphans {
        Orphans { holds: PlainMap::default(), queue: VecDeque::new(), unread_behind: Some(Ino(0)), entries_read: 0 }
    }
}

impl Orphans {
    /// Takes one hold on an inode.
    pub(crate) fn hold(&mut self, ino: Ino) {
        self.holds.entry(ino.0).or_default().count += 1;
    }

    /// Returns holds. Returns true if the inode can now be reaped.
    pub(crate) fn release(&mut self, ino: Ino, holds: u64) -> bool {
        let Some(hold) = self.holds.get_mut(&ino.0) else { return false };
        hold.count = hold.count.saturating_sub(holds);
        if hold.count > 0 {
            return false;
        }
        let is_orphan = hold.is_orphan;
        self.holds.remove(&ino.0);
        if is_orphan {
            self.enqueue(ino);
        }
        is_orphan
    }

    /// Notes that an inode has lost its last name.
    pub(crate) fn lost_name(&mut self, ino: Ino) {
        if !self.mark_if_held(ino) {
            self.enqueue(ino);
        }
    }

    /// Notes that an orphan has a name again.
    pub(crate) fn got_name(&mut self, ino: Ino) {
        if let Some(hold) = self.holds.get_mut(&ino.0) {
            hold.is_orphan = false;
        }
    }

    /// Returns whether an orphan is held, and marks it as an orphan if so.
    fn mark_if_held(&mut self, ino: Ino) -> bool {
        let hold = self.holds.get_mut(&ino.0);
        hold.map(|hold| hold.is_orphan = true).is_some()
    }

    fn enqueue(&mut self, ino: Ino) {
        match self.unread_behind {
            // The list will be read there.
            Some(behind) if ino > behind => {}
            _ if self.queue.len() < QUEUE_MAX => self.queue.push_back(ino),
            _ => self.unread_behind = Some(Ino(ino.0.saturating_sub(1))),
        }
    }

    /// Returns the next known orphan to reap, if any.
    pub(crate) fn first(&self) -> Option<Ino> {
        self.queue.front().copied()
    }

    /// Notes that an orphan was reaped, or does not need to be.
    pub(crate) fn done(&mut self, ino: Ino) {
        if self.first() == Some(ino) {
            self.queue.pop_front();
        }
    }

    /// Notes that an orphan could not be reaped now, so that others come first.
    pub(crate) fn put_off(&mut self, ino: Ino) {
        if self.first() == Some(ino) {
            self.queue.rotate_left(1);
        }
    }

    /// Returns whether the list has unread entries.
    pub(crate) fn has_unread(&self) -> bool {
        self.unread_behind.is_some()
    }

    /// Returns the number of orphans known to wait for reaping, plus one if part of the list is unread.
    pub(crate) fn waiting_count(&self) -> u64 {
        self.queue.len() as u64 + u64::from(self.has_unread())
    }
}

impl Op<'_> {
    /// Reads some of the list.
    pub(crate) fn read_orphans(&mut self) -> OpResult<()> {
        let Some(behind) = self.meta.orphans.unread_behind else { return Ok(()) };
        let room = QUEUE_MAX - self.meta.orphans.queue.len();
        let most = ENTRIES_PER_STEP.min(room);
        if most == 0 {
            return Ok(());
        }
        let mut found = Vec::new();
        let root = self.tree_root();
        let range = items::orphan_key(Ino(behind.0.saturating_add(1)))..=items::orphan_bounds().1;
        let end = tree::scan(self, root, range, |key, _| {
            found.push(Ino(key.sub));
            if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let orphans = &mut self.meta.orphans;
        orphans.unread_behind = end.is_break().then(|| found.last().copied().unwrap_or(behind));
        orphans.entries_read += found.len() as u64;
        for ino in found {
            if !orphans.mark_if_held(ino) {
                orphans.queue.push_back(ino);
            }
        }
        Ok(())
    }

    /// Returns whether an inode of the queue is an orphan without holds.
    pub(crate) fn can_be_reaped(&mut self, ino: Ino) -> OpResult<bool> {
        Ok(self.item(&items::orphan_key(ino))?.is_some() && !self.meta.orphans.mark_if_held(ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns orphans whose list was read completely.
    fn known() -> Orphans {
        Orphans { unread_behind: None, ..Orphans::default() }
    }

    #[test]
    fn an_orphan_waits_for_its_last_hold() {
        let mut orphans = known();
        orphans.hold(Ino(5));
        orphans.hold(Ino(5));
        orphans.lost_name(Ino(5));
        orphans.lost_name(Ino(6));
        assert_eq!(orphans.first(), Some(Ino(6)), "nobody holds it");
        orphans.done(Ino(6));
        assert!(!orphans.release(Ino(5), 1) && orphans.first().is_none());
        assert!(orphans.release(Ino(5), 1));
        assert_eq!((orphans.first(), orphans.waiting_count()), (Some(Ino(5)), 1));
    }

    #[test]
    fn an_inode_that_has_a_name_waits_for_nothing() {
        let mut orphans = known();
        orphans.hold(Ino(5));
        orphans.hold(Ino(6));
        orphans.lost_name(Ino(6));
        orphans.got_name(Ino(6));
        assert!(!orphans.release(Ino(5), 1) && !orphans.release(Ino(6), 1));
        assert!(orphans.first().is_none() && orphans.holds.is_empty());
    }

    #[test]
    fn what_cannot_be_reaped_lets_others_come_first() {
        let mut orphans = known();
        orphans.lost_name(Ino(5));
        orphans.lost_name(Ino(6));
        orphans.put_off(Ino(5));
        assert_eq!(orphans.first(), Some(Ino(6)));
        // Another thread has already reaped it.
        orphans.done(Ino(5));
        orphans.put_off(Ino(5));
        assert_eq!((orphans.first(), orphans.waiting_count()), (Some(Ino(6)), 2));
    }

    #[test]
    fn what_does_not_fit_the_queue_is_read_from_the_list_again() {
        let mut orphans = known();
        let last = QUEUE_MAX as u64 + 100;
        (1..=last).for_each(|ino| orphans.lost_name(Ino(ino)));
        assert_eq!((orphans.queue.len(), orphans.unread_behind), (QUEUE_MAX, Some(Ino(QUEUE_MAX as u64))));
        orphans.done(Ino(1));
        orphans.lost_name(Ino(1));
        assert_eq!(orphans.queue.len(), QUEUE_MAX, "it lies before what will be read");
        orphans.lost_name(Ino(last + 1));
        assert_eq!((orphans.queue.len(), orphans.has_unread()), (QUEUE_MAX, true), "it will be read");
        orphans.lost_name(Ino(7));
        assert_eq!(orphans.unread_behind, Some(Ino(6)));
    }
}
