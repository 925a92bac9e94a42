//! `parking_lot`'s locks, which add up how long the metadata lock is held and waited for. For measurements only: each
//! lock reads the clock twice, about 50 ns together.

use std::any::type_name;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::waits;

static HOLDS: AtomicU64 = AtomicU64::new(0);
static HELD_NS: AtomicU64 = AtomicU64::new(0);
static WAITED_NS: AtomicU64 = AtomicU64::new(0);
static LONGEST_NS: AtomicU64 = AtomicU64::new(0);

/// Use of the metadata lock since the last call of [`take_lock_times`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LockTimes {
    /// Number of holds.
    pub holds: u64,
    /// Total time of holds.
    pub held: Duration,
    /// Total time that threads waited for it.
    pub waited: Duration,
    /// The longest hold.
    pub longest: Duration,
}

/// Returns the times of the metadata locks of all pools of this process, and resets them.
pub fn take_lock_times() -> LockTimes {
    let time = |counter: &AtomicU64| Duration::from_nanos(counter.swap(0, Ordering::Relaxed));
    let holds = HOLDS.swap(0, Ordering::Relaxed);
    LockTimes { holds, held: time(&HELD_NS), waited: time(&WAITED_NS), longest: time(&LONGEST_NS) }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A lock.
#[derive(Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

/// A held lock.
pub(crate) struct MutexGuard<'a, T> {
    /// `None` once it is released in another way.
    held: Option<parking_lot::MutexGuard<'a, T>>,
    since: Instant,
}

/// A condition on which lock holders wait.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

const HELD: &str = "only the end takes the guard out";

fn is_measured<T>() -> bool {
    type_name::<T>().ends_with("::meta::Meta")
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Returns the guard if no thread holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().map(|held| MutexGuard { held: Some(held), since: Instant::now() })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let asked = Instant::now();
        let held = self.0.try_lock().unwrap_or_else(|| {
            waits::about_to_wait();
            self.0.lock()
        });
        let since = Instant::now();
        if is_measured::<T>() {
            WAITED_NS.fetch_add(nanoseconds(since - asked), Ordering::Relaxed);
        }
        MutexGuard { held: Some(held), since }
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    fn end(&mut self) -> Option<parking_lot::MutexGuard<'a, T>> {
        let held = self.held.take()?;
        if is_measured::<T>() {
            let time = nanoseconds(self.since.elapsed());
            HOLDS.fetch_add(1, Ordering::Relaxed);
            HELD_NS.fetch_add(time, Ordering::Relaxed);
            LONGEST_NS.fetch_max(time, Ordering::Relaxed);
        }
        Some(held)
    }

    /// Hands the lock to the thread that has waited longest.
    pub(super) fn unlock_fair(mut guard: MutexGuard<'a, T>) {
        if let Some(held) = guard.end() {
            parking_lot::MutexGuard::unlock_fair(held);
        }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(HELD)
    }
}

impl Condvar {
    pub(crate) const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        waits::about_to_wait();
        self.0.wait(guard.held.as_mut().expect(HELD));
        // The lock was not held during the wait.
        guard.since = Instant::now();
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        waits::about_to_wait();
        self.0.wait_for(guard.held.as_mut().expect(HELD), time);
        guard.since = Instant::now();
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
