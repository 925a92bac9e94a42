//! Ctrl-C during long work: the first asks the work to stop at a sound point, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Tells whether the user wants the work to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Starts to watch for SIGINT and SIGTERM.
    pub(crate) fn watch() -> Interrupt {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            // Order matters: at the first signal the shutdown still finds the flag unset. A handler that cannot be
            // installed leaves the signal's default, which ends the process; the pool survives that as any crash.
            let _ = flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupt.asked));
            let _ = flag::register(signal, Arc::clone(&interrupt.asked));
        }
        interrupt
    }

    /// Lets the next signal end the process at once, as if none had been watched for. For work that has nothing to end.
    pub(crate) fn end_at_next(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Tells whether the work should stop.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}
