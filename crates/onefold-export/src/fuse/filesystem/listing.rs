//! Requests that list directories.

use std::ops::ControlFlow;

use onefold_pool::{Attr, DirEntry, Ino};
use rustix::io::Errno;

use super::names::NameInDirectory;
use super::{PoolFilesystem, Result};

/// Number of entries looked up at a time for a listing with attributes. A request of one page holds about this number.
const BATCH_ENTRIES: usize = 32;

impl PoolFilesystem {
    /// Calls `take` for each entry after `cookie` until `take` breaks (and so does not take that entry) or the
    /// directory ends.
    pub(in crate::fuse) fn list(
        &self,
        directory: Ino,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        self.pool.read_directory(directory, cookie, take).map_err(|error| self.failed("readdir", directory, &error))
    }

    /// Like [`PoolFilesystem::list`], with attributes. Takes a hold on each entry that `take` accepts, except on `.`
    /// and `..`, which the kernel does not count.
    pub(in crate::fuse) fn list_with_attributes(
        &self,
        directory: Ino,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry, &Attr) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut cookie = cookie;
        let mut any_taken = false;
        loop {
            // Collected first: the pool allows no look-up from within a listing.
            let mut batch = Vec::new();
            self.list(directory, cookie, &mut |entry| {
                if batch.len() == BATCH_ENTRIES {
                    return ControlFlow::Break(());
                }
                batch.push(entry.clone());
                ControlFlow::Continue(())
            })?;
            let is_last = batch.len() < BATCH_ENTRIES;
            for entry in &batch {
                match self.take_entry(directory, entry, take) {
                    Ok(ControlFlow::Continue(())) => any_taken = true,
                    Ok(ControlFlow::Break(())) => return Ok(()),
                    // Removed since the listing.
                    Err(Errno::NOENT) => {}
                    // The accepted entries carry holds, so they must reach the kernel. The next call returns the error
                    // again.
                    Err(_) if any_taken => return Ok(()),
                    Err(errno) => return Err(errno),
                }
                cookie = entry.cookie;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn take_entry(
        &self,
        directory: Ino,
        entry: &DirEntry,
        take: &mut dyn FnMut(&DirEntry, &Attr) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if entry.name == b"." || entry.name == b".." {
            return Ok(take(entry, &self.attr(entry.ino)?));
        }
        let attr = self.lookup(NameInDirectory { parent: directory, name: &entry.name })?;
        let taken = take(entry, &attr);
        if taken.is_break() {
            self.forget(attr.ino, 1);
        }
        Ok(taken)
    }
}
