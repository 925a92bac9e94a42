//! Asks many, none of which may keep the answers of the others waiting.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How often a caller is asked whether to go on waiting.
const POLL: Duration = Duration::from_millis(50);

/// How [`ask_all`] asks.
pub(crate) struct AskPolicy<'a> {
    /// Maximum number of items that are asked at a time.
    pub(crate) threads: NonZeroUsize,
    /// Maximum time for all answers together.
    pub(crate) wait_max: Duration,
    /// Called again and again; ends the wait if it breaks.
    pub(crate) go_on: &'a dyn Fn() -> ControlFlow<()>,
}

/// Calls `ask` with each item, and returns the answers in the order of the items. `None` for an item that has not
/// answered in time: its thread is left behind, and ends with its call or with the process. Earlier items are asked
/// first.
pub(crate) fn ask_all<T, A>(items: Vec<T>, asking: &AskPolicy<'_>, ask: fn(&T) -> A) -> Vec<Option<A>>
where
    T: Send + Sync + 'static,
    A: Send + 'static,
{
    let mut answers: Vec<Option<A>> = items.iter().map(|_| None).collect();
    let (items, next) = (Arc::new(items), Arc::new(AtomicUsize::new(0)));
    let (answered, receiver) = mpsc::channel();
    for _ in 0..asking.threads.get().min(items.len()) {
        let (items, next, answered) = (Arc::clone(&items), Arc::clone(&next), answered.clone());
        thread::spawn(move || {
            while let Some((at, item)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, items.get(at)?)))
            {
                // Nobody waits for an answer that comes too late.
                if answered.send((at, ask(item))).is_err() {
                    break;
                }
            }
        });
    }
    drop(answered);
    let deadline = Instant::now() + asking.wait_max;
    while (asking.go_on)().is_continue() {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left.min(POLL)) {
            Ok((at, answer)) => answers[at] = Some(answer),
            Err(mpsc::RecvTimeoutError::Timeout) if left.is_zero() => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time in milliseconds after which an item answers with that time.
    fn answer(item: &u64) -> u64 {
        thread::sleep(Duration::from_millis(*item));
        *item
    }

    fn ask(items: &[u64], threads: usize, wait_max: Duration) -> (Vec<Option<u64>>, Duration) {
        let (began, go_on) = (Instant::now(), || ControlFlow::Continue(()));
        let asking = AskPolicy { threads: NonZeroUsize::new(threads).unwrap(), wait_max, go_on: &go_on };
        (ask_all(items.to_vec(), &asking, answer), began.elapsed())
    }

    #[test]
    fn answers_come_in_the_order_of_the_items() {
        let (answers, _) = ask(&[30, 0, 20, 10, 0], 2, Duration::from_secs(60));
        assert_eq!(answers, [30, 0, 20, 10, 0].map(Some));
        assert_eq!(ask(&[], 2, Duration::from_secs(60)).0, []);
    }

    #[test]
    fn slow_items_take_their_time_side_by_side() {
        let (answers, took) = ask(&[500; 40], 40, Duration::from_secs(60));
        assert_eq!(answers, [Some(500); 40]);
        assert!(took < Duration::from_secs(10), "one after the other, they take 20 s: {took:?}");
    }

    #[test]
    fn items_that_hang_do_not_keep_the_others_waiting() {
        const HANGS: u64 = 60_000;
        let (answers, took) = ask(&[HANGS, 0, HANGS, 0], 4, Duration::from_secs(2));
        assert_eq!(answers, [None, Some(0), None, Some(0)]);
        assert!(took < Duration::from_secs(30), "{took:?}");
    }

    #[test]
    fn the_caller_may_end_the_wait() {
        let go_on = || ControlFlow::Break(());
        let asking = AskPolicy { threads: NonZeroUsize::MIN, wait_max: Duration::from_secs(60), go_on: &go_on };
        assert_eq!(ask_all(vec![60_000], &asking, answer), [None]);
    }
}
