//! Ends a watch that hangs in a call, so that other hosts and processes get its locks.
//!
//! A disk that does not answer may keep a call in the kernel for ever. The process cannot be killed then, and the
//! kernel closes none of its files as long as the call does not return: its locks would keep all others from the
//! images. So another thread looks whether calls still come to their end. Where none did for long, it says so, gives up
//! the locks and ends the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Tells whether work goes on.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    signs: AtomicU64,
    is_over: AtomicBool,
}

impl Watchdog {
    /// Gives a sign that the work goes on.
    pub(super) fn sign(&self) {
        self.signs.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends [`Watchdog::wait`], once the thread that is in it wakes up.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits until there was no sign of work for as long as `limit`, and `calls` stayed the same. Returns whether that
    /// came to be before the end.
    ///
    /// Time in which this process did not run at all, stopped or on a machine that slept, does not count: of each
    /// interval only as much as was slept on purpose.
    pub(super) fn wait(&self, limit: Duration, calls: impl Fn() -> u64) -> bool {
        let interval = LOOK_INTERVAL.min(limit / 4).max(Duration::from_millis(1));
        let (mut last, mut silent) = ((self.signs.load(Ordering::Relaxed), calls()), Duration::ZERO);
        while !self.is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            thread::park_timeout(interval);
            let now = (self.signs.load(Ordering::Relaxed), calls());
            silent = if now == last { silent.saturating_add(began.elapsed().min(interval)) } else { Duration::ZERO };
            last = now;
            if silent >= limit {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(40);

    #[test]
    fn work_that_gives_no_sign_for_too_long_hangs() {
        let watchdog = Watchdog::default();
        let began = Instant::now();
        assert!(watchdog.wait(LIMIT, || 7));
        assert!(began.elapsed() >= LIMIT);
    }

    #[test]
    fn work_that_gives_signs_or_makes_calls_goes_on() {
        let (watchdog, calls) = (Watchdog::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| watchdog.wait(LIMIT * 50, || calls.load(Ordering::Relaxed)));
            for _ in 0..20 {
                thread::sleep(LIMIT / 8);
                watchdog.sign();
                calls.fetch_add(1, Ordering::Relaxed);
            }
            watchdog.end();
            waiting.thread().unpark();
            assert!(!waiting.join().unwrap());
        });
        // Calls alone are signs enough.
        let counted = AtomicU64::new(0);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| watchdog_of_calls(&counted));
            assert!(!waiting.join().unwrap());
        });
    }

    /// Waits with a count that rises at each look, and ends at the hundredth.
    fn watchdog_of_calls(counted: &AtomicU64) -> bool {
        let watchdog = Watchdog::default();
        watchdog.wait(LIMIT, || {
            let count = counted.fetch_add(1, Ordering::Relaxed);
            if count == 100 {
                watchdog.end();
            }
            count
        })
    }
}
