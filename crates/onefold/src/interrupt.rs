//! Ctrl-C during long work: the first one asks the work to stop at a sound point, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onefold_block::clock::SystemClock;
use onefold_block::{Clock, Timestamp};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::EXIT_INTERRUPTED;

/// Whether the present work stops by itself at a sound point after a signal.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Reports whether the user wants the work to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Starts watching for SIGINT and SIGTERM.
    pub(crate) fn watch() -> Interrupt {
        let interrupt = Interrupt::default();
        IS_WATCHED.store(true, Ordering::Relaxed);
        for signal in [SIGINT, SIGTERM] {
            // Order matters: at the first signal, the shutdown handler still finds the flag unset. If a handler cannot
            // be installed, the signal keeps its default, which ends the process; the pool survives that like any
            // crash.
            let _ = flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED.into(), Arc::clone(&interrupt.asked));
            let _ = flag::register(signal, Arc::clone(&interrupt.asked));
        }
        interrupt
    }

    /// Returns whether some work watches for signals, and stops by itself.
    pub(crate) fn is_watched() -> bool {
        IS_WATCHED.load(Ordering::Relaxed)
    }

    /// Ends the watch: the next signal ends the command, as if signals had not been watched. For work without cleanup.
    pub(crate) fn release(&self) {
        IS_WATCHED.store(false, Ordering::Relaxed);
    }

    /// Asks the work to stop, as a signal does.
    #[cfg(test)]
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether the work should stop.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Maximum length of one sleep, after which an interrupt is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The machine's clock, on which sleeps end early once the user wants the work to stop.
#[derive(Clone, Debug)]
pub(crate) struct InterruptibleClock(pub(crate) Interrupt);

impl Clock for InterruptibleClock {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn sleep(&self, time: Duration) {
        let until = SystemClock.monotonic().saturating_add(time);
        while !self.0.is_asked() {
            let left = until.saturating_sub(SystemClock.monotonic());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(SLEEP_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_lasts_as_long_as_wanted_unless_the_user_wants_to_stop() {
        let clock = InterruptibleClock(Interrupt::default());
        let began = clock.monotonic();
        clock.sleep(Duration::from_millis(150));
        assert!(clock.monotonic() - began >= Duration::from_millis(150));
        clock.0.ask();
        let began = clock.monotonic();
        clock.sleep(Duration::from_secs(3600));
        assert!(clock.monotonic() - began < Duration::from_secs(60));
    }
}
