//! Locks of whole files, as a cluster's lock manager keeps them: a lock of a silent host stays until the other hosts
//! consider that host dead.

use std::sync::atomic::Ordering;

use super::dice::nanoseconds;
use super::files::FileNo;
use super::host::{HostNo, OpenNo};
use super::world::World;

/// A held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) host: HostNo,
    pub(super) open: OpenNo,
    /// When others may take it; `None` while its host responds.
    expires: Option<u64>,
}

impl Lock {
    pub(super) fn has_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl World {
    /// Takes a file's lock, unless a host holds it that has responded lately.
    pub(super) fn try_lock(&mut self, host: HostNo, open: OpenNo, no: FileNo) -> bool {
        let now = self.time.load(Ordering::Relaxed);
        if self.is_owned_elsewhere(host, no) {
            return false;
        }
        match self.files.get(no).lock {
            Some(lock) if lock.host == host && lock.open == open => return true,
            Some(lock) if lock.expires.is_none_or(|expires| now < expires) => return false,
            Some(_) => {
                self.counters.locks_expired += 1;
                self.drop_lock(no);
            }
            None => {}
        }
        self.files.get_mut(no).lock = Some(Lock { host, open, expires: None });
        self.machine_mut(host).locks.push(no);
        self.counters.locks += 1;
        true
    }

    /// Returns whether any host holds the lock.
    pub(super) fn is_locked(&self, host: HostNo, no: FileNo) -> bool {
        let now = self.time.load(Ordering::Relaxed);
        let lock = self.files.get(no).lock;
        self.is_owned_elsewhere(host, no) || lock.is_some_and(|lock| lock.expires.is_none_or(|expires| now < expires))
    }

    /// Releases the lock that was taken through this opening, if any.
    pub(super) fn unlock(&mut self, host: HostNo, open: OpenNo, no: FileNo) {
        if self.files.get(no).lock.is_some_and(|lock| lock.host == host && lock.open == open) {
            self.drop_lock(no);
        }
    }

    /// Removes a file's lock from its holder.
    pub(super) fn drop_lock(&mut self, no: FileNo) {
        if let Some(lock) = self.files.get_mut(no).lock.take() {
            self.machine_mut(lock.host).locks.retain(|locked| *locked != no);
        }
    }

    /// Marks a host as silent from now on: its locks will expire.
    pub(super) fn fall_silent(&mut self, host: HostNo) {
        let expires = self.time.load(Ordering::Relaxed) + nanoseconds(self.options.lock_timeout);
        for no in self.machine(host).locks.clone() {
            let lock = self.files.get_mut(no).lock.as_mut().expect("what a host has locked is locked");
            lock.expires.get_or_insert(expires);
        }
    }

    /// Lets a suspended host respond again. It has lost its expired locks, without notice.
    pub(super) fn be_heard(&mut self, host: HostNo) {
        let now = self.time.load(Ordering::Relaxed);
        for no in self.machine(host).locks.clone() {
            let lock = self.files.get(no).lock.expect("what a host has locked is locked");
            if lock.expires.is_some_and(|expires| expires <= now) {
                self.counters.locks_expired += 1;
                self.drop_lock(no);
            } else if self.machine(host).opens.contains_key(&lock.open) {
                // A lock of an earlier incarnation has no opening any more, so nothing renews it.
                self.files.get_mut(no).lock = Some(Lock { expires: None, ..lock });
            }
        }
    }
}
