//! Unnamed temporary files that leave room on their file system.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::fstatvfs;

use crate::disk::Sink;
use crate::error::{DiskError, FileAction, RoomError};
use crate::raw::FileSink;

/// Free bytes that a temporary file leaves on its file system.
const ROOM_KEPT_BYTES: u64 = 64 << 20;

/// Returns the folder for temporary files: `$TMPDIR`, unless that is not set or empty, or else `/var/tmp`.
#[must_use]
pub fn temporary_folder() -> PathBuf {
    named_or_usual(std::env::var_os("TMPDIR"))
}

fn named_or_usual(named: Option<OsString>) -> PathBuf {
    named.filter(|named| !named.is_empty()).map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// A temporary file in `$TMPDIR` or `/var/tmp`. It has no name, so it disappears when the process ends.
#[derive(Debug)]
pub(crate) struct TemporaryFile {
    pub(crate) file: File,
    folder: PathBuf,
    kept_bytes: u64,
}

impl TemporaryFile {
    /// Makes a sparse file of `length` bytes.
    ///
    /// # Errors
    /// If the file cannot be made or cannot have that length, or the file system has too little room.
    pub(crate) fn create(length: u64) -> Result<TemporaryFile, DiskError> {
        TemporaryFile::create_in(temporary_folder(), length, ROOM_KEPT_BYTES)
    }

    fn create_in(folder: PathBuf, length: u64, kept_bytes: u64) -> Result<TemporaryFile, DiskError> {
        let create = || {
            let file = tempfile::tempfile_in(&folder)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.set_len(length)?;
            Ok(file)
        };
        match create() {
            Ok(file) => {
                let temporary = TemporaryFile { file, folder, kept_bytes };
                temporary.check_room()?;
                Ok(temporary)
            }
            Err(source) => Err(DiskError::TemporaryFile { size_bytes: length, folder, source }),
        }
    }

    /// Fails if the file system has too little room for the file to grow.
    pub(crate) fn check_room(&self) -> Result<(), DiskError> {
        let cannot = |source| DiskError::TemporaryCopy { folder: self.folder.clone(), source };
        let status = fstatvfs(&self.file).map_err(|errno| cannot(RoomError::Unknown(errno.into())))?;
        let free_bytes = status.f_bavail.saturating_mul(status.f_frsize);
        if free_bytes < self.kept_bytes {
            return Err(cannot(RoomError::TooLittle { free_bytes, kept_bytes: self.kept_bytes }));
        }
        Ok(())
    }
}

#[cfg(test)]
impl TemporaryFile {
    /// Returns a file in `folder`, on whose file system `kept_bytes` have to stay free from now on.
    pub(crate) fn filling(folder: &Path, kept_bytes: u64) -> TemporaryFile {
        let temporary = TemporaryFile::create_in(folder.to_owned(), 4096, 0).unwrap();
        TemporaryFile { kept_bytes, ..temporary }
    }
}

/// Fills a temporary file as long as there is room.
pub(crate) struct TemporarySink<'a> {
    temporary: &'a TemporaryFile,
    sink: FileSink,
}

impl<'a> TemporarySink<'a> {
    /// Starts to fill `temporary`, which gets `length` bytes; `path` is that of the image, for messages.
    pub(crate) fn new(temporary: &'a TemporaryFile, path: &Path, length: u64) -> Result<TemporarySink<'a>, DiskError> {
        let file = temporary.file.try_clone();
        let file =
            file.map_err(|source| DiskError::File { action: FileAction::Copy, path: path.to_owned(), source })?;
        Ok(TemporarySink { temporary, sink: FileSink::new(file, path, length)? })
    }
}

impl Sink for TemporarySink<'_> {
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        self.temporary.check_room()?;
        self.sink.write(offset, from)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn an_empty_variable_names_no_folder() {
        let folder = |named: &str| named_or_usual(Some(named.into()));
        assert_eq!((folder("/x"), folder("")), (PathBuf::from("/x"), PathBuf::from("/var/tmp")));
        assert_eq!(named_or_usual(None), PathBuf::from("/var/tmp"));
    }

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
        let is_too_little = |error: DiskError| {
            matches!(error, DiskError::TemporaryCopy { source: RoomError::TooLittle { kept_bytes: u64::MAX, .. }, .. })
        };
        let refused = TemporaryFile::create_in(folder.path().to_owned(), 4096, u64::MAX).unwrap_err();
        assert!(is_too_little(refused));

        let temporary = TemporaryFile::filling(folder.path(), u64::MAX);
        let sink = TemporarySink::new(&temporary, Path::new("image"), 4096).unwrap();
        assert!(is_too_little(sink.write(0, &[1; 512]).unwrap_err()));
    }

    #[test]
    fn a_length_that_no_file_has_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let refused = TemporaryFile::create_in(folder.path().to_owned(), u64::MAX, 0).unwrap_err();
        assert!(matches!(refused, DiskError::TemporaryFile { size_bytes: u64::MAX, .. }), "{refused}");
    }
}
