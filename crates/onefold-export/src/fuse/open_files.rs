//! Registers the files that the kernel has open: the kernel holds back changes of no others.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use onefold_pool::Ino;
use parking_lot::Mutex;

use super::cached_pages::{CachedPages, RegionRoom, StaleScope};
use super::flags::OpenFlags;

/// Counts the openings of files, and tracks the cached pages of files that processes write to past the kernel's cache.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    table: Mutex<OpenFileTable>,
    /// Number of files with direct writers. If it is 0, no request needs the table.
    with_direct_writers: AtomicUsize,
}

#[derive(Debug)]
struct OpenFileTable {
    files: HashMap<Ino, FileOpenings>,
    room: RegionRoom,
}

#[derive(Debug, Default)]
struct FileOpenings {
    openings: usize,
    /// Whether a process may have a writable mapping of it. Stays set until no process has the file open.
    may_be_mapped: bool,
    /// Present from the first direct opening or write on, until no process has the file open.
    cached: Option<CachedPages>,
    /// Ranges whose pages the kernel is about to drop.
    dropping: Vec<Range<u64>>,
}

impl OpenFiles {
    /// Returns the register of a mount whose pool has this `memory` setting.
    pub(super) fn new(memory_bytes: u64) -> OpenFiles {
        let table = OpenFileTable { files: HashMap::new(), room: RegionRoom::new(memory_bytes) };
        OpenFiles { table: Mutex::new(table), with_direct_writers: AtomicUsize::new(0) }
    }

    /// Notes a new opening.
    pub(super) fn opened(&self, ino: Ino, flags: OpenFlags) {
        let mut table = self.table.lock();
        let file = table.files.entry(ino).or_default();
        file.openings += 1;
        file.may_be_mapped |= flags.allows_shared_mapping();
        if flags.is_direct() && file.cached.is_none() {
            file.cached = Some(CachedPages::default());
            self.with_direct_writers.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) fn released(&self, ino: Ino) {
        let OpenFileTable { files, room } = &mut *self.table.lock();
        if let Some(file) = files.get_mut(&ino) {
            file.openings -= 1;
            if file.openings == 0 {
                if let Some(cached) = &mut file.cached {
                    cached.forget(room);
                    self.with_direct_writers.fetch_sub(1, Ordering::SeqCst);
                }
                files.remove(&ino);
            }
        }
    }

    /// Returns whether a process may have written to a shared mapping of a file without the pool's knowledge.
    pub(super) fn may_be_mapped(&self, ino: Ino) -> bool {
        self.table.lock().files.get(&ino).is_some_and(|file| file.may_be_mapped)
    }

    /// Notes that a request will bring a range of a file into the kernel's page cache. Must be called before the
    /// request looks at the file: then either the request sees a direct write, or the direct write sees this note.
    pub(super) fn note_cached(&self, ino: Ino, bytes: Range<u64>) {
        if self.with_direct_writers.load(Ordering::SeqCst) == 0 {
            return;
        }
        let OpenFileTable { files, room } = &mut *self.table.lock();
        if let Some(cached) = files.get_mut(&ino).and_then(|file| file.cached.as_mut()) {
            cached.note(bytes, room);
        }
    }

    /// Returns the pages that the kernel has to drop after a direct write to a range, if any. The caller makes the
    /// kernel drop them and then calls [`OpenFiles::dropped`]. Must be called after the write has taken effect, so that
    /// every later request sees it.
    pub(super) fn take_stale(&self, ino: Ino, bytes: Range<u64>) -> Option<StaleScope> {
        let OpenFileTable { files, room } = &mut *self.table.lock();
        let file = files.get_mut(&ino)?;
        let stale = match &mut file.cached {
            Some(cached) => {
                // An earlier write has removed the marks of these pages, but the kernel has not dropped the pages yet.
                let is_still_there = file.dropping.iter().any(|other| overlap(other, &bytes));
                cached.take(bytes.clone(), room).or(is_still_there.then_some(StaleScope::Range))
            }
            // `fcntl` made this an opening for direct I/O after it was opened. Reads through the cache were not noted
            // until now.
            none => {
                *none = Some(CachedPages::default());
                self.with_direct_writers.fetch_add(1, Ordering::SeqCst);
                Some(StaleScope::Range)
            }
        }?;
        file.dropping.push(if stale == StaleScope::Everything { 0..u64::MAX } else { bytes });
        Some(stale)
    }

    /// Notes that the kernel has dropped the pages that [`OpenFiles::take_stale`] returned for a range.
    pub(super) fn dropped(&self, ino: Ino, bytes: &Range<u64>, stale: StaleScope) {
        let range = if stale == StaleScope::Everything { 0..u64::MAX } else { bytes.clone() };
        // The file may be closed by now.
        if let Some(file) = self.table.lock().files.get_mut(&ino)
            && let Some(at) = file.dropping.iter().position(|other| *other == range)
        {
            file.dropping.swap_remove(at);
        }
    }

    /// Returns whether no file is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().files.is_empty()
    }

