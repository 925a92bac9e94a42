//! Threads that wait for another thread's commit, or for accepted writes, poll before they sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::Duration;

use onefold_block::Processors;
use onefold_pool::{Durability, Ino, OpenOptions, Pool, TestLimits, notice_waits};
use onefold_testing::device::{GatedDevice, MemoryDevice};

use crate::common::{behind, letter};
use crate::{BLOCK, accept, create, new_pool};

/// First bytes of the block that is held on its way to the device, in each round.
const MARKS: [&[u8]; 2] = [b"held first", b"held second"];

/// Long enough for any operation that does not wait.
const LONG: Duration = Duration::from_secs(5);

/// The outer gate holds the first mark, the inner one the second.
type Gates = GatedDevice<GatedDevice<MemoryDevice>>;

/// Processors that are always idle, and count questions. A thread that asks for the first time in the second round
/// gets its answer once the other thread has ended, so that the next check finds the result.
#[derive(Debug)]
struct IdleProcessors {
    gates: Arc<Gates>,
    /// Receives the end of the other thread.
    other: Mutex<Option<Receiver<()>>>,
    asked: AtomicU64,
}

impl Processors for IdleProcessors {
    fn have_idle(&self, _now: Duration) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let other = self.other.lock().expect("no thread panics").take();
        if let Some(ended) = other {
            self.gates.inner().open();
            ended.recv_timeout(LONG).expect("nothing holds the other thread");
        }
        true
    }
}

/// Starts a thread, and returns once it is about to wait. Returns whether that happened, and a receiver of its end.
fn start<'s>(scope: &'s Scope<'s, '_>, work: impl FnOnce() + Send + 's) -> (bool, Receiver<()>) {
    let ((waits, waiting), (end, ended)) = (mpsc::channel(), mpsc::channel());
    scope.spawn(move || {
        let notice = notice_waits(move || {
            waits.send(()).ok();
        });
        work();
        drop(notice);
        end.send(()).ok();
    });
    (waiting.recv_timeout(LONG).is_ok(), ended)
}

/// Has two threads wait for the same block on its way to the device, once to learn that such waits are short on the
/// pool's clock, and once more. Panics unless the second thread then finds the result by its first check.
fn assert_second_polls(
    options: OpenOptions,
    prepare: impl Fn(&Pool, Ino, u64, &[u8]),
    wait: impl Fn(&Pool, Ino) + Sync,
) {
    let gates = Arc::new(GatedDevice::new(GatedDevice::new(MemoryDevice::new(16_384), MARKS[1]), MARKS[0]));
    let processors =
        Arc::new(IdleProcessors { gates: gates.clone(), other: Mutex::default(), asked: AtomicU64::new(0) });
    let pool = new_pool(&gates, &OpenOptions { processors: Some(processors.clone()), ..options });
    let ino = create(&pool, "file");
    let mut questions = Vec::new();
    for (round, mark) in (0..).zip(MARKS) {
        let mut marked = letter(1 + round);
        marked[..mark.len()].copy_from_slice(mark);
        prepare(&pool, ino, round, &marked);
        thread::scope(|scope| {
            let (first_waits, first_ended) = start(scope, || wait(&pool, ino));
            if round == 1 {
                *processors.other.lock().expect("no thread panics") = Some(first_ended);
            }
            let (second_waits, second_ended) = start(scope, || wait(&pool, ino));
            if round == 0 {
                gates.open();
            }
            let is_over = second_ended.recv_timeout(LONG).is_ok();
            if round == 1 {
                gates.inner().open();
            }
            assert!(first_waits && second_waits, "two threads wait in round {round}");
            assert!(is_over, "the second thread asked for no idle processor in round {round}");
        });
        questions.push(processors.asked.load(Ordering::SeqCst));
    }
    assert_eq!(questions, [0, 1], "questions so far after each round");
    pool.close().expect("closes");
}

#[test]
fn a_thread_polls_for_the_end_of_another_commit() {
    let test_limits = TestLimits { late_after: 0, ..TestLimits::default() };
    assert_second_polls(
        OpenOptions { test_limits, ..behind() },
        // Kept in memory until the commit.
        |pool, ino, block, marked| pool.write(ino, block * BLOCK, marked, Durability::Later).expect("is kept"),
        |pool, _| pool.commit().expect("commits"),
    );
}

#[test]
fn a_thread_polls_for_the_end_of_accepted_writes() {
    assert_second_polls(
        behind(),
        |pool, ino, block, marked| accept(pool, ino, block, marked).expect("accepted"),
        // The first thread carries the write out.
        |pool, ino| {
            pool.attr(ino).expect("is there");
        },
    );
}
