//! Why a disk cannot be opened, read, written or copied.
//!
//! Errors say what failed and why. Advice to the user depends on the program, which chooses it by the variant.

mod chain;
mod image;

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use onefold_block::Show;
use onefold_block::size::human;
use rustix::io::Errno;

pub use chain::ChainError;
pub use image::{ImageError, RoomError};

use crate::format::ImageFormat;

/// Why a disk cannot be opened, read, written or copied.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A call on a file failed.
    #[error("cannot {action} `{}`", path.shown())]
    File {
        /// The failed action.
        action: FileAction,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An image cannot be used.
    #[error("cannot {action} the {} image `{}`", format.name(), path.shown())]
    Image {
        /// The failed action.
        action: ImageAction,
        /// The recognised or stated format of the image.
        format: ImageFormat,
        /// The image's own file.
        path: PathBuf,
        /// The cause.
        source: ImageError,
    },
    /// The temporary file for a copy of an image cannot be made.
    #[error("cannot make a temporary file of {} in `{}`", human(*size_bytes), folder.shown())]
    TemporaryFile {
        /// The requested length of the file.
        size_bytes: u64,
        /// The folder for temporary files.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The temporary copy of an image cannot grow.
    #[error("cannot put a temporary copy of the image into `{}`", folder.shown())]
    TemporaryCopy {
        /// The folder for temporary files.
        folder: PathBuf,
        /// The cause.
        source: RoomError,
    },
    /// The progress callback stopped the work.
    #[error("interrupted while {0}")]
    Stopped(LongWork),
    /// A disk or sink from outside this crate failed, with this error of its own.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

impl DiskError {
    /// Returns whether the medium below the disk failed at the place that was read, so that other places may still be
    /// readable.
    #[must_use]
    pub fn is_of_medium(&self) -> bool {
        let source = match self {
            DiskError::File { source, .. } | DiskError::Image { source: ImageError::Io(source), .. } => source,
            _ => return false,
        };
        // What the block layer returns for errors of a medium, of its protection data and of its target.
        let medium = [Errno::IO, Errno::NODATA, Errno::ILSEQ, Errno::REMOTEIO];
        source.raw_os_error().is_some_and(|number| medium.contains(&Errno::from_raw_os_error(number)))
    }
}

/// A failed action on a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// Determining its length.
    Measure,
    /// Determining its path.
    Find,
    /// Opening an image and recognising its format.
    OpenImage,
    /// Opening a folder that an image may refer to.
    OpenFolder,
    /// Copying an image before it is read.
    Copy,
    /// Reading its bytes.
    Read,
    /// Reading the copy of an image.
    ReadCopy,
    /// Writing its bytes, or making them durable.
    Write,
}

impl fmt::Display for FileAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileAction::Measure => "measure",
            FileAction::Find => "find",
            FileAction::OpenImage => "open the image",
            FileAction::OpenFolder => "open the folder",
            FileAction::Copy => "copy",
            FileAction::Read => "read",
            FileAction::ReadCopy => "read the copy of",
            FileAction::Write => "write",
        })
    }
}

/// A failed action on an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageAction {
    /// Opening it.
    Open,
    /// Reading its disk.
    Read,
    /// Creating it.
    Create,
    /// Writing its disk, or making it durable.
    Write,
}

impl fmt::Display for ImageAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImageAction::Open => "open",
            ImageAction::Read => "read",
            ImageAction::Create => "create",
            ImageAction::Write => "write",
        })
    }
}

/// Work that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongWork {
    /// Copying a disk.
    Copying,
    /// Converting an image into a raw copy, before it is read.
    Converting,
}

impl fmt::Display for LongWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LongWork::Copying => "copying",
            LongWork::Converting => "converting",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_medium_is_one_of_a_place() {
        let read = |number| {
            let source = io::Error::from_raw_os_error(number);
            DiskError::File { action: FileAction::Read, path: PathBuf::from("disk"), source }
        };
        let number = |errno: Errno| errno.raw_os_error();
        assert!(read(number(Errno::IO)).is_of_medium() && read(number(Errno::NODATA)).is_of_medium());
        assert!(!read(number(Errno::ACCESS)).is_of_medium() && !read(number(Errno::STALE)).is_of_medium());
        assert!(!DiskError::Other("gone".into()).is_of_medium());
    }
}