    /// Returns the open files, in any order.
    pub(crate) fn list(&self) -> Vec<Ino> {
        self.table.lock().files.keys().copied().collect()
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHED: OpenFlags = OpenFlags(libc::O_RDONLY);
    const DIRECT: OpenFlags = OpenFlags(libc::O_WRONLY | libc::O_DIRECT);

    #[test]
    fn a_file_is_open_until_its_last_release() {
        let files = OpenFiles::new(64 << 20);
        files.opened(Ino(5), CACHED);
        files.opened(Ino(5), CACHED);
        files.released(Ino(5));
        assert_eq!(files.list(), [Ino(5)]);
        files.released(Ino(5));
        assert!(files.list().is_empty());
        files.released(Ino(6));
        assert!(files.list().is_empty());
    }

    #[test]
    fn a_file_may_be_mapped_from_an_opening_for_both_until_nobody_has_it_open() {
        let files = OpenFiles::new(64 << 20);
        files.opened(Ino(5), CACHED);
        files.opened(Ino(5), DIRECT);
        assert!(!files.may_be_mapped(Ino(5)));
        files.opened(Ino(5), OpenFlags(libc::O_RDWR));
        files.released(Ino(5));
        files.released(Ino(5));
        assert!(files.may_be_mapped(Ino(5)), "the mapping keeps an opening");
        files.released(Ino(5));
        assert!(!files.may_be_mapped(Ino(5)));
    }

    #[test]
    fn only_what_is_read_beside_direct_openings_is_stale_after_a_direct_write() {
        let files = OpenFiles::new(64 << 20);
        files.opened(Ino(5), CACHED);
        files.note_cached(Ino(5), 0..4096);
        // The kernel dropped these pages before it sent a write through this opening.
        files.opened(Ino(5), DIRECT);
        assert_eq!(files.take_stale(Ino(5), 0..4096), None);
        files.note_cached(Ino(5), 0..4096);
        assert_eq!(files.take_stale(Ino(5), 0..8192), Some(StaleScope::Range));
        // The pages stay until the kernel has dropped them, whichever process writes meanwhile.
        assert_eq!(files.take_stale(Ino(5), 4096..5000), Some(StaleScope::Range));
        assert_eq!(files.take_stale(Ino(5), 8192..9000), None);
        files.dropped(Ino(5), &(0..8192), StaleScope::Range);
        files.dropped(Ino(5), &(4096..5000), StaleScope::Range);
        assert_eq!(files.take_stale(Ino(5), 0..8192), None);
        files.released(Ino(5));
        files.released(Ino(5));
        assert_eq!(files.with_direct_writers.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_direct_write_through_an_opening_that_was_not_direct_drops_what_nobody_noted() {
        let files = OpenFiles::new(64 << 20);
        files.opened(Ino(5), CACHED);
        files.note_cached(Ino(5), 0..4096);
        assert_eq!(files.take_stale(Ino(5), 0..4096), Some(StaleScope::Range));
        files.dropped(Ino(5), &(0..4096), StaleScope::Range);
        assert_eq!(files.take_stale(Ino(5), 0..4096), None);
        files.note_cached(Ino(5), 0..4096);
        assert_eq!(files.take_stale(Ino(5), 0..4096), Some(StaleScope::Range));
        assert_eq!(files.take_stale(Ino(7), 0..4096), None, "it is not open");
    }
}
