//! How long the parts of a pass take.

use std::time::Duration;

use onefold_block::Clock;

/// Measures parts that follow on each other.
pub(super) struct StopWatch<'a> {
    clock: &'a dyn Clock,
    since: Duration,
}

impl StopWatch<'_> {
    pub(super) fn start(clock: &dyn Clock) -> StopWatch<'_> {
        StopWatch { clock, since: clock.monotonic() }
    }

    /// Returns the time since the last look.
    pub(super) fn lap(&mut self) -> Duration {
        let now = self.clock.monotonic();
        now.saturating_sub(std::mem::replace(&mut self.since, now))
    }
}
