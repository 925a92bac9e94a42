//! Locks of whole files, as a cluster's lock manager keeps them: they outlive their host until it was silent for so
//! long that the others think it dead.

use std::sync::atomic::Ordering;

use super::dice::nanoseconds;
use super::files::FileNo;
use super::host::{HostNo, OpenNo};
use super::world::World;

/// A lock that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) host: HostNo,
    pub(super) open: OpenNo,
    /// When others may take it; never while its host is heard of.
    expires: Option<u64>,
}

impl Lock {
    pub(super) fn has_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl World {
    /// Takes a file's lock, unless somebody has it who was heard of lately.
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

    /// Tells whether anybody has the lock.
    pub(super) fn is_locked(&self, host: HostNo, no: FileNo) -> bool {
        let now = self.time.load(Ordering::Relaxed);
        let lock = self.files.get(no).lock;
        self.is_owned_elsewhere(host, no) || lock.is_some_and(|lock| lock.expires.is_none_or(|expires| now < expires))
    }

    /// Lets go of the lock that was taken through this opening, if there is one.
    pub(super) fn unlock(&mut self, host: HostNo, open: OpenNo, no: FileNo) {
        if self.files.get(no).lock.is_some_and(|lock| lock.host == host && lock.open == open) {
            self.drop_lock(no);
        }
    }

    /// Takes a file's lock away from whoever has it.
    pub(super) fn drop_lock(&mut self, no: FileNo) {
        if let Some(lock) = self.files.get_mut(no).lock.take() {
            self.machine_mut(lock.host).locks.retain(|locked| *locked != no);
        }
    }

    /// Nothing is heard of a host from now on: its locks will expire.
    pub(super) fn fall_silent(&mut self, host: HostNo) {
        let expires = self.time.load(Ordering::Relaxed) + nanoseconds(self.options.lock_timeout);
        for no in self.machine(host).locks.clone() {
            let lock = self.files.get_mut(no).lock.as_mut().expect("what a host has locked is locked");
            lock.expires.get_or_insert(expires);
        }
    }

    /// A host that was suspended is heard of again. What has expired meanwhile is not its any more, and it is not told.
    pub(super) fn be_heard(&mut self, host: HostNo) {
        let now = self.time.load(Ordering::Relaxed);
        for no in self.machine(host).locks.clone() {
            let lock = self.files.get(no).lock.expect("what a host has locked is locked");
            if lock.expires.is_some_and(|expires| expires <= now) {
                self.counters.locks_expired += 1;
                self.drop_lock(no);
            } else if self.machine(host).opens.contains_key(&lock.open) {
                // A lock of an earlier incarnation has no opening any more: nobody renews it.
                self.files.get_mut(no).lock = Some(Lock { expires: None, ..lock });
            }
        }
    }
}
