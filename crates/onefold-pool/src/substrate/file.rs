//! An open file of a pool.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use onefold_substrate::{Access, Reader};

use super::errors::io_error;
use super::names::HeldInode;
use crate::attr::Ino;
use crate::pool::Pool;

/// An open regular file. Dropping it closes the file and releases its lock.
pub struct PoolFile<'a> {
    file: HeldInode<'a>,
    access: Access,
    has_lock: AtomicBool,
}

impl<'a> PoolFile<'a> {
    pub(super) fn new(file: HeldInode<'a>, access: Access) -> PoolFile<'a> {
        PoolFile { file, access, has_lock: AtomicBool::new(false) }
    }

    pub(super) fn ino(&self) -> Ino {
        self.file.ino()
    }

    /// Returns a reader for any thread.
    pub(super) fn reader(&self) -> PoolReader<'_> {
        PoolReader { pool: self.file.pool(), ino: self.ino() }
    }

    /// Fails for a file that was opened for reading only.
    pub(super) fn ensure_writable(&self) -> io::Result<()> {
        if self.access == Access::Write { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// Takes the file's lock; its holder may take it again.
    pub(super) fn try_lock(&self) -> bool {
        let mut locked = self.file.pool().file_locks.locked.lock();
        if self.has_lock.load(Ordering::Relaxed) {
            return true;
        }
        let is_taken = locked.insert(self.ino());
        self.has_lock.store(is_taken, Ordering::Relaxed);
        is_taken
    }
}

impl Drop for PoolFile<'_> {
    fn drop(&mut self) {
        if *self.has_lock.get_mut() {
            self.file.pool().file_locks.locked.lock().remove(&self.ino());
        }
    }
}

impl std::fmt::Debug for PoolFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolFile").field("ino", &self.ino()).field("access", &self.access).finish_non_exhaustive()
    }
}

/// Reads an open file from any thread.
pub(super) struct PoolReader<'f> {
    pool: &'f Pool,
    ino: Ino,
}

impl Reader for PoolReader<'_> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.pool.read(self.ino, offset, into).map_err(io_error)
    }
}
