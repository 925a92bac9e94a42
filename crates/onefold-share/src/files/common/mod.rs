//! The common volume: an ext4 image with the packaged files that two disks hold, or that a user added.
//!
//! | module | is |
//! |---|---|
//! | `contents` | the record of a volume's contents, which is a file in it |
//! | `names`, `commands` | paths in a volume, and the commands of `debugfs` that make its metadata |
//! | `volume` | finds, opens and reads a volume |
//! | `generation` | the next generation of a volume: a clone that is changed, checked, and renamed into place |
//! | `draft`, `plan`, `reading` | that clone, what changes in it, and how it is read back |
//! | `sources` | the images that give content |
//! | `addition` | a file that is to be added |
//! | `add`, `archive` | content that a user adds |
//! | `growth`, `held`, `grow` | content that a pass finds and drops |
//!
//! A volume is never changed in place. docs/decisions/0020-common-volume.md has the reasons.

mod add;
mod addition;
mod archive;
mod commands;
mod contents;
mod draft;
mod generation;
mod grow;
mod growth;
mod held;
mod names;
mod plan;
mod reading;
mod sources;
mod volume;

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_substrate::{ShareError, ToolError};

pub use self::add::{AddOptions, AddReport, add_packages};
pub use self::archive::{ArchiveAddOptions, add_archives};
pub use self::contents::{Content, Contents};
pub use self::generation::{LENGTH_MIN, check, create, remove};
pub use self::grow::grow;
pub use self::growth::{GrowOptions, GrowReport};
pub use self::plan::ChangeCounts;
pub(crate) use self::volume::is_marked;
pub use self::volume::{Volume, find, open};

use crate::pace::StopRequest;
use crate::state::StateError;

/// Why a common volume could not be used or changed. The volume is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum CommonError {
    /// A folder has no common volume.
    #[error("there is no common volume in `{}`", .folder.shown())]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder has several common volumes.
    #[error("there are several common volumes in `{}`, the first of them `{}`", .folder.shown(), .first.shown())]
    Several {
        /// The folder.
        folder: PathBuf,
        /// One of them.
        first: PathBuf,
    },
    /// The path is taken.
    #[error("`{}` exists", .path.shown())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file is not used as a common volume.
    #[error("`{}` is not used: {why}", .path.shown())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The content of the volume is damaged.
    #[error("the common volume `{}` is damaged: {why}", .path.shown())]
    Damaged {
        /// The volume.
        path: PathBuf,
        /// The damage.
        why: String,
    },
    /// Another process changes the volume.
    #[error("another process changes the common volume `{}`", .path.shown())]
    Busy {
        /// The volume.
        path: PathBuf,
    },
    /// The volume was removed, replaced or opted out meanwhile, or has got another owner or domain.
    #[error("the common volume `{}` was removed, replaced or opted out meanwhile, or has got another owner or domain",
        .path.shown())]
    Replaced {
        /// The volume.
        path: PathBuf,
    },
    /// The volume has no room for more, or the file system has none.
    #[error("there is no room for more in the common volume `{}`: {why}", .path.shown())]
    Full {
        /// The volume.
        path: PathBuf,
        /// The full resource.
        why: String,
    },
    /// A program of the host failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// An image that was to give content could not be read.
    #[error("cannot read packages of `{}`: {why}", .path.shown())]
    Image {
        /// The image.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A package archive was not added.
    #[error("`{}` is not added: {why}", .path.shown())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// The reason. It may contain text of the archive.
        why: String,
    },
    /// A file could not be used.
    #[error("cannot use `{}`", .path.shown())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failure.
        #[source]
        source: io::Error,
    },
    /// The state folder failed, or the user ended the work.
    #[error(transparent)]
    State(#[from] StateError),
}

impl From<StopRequest> for CommonError {
    fn from(stopped: StopRequest) -> CommonError {
        CommonError::State(stopped.into())
    }
}

impl CommonError {
    fn io(path: &Path, source: io::Error) -> CommonError {
        match CommonError::is_full(&source) {
            true => CommonError::Full { path: path.to_owned(), why: source.to_string() },
            false => CommonError::Io { path: path.to_owned(), source },
        }
    }

    fn is_full(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    fn share(path: &Path, error: ShareError) -> CommonError {
        match error {
            ShareError::Io(source) => CommonError::io(path, source),
            ShareError::Full => CommonError::Full { path: path.to_owned(), why: error.to_string() },
            other => CommonError::Refused { path: path.to_owned(), why: other.to_string() },
        }
    }
}
