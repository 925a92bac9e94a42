//! Decides which of the answering threads receives the next request: one leads, while the others sleep.
//!
//! If all threads waited in the kernel, it would wake them in turn, each on another core, for consecutive requests of
//! one client. So one thread leads: it receives requests, and answers those itself that need only memory. Before the
//! leader waits for anything but a request, it passes the lead on, and another thread wakes up.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::{self, Thread};

use parking_lot::{Mutex, MutexGuard};

/// The lead, which at most one thread has.
#[derive(Debug, Default)]
pub(super) struct Lead {
    state: Mutex<LeadState>,
}

#[derive(Debug, Default)]
struct LeadState {
    is_taken: bool,
    /// The threads that sleep until they get the lead. The last one to fall asleep wakes first, because its working
    /// memory is most likely still in a processor's cache.
    asleep: Vec<Thread>,
}

/// A thread's share in the lead. Dropping it passes the lead on.
#[derive(Debug)]
pub(super) struct Leader {
    lead: Arc<Lead>,
    has_lead: Cell<bool>,
}

impl Leader {
    /// Returns the `Leader` of a thread that does not have the lead.
    pub(super) fn new(lead: Arc<Lead>) -> Leader {
        Leader { lead, has_lead: Cell::new(false) }
    }

    /// Returns whether this thread has the lead.
    pub(super) fn has_lead(&self) -> bool {
        self.has_lead.get()
    }

    /// Waits for the lead, unless this thread has it.
    pub(super) fn take(&self) {
        if self.has_lead.get() {
            return;
        }
        let mut state = self.lead.state.lock();
        if state.is_taken {
            let this = thread::current();
            let is_asleep = |state: &LeadState| state.asleep.iter().any(|thread| thread.id() == this.id());
            state.asleep.push(this.clone());
            while is_asleep(&state) {
                MutexGuard::unlocked(&mut state, thread::park);
            }
        }
        // The thread that woke this one has left the lead taken.
        state.is_taken = true;
        self.has_lead.set(true);
    }

    /// Passes the lead on if this thread has it.
    pub(super) fn pass(&self) {
        if !self.has_lead.replace(false) {
            return;
        }
        let mut state = self.lead.state.lock();
        let next = state.asleep.pop();
        state.is_taken = next.is_some();
        drop(state);
        if let Some(next) = next {
            next.unpark();
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.pass();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_thread_leads_at_a_time_and_all_get_their_turn() {
        let (lead, leading, turns) = (Arc::<Lead>::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let leader = Leader::new(lead.clone());
                    for _ in 0..200 {
                        leader.take();
                        assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0);
                        turns.fetch_add(1, Ordering::SeqCst);
                        leading.fetch_sub(1, Ordering::SeqCst);
                        leader.pass();
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 800);
    }

    #[test]
    fn a_lead_is_kept_until_it_is_passed_on_once() {
        let lead = Arc::<Lead>::default();
        let (one, other) = (Leader::new(lead.clone()), Leader::new(lead.clone()));
        one.take();
        one.take();
        assert!(one.has_lead() && lead.state.lock().is_taken);
        one.pass();
        other.take();
        one.pass();
        drop(one);
        assert!(other.has_lead() && lead.state.lock().is_taken, "it was not the one's to pass on");
        drop(other);
        assert!(!lead.state.lock().is_taken);
    }

    #[test]
    fn the_thread_that_slept_least_is_woken_first() {
        let lead = Arc::<Lead>::default();
        let first = Leader::new(lead.clone());
        first.take();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 1..=3 {
                let (lead, order) = (&lead, &order);
                scope.spawn(move || {
                    let leader = Leader::new(lead.clone());
                    leader.take();
                    order.lock().push(number);
                });
                while lead.state.lock().asleep.len() < number {
                    thread::yield_now();
                }
            }
            first.pass();
        });
        assert_eq!(order.into_inner(), [3, 2, 1]);
    }
}
