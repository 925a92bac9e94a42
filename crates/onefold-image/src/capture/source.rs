//! The source of a capture, and the check whether it changes meanwhile.

use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use onefold_disk::{Disk, DiskError, LongWork, OnProgress, Progress};

/// The disk that is captured.
#[derive(Clone, Copy)]
pub struct Source<'s> {
    /// Its bytes.
    pub disk: &'s dyn Disk,
    /// Returns whether the disk has changed since it was opened. Called after all data is read.
    pub has_changed: &'s dyn Fn() -> io::Result<bool>,
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("size_bytes", &self.disk.size_bytes()).finish_non_exhaustive()
    }
}

/// A disk that asks before each read whether to go on: the readers of guests have no progress of their own.
pub(super) struct PolledDisk<'p> {
    disk: &'p dyn Disk,
    progress: OnProgress<'p>,
    is_stopped: AtomicBool,
}

impl<'p> PolledDisk<'p> {
    /// Returns the disk. The work that reads it counts as none: what follows shows how far it is.
    pub(super) fn new(disk: &'p dyn Disk, progress: OnProgress<'p>) -> PolledDisk<'p> {
        PolledDisk { disk, progress, is_stopped: AtomicBool::new(false) }
    }

    /// Returns the disk itself, which does not ask.
    pub(super) fn disk(&self) -> &'p dyn Disk {
        self.disk
    }

    /// Asks whether to go on. Once the work stops, nobody is asked again.
    ///
    /// # Errors
    /// When the work stops.
    pub(super) fn poll(&self) -> Result<(), DiskError> {
        let progress = Progress { done_bytes: 0, total_bytes: self.disk.size_bytes() };
        if self.is_stopped() || (self.progress)(progress).is_break() {
            self.is_stopped.store(true, Ordering::Relaxed);
            return Err(DiskError::Stopped(LongWork::Copying));
        }
        Ok(())
    }

    /// Returns whether the work stopped. A reader may have taken the error for one of the disk.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

impl Disk for PolledDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.poll()?;
        self.disk.read(offset, into)
    }
}

/// Length and times of an open file, which differ if the file was written meanwhile. A block device has no such times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Device and number of the file.
    file: (u64, u64),
    size_bytes: u64,
    modified: (i64, i64),
    /// When anything of the file was changed. Unlike the other time, no program can set it back.
    changed: (i64, i64),
}

impl FileState {
    /// Returns the state that `metadata` describes.
    #[must_use]
    pub fn of(metadata: &Metadata) -> FileState {
        FileState {
            file: (metadata.dev(), metadata.ino()),
            size_bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_that_is_written_or_cut_has_another_state() {
        let file = tempfile::tempfile().unwrap();
        let state = |file: &File| FileState::of(&file.metadata().unwrap());
        file.set_len(1000).unwrap();
        let before = state(&file);
        assert_eq!(state(&file), before);
        // The clock of a file system may have a tick of several milliseconds.
        thread::sleep(Duration::from_millis(20));
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(&[2], 500).unwrap();
        let written = state(&file);
        assert_ne!(written, before);
        file.set_modified(modified).unwrap();
        assert_ne!(state(&file), before, "the time is that of before");
        file.set_len(999).unwrap();
        assert_ne!(state(&file), written);
    }
}
