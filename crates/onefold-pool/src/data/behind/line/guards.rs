//! The parts of the line that callers hold: a place at its end, or the writes at its front.

use std::sync::atomic::Ordering;

use super::Line;
use super::write::{Accepted, Pending};

/// Writes that a worker has begun. After dropping this, the worker must call [`Line::take`] again, as no other worker
/// was woken for writes that arrived meanwhile.
pub(in crate::data::behind) struct Task<'l> {
    pub(super) line: &'l Line,
    pub(super) batch: Vec<Accepted>,
    pub(super) is_small: bool,
}

impl Task<'_> {
    /// Returns the writes, once.
    pub(in crate::data::behind) fn take_batch(&mut self) -> Vec<Accepted> {
        std::mem::take(&mut self.batch)
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        if self.is_small {
            self.line.state.lock().small_at_work -= 1;
        }
    }
}

/// The result of a request for a place.
pub(in crate::data::behind) enum Entrance<'l> {
    /// A place.
    Open(Place<'l>),
    /// The line is full. The caller makes room by carrying out these writes.
    Full(Vec<Accepted>),
    /// The line accepts no such write.
    Closed,
}

/// A place at the end of the line.
#[derive(Debug)]
pub(in crate::data::behind) struct Place<'l> {
    pub(super) line: &'l Line,
    /// Blocks of the buffer for which the place was taken; 0 once the write is in the line.
    pub(super) buffer_blocks: usize,
}

impl Place<'_> {
    /// Pushes a write to that place. Wakes a worker for it, unless it is left to its caller.
    pub(in crate::data::behind) fn push(mut self, accepted: impl FnOnce(u64) -> Accepted) {
        let mut state = self.line.state.lock();
        let accepted = accepted(state.next);
        state.next += 1;
        let buffer_blocks = std::mem::take(&mut self.buffer_blocks);
        state.blocks += accepted.block_count();
        let range = accepted.first..accepted.first + accepted.block_count() as u64;
        state.pending.push_back(Pending { ino: accepted.ino, range, buffer_blocks, moves_end: accepted.moves_end });
        let is_left = accepted.is_left;
        state.waiting.push_back(accepted);
        self.line.pending.fetch_add(1, Ordering::AcqRel);
        if is_left {
            self.line.has_left.store(true, Ordering::Release);
        }
        let has_work = !is_left && state.has_work(self.line.small_max);
        drop(state);
        if has_work {
            self.line.arrived.notify_one();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        state.entering -= 1;
        state.buffer_blocks -= self.buffer_blocks;
        let is_closed = state.is_closed;
        drop(state);
        if self.buffer_blocks > 0 || is_closed {
            self.line.moved.notify_all();
        }
    }
}
