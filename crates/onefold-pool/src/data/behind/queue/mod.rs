//! The queue of accepted writes that wait for their turn.

mod guards;
#[cfg(test)]
mod tests;
mod write;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) use guards::{Admission, QueuePlace, Task};
pub(super) use write::AcceptedWrite;
use write::PendingWrite;

use crate::attr::Ino;
use crate::sync::{Condvar, Mutex};

/// Maximum number of blocks that are stored together.
pub(super) const BATCH_BLOCKS: usize = 256;

/// Maximum number of leaves of the file's map that a batch changes. Each of them may have to be copied or made, with a
/// path of nodes to it. One operation takes no more metadata blocks than one run kept for them has.
const BATCH_LEAVES: usize = 56;

/// Maximum number of writes in the queue, however small. Each holds a range that all others compare with theirs.
const WRITES_MAX: u64 = 512;

/// Accepted writes, in order of acceptance.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
    /// Signalled when there is work that a worker may begin.
    arrived: Condvar,
    /// Signalled when writes have taken effect.
    moved: Condvar,
    /// Number of accepted writes that have not taken effect. If it is 0, nobody need take the lock.
    pending: AtomicU64,
    /// Whether writes in the queue may be left to their callers. If not, nobody need take the lock.
    has_left: AtomicBool,
    /// Maximum memory of all buffers, in blocks.
    buffer_blocks_max: usize,
    /// Maximum number of workers that carry out small writes at a time.
    small_max: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Writes that no thread has begun.
    waiting: VecDeque<AcceptedWrite>,
    /// The number of the next write.
    next: u64,
    /// All writes with lower numbers have taken effect, or failed.
    in_effect: u64,
    /// Writes `in_effect..next`.
    pending: VecDeque<PendingWrite>,
    /// Writes that have a place in the queue but have not been pushed yet.
    entering: u64,
    /// Blocks of all writes in the queue.
    blocks: usize,
    /// Blocks of the buffers of all writes that are in the queue or entering.
    buffer_blocks: usize,
    /// Workers that are carrying out small writes.
    small_at_work: usize,
    /// Whether the queue accepts no more writes.
    is_closed: bool,
    /// Whether no more writes may begin.
    is_ending: bool,
}

impl QueueState {
    /// Returns whether all writes below `number` have taken effect, or never will.
    fn is_past(&self, number: u64) -> bool {
        let never = self.is_ending && self.waiting.front().is_some_and(|first| first.number == self.in_effect);
        self.in_effect >= number || never
    }

    /// Returns whether the first write that no thread has begun was left to its caller.
    fn is_first_left(&self) -> bool {
        self.waiting.front().is_some_and(|first| first.is_left)
    }

    /// Returns whether there are writes that one more worker may begin.
    fn has_work(&self, small_max: usize) -> bool {
        self.waiting.front().is_some_and(|first| !first.is_small() || self.small_at_work < small_max)
    }

    /// Takes the first writes that no thread has begun: those of one file, at most one batch.
    fn take_batch(&mut self) -> Option<Vec<AcceptedWrite>> {
        let first = self.waiting.front()?;
        let (ino, mut blocks, mut count) = (first.ino, 0, 0);
        let mut leaves: Vec<u64> = Vec::new();
        for accepted in &self.waiting {
            blocks += accepted.block_count();
            let new: Vec<u64> = accepted.leaves().filter(|leaf| !leaves.contains(leaf)).collect();
            let is_too_much = blocks > BATCH_BLOCKS || leaves.len() + new.len() > BATCH_LEAVES;
            if accepted.ino != ino || (count > 0 && is_too_much) {
                break;
            }
            leaves.extend(new);
            count += 1;
        }
        Some(self.waiting.drain(..count).collect())
    }
}

impl WriteQueue {
    /// Returns an empty queue whose buffers have at most `buffer_blocks_max` blocks of memory. With 0, it accepts
    /// nothing. At most `small_max` workers carry out small writes at a time.
    pub(crate) fn new(buffer_blocks_max: usize, small_max: usize) -> WriteQueue {
        WriteQueue {
            state: Mutex::default(),
            arrived: Condvar::new(),
            moved: Condvar::new(),
            pending: AtomicU64::new(0),
            has_left: AtomicBool::new(false),
            buffer_blocks_max,
            small_max: small_max.max(1),
        }
    }

    /// Returns the number of blocks of all accepted writes that have not taken effect, however large their buffers are.
    pub(crate) fn blocks(&self) -> usize {
        if self.pending.load(Ordering::Acquire) == 0 { 0 } else { self.state.lock().blocks }
    }

    /// Returns the number below which all writes were accepted before now, or 0 if all have taken effect.
    pub(crate) fn accepted(&self) -> u64 {
        if self.pending.load(Ordering::Acquire) == 0 { 0 } else { self.state.lock().next }
    }

    /// Returns the number below which all writes to a file were accepted before now, or 0.
    pub(super) fn accepted_for(&self, ino: Ino) -> u64 {
        self.accepted_with(|pending| pending.ino == ino)
    }

