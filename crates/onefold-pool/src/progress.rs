//! Reports the progress of long work to its caller.

use std::ops::ControlFlow;

/// Receives the progress of long work and may stop it.
pub trait Progress: Sync {
    /// Reports that `done` of `total` blocks are done. `Break` asks the work to stop at the next sound point.
    fn update(&self, done: u64, total: u64) -> ControlFlow<()>;
}

/// Ignores progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&self, _done: u64, _total: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
