//! Locks on ranges of files: many readers or one writer per block, held across device I/O.
//!
//! They keep a block from being freed while it is read: as long as the range is locked, the file's map names the block.
//!
//! Each file has its own table and condition variable, so a release wakes no thread that waits for another file. Tables
//! are found through shards by inode number: threads that work on different files hardly ever contend for one lock.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::attr::Ino;
use crate::sync::{Condvar, Mutex};

/// Number of shards of the tables: many more than threads that work on files.
const SHARDS: usize = 64;

/// How a range is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// With others that read.
    Shared,
    /// Alone.
    Exclusive,
}

#[derive(Debug)]
struct RangeLock {
    range: Range<u64>,
    access: LockMode,
    /// Waiting locks have a ticket, too. Later locks wait for them, so that a stream of readers cannot starve a writer.
    ticket: u64,
}

/// The ranges of one file, in no order: tickets give the order of arrival.
#[derive(Debug, Default)]
struct FileRanges {
    held: Vec<RangeLock>,
    waiting: usize,
    /// Signalled when one of the ranges is released. Created at the first wait.
    released: Option<Arc<Condvar>>,
}

/// The files of one shard.
#[derive(Debug, Default)]
struct LockShard {
    files: Mutex<HashMap<Ino, FileRanges>>,
}

/// The locks of all files.
#[derive(Debug)]
pub(crate) struct RangeLocks {
    shards: Box<[LockShard]>,
    /// Drawn while the shard is locked: a thread that reads this number and then visits all shards sees all locks with
    /// lower tickets.
    next_ticket: AtomicU64,
}

impl Default for RangeLocks {
    fn default() -> RangeLocks {
        RangeLocks { shards: (0..SHARDS).map(|_| LockShard::default()).collect(), next_ticket: AtomicU64::new(0) }
    }
}

/// A lock, held until dropped.
#[derive(Debug)]
pub(crate) struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    ino: Ino,
    ticket: u64,
}

/// A lock that outlives the call that took it; its owner can turn it into a guard again.
#[derive(Debug)]
#[must_use = "the range stays locked until the ticket is resumed"]
pub(crate) struct RangeTicket {
    ino: Ino,
    ticket: u64,
}

impl RangeGuard<'_> {
    /// Keeps the range locked after the guard is gone.
    pub(crate) fn suspend(self) -> RangeTicket {
        let ticket = RangeTicket { ino: self.ino, ticket: self.ticket };
        std::mem::forget(self);
        ticket
    }
}

fn conflicts(one: &RangeLock, range: &Range<u64>, access: LockMode) -> bool {
    one.range.start < range.end
        && range.start < one.range.end
        && (one.access == LockMode::Exclusive || access == LockMode::Exclusive)
}

impl RangeLocks {
    fn shard(&self, ino: Ino) -> &LockShard {
        // Inodes are numbered consecutively.
        &self.shards[usize::try_from(ino.0 % SHARDS as u64).expect("below the number of shards")]
    }

