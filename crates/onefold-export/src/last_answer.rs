//! Questions to the operating system that may never return, as those about a file system whose disk or server is gone.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long a caller waits for the answer to a question, counted from the time when it was asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// The last answer to a question. A thread of its own asks, at most one at a time, so callers never wait for longer
/// than [`PATIENCE`].
#[derive(Debug, Default)]
pub(crate) struct LastAnswer<T>(Arc<SharedAnswer<T>>);

#[derive(Debug, Default)]
struct SharedAnswer<T> {
    state: Mutex<AnswerState<T>>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct AnswerState<T> {
    /// When the present question was asked, if one is open.
    asked: Option<Instant>,
    /// Number of answers so far.
    answers: u64,
    last: Option<T>,
}

impl<T: Copy + Send + 'static> LastAnswer<T> {
    /// Returns the answer to `question`, or the last answer if this one takes long; `None` if there was never one.
    pub(crate) fn ask(&self, question: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let mut state = self.0.state.lock();
        let asked = match state.asked {
            Some(asked) => asked,
            None => {
                let shared = self.0.clone();
                let asking = thread::Builder::new().name("below".to_owned()).spawn(move || shared.take(question()));
                if asking.is_err() {
                    return state.last;
                }
                *state.asked.insert(Instant::now())
            }
        };
        let before = state.answers;
        while state.answers == before && !self.0.answered.wait_until(&mut state, asked + PATIENCE).timed_out() {}
        state.last
    }
}

impl<T> SharedAnswer<T> {
    fn take(&self, answer: T) {
        let mut state = self.state.lock();
        state.asked = None;
        state.answers += 1;
        state.last = Some(answer);
        self.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_question_that_hangs_gets_the_last_answer_and_holds_no_further_caller() {
        let last = LastAnswer::default();
        assert_eq!(last.ask(|| 1), Some(1));
        assert_eq!(last.ask(|| 2), Some(2), "each call asks anew");
        let (release, hangs) = mpsc::channel::<()>();
        let started = Instant::now();
        let hanging = last.ask(move || {
            let _ = hangs.recv();
            3
        });
        assert_eq!(hanging, Some(2));
        assert!(started.elapsed() >= PATIENCE);
        // The open question has used up the patience of all callers.
        let started = Instant::now();
        assert_eq!((0..100).map(|_| last.ask(|| 4)).max(), Some(Some(2)));
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        drop(release);
        let end = Instant::now() + Duration::from_secs(60);
        while last.ask(|| 5) != Some(5) {
            assert!(Instant::now() < end, "it does not ask again");
            thread::yield_now();
        }
    }

    #[test]
    fn without_any_answer_there_is_none() {
        let last = LastAnswer::<u64>::default();
        let (_release, hangs) = mpsc::channel::<u64>();
        assert_eq!(last.ask(move || hangs.recv().unwrap_or(1)), None);
    }
}
