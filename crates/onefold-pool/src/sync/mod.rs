//! The locks of the pool, from one place, so that another kind can be put under all of them at once.
//!
//! Normally they are those of `parking_lot`, which call for the notice of a thread before they make it wait
//! ([`crate::waits`]). With the feature `explore` they are those of `shuttle`, a schedule
//! explorer: it runs all threads of a test on one, switches between them at every lock, unlock and wait, and decides by
//! a seed who goes on. `tests/schedules` looks at thousands of orders that way, and can show each again.
//!
//! With the feature `lock-times` they add up how long the metadata lock is held.
//!
//! Not behind this module, because no decision hangs on them: the counters of [`crate::activity`], and the threads of
//! [`crate::engine::background`]. A pool that is explored is opened without them; the test's own threads do their work.

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

/// Gives a lock back to whoever has waited longest for it, if anybody has. Background work that takes a lock again and
/// again would otherwise get it back before those that it let in have woken up.
pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
    #[cfg(feature = "explore")]
    drop(guard);
    #[cfg(not(feature = "explore"))]
    MutexGuard::unlock_fair(guard);
}
