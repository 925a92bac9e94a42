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
    /// Time at which the gate opens in any case, while there are machines.
    until: Option<Duration>,
}

impl StartGate {
    pub(super) fn new(start: SessionStart) -> StartGate {
        StartGate { start, until: None }
    }

    /// Returns how many machines the session waits for.
    pub(super) fn machines(&self) -> u32 {
        self.start.machines.get()
    }

    /// Returns whether the session begins: with so many `machines` at the time `now`.
    pub(super) fn opens(&mut self, machines: u32, now: Duration) -> bool {
        if machines == 0 {
            self.until = None;
            return false;
        }
        let until = *self.until.get_or_insert(now.saturating_add(self.start.at_most));
        machines >= self.start.machines.get() || now >= until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_have_gone_do_not_shorten_the_wait_of_later_ones() {
        let start = SessionStart { machines: NonZeroU32::new(3).unwrap(), at_most: Duration::from_secs(60) };
        let mut gate = StartGate::new(start);
        let mut opens = |machines, second| gate.opens(machines, Duration::from_secs(second));
        assert!(!opens(1, 10) && !opens(0, 50) && !opens(1, 65) && !opens(2, 124));
        assert!(opens(2, 125));
    }
}
