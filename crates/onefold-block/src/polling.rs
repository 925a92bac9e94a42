//! Polling: a thread checks for a result repeatedly for a moment before it sleeps.
//!
//! A sleeping thread has to be woken. If its processor has halted meanwhile, as processors of virtual machines do,
//! waking takes twenty microseconds and more, and costs the waking thread nearly half of that. A request that is
//! answered from memory takes less.
//!
//! So a thread polls before it sleeps, within bounds:
//! - It polls only while waits are short. After each wait longer than [`LONGEST`] it polls for half as long, and soon
//!   not at all, until a wait is short again. An idle process never polls.
//! - It polls only while a processor would be idle otherwise ([`Processors`]).
//! - Between two checks it yields: another thread may have been woken on its processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::clock::Clock;
use crate::processors::Processors;

/// The longest time for which a thread polls, and the longest wait that counts as short.
const LONGEST: Duration = Duration::from_micros(100);
/// Minimum time of polling: in less than this, a thread would hardly find a result.
const SHORTEST: Duration = Duration::from_micros(10);

/// Statistics of one kind of wait. Threads that wait for the same kind of result share them.
#[derive(Debug)]
pub struct Polling {
    seams: Option<PollingSeams>,
    /// How long to poll, in nanoseconds.
    budget_ns: AtomicU64,
}

struct PollingSeams {
    processors: Arc<dyn Processors>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for PollingSeams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seams").field("processors", &self.processors).finish_non_exhaustive()
    }
}

/// A wait that has begun; `None` if no thread polls.
#[derive(Clone, Copy, Debug)]
pub struct Wait(Option<Duration>);

impl Polling {
    /// Returns the statistics before any wait. Without `processors` all threads sleep at once.
    #[must_use]
    pub fn new(processors: Option<Arc<dyn Processors>>, clock: Arc<dyn Clock>) -> Polling {
        let seams = processors.map(|processors| PollingSeams { processors, clock });
        Polling { seams, budget_ns: AtomicU64::new(0) }
    }

    /// Returns a wait that begins now.
    #[must_use]
    pub fn begin(&self) -> Wait {
        Wait(self.seams.as_ref().map(|seams| seams.clock.monotonic()))
    }

    /// Polls until `look` returns a result, for as long as that is worthwhile. After `None` the caller sleeps, and then
    /// calls [`Polling::slept`].
    ///
    /// Never inlined, so that samples of a process show the cost of polling.
    #[inline(never)]
    pub fn look<T>(&self, wait: Wait, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let (Some(seams), Some(began)) = (&self.seams, wait.0) else { return None };
        let budget = Duration::from_nanos(self.budget_ns.load(Ordering::Relaxed));
        if budget.is_zero() || !seams.processors.have_idle(began) {
            return None;
        }
        loop {
            let found = look();
            if found.is_some() {
                return found;
            }
            let now = seams.clock.monotonic();
            if now.saturating_sub(began) >= budget || !seams.processors.have_idle(now) {
                return None;
            }
            thread::yield_now();
        }
    }

    /// Records that the result came after a sleep.
    #[inline(never)]
    pub fn slept(&self, wait: Wait) {
        let (Some(seams), Some(began)) = (&self.seams, wait.0) else { return };
        let budget = match seams.clock.monotonic().saturating_sub(began) {
            waited if waited <= LONGEST => LONGEST,
            _ => Some(Duration::from_nanos(self.budget_ns.load(Ordering::Relaxed)) / 2)
                .filter(|half| *half >= SHORTEST)
                .unwrap_or_default(),
        };
        self.budget_ns.store(u64::try_from(budget.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::clock::ManualClock;

    #[derive(Debug)]
    struct FakeProcessors(AtomicBool);

    impl Processors for FakeProcessors {
        fn have_idle(&self, _now: Duration) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    struct PollingFixture {
        polling: Polling,
        clock: Arc<ManualClock>,
        processors: Arc<FakeProcessors>,
    }

    impl PollingFixture {
        fn new() -> PollingFixture {
            let (clock, processors) =
                (Arc::new(ManualClock::starting_at(5)), Arc::new(FakeProcessors(AtomicBool::new(true))));
            PollingFixture { polling: Polling::new(Some(processors.clone()), clock.clone()), clock, processors }
        }

        /// Waits for a result that comes after `time`. Returns the number of checks, and whether one of them found it.
        fn wait_for(&self, time: Duration) -> (u32, bool) {
            let wait = self.polling.begin();
            let (until, mut looks) = (self.clock.monotonic() + time, 0);
            let found = self.polling.look(wait, || {
                looks += 1;
                (self.clock.monotonic() >= until).then_some(())
            });
            if found.is_none() {
                self.clock.sleep(until.saturating_sub(self.clock.monotonic()));
                self.polling.slept(wait);
            }
            (looks, found.is_some())
        }
    }

    const SOON: Duration = Duration::from_micros(50);
    const LATE: Duration = Duration::from_millis(3);

    #[test]
    fn nobody_looks_before_a_wait_was_short() {
        let fixture = PollingFixture::new();
        assert_eq!(fixture.wait_for(LATE), (0, false));
        assert_eq!(fixture.wait_for(SOON), (0, false));
        let (looks, is_found) = fixture.wait_for(SOON);
        assert!(looks > 5 && is_found, "{looks}");
    }

    #[test]
    fn looking_is_bounded_and_ends_when_waits_are_long() {
        let fixture = PollingFixture::new();
        fixture.wait_for(SOON);
        let looks: Vec<u32> = (0..6).map(|_| fixture.wait_for(LATE).0).collect();
        // Each check and each reading of the time take a microsecond of this clock.
        assert!(looks[0] <= 50 && looks[0] >= 30, "{looks:?}");
        assert!(looks.windows(2).all(|pair| pair[1] < pair[0] || pair[1] == 0), "{looks:?}");
        assert_eq!(looks[4..], [0, 0], "{looks:?}");
    }

    #[test]
    fn nobody_looks_while_all_processors_have_work() {
        let fixture = PollingFixture::new();
        fixture.wait_for(SOON);
        fixture.processors.0.store(false, Ordering::Relaxed);
        assert_eq!(fixture.wait_for(SOON), (0, false));
        fixture.processors.0.store(true, Ordering::Relaxed);
        assert!(fixture.wait_for(SOON).1);
    }

    #[test]
    fn without_processors_all_sleep() {
        let clock = Arc::new(ManualClock::starting_at(5));
        let polling = Polling::new(None, clock.clone());
        for _ in 0..3 {
            let wait = polling.begin();
            assert_eq!(polling.look(wait, || Some(())), None);
            polling.slept(wait);
        }
        assert_eq!(clock.monotonic(), Duration::from_secs(5), "the time is not even asked for");
    }
}
