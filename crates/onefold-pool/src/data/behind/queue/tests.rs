//! The queue by itself: which writes make a batch, which may begin, and which wait.

use onefold_block::{AlignedBuffer, BLOCK_BYTES, Timestamp};

use super::write::SMALL_BELOW_BLOCKS;
use super::*;
use crate::readers::range_lock::{LockMode, RangeLocks};

fn push(queue: &WriteQueue, locks: &RangeLocks, first: u64, blocks: usize) {
    push_as(queue, locks, first..first + blocks as u64, Ino(7), false);
}

fn push_as(queue: &WriteQueue, locks: &RangeLocks, range: Range<u64>, ino: Ino, is_left: bool) {
    let (first, blocks) = (range.start, usize::try_from(range.end - range.start).expect("few"));
    let Admission::Open(place) = queue.enter(blocks) else { panic!("there is room") };
    let lock = locks.lock(ino, range, LockMode::Exclusive).suspend();
    place.push(|number| AcceptedWrite {
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

fn has_work(queue: &WriteQueue) -> bool {
    queue.state.lock().has_work(queue.small_max)
}

#[test]
fn small_writes_gather_while_one_worker_carries_small_ones_out() {
    let (queue, locks) = (WriteQueue::new(1024, 1), RangeLocks::default());
    push(&queue, &locks, 0, 1);
    let busy = queue.take();
    for first in 1..6 {
        push(&queue, &locks, first, 1);
    }
    assert!(!has_work(&queue), "nothing for a second worker");
    // A thread that needs these writes does not wait for the worker.
    assert_eq!(queue.take_below(3).map(|batch| batch.len()), Some(5));
    push(&queue, &locks, 6, 1);
    push(&queue, &locks, 7, SMALL_BELOW_BLOCKS - 1);
    assert!(!has_work(&queue), "nothing for a second worker");
    assert_eq!(numbers(busy), [0]);
    assert_eq!(numbers(queue.take()), [6, 7], "all that came meanwhile, together");
}

#[test]
fn reads_wait_for_writes_of_their_blocks_and_for_those_that_move_the_end() {
    let (queue, locks) = (WriteQueue::new(1024, 1), RangeLocks::default());
    assert_eq!(queue.accepted_before_read(Ino(7), &(0..9)), 0, "nothing was accepted");
    push(&queue, &locks, 10, 2);
    push(&queue, &locks, 20, 2);
    assert_eq!(queue.accepted_before_read(Ino(7), &(0..10)), 0);
    assert_eq!(queue.accepted_before_read(Ino(7), &(12..20)), 0);
    assert_eq!(queue.accepted_before_read(Ino(7), &(11..12)), 1);
    assert_eq!(queue.accepted_before_read(Ino(7), &(0..30)), 2);
    assert_eq!(queue.accepted_before_read(Ino(8), &(0..30)), 0, "another file");
    assert_eq!(queue.accepted_for(Ino(7)), 2);
    push(&queue, &locks, 1000, 1);
    push(&queue, &locks, 30, 1);
    assert_eq!(queue.accepted_before_read(Ino(7), &(0..10)), 3, "the end of the file");
}

#[test]
fn large_writes_are_for_all_workers() {
    let (queue, locks) = (WriteQueue::new(1024, 1), RangeLocks::default());
    push(&queue, &locks, 0, 1);
    push(&queue, &locks, 300, BATCH_BLOCKS);
    push(&queue, &locks, 600, BATCH_BLOCKS);
    let (small, large, other) = (queue.take(), queue.take(), queue.take());
    assert_eq!((numbers(small), numbers(large), numbers(other)), (vec![0], vec![1], vec![2]));
}

#[test]
fn with_room_for_two_a_second_worker_takes_small_writes_and_no_third() {
    let (queue, locks) = (WriteQueue::new(1024, 2), RangeLocks::default());
    push(&queue, &locks, 0, 1);
    let first = queue.take();
    push(&queue, &locks, 1, 1);
    let second = queue.take();
    push(&queue, &locks, 2, 1);
    assert!(!has_work(&queue), "nothing for a third worker");
    drop((first, second));
    assert!(has_work(&queue), "both are done");
}

/// Regression, found in a review: a caller also took writes for which a worker had been woken, if they came before
/// one that was left. The thread that received requests then carried out a stream of writes.
#[test]
fn a_caller_begins_only_while_the_first_write_was_left_to_it() {
    let (queue, locks) = (WriteQueue::new(1024, 1), RangeLocks::default());
    let taken = |batch: Option<Vec<AcceptedWrite>>| batch.map_or(0, |batch| batch.len());
    push_as(&queue, &locks, 0..1, Ino(7), false);
    push_as(&queue, &locks, 1..2, Ino(8), true);
    assert_eq!(taken(queue.take_left()), 0, "a worker was woken for the first");
    assert_eq!(numbers(queue.take()), [0]);
    push_as(&queue, &locks, 2..3, Ino(9), false);
    assert_eq!((taken(queue.take_left()), taken(queue.take_left())), (1, 0));
    assert!(!queue.has_left.load(Ordering::Acquire), "the lock is spared from now on");
    assert_eq!(numbers(queue.take()), [2]);
}

#[test]
fn a_worker_begins_with_what_its_caller_hands_over() {
    let (queue, locks) = (WriteQueue::new(1024, 1), RangeLocks::default());
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| numbers(queue.take()));
        push_as(&queue, &locks, 0..1, Ino(7), true);
        queue.hand_over_left();
        assert_eq!(worker.join().expect("took it"), [0]);
    });
    push_as(&queue, &locks, 1..2, Ino(7), true);
    queue.hand_over_left();
    assert!(queue.take_left().is_none(), "it is the worker's now");
    assert_eq!(numbers(queue.take()), [1]);
}
