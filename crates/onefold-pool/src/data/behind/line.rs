//! The line of accepted writes that wait for their turn.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onefold_block::{AlignedBuffer, BLOCK_BYTES, Timestamp};

use crate::attr::Ino;
use crate::format::map_node::FAN_OUT;
use crate::readers::range_lock::RangeTicket;
use crate::sync::{Condvar, Mutex};

/// Maximum number of blocks that are stored together.
pub(super) const BATCH_BLOCKS: usize = 256;

/// Maximum number of leaves of the file's map that a batch changes. Each of them may have to be copied or made, with a
/// path of nodes to it. One operation takes no more metadata blocks than one run kept for them has.
const BATCH_LEAVES: usize = 56;

/// A write of fewer blocks than this is small (128 KiB). Its cost is mostly turns, locks and metadata, for which two
/// workers would wait for each other. The cost of a larger write is mostly copying and hashing, which workers do
/// independently.
const SMALL_BELOW_BLOCKS: usize = 32;

/// Maximum number of writes in the line, however small. Each holds a range that all others compare with theirs.
const WRITES_MAX: u64 = 512;

/// An accepted write.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) number: u64,
    pub(super) ino: Ino,
    /// Its first block in the file.
    pub(super) first: u64,
    pub(super) buffer: AlignedBuffer,
    /// The place of the data in the buffer.
    pub(super) range: Range<usize>,
    /// When the write was accepted.
    pub(super) now: Timestamp,
    pub(super) lock: RangeTicket,
    /// Whether it ends past the end that the file had when the write was accepted.
    pub(super) moves_end: bool,
    /// Whether no worker was woken for it: its caller begins the write, or hands it over.
    pub(super) is_left: bool,
}

/// An accepted write that has not taken effect yet.
#[derive(Debug)]
struct Pending {
    ino: Ino,
    /// Its blocks in the file.
    range: Range<u64>,
    /// Blocks of its buffer; it may fill only a few of them.
    buffer_blocks: usize,
    moves_end: bool,
}

impl Pending {
    /// Returns whether a read of blocks `range` of a file could notice that the write has not taken effect.
    fn is_seen_by(&self, ino: Ino, range: &Range<u64>) -> bool {
        let overlaps = self.range.start < range.end && range.start < self.range.end;
        self.ino == ino && (self.moves_end || overlaps)
    }
}

impl Accepted {
    pub(super) fn block_count(&self) -> usize {
        self.range.len() / BLOCK_BYTES
    }

    fn is_small(&self) -> bool {
        self.block_count() < SMALL_BELOW_BLOCKS
    }

    /// Returns the leaves of the file's map that name its blocks, by number.
    fn leaves(&self) -> impl Iterator<Item = u64> + use<> {
        self.first / FAN_OUT..=(self.first + self.block_count() as u64 - 1) / FAN_OUT
    }
}

/// Accepted writes, in order of acceptance.
#[derive(Debug)]
pub(crate) struct Line {
    state: Mutex<State>,
    /// Signalled when there is work that a worker may begin.
    arrived: Condvar,
    /// Signalled when writes have taken effect.
    moved: Condvar,
    /// Number of accepted writes that have not taken effect. If it is 0, nobody need take the lock.
    pending: AtomicU64,
    /// Whether writes in the line may be left to their callers. If not, nobody need take the lock.
    has_left: AtomicBool,
    /// Maximum memory of all buffers, in blocks.
    buffer_blocks_max: usize,
    /// Maximum number of workers that carry out small writes at a time.
    small_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Writes that no thread has begun.
    waiting: VecDeque<Accepted>,
    /// The number of the next write.
    next: u64,
    /// All writes with lower numbers have taken effect, or failed.
    in_effect: u64,
    /// Writes `in_effect..next`.
    pending: VecDeque<Pending>,
    /// Writes that have a place in the line but have not been pushed yet.
    entering: u64,
    /// Blocks of all writes in the line.
    blocks: usize,
    /// Blocks of the buffers of all writes that are in the line or entering.
    buffer_blocks: usize,
    /// Workers that are carrying out small writes.
    small_at_work: usize,
    /// Whether the line accepts no more writes.
    is_closed: bool,
    /// Whether no more writes may begin.
    is_ending: bool,
}

impl State {
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

