//! Why a disk cannot be opened, read, written or copied.
//!
//! Errors say what failed and why. What a user may do about it depends on the program, which decides it by the
//! variants.

mod chain;
mod image;

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use onefold_block::Show;
use onefold_block::size::human;

pub use chain::ChainError;
pub use image::{ImageError, RoomError};

use crate::format::ImageFormat;

/// Why a disk cannot be opened, read, written or copied.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A call on a file failed.
    #[error("cannot {action} `{}`", path.shown())]
    File {
        /// What was tried.
        action: FileAction,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// An image cannot be used.
    #[error("cannot {action} the {} image `{}`", format.name(), path.shown())]
    Image {
        /// What was tried.
        action: ImageAction,
        /// The format that the image has, or was said to have.
        format: ImageFormat,
        /// The image's own file.
        path: PathBuf,
        /// Why it failed.
        source: ImageError,
    },
    /// There is no temporary file for the copy of an image.
    #[error("cannot make a temporary file of {} in `{}`", human(*size_bytes), folder.shown())]
    TemporaryFile {
        /// How long the file was to be.
        size_bytes: u64,
        /// The folder for temporary files.
        folder: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The temporary copy of an image cannot grow.
    #[error("cannot put a temporary copy of the image into `{}`", folder.shown())]
    TemporaryCopy {
        /// The folder for temporary files.
        folder: PathBuf,
        /// Why it failed.
        source: RoomError,
    },
    /// The callback for progress stopped the work.
    #[error("interrupted while {0}")]
    Stopped(Work),
    /// A disk or sink that is not of this crate failed; the error is its own.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

/// What was tried with a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// To find out its length.
    Measure,
    /// To find out where it lies.
    Find,
    /// To open an image and recognise its format.
    OpenImage,
    /// To open a folder that an image may refer to.
    OpenFolder,
    /// To copy an image before it is read.
    Copy,
    /// To read its bytes.
    Read,
    /// To read the copy of an image.
    ReadCopy,
    /// To write its bytes, or make them durable.
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

/// What was tried with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageAction {
    /// To open it.
    Open,
    /// To read the disk in it.
    Read,
    /// To make it.
    Create,
    /// To write the disk in it, or make it durable.
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
pub enum Work {
    /// Copying a disk.
    Copying,
    /// Converting an image into a raw copy, before it is read.
    Converting,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::Copying => "copying",
            Work::Converting => "converting",
        })
    }
}
