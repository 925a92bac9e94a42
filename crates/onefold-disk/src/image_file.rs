//! Opening files by descriptor: each is opened once, checked through its descriptor, and never opened by name again.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, SeekFrom, open, openat2, seek};
use rustix::io::Errno;

/// Maximum number of `openat2` calls when concurrent renames disturb it.
const ATTEMPTS_MAX: usize = 16;

/// An image file that is open for reading: a regular file or a block device.
#[derive(Debug)]
pub struct ImageFile {
    pub(crate) file: File,
    /// Its path, for messages only.
    pub(crate) path: PathBuf,
    metadata: Metadata,
}

/// A file that an image names, as it was when it was opened.
#[derive(Clone, Debug)]
pub struct NamedFile {
    /// Where it was found.
    pub path: PathBuf,
    /// Its metadata at that time.
    pub metadata: Metadata,
}

/// Identity of a file, whichever name leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Returns the identity of the file that `metadata` describes.
    #[must_use]
    pub fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity { device: metadata.dev(), inode: metadata.ino() }
    }
}

impl ImageFile {
    /// Opens the file at a path that the user named; symbolic links are followed.
    ///
    /// # Errors
    /// Those of `open(2)`; `InvalidInput` for anything but a regular file or a block device.
    pub fn named(path: &Path) -> io::Result<ImageFile> {
        let handle = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        ImageFile::of_handle(handle, path)
    }

    /// Opens the file at `relative` beneath `folder` without following any symbolic link; `path` is for messages.
    ///
    /// # Errors
    /// Those of `openat2(2)`; `InvalidInput` for anything but a regular file or a block device.
    pub fn beneath(folder: impl AsFd, relative: &Path, path: &Path) -> io::Result<ImageFile> {
        let handle = open_beneath(folder, relative, ResolveFlags::empty())?;
        ImageFile::of_handle(handle, path)
    }

    /// Opens the file of an `O_PATH` descriptor.
    ///
    /// An `O_PATH` descriptor has no effect on a pipe or a device, so the kind of file is known before it is opened:
    /// opening a pipe can wait forever, and opening some devices starts them.
    pub(crate) fn of_handle(handle: OwnedFd, path: &Path) -> io::Result<ImageFile> {
        let handle = File::from(handle);
        let metadata = handle.metadata()?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a block device"));
        }
        let file = File::open(descriptor_path(&handle))?;
        Ok(ImageFile { file, path: path.to_owned(), metadata })
    }

    /// Wraps a file that is open for reading; `path` is for messages.
    pub(crate) fn of_open(file: File, path: &Path) -> io::Result<ImageFile> {
        let metadata = file.metadata()?;
        Ok(ImageFile { file, path: path.to_owned(), metadata })
    }

    /// Returns the file's metadata at the time of opening.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the length in bytes, also of a block device; 0 if it cannot be determined.
    #[must_use]
    pub fn length(&self) -> u64 {
        seek(&self.file, SeekFrom::End(0)).unwrap_or(0)
    }

    /// Returns the file's identity.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        FileIdentity::of(&self.metadata)
    }

    /// Returns whether another user can change the file while it is read.
    pub(crate) fn others_may_write(&self) -> bool {
        let is_own = self.metadata.is_file() && self.metadata.uid() == rustix::process::geteuid().as_raw();
        !is_own || self.metadata.mode() & 0o022 != 0
    }
}

impl AsFd for ImageFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns an `O_PATH` descriptor of the file at `relative` beneath `folder`. No part of the path may be a symbolic
/// link.
pub(crate) fn open_beneath(folder: impl AsFd, relative: &Path, further: ResolveFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | further;
    let mut result = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS_MAX {
        result = openat2(&folder, relative, flags, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

/// Returns a path that leads to the open file itself, in this process or a child that inherits the descriptor.
pub(crate) fn descriptor_path(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