    /// Takes the first writes that no thread has begun: those of one file, as many as make a batch.
    fn take_batch(&mut self) -> Option<Vec<Accepted>> {
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

impl Line {
    /// Returns an empty line whose buffers have at most `buffer_blocks_max` blocks of memory. With 0, it accepts
    /// nothing. At most `small_max` workers carry out small writes at a time.
    pub(crate) fn new(buffer_blocks_max: usize, small_max: usize) -> Line {
        Line {
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

    fn accepted_with(&self, is_sought: impl Fn(&Pending) -> bool) -> u64 {
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
    pub(super) fn enter(&self, buffer_blocks: usize) -> Entrance<'_> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed || buffer_blocks > self.buffer_blocks_max {
                return Entrance::Closed;
            }
            let writes = state.next + state.entering - state.in_effect;
            if state.buffer_blocks + buffer_blocks <= self.buffer_blocks_max && writes < WRITES_MAX {
                state.entering += 1;
                state.buffer_blocks += buffer_blocks;
                return Entrance::Open(Place { line: self, buffer_blocks });
            }
            if let Some(batch) = state.take_batch() {
                return Entrance::Full(batch);
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
                return Some(Task { line: self, batch, is_small });
            }
            self.arrived.wait(&mut state);
        }
        None
    }

    /// Takes the first writes that no thread has begun, if they are below `number`.
    pub(super) fn take_below(&self, number: u64) -> Option<Vec<Accepted>> {
        if number == 0 || self.pending.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut state = self.state.lock();
        let is_sought = !state.is_ending && state.waiting.front().is_some_and(|first| first.number < number);
        if is_sought { state.take_batch() } else { None }
    }

    /// Takes the first writes that no thread has begun, if the first of them was left to its caller. If it was not, a
    /// worker has been woken for it. That worker continues until nothing waits, so later writes are left to it, too.
    pub(super) fn take_left(&self) -> Option<Vec<Accepted>> {
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

/// Writes that a worker has begun. After dropping this, the worker must call [`Line::take`] again, as no other worker
/// was woken for writes that arrived meanwhile.
pub(super) struct Task<'l> {
    line: &'l Line,
    batch: Vec<Accepted>,
    is_small: bool,
}

impl Task<'_> {
    /// Returns the writes, once.
    pub(super) fn take_batch(&mut self) -> Vec<Accepted> {
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
pub(super) enum Entrance<'l> {
    /// A place.
    Open(Place<'l>),
    /// The line is full. The caller makes room by carrying out these writes.
    Full(Vec<Accepted>),
    /// The line accepts no such write.
    Closed,
}

/// A place at the end of the line.
#[derive(Debug)]
pub(super) struct Place<'l> {
    line: &'l Line,
    /// Blocks of the buffer for which the place was taken; 0 once the write is in the line.
    buffer_blocks: usize,
}

impl Place<'_> {
    /// Pushes a write to that place. Wakes a worker for it, unless it is left to its caller.
    pub(super) fn push(mut self, accepted: impl FnOnce(u64) -> Accepted) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::range_lock::{Access, RangeLocks};

    fn push(line: &Line, locks: &RangeLocks, first: u64, blocks: usize) {
        push_as(line, locks, first..first + blocks as u64, Ino(7), false);
    }

    fn push_as(line: &Line, locks: &RangeLocks, range: Range<u64>, ino: Ino, is_left: bool) {
        let (first, blocks) = (range.start, usize::try_from(range.end - range.start).expect("few"));
        let Entrance::Open(place) = line.enter(blocks) else { panic!("there is room") };
        let lock = locks.lock(ino, range, Access::Exclusive).suspend();
        place.push(|number| Accepted {
            number,
            ino,
            first,
            buffer: AlignedBuffer::zeroed(blocks),
            range: 0..blocks * BLOCK_BYTES,
            now: Timestamp::default(),
            lock,
            moves_end: first >= 1000,
            is_left,
        });
    }

    fn numbers(task: Option<Task<'_>>) -> Vec<u64> {
        task.map_or_else(Vec::new, |mut task| task.take_batch().iter().map(|accepted| accepted.number).collect())
    }

    fn has_work(line: &Line) -> bool {
        line.state.lock().has_work(line.small_max)
    }

    #[test]
    fn small_writes_gather_while_one_worker_carries_small_ones_out() {
        let (line, locks) = (Line::new(1024, 1), RangeLocks::default());
        push(&line, &locks, 0, 1);
        let busy = line.take();
        for first in 1..6 {
            push(&line, &locks, first, 1);
        }
        assert!(!has_work(&line), "nothing for a second worker");
        // A thread that needs these writes does not wait for the worker.
        assert_eq!(line.take_below(3).map(|batch| batch.len()), Some(5));
        push(&line, &locks, 6, 1);
        push(&line, &locks, 7, SMALL_BELOW_BLOCKS - 1);
        assert!(!has_work(&line), "nothing for a second worker");
        assert_eq!(numbers(busy), [0]);
        assert_eq!(numbers(line.take()), [6, 7], "all that came meanwhile, together");
    }

    #[test]
    fn reads_wait_for_writes_of_their_blocks_and_for_those_that_move_the_end() {
        let (line, locks) = (Line::new(1024, 1), RangeLocks::default());
        assert_eq!(line.accepted_before_read(Ino(7), &(0..9)), 0, "nothing was accepted");
        push(&line, &locks, 10, 2);
        push(&line, &locks, 20, 2);
        assert_eq!(line.accepted_before_read(Ino(7), &(0..10)), 0);
        assert_eq!(line.accepted_before_read(Ino(7), &(12..20)), 0);
        assert_eq!(line.accepted_before_read(Ino(7), &(11..12)), 1);
        assert_eq!(line.accepted_before_read(Ino(7), &(0..30)), 2);
        assert_eq!(line.accepted_before_read(Ino(8), &(0..30)), 0, "another file");
        assert_eq!(line.accepted_for(Ino(7)), 2);
        push(&line, &locks, 1000, 1);
        push(&line, &locks, 30, 1);
        assert_eq!(line.accepted_before_read(Ino(7), &(0..10)), 3, "the end of the file");
    }

    #[test]
    fn large_writes_are_for_all_workers() {
        let (line, locks) = (Line::new(1024, 1), RangeLocks::default());
        push(&line, &locks, 0, 1);
        push(&line, &locks, 300, BATCH_BLOCKS);
        push(&line, &locks, 600, BATCH_BLOCKS);
        let (small, large, other) = (line.take(), line.take(), line.take());
        assert_eq!((numbers(small), numbers(large), numbers(other)), (vec![0], vec![1], vec![2]));
    }

    #[test]
    fn with_room_for_two_a_second_worker_takes_small_writes_and_no_third() {
        let (line, locks) = (Line::new(1024, 2), RangeLocks::default());
        push(&line, &locks, 0, 1);
        let first = line.take();
        push(&line, &locks, 1, 1);
        let second = line.take();
        push(&line, &locks, 2, 1);
        assert!(!has_work(&line), "nothing for a third worker");
        drop((first, second));
        assert!(has_work(&line), "both are done");
    }

    /// Regression, found in a review: a caller also took writes for which a worker had been woken, if they came before
    /// one that was left. The thread that received requests then carried out a stream of writes.
    #[test]
    fn a_caller_begins_only_while_the_first_write_was_left_to_it() {
        let (line, locks) = (Line::new(1024, 1), RangeLocks::default());
        let taken = |batch: Option<Vec<Accepted>>| batch.map_or(0, |batch| batch.len());
        push_as(&line, &locks, 0..1, Ino(7), false);
        push_as(&line, &locks, 1..2, Ino(8), true);
        assert_eq!(taken(line.take_left()), 0, "a worker was woken for the first");
        assert_eq!(numbers(line.take()), [0]);
        push_as(&line, &locks, 2..3, Ino(9), false);
        assert_eq!((taken(line.take_left()), taken(line.take_left())), (1, 0));
        assert!(!line.has_left.load(Ordering::Acquire), "the lock is spared from now on");
        assert_eq!(numbers(line.take()), [2]);
    }

    #[test]
    fn a_worker_begins_with_what_its_caller_hands_over() {
        let (line, locks) = (Line::new(1024, 1), RangeLocks::default());
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| numbers(line.take()));
            push_as(&line, &locks, 0..1, Ino(7), true);
            line.hand_over_left();
            assert_eq!(worker.join().expect("took it"), [0]);
        });
        push_as(&line, &locks, 1..2, Ino(7), true);
        line.hand_over_left();
        assert!(line.take_left().is_none(), "it is the worker's now");
        assert_eq!(numbers(line.take()), [1]);
    }
}
