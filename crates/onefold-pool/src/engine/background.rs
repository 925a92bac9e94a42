//! Background work: the commit timer, reclaim, and reading fingerprints into the filter after a mount.
//!
//! One thread keeps time, another does the work that may take long, in small pieces. Both only call what tests call
//! themselves when a pool is opened without them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Engine;

/// How long the worker sleeps when there is nothing to do.
const IDLE: Duration = Duration::from_millis(200);

/// Tells background threads that there is something to do, or that it is time to end.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    ending: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    /// Waits up to `time`. `Break` when it is time to end.
    fn wait(&self, time: Duration) -> ControlFlow<()> {
        let mut ending = self.ending.lock();
        if !*ending {
            self.changed.wait_for(&mut ending, time);
        }
        if *ending { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn is_ending(&self) -> bool {
        *self.ending.lock()
    }

    /// Ends the threads.
    pub(crate) fn end(&self) {
        *self.ending.lock() = true;
        self.changed.notify_all();
    }

    /// Wakes the worker early.
    pub(crate) fn hurry(&self) {
        self.changed.notify_all();
    }
}

/// Starts the threads.
///
/// # Errors
/// When the operating system has no thread to give.
pub(crate) fn start(engine: &Arc<Engine>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let timer = {
        let engine = Arc::clone(engine);
        std::thread::Builder::new().name("commit-timer".to_owned()).spawn(move || commit_timer(&engine))?
    };
    let worker = {
        let engine = Arc::clone(engine);
        std::thread::Builder::new().name("pool-worker".to_owned()).spawn(move || work(&engine))?
    };
    Ok(vec![timer, worker])
}

/// Commits at each interval. A failure stops the pool, which says so to everybody who asks.
fn commit_timer(engine: &Engine) {
    let interval = Duration::from_millis(u64::from(engine.options.commit_interval_ms.max(10)));
    let mut seen = engine.meta().running.sequence;
    loop {
        let ending = !engine.wake.is_ending() && engine.wake.wait(interval).is_break();
        if ending || engine.wake.is_ending() {
            return;
        }
        // A transaction that was begun since the last look is younger than the interval: it waits for the next one.
        let sequence = engine.meta().running.sequence;
        if sequence == seen && engine.commit().is_err() {
            return;
        }
        seen = engine.meta().running.sequence;
    }
}

fn work(engine: &Engine) {
    while !engine.wake.is_ending() {
        let more = engine.index_some().and_then(|indexed| Ok(engine.reclaim_one()? || indexed));
        match more {
            Ok(true) => {}
            Ok(false) => {
                if engine.wake.wait(IDLE).is_break() {
                    return;
                }
            }
            // Stopped, or damage in the way: reported where users ask for it (`check`, `stat`), not repeated here.
            Err(_) => return,
        }
    }
}
