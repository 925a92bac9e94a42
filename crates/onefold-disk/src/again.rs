//! For tests: work that repeats beside them.

use std::sync::atomic::{AtomicBool, Ordering};

/// Work that one thread repeats until another thread has finished, or has panicked.
#[derive(Default)]
pub(crate) struct RepeatedWork(AtomicBool);

pub(crate) struct StopGuard<'a>(&'a RepeatedWork);

impl RepeatedWork {
    pub(crate) fn run(&self, mut work: impl FnMut()) {
        while !self.0.load(Ordering::Relaxed) {
            work();
        }
    }

    pub(crate) fn stop_when_dropped(&self) -> StopGuard<'_> {
        StopGuard(self)
    }
}

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
