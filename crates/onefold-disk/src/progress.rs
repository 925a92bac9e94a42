//! Progress of long work, and whether it continues.

use std::ops::ControlFlow;

/// Progress of one piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done so far.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Callback that long work calls repeatedly, from several threads; `Break` stops the work.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) -> ControlFlow<()> + Sync);
