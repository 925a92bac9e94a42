//! Temporary files without names, which leave room on their file system.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use rustix::fs::fstatvfs;

use crate::disk::{FileSink, Sink};
use crate::failure::{Failure, Outcome};
use crate::size::human;

/// Free room that a temporary file leaves on its file system, in bytes.
const ROOM_KEPT_BYTES: u64 = 64 << 20;

/// A temporary file in `$TMPDIR` or `/var/tmp`. It has no name, so nothing is left of it when the process ends.
#[derive(Debug)]
pub(super) struct TemporaryFile {
    pub(super) file: File,
    folder: PathBuf,
    kept_bytes: u64,
}

impl TemporaryFile {
    /// Makes a sparse file of `length` bytes.
    ///
    /// # Errors
    /// Where the file cannot be made or be so long, or the file system has hardly any room.
    pub(super) fn create(length: u64) -> Outcome<TemporaryFile> {
        let folder = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        TemporaryFile::create_in(folder, length, ROOM_KEPT_BYTES)
    }

    fn create_in(folder: PathBuf, length: u64, kept_bytes: u64) -> Outcome<TemporaryFile> {
        let cannot = |error: &io::Error| {
            let text = format!("cannot make a temporary file of {} in `{}`", human(length), folder.shown());
            Failure::of_io(text, error).hint("set TMPDIR to a directory with enough room")
        };
        let file = tempfile::tempfile_in(&folder).map_err(|error| cannot(&error))?;
        let private = file.set_permissions(Permissions::from_mode(0o600));
        private.and_then(|()| file.set_len(length)).map_err(|error| cannot(&error))?;
        let temporary = TemporaryFile { file, folder, kept_bytes };
        temporary.check_room()?;
        Ok(temporary)
    }

    /// Returns an error when the file system has too little room for the file to grow.
    pub(super) fn check_room(&self) -> Outcome<()> {
        let cannot = || format!("cannot put a temporary copy of the image into `{}`", self.folder.shown());
        let status = fstatvfs(&self.file).map_err(|errno| Failure::of_io(cannot(), &errno.into()))?;
        let free_bytes = status.f_bavail.saturating_mul(status.f_frsize);
        if free_bytes < self.kept_bytes {
            return Err(Failure::new(cannot())
                .because_of(format!("{} are free there, and {} stay free", human(free_bytes), human(self.kept_bytes)))
                .hint("set TMPDIR to a directory with enough room"));
        }
        Ok(())
    }
}

/// Fills a temporary file as long as there is room.
pub(super) struct TemporarySink<'a> {
    temporary: &'a TemporaryFile,
    sink: FileSink,
}

impl<'a> TemporarySink<'a> {
    /// Begins to fill `temporary`, which becomes `length` bytes long; `path` is that of the image, for messages.
    pub(super) fn new(temporary: &'a TemporaryFile, path: &Path, length: u64) -> Outcome<TemporarySink<'a>> {
        let file = temporary
            .file
            .try_clone()
            .map_err(|error| Failure::of_io(format!("cannot copy `{}`", path.shown()), &error))?;
        Ok(TemporarySink { temporary, sink: FileSink::new(file, path, length)? })
    }
}

impl Sink for TemporarySink<'_> {
    fn write(&self, offset: u64, from: &[u8]) -> Outcome<()> {
        self.temporary.check_room()?;
        self.sink.write(offset, from)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_temporary_file_has_no_name_and_is_sparse() {
        let folder = tempfile::tempdir().unwrap();
        let temporary = TemporaryFile::create_in(folder.path().to_owned(), 1 << 40, 0).unwrap();
        let metadata = temporary.file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.blocks(), metadata.nlink()), (1 << 40, 0, 0));
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_temporary_file_leaves_room() {
        let folder = tempfile::tempdir().unwrap();
        let refused = TemporaryFile::create_in(folder.path().to_owned(), 4096, u64::MAX).unwrap_err();
        assert!(refused.to_string().contains("stay free"), "{refused}");
        assert!(refused.to_string().contains("TMPDIR"), "{refused}");

        let mut temporary = TemporaryFile::create_in(folder.path().to_owned(), 4096, 0).unwrap();
        temporary.kept_bytes = u64::MAX;
        let sink = TemporarySink::new(&temporary, Path::new("image"), 4096).unwrap();
        assert!(sink.write(0, &[1; 512]).unwrap_err().to_string().contains("stay free"));
    }

    #[test]
    fn a_length_that_no_file_has_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let refused = TemporaryFile::create_in(folder.path().to_owned(), u64::MAX, 0).unwrap_err();
        assert!(refused.to_string().contains("TMPDIR"), "{refused}");
    }
}
