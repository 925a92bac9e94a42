//! Ends a watch that hangs in a call, so that other hosts and processes get its locks.
//!
//! A disk that does not answer may keep a call in the kernel for ever. Then the process cannot be killed, and the
//! kernel closes none of its files until the call returns. Its locks would keep all others from the images. So another
//! thread checks whether calls still complete. If none has completed for long, this thread reports it, releases the
//! locks and ends the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time between two checks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Tracks whether work goes on.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    signs: AtomicU64,
    is_over: AtomicBool,
}

impl Watchdog {
    /// Signals that the work goes on.
    pub(super) fn sign(&self) {
        self.signs.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends [`Watchdog::wait`] once the thread in it wakes up.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits until no work was signalled for `limit`, and `calls` stayed the same. Returns whether that happened before
    /// the end.
    ///
    /// Time in which this process did not run at all, because it was stopped or the machine slept, does not count. Of
    /// each interval, only the intended sleep counts.
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
        // Calls alone are sufficient signs.
        let counted = AtomicU64::new(0);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| watchdog_of_calls(&counted));
            assert!(!waiting.join().unwrap());
        });
    }

    /// Waits with a count that rises at each check, and ends at the hundredth.
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
