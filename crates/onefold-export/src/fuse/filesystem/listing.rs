//! Requests that list directories.

use std::ops::ControlFlow;

use onefold_pool::{Attr, DirEntry, Ino};
use rustix::io::Errno;

use super::names::Entry;
use super::{PoolFilesystem, Result};

/// Entries looked up at a time for a listing with attributes: about what fits a request of one page.
const BATCH_ENTRIES: usize = 32;

impl PoolFilesystem {
    /// Calls `take` for each entry after `cookie` until it breaks (that entry is not taken) or the directory ends.
    pub(in crate::fuse) fn list(
        &self,
        directory: Ino,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        self.pool.read_directory(directory, cookie, take).map_err(|error| self.failed("readdir", directory, &error))
    }

    /// As [`PoolFilesystem::list`], with attributes. Takes a hold on each entry that `take` accepts, except on `.` and
    /// `..`: the kernel does not count those.
    pub(in crate::fuse) fn list_with_attributes(
        &self,
        directory: Ino,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry, &Attr) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut cookie = cookie;
        let mut any_taken = false;
        loop {
            // Collected first: a look-up may not be made from within a listing of the pool.
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
                    // Removed since it was listed.
                    Err(Errno::NOENT) => {}
                    // What was taken carries holds and must reach the kernel; the error comes back with the next call.
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
        let attr = self.lookup(Entry { parent: directory, name: &entry.name })?;
        let taken = take(entry, &attr);
        if taken.is_break() {
            self.forget(attr.ino, 1);
        }
        Ok(taken)
    }
}
