//! Which of the threads that answer requests waits for the next one: one of them, while the others sleep.
//!
//! Were all of them to wait in the kernel, it would wake them in turn, each on a core of its own, for requests that one
//! client makes one after the other. So one leads: it answers what is brief itself, on the core where the client is, too.
//! Before it does what may take long it gives the lead away, and another thread wakes up.
//!
//! Tried and left out: to look for the next request for some microseconds before sleeping. The scheduler wakes the client
//! on the core of the thread that answers it, where it then waits for the end of that looking.

use parking_lot::{Condvar, Mutex};

/// The lead, which one thread has at most.
#[derive(Debug, Default)]
pub(super) struct Lead {
    is_taken: Mutex<bool>,
    given: Condvar,
}

/// Given away when it is dropped.
#[derive(Debug)]
pub(super) struct Leader<'l> {
    lead: &'l Lead,
}

impl Lead {
    /// Waits for the lead.
    pub(super) fn take(&self) -> Leader<'_> {
        let mut is_taken = self.is_taken.lock();
        while *is_taken {
            self.given.wait(&mut is_taken);
        }
        *is_taken = true;
        Leader { lead: self }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        *self.lead.is_taken.lock() = false;
        self.lead.given.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_thread_leads_at_a_time_and_all_get_their_turn() {
        let (lead, leading, turns) = (Lead::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let leader = lead.take();
                        assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0);
                        turns.fetch_add(1, Ordering::SeqCst);
                        leading.fetch_sub(1, Ordering::SeqCst);
                        drop(leader);
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 800);
    }
}
