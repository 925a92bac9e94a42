//! The locks of the pool, defined in one place, so that all of them can be replaced at once.
//!
//! By default they are those of `parking_lot`, and they call a thread's notice before they make it wait
//! ([`crate::waits`]). With the feature `explore` they are those of `shuttle`, a schedule explorer. It runs all threads
//! of a test on one, switches between them at every lock, unlock and wait, and decides by a seed which one continues.
//! `tests/schedules` thus tries thousands of orders, and can repeat each of them.
//!
//! With the feature `lock-times` they add up how long the metadata lock is held.
//!
//! Two things are not behind this module, because no decision depends on them: the counters of [`crate::activity`], and
//! the threads of [`crate::engine::background`]. An explored pool is opened without these threads; the test's own
//! threads do their work.

#[cfg(feature = "explore")]
mod explored;
#[cfg(not(any(feature = "explore", feature = "lock-times")))]
mod noticed;

#[cfg(all(feature = "lock-times", not(feature = "explore")))]
mod timed;

#[cfg(feature = "explore")]
pub(crate) use explored::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(feature = "explore", feature = "lock-times")))]
pub(crate) use noticed::{Condvar, Mutex};
#[cfg(not(any(feature = "explore", feature = "lock-times")))]
pub(crate) use parking_lot::MutexGuard;
#[cfg(not(feature = "explore"))]
pub(crate) use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(all(feature = "lock-times", not(feature = "explore")))]
pub(crate) use timed::{Condvar, Mutex, MutexGuard};
#[cfg(all(feature = "lock-times", not(feature = "explore")))]
pub use timed::{LockTimes, take_lock_times};

/// Hands a lock to the thread that has waited longest for it, if there is one. Background work that takes a lock
/// repeatedly would otherwise get it back before the waiting threads have woken up.
pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
    #[cfg(feature = "explore")]
    drop(guard);
    #[cfg(not(feature = "explore"))]
    MutexGuard::unlock_fair(guard);
}
