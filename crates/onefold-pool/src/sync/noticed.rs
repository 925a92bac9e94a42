//! The locks of `parking_lot`, which call a thread's notice before they make it wait ([`crate::waits`]).

use std::time::Duration;

use parking_lot::MutexGuard;

use crate::waits;

/// Number of attempts before the thread counts as waiting, about two microseconds in all: most locks are held for less
/// time than waking another thread takes.
const TRIES: u32 = 100;

/// A lock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

/// A condition on which lock holders wait.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.lock_taken(),
        }
    }

    /// Returns the guard if no thread holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Waits for a lock that another thread holds.
    #[cold]
    fn lock_taken(&self) -> MutexGuard<'_, T> {
        if waits::is_noticed() {
            for _ in 0..TRIES {
                std::hint::spin_loop();
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
            }
            waits::about_to_wait();
        }
        self.0.lock()
    }
}

impl Condvar {
    pub(crate) const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        waits::about_to_wait();
        self.0.wait(guard);
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        waits::about_to_wait();
        self.0.wait_for(guard, time);
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::thread;

    use super::*;
    use crate::waits::notice_waits;

    /// Returns how often a thread that runs `work` was notified of a wait.
    fn waits_of(work: impl FnOnce()) -> usize {
        let count = Rc::new(Cell::new(0));
        let notice = notice_waits({
            let count = count.clone();
            move || count.set(count.get() + 1)
        });
        work();
        drop(notice);
        let before = count.get();
        waits::about_to_wait();
        assert_eq!(count.get(), before, "the notice has ended");
        before
    }

    #[test]
    fn a_thread_is_told_before_it_waits_for_a_lock_and_not_of_free_ones() {
        let lock = Mutex::new(0);
        assert_eq!(waits_of(|| drop(lock.lock())), 0);
        let guard = lock.lock();
        thread::scope(|scope| {
            let (told, was_told) = std::sync::mpsc::channel();
            let lock = &lock;
            scope.spawn(move || {
                let _notice = notice_waits(move || told.send(()).expect("the test listens"));
                *lock.lock() = 1;
            });
            was_told.recv().expect("it is told while the lock is held");
            drop(guard);
        });
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn a_thread_is_told_before_it_waits_for_a_condition() {
        let (state, changed) = (Mutex::new(()), Condvar::new());
        assert_eq!(waits_of(|| changed.wait_for(&mut state.lock(), Duration::from_millis(1))), 1);
    }
}
