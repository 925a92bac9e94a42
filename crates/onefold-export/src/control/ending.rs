//! The end of a daemon, for clients that wait for it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How the daemon ended: cleanly, or with an error message.
pub(crate) type EndOutcome = Result<(), String>;

/// Lets clients wait until the pool is closed, and the daemon until they have their answers.
#[derive(Default)]
pub(crate) struct ServiceEnd {
    state: Mutex<ServiceEndState>,
    changed: Condvar,
}

#[derive(Default)]
struct ServiceEndState {
    outcome: Option<EndOutcome>,
    answering: usize,
}

/// A request in progress: the daemon waits with its end until this is dropped, when the answer is sent.
pub(super) struct ActiveRequest<'a> {
    ending: &'a ServiceEnd,
}

impl ServiceEnd {
    /// Announces the end.
    pub(crate) fn reach(&self, outcome: EndOutcome) {
        self.state.lock().outcome = Some(outcome);
        self.changed.notify_all();
    }

    /// Returns whether the end is reached.
    pub(super) fn is_reached(&self) -> bool {
        self.state.lock().outcome.is_some()
    }

    /// Counts a request. Must be called before the request is carried out: an unmount may bring the end at once.
    pub(super) fn answer(&self) -> ActiveRequest<'_> {
        self.state.lock().answering += 1;
        ActiveRequest { ending: self }
    }

    /// Waits for the end and returns its outcome.
    pub(super) fn wait(&self) -> EndOutcome {
        let mut state = self.state.lock();
        loop {
            match &state.outcome {
                Some(outcome) => return outcome.clone(),
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Waits until all requests are answered, at most for `patience`.
    pub(super) fn wait_until_answered(&self, patience: Duration) {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| state.answering > 0, patience);
    }
}

impl Drop for ActiveRequest<'_> {
    fn drop(&mut self) {
        self.ending.state.lock().answering -= 1;
        self.ending.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn clients_hear_the_outcome_and_the_daemon_waits_until_their_answer_is_out() {
        let ending = Arc::new(ServiceEnd::default());
        let answered = Arc::new(AtomicBool::new(false));
        let client = thread::spawn({
            let (ending, answered) = (ending.clone(), answered.clone());
            move || {
                let _answering = ending.answer();
                let outcome = ending.wait();
                thread::sleep(Duration::from_millis(50));
                answered.store(true, Ordering::SeqCst);
                outcome
            }
        });
        while ending.state.lock().answering == 0 {
            thread::yield_now();
        }
        assert!(!ending.is_reached());
        ending.reach(Err("disk gone".into()));
        ending.wait_until_answered(Duration::from_secs(60));
        assert!(answered.load(Ordering::SeqCst));
        assert_eq!(client.join().unwrap(), Err("disk gone".into()));
    }

    /// Regression: `umount` sometimes reported that the daemon did not answer. The unmount itself had ended the daemon
    /// before the request was counted among those in progress.
    #[test]
    fn a_request_that_brings_the_end_is_answered_even_if_the_end_comes_first() {
        let ending = ServiceEnd::default();
        let answering = ending.answer();
        ending.reach(Ok(()));
        ending.wait_until_answered(Duration::from_millis(1));
        assert_eq!(ending.state.lock().answering, 1, "the patience ended, not the request");
        assert_eq!(ending.wait(), Ok(()));
        drop(answering);
        ending.wait_until_answered(Duration::from_secs(60));
    }

    #[test]
    fn nobody_asking_is_nobody_to_wait_for() {
        let ending = ServiceEnd::default();
        ending.reach(Ok(()));
        ending.wait_until_answered(Duration::from_secs(60));
        assert!(ending.is_reached());
    }
}
