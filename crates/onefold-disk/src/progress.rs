//! How far long work is, and whether it goes on.

use std::ops::ControlFlow;

/// How far a piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes to do in all.
    pub total_bytes: u64,
}

/// What long work calls again and again, from several threads; `Break` stops it.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) -> ControlFlow<()> + Sync);