    fn draw_ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::SeqCst)
    }

    /// Locks blocks `range` of a file if that needs no wait.
    pub(crate) fn try_lock(&self, ino: Ino, range: Range<u64>, access: LockMode) -> Option<RangeGuard<'_>> {
        let mut files = self.shard(ino).files.lock();
        let file = files.entry(ino).or_default();
        if file.held.iter().any(|other| conflicts(other, &range, access)) {
            return None;
        }
        let ticket = self.draw_ticket();
        file.held.push(RangeLock { range, access, ticket });
        Some(RangeGuard { locks: self, ino, ticket })
    }

    /// Locks blocks `range` of a file, and waits if necessary.
    pub(crate) fn lock(&self, ino: Ino, range: Range<u64>, access: LockMode) -> RangeGuard<'_> {
        let mut files = self.shard(ino).files.lock();
        let ticket = self.draw_ticket();
        let file = files.entry(ino).or_default();
        let granted = !file.held.iter().any(|other| conflicts(other, &range, access));
        file.held.push(RangeLock { range: range.clone(), access, ticket });
        if !granted {
            file.waiting += 1;
            let released = Arc::clone(file.released.get_or_insert_default());
            loop {
                released.wait(&mut files);
                let file = files.get_mut(&ino).expect("this waiter is in it");
                let is_free = |other: &RangeLock| other.ticket >= ticket || !conflicts(other, &range, access);
                if file.held.iter().all(is_free) {
                    file.waiting -= 1;
                    break;
                }
            }
        }
        RangeGuard { locks: self, ino, ticket }
    }

    /// Resumes a suspended lock.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one guard")]
    pub(crate) fn resume(&self, suspended: RangeTicket) -> RangeGuard<'_> {
        RangeGuard { locks: self, ino: suspended.ino, ticket: suspended.ticket }
    }

    /// Returns a number above the tickets of all locks that are now held or waited for.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.next_ticket.load(Ordering::SeqCst)
    }

    /// Returns the ticket of the oldest lock that is held or waited for, or of an older one that was released
    /// meanwhile. Never misses a lock whose ticket was drawn before the call and that is still held.
    pub(crate) fn oldest_ticket(&self) -> Option<u64> {
        let oldest_of = |shard: &LockShard| {
            let files = shard.files.lock();
            files.values().flat_map(|file| &file.held).map(|one| one.ticket).min()
        };
        self.shards.iter().filter_map(oldest_of).min()
    }

    /// Returns whether nothing is locked.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.shards.iter().all(|shard| shard.files.lock().is_empty())
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut files = self.locks.shard(self.ino).files.lock();
        let Some(file) = files.get_mut(&self.ino) else { return };
        if let Some(at) = file.held.iter().position(|one| one.ticket == self.ticket) {
            file.held.swap_remove(at);
        }
        let awaited = file.released.clone().filter(|_| file.waiting > 0);
        if file.held.is_empty() {
            files.remove(&self.ino);
        }
        drop(files);
        if let Some(released) = awaited {
            released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn readers_share_and_disjoint_writers_do_not_wait() {
        let locks = RangeLocks::default();
        let one = locks.lock(Ino(1), 0..10, LockMode::Shared);
        let two = locks.lock(Ino(1), 5..20, LockMode::Shared);
        let three = locks.lock(Ino(1), 20..30, LockMode::Exclusive);
        let four = locks.lock(Ino(2), 0..10, LockMode::Exclusive);
        drop((one, two, three, four));
        assert!(locks.is_idle());
    }

    #[test]
    fn the_oldest_lock_is_known_until_it_is_released() {
        let locks = RangeLocks::default();
        let one = locks.lock(Ino(1), 0..10, LockMode::Shared);
        let between = locks.next_ticket();
        let two = locks.try_lock(Ino(2), 0..10, LockMode::Exclusive);
        assert!(locks.oldest_ticket().is_some_and(|oldest| oldest < between));
        drop(one);
        assert!(locks.oldest_ticket().is_some_and(|oldest| oldest >= between));
        drop(two);
        assert_eq!(locks.oldest_ticket(), None);
    }

    /// Regression: one condition variable woke all threads that waited for a range of any file, whenever a range of a
    /// file with waiters was released.
    #[test]
    fn the_release_of_a_range_is_signalled_to_those_that_wait_for_its_file() {
        let locks = RangeLocks::default();
        // Both are in one shard.
        let (one, other) = (Ino(1), Ino(1 + SHARDS as u64));
        let signal = |ino| locks.shard(ino).files.lock().get(&ino).and_then(|file| file.released.clone());
        let is_awaited = |ino| locks.shard(ino).files.lock().get(&ino).is_some_and(|file| file.waiting > 0);
        std::thread::scope(|scope| {
            let held = [one, other].map(|ino| locks.lock(ino, 0..1, LockMode::Exclusive));
            let waiters = [one, other].map(|ino| {
                let locks = &locks;
                scope.spawn(move || drop(locks.lock(ino, 0..1, LockMode::Exclusive)))
            });
            while ![one, other].into_iter().all(is_awaited) {
                std::thread::yield_now();
            }
            let (first, second) = (signal(one).unwrap(), signal(other).unwrap());
            assert!(!Arc::ptr_eq(&first, &second));
            let [held_one, held_other] = held;
            drop(held_one);
            let [waiter_one, waiter_other] = waiters;
            waiter_one.join().unwrap();
            assert!(is_awaited(other));
            drop(held_other);
            waiter_other.join().unwrap();
        });
        assert!(locks.is_idle());
    }

    #[test]
    fn a_suspended_lock_holds_until_it_is_resumed_and_dropped() {
        let locks = RangeLocks::default();
        let suspended = locks.lock(Ino(1), 0..10, LockMode::Exclusive).suspend();
        assert!(!locks.is_idle());
        drop(locks.resume(suspended));
        assert!(locks.is_idle());
    }

    #[test]
    fn writers_of_one_block_exclude_each_other_and_readers() {
        let locks = RangeLocks::default();
        let value = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (locks, value) = (&locks, &value);
                scope.spawn(move || {
                    for round in 0..500 {
                        let first = (thread + round) % 3;
                        if round % 5 == 0 {
                            let _guard = locks.lock(Ino(1), first..4, LockMode::Shared);
                            let seen = value.load(Ordering::Relaxed);
                            std::thread::yield_now();
                            assert_eq!(value.load(Ordering::Relaxed), seen);
                        } else {
                            let _guard = locks.lock(Ino(1), first..4, LockMode::Exclusive);
                            let seen = value.load(Ordering::Relaxed);
                            std::thread::yield_now();
                            value.store(seen + 1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(value.load(Ordering::Relaxed), 4 * 400);
        assert!(locks.is_idle());
    }
}
