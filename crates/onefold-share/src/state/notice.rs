//! What a user may want to know of a state folder and of the images on its file system.

use std::fmt;
use std::io;
use std::path::PathBuf;

use onefold_block::Show;

use super::StateError;
use super::trust::WritableRoot;
use crate::format::FormatError;

/// Something that a user may want to know and nothing depends on.
#[derive(Debug)]
pub enum Notice {
    /// A file of the state folder was of no use and is gone.
    Dropped {
        /// Its path.
        path: PathBuf,
        /// What was wrong with it.
        why: FormatError,
    },
    /// What an earlier version of this program left is of no use any more; images are read anew, once.
    Older {
        /// The first such file.
        path: PathBuf,
        /// The versions.
        why: FormatError,
    },
    /// A file of the state folder is of no use; the next run drops it.
    Useless {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: FormatError,
    },
    /// A file of the state folder is not used, and left alone.
    LeftAlone {
        /// Its path.
        path: PathBuf,
        /// Why.
        why: FormatError,
    },
    /// The identity is lost while something is declared: no run goes on until a person has decided.
    IdentityLost(StateError),
    /// Others than the owner had rights to a file or folder of the state folder, and perhaps to more in its folder.
    /// They have them no longer.
    Tightened {
        /// Its path.
        path: PathBuf,
        /// Whether it is an arena file: nothing more is put into those that others may have open.
        is_retired: bool,
    },
    /// Others than the owner have rights to a file or folder of the state folder. The next run takes them away.
    Exposed {
        /// Its path.
        path: PathBuf,
    },
    /// Another user can put an earlier state folder in place of the present one.
    WritableRoot {
        /// Who.
        root: WritableRoot,
    },
    /// Ranges of an image cannot be read. All else of it is; these are tried again after pauses.
    Failing {
        /// Its path.
        path: PathBuf,
        /// The first such range, in bytes.
        first: std::ops::Range<u64>,
        /// Bytes of all of them.
        bytes: u64,
        /// Why.
        why: io::Error,
    },
    /// An image cannot be read, or not as a whole. The others go on.
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
}

impl Notice {
    /// Returns whether a run that gives it has left something undone, or has lost something that it finds again.
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
                "`{}`: {bytes} bytes cannot be read, the first at {}: {why}; they are tried again after a while",
                path.shown(),
                first.start
            ),
            Notice::Unreadable { path, why } => write!(f, "`{}` cannot be read: {why}", path.shown()),
        }
    }
}
