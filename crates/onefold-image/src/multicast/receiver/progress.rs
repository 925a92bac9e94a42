//! Whether symbols of lacking chunks come. Beacons alone are no progress: a network may pass only small packets.

use std::time::Duration;

/// Whether a machine that hears the server gets anything that it lacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Time of the last symbol that was put into a chunk, or from which on one is waited for.
    last: Duration,
    is_stalled: bool,
}

impl Progress {
    pub(super) fn new(now: Duration) -> Progress {
        Progress { last: now, is_stalled: false }
    }

    /// Notes a symbol that was put into a chunk. Returns whether none had come for too long.
    pub(super) fn note(&mut self, now: Duration) -> bool {
        self.last = now;
        std::mem::take(&mut self.is_stalled)
    }

    /// Waits for a symbol that will not come soon.
    pub(super) fn stall(&mut self) {
        self.is_stalled = true;
    }

    /// Waits for a symbol from now on. A stall goes on until one comes.
    pub(super) fn wait(&mut self, now: Duration) {
        self.last = now;
    }

    /// Returns true when a stall begins: no symbol has come for `patience`, and one is needed.
    pub(super) fn stalls(&mut self, now: Duration, patience: Duration, is_needed: impl FnOnce() -> bool) -> bool {
        if self.is_stalled || now < self.last + patience {
            return false;
        }
        self.last = now;
        self.is_stalled = is_needed();
        self.is_stalled
    }

    /// Returns whether no symbol has come for too long.
    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Returns when [`Self::stalls`] may have another result.
    pub(super) fn next(&self, patience: Duration) -> Option<Duration> {
        (!self.is_stalled).then(|| self.last + patience)
    }
}
