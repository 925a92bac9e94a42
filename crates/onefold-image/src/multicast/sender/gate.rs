//! The beginning of a session that waits for machines, so that those of a room get all chunks together.

use std::num::NonZeroU32;
use std::time::Duration;

/// When a session begins to send chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStart {
    /// Once so many machines have joined.
    pub machines: NonZeroU32,
    /// Or once so much time has passed since the first one joined.
    pub at_most: Duration,
}

/// Holds the chunks of a session back until it begins.
#[derive(Debug)]
pub(super) struct StartGate {
    start: SessionStart,
    /// Time at which the gate opens in any case, once a machine has joined.
    until: Option<Duration>,
}

impl StartGate {
    pub(super) fn new(start: SessionStart) -> StartGate {
        StartGate { start, until: None }
    }

    /// Returns whether the session begins: with so many `machines` at the time `now`.
    pub(super) fn opens(&mut self, machines: u32, now: Duration) -> bool {
        if machines == 0 {
            return false;
        }
        let until = *self.until.get_or_insert(now.saturating_add(self.start.at_most));
        machines >= self.start.machines.get() || now >= until
    }
}
