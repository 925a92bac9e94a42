//! The source of a capture, and the check whether it changes meanwhile.

use std::io;
use std::os::fd::AsFd;

use onefold_disk::Disk;
use rustix::fs::{Stat, fstat};

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

/// Length and times of an open file, which differ if the file was written meanwhile. A block device has no such times,
/// so its caller holds it exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    size_bytes: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    /// Returns the state of an open file.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn of(file: impl AsFd) -> io::Result<FileState> {
        let Stat { st_size, st_mtime, st_mtime_nsec, st_ctime, st_ctime_nsec, .. } = fstat(file)?;
        let time = |seconds: i64, nanoseconds: u64| (seconds, i64::try_from(nanoseconds).unwrap_or(i64::MAX));
        Ok(FileState {
            size_bytes: st_size,
            modified: time(st_mtime, st_mtime_nsec),
            changed: time(st_ctime, st_ctime_nsec),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_that_is_written_or_cut_has_another_state() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 1000]).unwrap();
        let before = FileState::of(&file).unwrap();
        assert_eq!(FileState::of(&file).unwrap(), before);
        // The clock of a file system may have a tick of several milliseconds.
        thread::sleep(Duration::from_millis(20));
        file.write_all_at(&[2], 500).unwrap();
        let written = FileState::of(&file).unwrap();
        assert_ne!(written, before);
        file.set_len(999).unwrap();
        assert_ne!(FileState::of(&file).unwrap(), written);
    }
}
