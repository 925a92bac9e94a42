//! Locks on ranges of files: many readers or one writer of a block, held across device I/O.
//!
//! They keep a block from being freed while it is read: as long as the range is locked, the file's map names it.

use std::collections::HashMap;
use std::ops::Range;

use crate::attr::Ino;
use crate::sync::{Condvar, Mutex};

/// How a range is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// With others that read.
    Shared,
    /// Alone.
    Exclusive,
}

#[derive(Debug)]
struct Held {
    range: Range<u64>,
    access: Access,
    /// Those that wait have one too: who comes later waits for them, so that a stream of readers can't starve a writer.
    ticket: u64,
}

/// The ranges of one file, in no order: tickets tell who came first.
#[derive(Debug, Default)]
struct FileRanges {
    held: Vec<Held>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<Ino, FileRanges>,
    next_ticket: u64,
}

/// The locks of all files.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    table: Mutex<Table>,
    released: Condvar,
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    ino: Ino,
    ticket: u64,
}

/// A lock that outlives the call that took it; whoever has it makes a guard of it again.
#[derive(Debug)]
#[must_use = "the range stays locked until the ticket is resumed"]
pub(crate) struct RangeTicket {
    ino: Ino,
    ticket: u64,
}

impl RangeGuard<'_> {
    /// Keeps the range locked beyond the guard's life.
    pub(crate) fn suspend(self) -> RangeTicket {
        let ticket = RangeTicket { ino: self.ino, ticket: self.ticket };
        std::mem::forget(self);
        ticket
    }
}

fn conflicts(one: &Held, range: &Range<u64>, access: Access) -> bool {
    one.range.start < range.end
        && range.start < one.range.end
        && (one.access == Access::Exclusive || access == Access::Exclusive)
}

impl RangeLocks {
    /// Locks blocks `range` of a file if nobody has to be waited for.
    pub(crate) fn try_lock(&self, ino: Ino, range: Range<u64>, access: Access) -> Option<RangeGuard<'_>> {
        let mut table = self.table.lock();
        let ticket = table.next_ticket;
        let file = table.files.entry(ino).or_default();
        if file.held.iter().any(|other| conflicts(other, &range, access)) {
            return None;
        }
        file.held.push(Held { range, access, ticket });
        table.next_ticket += 1;
        Some(RangeGuard { locks: self, ino, ticket })
    }

    /// Waits until blocks `range` of a file can be used so.
    pub(crate) fn lock(&self, ino: Ino, range: Range<u64>, access: Access) -> RangeGuard<'_> {
        let mut table = self.table.lock();
        let ticket = table.next_ticket;
        table.next_ticket += 1;
        let file = table.files.entry(ino).or_default();
        let granted = !file.held.iter().any(|other| conflicts(other, &range, access));
        file.held.push(Held { range: range.clone(), access, ticket });
        if !granted {
            file.waiting += 1;
            loop {
                self.released.wait(&mut table);
                let file = table.files.get_mut(&ino).expect("this waiter is in it");
                let is_free = |other: &Held| other.ticket >= ticket || !conflicts(other, &range, access);
                if file.held.iter().all(is_free) {
                    file.waiting -= 1;
                    break;
                }
            }
        }
        RangeGuard { locks: self, ino, ticket }
    }

    /// Takes a suspended lock up again.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one guard")]
    pub(crate) fn resume(&self, suspended: RangeTicket) -> RangeGuard<'_> {
        RangeGuard { locks: self, ino: suspended.ino, ticket: suspended.ticket }
    }

    /// Returns a number above those of all locks that are held or waited for now.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.table.lock().next_ticket
    }

    /// Returns the number of the oldest lock that is held or waited for.
    pub(crate) fn oldest_ticket(&self) -> Option<u64> {
        let table = self.table.lock();
        table.files.values().flat_map(|file| &file.held).map(|one| one.ticket).min()
    }

    /// Tells whether nothing is locked.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.table.lock().files.is_empty()
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.locks.table.lock();
        let Some(file) = table.files.get_mut(&self.ino) else { return };
        if let Some(at) = file.held.iter().position(|one| one.ticket == self.ticket) {
            file.held.swap_remove(at);
        }
        let is_awaited = file.waiting > 0;
        if file.held.is_empty() {
            table.files.remove(&self.ino);
        }
        drop(table);
        if is_awaited {
            self.locks.released.notify_all();
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
        let one = locks.lock(Ino(1), 0..10, Access::Shared);
        let two = locks.lock(Ino(1), 5..20, Access::Shared);
        let three = locks.lock(Ino(1), 20..30, Access::Exclusive);
        let four = locks.lock(Ino(2), 0..10, Access::Exclusive);
        drop((one, two, three, four));
        assert!(locks.is_idle());
    }

    #[test]
    fn the_oldest_lock_is_known_until_it_is_released() {
        let locks = RangeLocks::default();
        let one = locks.lock(Ino(1), 0..10, Access::Shared);
        let between = locks.next_ticket();
        let two = locks.try_lock(Ino(2), 0..10, Access::Exclusive);
        assert!(locks.oldest_ticket().is_some_and(|oldest| oldest < between));
        drop(one);
        assert!(locks.oldest_ticket().is_some_and(|oldest| oldest >= between));
        drop(two);
        assert_eq!(locks.oldest_ticket(), None);
    }

    #[test]
    fn a_suspended_lock_holds_until_it_is_resumed_and_dropped() {
        let locks = RangeLocks::default();
        let suspended = locks.lock(Ino(1), 0..10, Access::Exclusive).suspend();
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
                            let _guard = locks.lock(Ino(1), first..4, Access::Shared);
                            let seen = value.load(Ordering::Relaxed);
                            std::thread::yield_now();
                            assert_eq!(value.load(Ordering::Relaxed), seen);
                        } else {
                            let _guard = locks.lock(Ino(1), first..4, Access::Exclusive);
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
