//! Losses: accepted writes that failed after they were answered. Each loss is counted, and is reported until each
//! opening that must know of it does.
//!
//! A loss is reported once to each opening of a file or folder. Each opening remembers the count that it has seen
//! ([`SeenLosses`]), like open files in Linux (`errseq_t`). The initial count of an opening decides what it reports:
//! - *A file that lost data* reports to each later opening, even if an earlier one has reported the loss: the victim
//!   may come last.
//! - *A loss that no opening has reported* is reported to the next opening of any file or folder.
//! - *The close of the pool* reports all of them.
//!
//! Truncating a file to nothing removes it from the files that lost data. Inode numbers are never reused, so removed
//! files need no attention.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::attr::Ino;
use crate::error::{PoolError, Result};
use crate::sync::Mutex;

/// Maximum number of files whose losses are told apart. Beyond that, every file counts as one that lost data.
const FILES_MAX: usize = 65_536;

/// The losses of the pool that an open file or folder has seen.
#[derive(Debug, Default)]
pub struct SeenLosses(AtomicU64);

/// The losses of a pool since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Number of lost writes. If it is 0, nobody need take the lock.
    count: AtomicU64,
    /// Never held while another lock is taken.
    state: Mutex<LossState>,
}

#[derive(Debug, Default)]
struct LossState {
    /// The number of each file's last loss, counted from 1.
    of_files: HashMap<Ino, u64>,
    /// The last loss of a file without a place in `of_files`; 0 if there is none.
    of_other_files: u64,
    /// Losses up to this number have been reported at least once.
    reported: u64,
    /// The file and the cause of the last loss.
    last: Option<(Ino, Arc<PoolError>)>,
}

impl Losses {
    /// Counts a write to a file that was accepted and then failed.
    pub(super) fn note(&self, ino: Ino, cause: PoolError) {
        let mut state = self.state.lock();
        let number = self.count.load(Ordering::Acquire) + 1;
        if state.of_files.len() < FILES_MAX || state.of_files.contains_key(&ino) {
            state.of_files.insert(ino, number);
        } else {
            state.of_other_files = number;
        }
        state.last = Some((ino, Arc::new(cause)));
        self.count.store(number, Ordering::Release);
    }

    /// Returns whether nothing was lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns the cause of the pool's last loss if this file lost data, or may have; the file's own last loss may be
    /// an earlier one. Does not count as a report.
    pub(crate) fn of_file(&self, ino: Ino) -> Option<Arc<PoolError>> {
        if self.is_empty() {
            return None;
        }
        let state = self.state.lock();
        let own = state.of_files.get(&ino).copied().unwrap_or(state.of_other_files);
        state.last.as_ref().filter(|_| own > 0).map(|(_, cause)| Arc::clone(cause))
    }

    /// Returns the losses that a new opening of a file or folder has seen.
    pub(crate) fn seen_by_opening(&self, ino: Ino) -> SeenLosses {
        if self.is_empty() {
            return SeenLosses::default();
        }
        let state = self.state.lock();
        let own = state.of_files.get(&ino).copied().unwrap_or(state.of_other_files);
        let before_own = if own == 0 { u64::MAX } else { own - 1 };
        SeenLosses(AtomicU64::new(state.reported.min(before_own)))
    }

    /// Returns the losses that are not in `seen` as an error, and adds them to `seen`.
    ///
    /// # Errors
    /// [`PoolError::WritesLost`] if there are any.
    pub(crate) fn report(&self, seen: &SeenLosses) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        let count = self.count.load(Ordering::Acquire);
        let before = seen.0.fetch_max(count, Ordering::AcqRel);
        match &state.last {
            Some((ino, cause)) if before < count => {
                let (ino, cause) = (*ino, Arc::clone(cause));
                state.reported = count;
                Err(PoolError::WritesLost { count: count - before, ino, cause })
            }
            _ => Ok(()),
        }
    }

    /// Returns all losses, as an error.
    ///
    /// # Errors
    /// [`PoolError::WritesLost`] if there were any.
    pub(crate) fn report_all(&self) -> Result<()> {
        self.report(&SeenLosses::default())
    }

    /// Notes that a file was emptied, so that no content is left that a loss could have changed.
    pub(crate) fn forget_file(&self, ino: Ino) {
        if !self.is_empty() {
            self.state.lock().of_files.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(losses: &Losses, seen: &SeenLosses) -> u64 {
        match losses.report(seen) {
            Ok(()) => 0,
            Err(PoolError::WritesLost { count, .. }) => count,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn each_opening_reports_each_loss_once() {
        let losses = Losses::default();
        let (file, folder, other) = (Ino(2), Ino(1), Ino(3));
        let opened: Vec<SeenLosses> = [file, folder, other].map(|ino| losses.seen_by_opening(ino)).into();
        assert!(opened.iter().all(|seen| reported(&losses, seen) == 0));
        losses.note(file, PoolError::NoSpace);
        losses.note(file, PoolError::NoSpace);
        assert!(opened.iter().all(|seen| reported(&losses, seen) == 2));
        assert!(opened.iter().all(|seen| reported(&losses, seen) == 0));
        losses.note(other, PoolError::NoSpace);
        assert!(opened.iter().all(|seen| reported(&losses, seen) == 1));
        assert!(matches!(losses.report_all(), Err(PoolError::WritesLost { count: 3, .. })));
        assert!(losses.report_all().is_err(), "a report does not clear the loss");
    }

    #[test]
    fn a_later_opening_reports_losses_of_its_file_and_those_that_nobody_was_told_of() {
        let losses = Losses::default();
        let (file, other) = (Ino(2), Ino(3));
        losses.note(file, PoolError::NoSpace);
        let folder = losses.seen_by_opening(Ino(1));
        assert_eq!(reported(&losses, &folder), 1, "nobody was told");
        assert_eq!(reported(&losses, &losses.seen_by_opening(Ino(1))), 0, "somebody was told");
        for _ in 0..3 {
            assert_eq!(reported(&losses, &losses.seen_by_opening(file)), 1, "each opening of the file");
        }
        losses.note(other, PoolError::NoSpace);
        assert_eq!(reported(&losses, &losses.seen_by_opening(file)), 2);
        assert_eq!(reported(&losses, &losses.seen_by_opening(file)), 2, "its own loss is the first of both");
        assert!(losses.of_file(file).is_some() && losses.of_file(other).is_some() && losses.of_file(Ino(1)).is_none());
        losses.forget_file(file);
        assert!(losses.of_file(file).is_none());
        assert_eq!(reported(&losses, &losses.seen_by_opening(file)), 0);
        assert_eq!(reported(&losses, &losses.seen_by_opening(other)), 1);
    }

    #[test]
    fn more_files_than_are_told_apart_are_all_taken_for_losers() {
        let losses = Losses::default();
        let files = FILES_MAX as u64 + 10;
        for ino in 0..files {
            losses.note(Ino(ino), PoolError::NoSpace);
        }
        losses.report_all().expect_err("losses");
        for ino in [0, FILES_MAX as u64, files - 1, files + 5] {
            assert!(losses.of_file(Ino(ino)).is_some(), "{ino}");
            assert!(reported(&losses, &losses.seen_by_opening(Ino(ino))) > 0, "{ino}");
        }
    }
}
