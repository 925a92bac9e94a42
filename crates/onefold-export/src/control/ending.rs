//! The end of a mount, as clients wait for it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How the mount ended: in good order, or what went wrong.
pub(crate) type Outcome = Result<(), String>;

/// Lets clients wait until the pool is closed, and lets the daemon wait until they have been told.
#[derive(Default)]
pub(crate) struct Ending {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    waiting: usize,
}

impl Ending {
    /// Says that the end is reached.
    pub(crate) fn reach(&self, outcome: Outcome) {
        self.state.lock().outcome = Some(outcome);
        self.changed.notify_all();
    }

    /// Tells whether the end is reached.
    pub(super) fn is_reached(&self) -> bool {
        self.state.lock().outcome.is_some()
    }

    /// Waits for the end and calls `tell` with what it was like. [`Ending::wait_until_told`] waits for that call.
    pub(super) fn tell_when_reached<R>(&self, tell: impl FnOnce(&Outcome) -> R) -> R {
        let mut state = self.state.lock();
        state.waiting += 1;
        let outcome = loop {
            match &state.outcome {
                Some(outcome) => break outcome.clone(),
                None => self.changed.wait(&mut state),
            }
        };
        drop(state);
        let told = tell(&outcome);
        self.state.lock().waiting -= 1;
        self.changed.notify_all();
        told
    }

    /// Waits until all who waited for the end have been told, or `patience` is over.
    pub(super) fn wait_until_told(&self, patience: Duration) {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| state.waiting > 0, patience);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn waiters_hear_the_outcome_and_the_daemon_waits_for_them() {
        let ending = Arc::new(Ending::default());
        let told = Arc::new(AtomicBool::new(false));
        let waiter = thread::spawn({
            let (ending, told) = (ending.clone(), told.clone());
            move || {
                ending.tell_when_reached(|outcome| {
                    thread::sleep(Duration::from_millis(50));
                    told.store(true, Ordering::SeqCst);
                    outcome.clone()
                })
            }
        });
        while ending.state.lock().waiting == 0 {
            thread::yield_now();
        }
        assert!(!ending.is_reached());
        ending.reach(Err("disk gone".into()));
        ending.wait_until_told(Duration::from_secs(60));
        assert!(told.load(Ordering::SeqCst));
        assert_eq!(waiter.join().unwrap(), Err("disk gone".into()));
    }

    #[test]
    fn nobody_waiting_is_nobody_to_wait_for() {
        let ending = Ending::default();
        ending.reach(Ok(()));
        ending.wait_until_told(Duration::from_secs(60));
        assert!(ending.is_reached());
    }
}
