//! Which of the threads that answer requests waits for the next one: one of them, while the others sleep.
//!
//! Were all of them to wait in the kernel, it would wake them in turn, each on a core of its own, for requests that one
//! client makes one after the other. So one leads: it answers what is brief itself, and is there when the next request
//! comes. Before it does what may take long it gives the lead away, and another thread wakes up.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long the leader looks for the next request before it sleeps. A client that makes one after the other has the next
/// one ready within this time, and sleep and wake on both sides would take longer.
const SPIN: Duration = Duration::from_micros(20);

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
    eager: Eagerness,
}

impl Lead {
    /// Waits for the lead.
    pub(super) fn take(&self) -> Leader<'_> {
        let mut is_taken = self.is_taken.lock();
        while *is_taken {
            self.given.wait(&mut is_taken);
        }
        *is_taken = true;
        Leader { lead: self, eager: Eagerness::default() }
    }
}

impl Leader<'_> {
    /// Asks `receive` for a request again and again, for as long as that is likely to be worth it.
    pub(super) fn spin<T>(&mut self, mut receive: impl FnMut() -> Option<T>) -> Option<T> {
        if !self.eager.is_worth_it() {
            return receive();
        }
        let begun = Instant::now();
        loop {
            if let Some(received) = receive() {
                return Some(received);
            }
            if begun.elapsed() >= SPIN {
                return None;
            }
            std::hint::spin_loop();
        }
    }

    /// Notes how long the last request was waited for.
    pub(super) fn waited(&mut self, time: Duration) {
        self.eager.waited(time);
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        *self.lead.is_taken.lock() = false;
        self.lead.given.notify_one();
    }
}

/// Whether requests come so fast that looking for them beats sleeping.
#[derive(Debug, Default)]
struct Eagerness {
    short_waits: u8,
}

impl Eagerness {
    /// Waits in a row that make it worth it.
    const ENOUGH: u8 = 4;

    fn is_worth_it(&self) -> bool {
        self.short_waits >= Self::ENOUGH
    }

    fn waited(&mut self, time: Duration) {
        // What was slept through is longer than the request's own way; a few times the spin is still a busy client.
        self.short_waits = if time < 3 * SPIN { self.short_waits.saturating_add(1).min(2 * Self::ENOUGH) } else { 0 };
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

    #[test]
    fn only_a_busy_client_is_looked_out_for() {
        let lead = Lead::default();
        let mut leader = lead.take();
        let mut calls = 0;
        assert_eq!(
            leader.spin(|| {
                calls += 1;
                None::<()>
            }),
            None
        );
        assert_eq!(calls, 1, "once, to see what is there");
        for _ in 0..4 {
            leader.waited(Duration::from_micros(5));
        }
        assert_eq!(
            leader.spin(|| {
                calls += 1;
                (calls == 10).then_some(7)
            }),
            Some(7)
        );
        leader.waited(Duration::from_millis(1));
        calls = 0;
        assert_eq!(
            leader.spin(|| {
                calls += 1;
                None::<()>
            }),
            None
        );
        assert_eq!(calls, 1);
    }
}
