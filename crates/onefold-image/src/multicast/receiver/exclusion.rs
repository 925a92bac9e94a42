//! Whether the server sends for a machine. One that loses far more packets than the others gets the rest over HTTP, and
//! tries again later: what has disturbed it may be over.

use std::time::Duration;

use super::{HttpReason, Receiver, ReceiverAction};
use crate::format::multicast::IndexSet;
use crate::multicast::timing::{EXCLUDED_FOR, SILENCE};

/// The time in which the server does not send for a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exclusion {
    /// When the machine last told the server that it knows.
    answered: Duration,
    /// When the machine joins again.
    ends: Duration,
}

impl Exclusion {
    /// Returns whether the machine is to join again now. Without a reply, it tries as long after.
    pub(super) fn is_over(&mut self, now: Duration) -> bool {
        let is_over = now >= self.ends;
        if is_over {
            self.ends = now + EXCLUDED_FOR;
        }
        is_over
    }

    /// Returns when [`Self::is_over`] may have another result.
    pub(super) fn ends(&self) -> Duration {
        self.ends
    }
}

impl Receiver {
    /// Turns to HTTP for all that is lacking, and leaves the session; the server forgets this machine then. Chunks that
    /// pass are taken nevertheless.
    pub(super) fn exclude(&mut self, reason: HttpReason) {
        let before = self.excluded;
        // The server may not have got the last answer.
        let is_answered = before.is_some_and(|exclusion| self.now < exclusion.answered + SILENCE);
        let answered = before.filter(|_| is_answered).map_or(self.now, |exclusion| exclusion.answered);
        self.excluded = Some(Exclusion { answered, ends: self.now + EXCLUDED_FOR });
        if before.is_none() {
            self.actions.push_back(ReceiverAction::UseHttp(reason));
        }
        if !is_answered {
            let action = self.request_for(0, IndexSet::default(), Vec::new());
            self.actions.push_back(action);
        }
    }

    /// Gets chunks by multicast again, under another number.
    pub(super) fn end_exclusion(&mut self) {
        if self.excluded.take().is_some() {
            self.progress.note(self.now);
            self.actions.push_back(ReceiverAction::UseMulticast);
        }
    }
}
