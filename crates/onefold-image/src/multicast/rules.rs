//! The rules by which many machines share one sender, each with the place that follows it.
//!
//! A test build can leave one rule out, on one thread: the simulation must notice that.
//! Other builds follow all rules.

/// A rule that the code follows at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A machine does not request chunks that the last beacon lists (`receiver/requests.rs`).
    BeaconsAnswer,
    /// Pauses between requests grow with the number of machines (`timing.rs`).
    PausesGrow,
    /// The sender sends no faster than its rate, from the first packet on (`pacing.rs`).
    Paced,
    /// Symbols of different forms of a chunk are never put together (`receiver/assembly.rs`).
    FormsApart,
    /// A request does not count for chunks that were sent after the last packet that its machine had seen
    /// (`demand.rs`).
    FlightsCount,
    /// Begun chunks are repaired symbol by symbol (`demand.rs`).
    PartsRepaired,
    /// A machine that compares its target with the image requests only chunks that the target lacks
    /// (`receiver/mod.rs`).
    ComparedFirst,
    /// Machines that lack different symbols get repair symbols (`demand.rs`).
    RepairsCoded,
    /// The rate falls when machines lose packets (`rate.rs`).
    RateFalls,
    /// The losses of few machines do not make the rate fall (`rate.rs`).
    FewDoNotSlow,
    /// A machine that alone loses much gets the rest over HTTP (`sender/clients.rs`).
    LossyExcluded,
}

/// Returns whether the code follows a rule.
#[cfg(not(test))]
pub(super) const fn follows(_: Rule) -> bool {
    true
}

#[cfg(test)]
pub(super) use for_tests::{follows, leave_out};

#[cfg(test)]
mod for_tests {
    use std::cell::Cell;

    use super::Rule;

    thread_local! {
        static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    pub(in crate::multicast) fn follows(rule: Rule) -> bool {
        LEFT_OUT.get() != Some(rule)
    }

    /// Leaves a rule out on this thread, or follows all of them again.
    pub(in crate::multicast) fn leave_out(rule: Option<Rule>) {
        LEFT_OUT.set(rule);
    }
}
