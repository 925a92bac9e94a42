//! Measures the durations of the parts of a pass.

use std::time::Duration;

use onefold_block::Clock;

/// Measures consecutive parts.
pub(super) struct StopWatch<'a> {
    clock: &'a dyn Clock,
    since: Duration,
}

impl StopWatch<'_> {
    pub(super) fn start(clock: &dyn Clock) -> StopWatch<'_> {
        StopWatch { clock, since: clock.monotonic() }
    }

    /// Returns the time since the previous call.
    pub(super) fn lap(&mut self) -> Duration {
        let now = self.clock.monotonic();
        now.saturating_sub(std::mem::replace(&mut self.since, now))
    }
}
