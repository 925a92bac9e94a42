//! Ctrl-C during long work: the first one asks the work to stop at a sound point, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