    /// Returns the number below which all writes were accepted before now on which a read of blocks `range` of a file
    /// depends, or 0.
    pub(super) fn accepted_before_read(&self, ino: Ino, range: &Range<u64>) -> u64 {
        self.accepted_with(|pending| pending.is_seen_by(ino, range))
    }

    fn accepted_with(&self, is_sought: impl Fn(&PendingWrite) -> bool) -> u64 {
        if self.pending.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let state = self.state.lock();
        let last = state.pending.iter().rposition(is_sought);
        last.map_or(0, |last| state.in_effect + last as u64 + 1)
    }

    /// Returns whether all writes below `number` have taken effect, or never will.
    pub(super) fn is_past(&self, number: u64) -> bool {
        number == 0 || self.pending.load(Ordering::Acquire) == 0 || self.state.lock().is_past(number)
    }

    /// Waits until all writes below `number` have taken effect.
    pub(crate) fn wait_for(&self, number: u64) {
        if number == 0 || self.pending.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state.lock();
        while !state.is_past(number) {
            self.moved.wait(&mut state);
        }
    }

    /// Waits for a place for a write with a buffer of `buffer_blocks` blocks.
    pub(super) fn enter(&self, buffer_blocks: usize) -> Admission<'_> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed || buffer_blocks > self.buffer_blocks_max {
                return Admission::Closed;
            }
            let writes = state.next + state.entering - state.in_effect;
            if state.buffer_blocks + buffer_blocks <= self.buffer_blocks_max && writes < WRITES_MAX {
                state.entering += 1;
                state.buffer_blocks += buffer_blocks;
                return Admission::Open(QueuePlace { queue: self, buffer_blocks });
            }
            if let Some(batch) = state.take_batch() {
                return Admission::Full(batch);
            }
            self.moved.wait(&mut state);
        }
    }

    /// Takes the first writes that no thread has begun, for a worker. Waits until there are some that the worker may
    /// begin; `None` at the end.
    ///
    /// If the maximum number of workers is busy with small writes, further small writes wake no worker. The first
    /// worker that finishes takes all of them in one batch.
    pub(super) fn take(&self) -> Option<Task<'_>> {
        let mut state = self.state.lock();
        while !state.is_ending {
            if state.has_work(self.small_max)
                && let Some(batch) = state.take_batch()
            {
                let is_small = batch[0].is_small();
                state.small_at_work += usize::from(is_small);
                if state.has_work(self.small_max) {
                    self.arrived.notify_one();
                }
                return Some(Task { queue: self, batch, is_small });
            }
            self.arrived.wait(&mut state);
        }
        None
    }

    /// Takes the first writes that no thread has begun, if they are below `number`.
    pub(super) fn take_below(&self, number: u64) -> Option<Vec<AcceptedWrite>> {
        if number == 0 || self.pending.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut state = self.state.lock();
        let is_sought = !state.is_ending && state.waiting.front().is_some_and(|first| first.number < number);
        if is_sought { state.take_batch() } else { None }
    }

    /// Takes the first writes that no thread has begun, if the first of them was left to its caller. If it was not, a
    /// worker has been woken for it. That worker continues until nothing waits, so later writes are left to it, too.
    pub(super) fn take_left(&self) -> Option<Vec<AcceptedWrite>> {
        if !self.has_left.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        if !state.is_ending && state.is_first_left() {
            return state.take_batch();
        }
        if !state.waiting.iter().any(|accepted| accepted.is_left) {
            self.has_left.store(false, Ordering::Release);
        }
        None
    }

    /// Wakes a worker for writes that were left to their callers.
    pub(super) fn hand_over_left(&self) {
        if !self.has_left.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        self.has_left.store(false, Ordering::Release);
        let has_work = state.is_first_left() && state.has_work(self.small_max);
        for accepted in &mut state.waiting {
            accepted.is_left = false;
        }
        drop(state);
        if has_work {
            self.arrived.notify_one();
        }
    }

    /// Notes that the next `count` writes have taken effect, or failed.
    pub(super) fn advance(&self, count: usize) {
        let mut state = self.state.lock();
        state.in_effect += count as u64;
        for _ in 0..count {
            let Some(pending) = state.pending.pop_front() else { break };
            state.blocks -= usize::try_from(pending.range.end - pending.range.start).unwrap_or(0);
            state.buffer_blocks -= pending.buffer_blocks;
        }
        self.pending.fetch_sub(count as u64, Ordering::AcqRel);
        drop(state);
        self.moved.notify_all();
    }

    /// Ends acceptance, and waits for writes that have a place but have not been pushed yet.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.moved.notify_all();
        while state.entering > 0 {
            self.moved.wait(&mut state);
        }
    }

    /// Ends the workers. Writes that no worker has begun are dropped, as by a crash.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.is_ending = true;
        drop(state);
        self.arrived.notify_all();
        self.moved.notify_all();
    }
}
