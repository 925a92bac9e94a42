//! The parts of the queue that callers hold: a place at its end, or the writes at its front.

use std::sync::atomic::Ordering;

use super::WriteQueue;
use super::write::{AcceptedWrite, PendingWrite};

/// Writes that a worker has begun. After dropping this, the worker must call [`WriteQueue::take`] again, as no other
/// worker was woken for writes that arrived meanwhile.
pub(in crate::data::behind) struct Task<'l> {
    pub(super) queue: &'l WriteQueue,
    pub(super) batch: Vec<AcceptedWrite>,
    pub(super) is_small: bool,
}

impl Task<'_> {
    /// Returns the writes, once.
    pub(in crate::data::behind) fn take_batch(&mut self) -> Vec<AcceptedWrite> {
        std::mem::take(&mut self.batch)
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        if self.is_small {
            self.queue.state.lock().small_at_work -= 1;
        }
    }
}

/// The result of a request for a place.
pub(in crate::data::behind) enum Admission<'l> {
    /// A place.
    Open(QueuePlace<'l>),
    /// The queue is full. The caller makes room by carrying out these writes.
    Full(Vec<AcceptedWrite>),
    /// The queue accepts no such write.
    Closed,
}

/// A place at the end of the queue.
#[derive(Debug)]
pub(in crate::data::behind) struct QueuePlace<'l> {
    pub(super) queue: &'l WriteQueue,
    /// Blocks of the buffer for which the place was taken; 0 once the write is in the queue.
    pub(super) buffer_blocks: usize,
}

impl QueuePlace<'_> {
    /// Pushes a write to that place. Wakes a worker for it, unless it is left to its caller.
    pub(in crate::data::behind) fn push(mut self, accepted: impl FnOnce(u64) -> AcceptedWrite) {
        let mut state = self.queue.state.lock();
        let accepted = accepted(state.next);
        state.next += 1;
        let buffer_blocks = std::mem::take(&mut self.buffer_blocks);
        state.blocks += accepted.block_count();
        let range = accepted.first..accepted.first + accepted.block_count() as u64;
        state.pending.push_back(PendingWrite {
            ino: accepted.ino,
            range,
            buffer_blocks,
            moves_end: accepted.moves_end,
        });
        let is_left = accepted.is_left;
        state.waiting.push_back(accepted);
        self.queue.pending.fetch_add(1, Ordering::AcqRel);
        if is_left {
            self.queue.has_left.store(true, Ordering::Release);
        }
        let has_work = !is_left && state.has_work(self.queue.small_max);
        drop(state);
        if has_work {
            self.queue.arrived.notify_one();
        }
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.entering -= 1;
        state.buffer_blocks -= self.buffer_blocks;
        let is_closed = state.is_closed;
        drop(state);
        if self.buffer_blocks > 0 || is_closed {
            self.queue.moved.notify_all();
        }
    }
}
