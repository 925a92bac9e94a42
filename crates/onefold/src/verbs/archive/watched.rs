//! An archive that a verb works on until it is done or the user interrupts it.

use std::num::NonZeroU64;
use std::sync::Arc;

use onefold_image::archive::Archive;
use onefold_image::store::{CallCounts, PacedStore};

use super::open_in;
use super::place::ArchivePlace;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::{Interrupt, InterruptibleClock};
use crate::size::grouped;

/// An archive whose store makes no further call once the user interrupts the command. Its state is then one that a
/// killed command may leave behind, too, and from which the next command continues.
pub(crate) struct WatchedArchive {
    pub(crate) archive: Arc<Archive>,
    pub(crate) interrupt: Interrupt,
    counts: Arc<CallCounts>,
}

impl WatchedArchive {
    /// Opens an archive, and watches for signals from then on. With a rate, at most so many bytes are read and written
    /// in a second.
    pub(crate) fn open<'a>(place: impl Into<ArchivePlace<'a>>, rate: Option<NonZeroU64>) -> Outcome<WatchedArchive> {
        let (place, interrupt, counts) = (place.into(), Interrupt::watch(), Arc::default());
        let opened = place.open_stoppable(&interrupt, &counts).and_then(|store| {
            let clock = Arc::new(InterruptibleClock(interrupt.clone()));
            let store = match rate {
                Some(rate) => Arc::new(PacedStore::new(store, clock, rate)),
                None => store,
            };
            open_in(store, place)
        });
        match opened {
            Ok(archive) => Ok(WatchedArchive { archive, interrupt, counts }),
            Err(failure) => Err(ended(failure, counts.has_refused(), "nothing was done", "run the command again")),
        }
    }

    /// Returns the failure of a command on the archive. If the user has interrupted it, the failure says what was
    /// `done` and what to do `next`.
    pub(crate) fn failure(&self, failure: Failure, done: &str, next: &str) -> Failure {
        let is_interrupted = self.counts.has_refused() || failure.exit == Exit::Interrupted;
        ended(failure, is_interrupted, done, next)
    }

    /// Returns the result of work, unless an interrupt has left out a part of it: then objects may pass for unreadable.
    pub(crate) fn unless_cut_short<T>(&self, result: T, cannot: &str) -> Outcome<T> {
        match self.is_cut_short() {
            true => Err(Failure { exit: Exit::Interrupted, ..Failure::new(cannot) }),
            false => Ok(result),
        }
    }

    /// Returns whether an interrupt has left out a part of the work.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.counts.has_refused()
    }

    /// Returns what was changed in the store so far, in words.
    pub(crate) fn changes(&self) -> String {
        changes(self.counts.written(), self.counts.deleted())
    }
}

fn changes(written: u64, deleted: u64) -> String {
    match (written, deleted) {
        (0, 0) => "nothing was changed".to_owned(),
        (written, 0) => format!("objects written: {}, none deleted", grouped(written)),
        (0, deleted) => format!("objects deleted: {}, none written", grouped(deleted)),
        (written, deleted) => format!("objects written: {}, deleted: {}", grouped(written), grouped(deleted)),
    }
}

/// Returns how a command ends that failed, perhaps because the user has interrupted it.
fn ended(failure: Failure, is_interrupted: bool, done: &str, next: &str) -> Failure {
    if !is_interrupted {
        return failure;
    }
    // An object at which the work stopped helps nobody; that a change is in doubt does.
    let is_in_doubt = failure.exit != Exit::Interrupted;
    let causes = if is_in_doubt { failure.causes } else { Vec::new() };
    let hint = failure.hint.filter(|_| is_in_doubt).unwrap_or_else(|| next.to_owned());
    let interrupted = Failure { error: failure.error, causes, hint: Some(hint), exit: Exit::Interrupted };
    interrupted.because_of(format!("interrupted; {done}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_image::archive::ArchiveError;
    use onefold_image::store::StoreError;

    #[test]
    fn an_interrupt_says_what_was_done_and_another_failure_stays_as_it_is() {
        let stopped = || StoreError::Stopped { action: "read", name: "packs/00/11".to_owned() };
        let failure = Failure::of_archive("cannot collect", &ArchiveError::Store(stopped()));
        assert_eq!(failure.exit, Exit::Interrupted);
        let said = ended(failure.clone(), true, &changes(1200, 3), "run the command again");
        assert_eq!(said.exit, Exit::Interrupted);
        assert_eq!(said.causes, ["interrupted; objects written: 1,200, deleted: 3"]);
        assert_eq!(said.hint.as_deref(), Some("run the command again"));
        let in_doubt = Failure::of_archive("cannot remove", &ArchiveError::Doubtful(stopped()));
        let said = ended(in_doubt.clone(), true, &changes(0, 0), "run the command again");
        assert_eq!(said.exit, Exit::Interrupted);
        assert!(said.causes[0].contains("does not say whether"), "{said}");
        assert!(said.hint.as_ref().is_some_and(|hint| hint.contains("image list")), "{said}");
        let other = Failure::of_archive("cannot collect", &ArchiveError::NoArchive);
        assert_eq!(ended(other.clone(), false, "", ""), other);
    }

    #[test]
    fn changes_are_told_in_one_line() {
        assert_eq!(changes(0, 0), "nothing was changed");
        assert_eq!(changes(2, 0), "objects written: 2, none deleted");
        assert_eq!(changes(0, 5), "objects deleted: 5, none written");
    }
}
