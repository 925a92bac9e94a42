//! Decides which of the answering threads receive the next requests: one leads, while the others sleep.
//!
//! If all threads waited in the kernel, it would wake them in turn, each on another core, for consecutive requests of
//! one client. So one thread leads: it receives requests, and answers those itself that need only memory. Before the
//! leader waits for anything but a request, it passes the lead on, and another thread wakes up.
//!
//! While clients make single reads that wait for the device, several threads lead. A thread that has waited for the
//! device joins the leaders and waits in the kernel too. So the next leader that has to wait finds another one there
//! and wakes no thread. A leader that has answered anything else while others lead steps back and sleeps: names and
//! cached reads stay with one thread.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::{self, Thread};

use parking_lot::{Mutex, MutexGuard};

/// Maximum number of threads that lead at a time: two clients' reads wait for the device, and a third thread receives.
const LEADERS_MAX: usize = 3;

/// The lead, which several threads may share.
#[derive(Debug, Default)]
pub(super) struct Lead {
    state: Mutex<LeadState>,
}

#[derive(Debug, Default)]
struct LeadState {
    /// Number of threads that lead.
    leaders: usize,
    /// The threads that sleep until they get the lead. The last one to fall asleep wakes first, because its working
    /// memory is most likely still in a processor's cache.
    asleep: Vec<Thread>,
}

/// A thread's share in the lead. Dropping it passes the share on.
#[derive(Debug)]
pub(super) struct Leader {
    lead: Arc<Lead>,
    has_lead: Cell<bool>,
    /// Whether this thread may join other leaders, because it comes from a read that waited for the device.
    may_join: Cell<bool>,
}

impl Leader {
    /// Returns the `Leader` of a thread that does not have the lead.
    pub(super) fn new(lead: Arc<Lead>) -> Leader {
        Leader { lead, has_lead: Cell::new(false), may_join: Cell::new(false) }
    }

    /// Returns whether this thread leads.
    pub(super) fn has_lead(&self) -> bool {
        self.has_lead.get()
    }

    /// Waits for the lead, unless this thread has it.
    pub(super) fn take(&self) {
        let leaders_max = if self.may_join.replace(false) { LEADERS_MAX } else { 1 };
        if self.has_lead.replace(true) {
            return;
        }
        let mut state = self.lead.state.lock();
        if state.leaders < leaders_max {
            state.leaders += 1;
            return;
        }
        let this = thread::current();
        let is_asleep = |state: &LeadState| state.asleep.iter().any(|thread| thread.id() == this.id());
        state.asleep.push(this.clone());
        // The thread that wakes this one leaves its share in the lead to it.
        while is_asleep(&state) {
            MutexGuard::unlocked(&mut state, thread::park);
        }
    }

    /// Gives this thread's share in the lead away, if it has one. If no other thread leads, one that sleeps gets it.
    pub(super) fn pass(&self) {
        if !self.has_lead.replace(false) {
            return;
        }
        let mut state = self.lead.state.lock();
        let next = if state.leaders == 1 { state.asleep.pop() } else { None };
        if next.is_none() {
            state.leaders -= 1;
        }
        drop(state);
        if let Some(next) = next {
            next.unpark();
        }
    }

    /// Records that this thread has answered one read by itself. If it gave the lead away meanwhile, it may join other
    /// leaders with its next [`Leader::take`]. Otherwise no wait was necessary: see [`Leader::step_back`].
    pub(super) fn has_read(&self) {
        self.may_join.set(!self.has_lead());
        self.step_back();
    }

    /// Leaves the lead to the other threads that have it, if there are any.
    pub(super) fn step_back(&self) {
        if !self.has_lead() {
            return;
        }
        let mut state = self.lead.state.lock();
        if state.leaders > 1 {
            state.leaders -= 1;
            self.has_lead.set(false);
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
        assert!(one.has_lead() && lead.state.lock().leaders == 1);
        one.pass();
        other.take();
        one.pass();
        drop(one);
        assert!(other.has_lead() && lead.state.lock().leaders == 1, "it was not the one's to pass on");
        drop(other);
        assert!(lead.state.lock().leaders == 0);
    }

    /// Returns the `Leader` of a thread that has passed the lead on during a read.
    fn reader(lead: &Arc<Lead>) -> Leader {
        let leader = Leader::new(lead.clone());
        leader.take();
        leader.pass();
        leader.has_read();
        leader
    }

    #[test]
    fn readers_lead_beside_others_and_no_thread_wakes_before_the_last_of_them_waits() {
        let lead = Arc::<Lead>::default();
        let readers: Vec<Leader> = (0..LEADERS_MAX).map(|_| reader(&lead)).collect();
        readers.iter().for_each(Leader::take);
        assert_eq!(lead.state.lock().leaders, LEADERS_MAX);
        let is_awake = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                Leader::new(lead.clone()).take();
                is_awake.fetch_add(1, Ordering::SeqCst);
            });
            while lead.state.lock().asleep.is_empty() {
                thread::yield_now();
            }
            let (last, others) = readers.split_last().unwrap();
            others.iter().for_each(Leader::pass);
            assert_eq!((lead.state.lock().asleep.len(), is_awake.load(Ordering::SeqCst)), (1, 0));
            last.pass();
        });
        assert_eq!(is_awake.into_inner(), 1);
        assert_eq!(lead.state.lock().leaders, 0);
    }

    #[test]
    fn one_reader_too_many_sleeps() {
        let lead = Arc::<Lead>::default();
        let readers: Vec<Leader> = (0..LEADERS_MAX).map(|_| reader(&lead)).collect();
        readers.iter().for_each(Leader::take);
        thread::scope(|scope| {
            scope.spawn(|| {
                let one_more = Leader::new(lead.clone());
                one_more.may_join.set(true);
                one_more.take();
            });
            while lead.state.lock().asleep.is_empty() {
                thread::yield_now();
            }
            assert_eq!(lead.state.lock().leaders, LEADERS_MAX);
            readers.iter().for_each(Leader::pass);
        });
    }

    #[test]
    fn only_the_last_leader_leads_on_after_an_answer_from_memory() {
        let lead = Arc::<Lead>::default();
        let (first, second) = (reader(&lead), reader(&lead));
        first.take();
        second.take();
        first.step_back();
        assert!(!first.has_lead() && second.has_lead());
        second.step_back();
        second.has_read();
        assert!(second.has_lead() && !second.may_join.get(), "it has not waited");
        assert_eq!(lead.state.lock().leaders, 1);
        second.pass();
        first.take();
        assert_eq!(lead.state.lock().leaders, 1);
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
