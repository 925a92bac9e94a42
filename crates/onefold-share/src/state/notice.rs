//! Notices to the user about a state folder and the images on its file system.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_block::size::human;

use super::StateError;
use super::trust::WritableRoot;
use crate::format::FormatError;

/// A notice to the user, on which nothing depends.
#[derive(Debug)]
pub enum Notice {
    /// A file of the state folder was useless and has been removed.
    Dropped {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: FormatError,
    },
    /// Files of an earlier version of this program are no longer of use; images are read anew, once.
    Older {
        /// The first such file.
        path: PathBuf,
        /// The versions.
        why: FormatError,
    },
    /// A file of the state folder is useless; the next run drops it.
    Useless {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: FormatError,
    },
    /// A file of the state folder is not used, and is left alone.
    LeftAlone {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: FormatError,
    },
    /// The identity is lost while shares are declared. No run goes on until a person has decided.
    IdentityLost(StateError),
    /// Others than the owner had rights to a file or folder of the state folder, and perhaps to more in its folder.
    /// These rights were removed.
    Tightened {
        /// Its path.
        path: PathBuf,
        /// Whether it is an arena file. Nothing more is put into arena files that others may have open.
        is_retired: bool,
    },
    /// Others than the owner have rights to a file or folder of the state folder. The next run removes these rights.
    Exposed {
        /// Its path.
        path: PathBuf,
    },
    /// Another user can put an earlier state folder in place of the present one.
    WritableRoot {
        /// The root folder, with its owner and rights.
        root: WritableRoot,
    },
    /// Ranges of an image cannot be read. The rest of it is read; these are tried again after pauses.
    Failing {
        /// Its path.
        path: PathBuf,
        /// The first such range, in bytes.
        first: std::ops::Range<u64>,
        /// Total length of the ranges, in bytes.
        bytes: u64,
        /// The error.
        why: io::Error,
    },
    /// An image cannot be read, or not as a whole. The others go on.
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
}

impl Notice {
    /// Returns the notice with another form of its path, such as the one in which a user gave it. `form` is called with
    /// the path below the root of the file system.
    #[must_use]
    pub fn with_path(mut self, form: impl FnOnce(&Path) -> PathBuf) -> Notice {
        match &mut self {
            Notice::Dropped { path, .. }
            | Notice::Older { path, .. }
            | Notice::Useless { path, .. }
            | Notice::LeftAlone { path, .. }
            | Notice::Tightened { path, .. }
            | Notice::Exposed { path }
            | Notice::Failing { path, .. }
            | Notice::Unreadable { path, .. }
            | Notice::IdentityLost(StateError::IdentityLost { path, .. }) => *path = form(path),
            // The path of a writable root is its mount point, which is complete.
            Notice::WritableRoot { .. } | Notice::IdentityLost(_) => {}
        }
        self
    }

    /// Returns whether a run with this notice has left some work undone, or has lost something that it finds again.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            Notice::Dropped { .. }
            | Notice::Useless { .. }
            | Notice::LeftAlone { .. }
            | Notice::IdentityLost(_)
            | Notice::Failing { .. }
            | Notice::Unreadable { .. } => true,
            Notice::Older { .. } | Notice::Tightened { .. } | Notice::Exposed { .. } | Notice::WritableRoot { .. } => {
                false
            }
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Dropped { path, why } => write!(f, "`{}` is dropped: {why}", path.shown()),
            Notice::Older { path, why } => {
                write!(f, "all images are read anew, once: `{}` is of an earlier version ({why})", path.shown())
            }
            Notice::Useless { path, why } => {
                write!(f, "`{}` is of no use, and dropped by the next run: {why}", path.shown())
            }
            Notice::LeftAlone { path, why } => write!(f, "`{}` is not used: {why}", path.shown()),
            Notice::IdentityLost(why) => why.fmt(f),
            Notice::Tightened { path, is_retired } => {
                let retired = if *is_retired { "; nothing more is put into such files" } else { "" };
                write!(
                    f,
                    "others than its owner had rights to `{}`, and perhaps to more in its folder: these were taken \
                     away{retired}",
                    path.shown()
                )
            }
            Notice::Exposed { path } => write!(
                f,
                "others than its owner have rights to `{}`, and perhaps to more in its folder: the next run takes them away",
                path.shown()
            ),
            Notice::WritableRoot { root } => write!(
                f,
                "{root}: such users can take the state folder away and put an earlier one back, which costs savings; let root \
                 own that folder and nobody else write into it"
            ),
            Notice::Failing { path, first, bytes, why } => write!(
                f,
                "`{}`: {} cannot be read, the first at byte {}: {why}; they are tried again after a while",
                path.shown(),
                human(*bytes),
                first.start
            ),
            Notice::Unreadable { path, why } => write!(f, "`{}` cannot be read: {why}", path.shown()),
        }
    }
}
