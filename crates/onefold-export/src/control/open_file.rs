//! Open files that a client sends along: the kernel's proof of the client's rights to them.

use std::os::fd::OwnedFd;

use onefold_pool::Ino;
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, statx};

use crate::mount_table::DeviceNumber;

/// Why an open file is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenFileError {
    /// It belongs to another file system.
    #[error("the file does not belong to this pool")]
    Elsewhere,
    /// It is no regular file.
    #[error("not a regular file")]
    NotRegular,
    /// It is not open for the requested access.
    #[error("the file is not open for {0}")]
    NotOpenFor(&'static str),
    /// The kernel does not report its state.
    #[error("cannot inspect the file: {0}")]
    Io(#[from] rustix::io::Errno),
}

/// A regular file of the mount that a client has open. The file lives at least as long as this value.
#[derive(Debug)]
pub(super) struct OpenFile {
    ino: Ino,
    flags: OFlags,
    _keeps_the_file_alive: OwnedFd,
}

impl OpenFile {
    /// Inspects a file that should belong to the mount on `device`.
    ///
    /// # Errors
    /// See [`OpenFileError`].
    pub(super) fn inspect(file: OwnedFd, device: DeviceNumber) -> Result<OpenFile, OpenFileError> {
        let flags = fcntl_getfl(&file)?;
        // Sends no request to its file system: a hostile client's file may belong to one that never answers.
        let found =
            statx(&file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::INO | StatxFlags::TYPE)?;
        if (DeviceNumber { major: found.stx_dev_major, minor: found.stx_dev_minor }) != device {
            return Err(OpenFileError::Elsewhere);
        }
        if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile {
            return Err(OpenFileError::NotRegular);
        }
        Ok(OpenFile { ino: Ino(found.stx_ino), flags, _keeps_the_file_alive: file })
    }

    /// Returns the file's number if its content may be read.
    ///
    /// # Errors
    /// [`OpenFileError::NotOpenFor`] otherwise.
    pub(super) fn readable(&self) -> Result<Ino, OpenFileError> {
        match self.access() {
            Some(OFlags::RDONLY | OFlags::RDWR) => Ok(self.ino),
            _ => Err(OpenFileError::NotOpenFor("reading")),
        }
    }

    /// Returns the file's number if its content may be replaced. A file open for appending may only grow.
    ///
    /// # Errors
    /// [`OpenFileError::NotOpenFor`] otherwise.
    pub(super) fn replaceable(&self) -> Result<Ino, OpenFileError> {
        match self.access() {
            Some(OFlags::WRONLY | OFlags::RDWR) if !self.flags.contains(OFlags::APPEND) => Ok(self.ino),
            _ => Err(OpenFileError::NotOpenFor("writing")),
        }
    }

    /// Returns the access modes that the file is open for; `None` for a mere path.
    fn access(&self) -> Option<OFlags> {
        (!self.flags.contains(OFlags::PATH)).then_some(self.flags & OFlags::RWMODE)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    use super::*;

    fn device_of(file: &File) -> DeviceNumber {
        let device = file.metadata().unwrap().dev();
        DeviceNumber { major: rustix::fs::major(device), minor: rustix::fs::minor(device) }
    }

    fn inspect(options: &OpenOptions) -> OpenFile {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        File::create(&path).unwrap();
        let file = options.open(&path).unwrap();
        let device = device_of(&file);
        OpenFile::inspect(file.into(), device).unwrap()
    }

    #[test]
    fn what_a_file_is_open_for_decides() {
        let read = inspect(OpenOptions::new().read(true));
        assert!(read.readable().is_ok() && read.replaceable().is_err());
        let write = inspect(OpenOptions::new().write(true));
        assert!(write.readable().is_err() && write.replaceable().is_ok());
        let both = inspect(OpenOptions::new().read(true).write(true));
        assert!(both.readable().is_ok() && both.replaceable().is_ok());
        let append = inspect(OpenOptions::new().read(true).append(true));
        assert!(append.readable().is_ok() && append.replaceable().is_err());
        let path = inspect(OpenOptions::new().read(true).custom_flags(libc::O_PATH));
        assert!(path.readable().is_err() && path.replaceable().is_err());
    }

    #[test]
    fn files_of_other_file_systems_and_other_kinds_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::open(directory.path()).unwrap();
        let device = device_of(&file);
        let elsewhere = DeviceNumber { minor: device.minor + 1, ..device };
        assert!(matches!(
            OpenFile::inspect(file.try_clone().unwrap().into(), elsewhere),
            Err(OpenFileError::Elsewhere)
        ));
        assert!(matches!(OpenFile::inspect(file.into(), device), Err(OpenFileError::NotRegular)));
    }
}
