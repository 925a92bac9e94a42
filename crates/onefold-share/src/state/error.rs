//! Why a state folder cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::Show;

use super::intents::OpenIntent;
use super::trust::Distrust;
use crate::domain::settings::SettingsError;
use crate::format::FormatError;
use crate::pace::StopRequest;

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be made, read or written.
    #[error("`{}`: {source}", path.shown())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file or folder of it cannot be trusted. Nothing of it was used.
    #[error("`{}` is not used: {why}", path.shown())]
    Untrusted {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: Distrust,
    },
    /// It was made by a later version of this program.
    #[error("`{}`: {why}", path.shown())]
    Newer {
        /// Its path.
        path: PathBuf,
        /// The versions.
        why: FormatError,
    },
    /// A part of it turned out to be damaged while it was read.
    #[error("`{}`: {why}", path.shown())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// The damage.
        why: FormatError,
    },
    /// Its identity is gone or damaged, while images may have holes that can be filled from it.
    #[error("`{}` is {}, and images may have holes that can be filled only from what is declared here: {}",
        path.shown(), if *.is_damaged { "damaged" } else { "missing" }, named(.intents))]
    IdentityLost {
        /// Its path.
        path: PathBuf,
        /// Whether the file exists, but cannot be read.
        is_damaged: bool,
        /// The files with declared shares.
        intents: Vec<OpenIntent>,
    },
    /// An administrator's settings cannot be used.
    #[error("`{}` is not used: {why}", path.shown())]
    Settings {
        /// Their path.
        path: PathBuf,
        /// The reason.
        why: SettingsError,
    },
    /// The user wanted the work to stop.
    #[error("interrupted")]
    Interrupted,
    /// Other hosts make and remove it all the time.
    #[error("the state folder changes too fast to be opened")]
    Restless,
}

/// Maximum number of files that a message names.
const NAMED_MAX: usize = 8;

/// Names files with declared shares, and their images.
fn named(intents: &[OpenIntent]) -> String {
    let named = intents.iter().take(NAMED_MAX).map(|intent| match &intent.image {
        Some(image) => format!("`{}` (image `{}`)", intent.path.shown(), image.shown()),
        None => format!("`{}` (cannot be read)", intent.path.shown()),
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = intents.len().checked_sub(NAMED_MAX) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

impl From<StopRequest> for StateError {
    fn from(_: StopRequest) -> StateError {
        StateError::Interrupted
    }
}

impl StateError {
    /// Returns the error with another form of its paths, such as the one in which a user gave them. `form` is called
    /// with paths below the root of the file system.
    #[must_use]
    pub fn with_paths(mut self, form: impl Fn(&Path) -> PathBuf) -> StateError {
        match &mut self {
            StateError::Io { path, .. }
            | StateError::Untrusted { path, .. }
            | StateError::Newer { path, .. }
            | StateError::Damaged { path, .. }
            | StateError::Settings { path, .. } => *path = form(path),
            StateError::IdentityLost { path, intents, .. } => {
                *path = form(path);
                for intent in intents {
                    intent.path = form(&intent.path);
                    intent.image = intent.image.as_deref().map(&form);
                }
            }
            StateError::Interrupted | StateError::Restless => {}
        }
        self
    }

    /// Returns a function that turns an error into one that names the file. `Interrupted` means that the work was told
    /// to stop; substrates never return it.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> StateError + use<'_> {
        |source| match (Distrust::of(&source), source.kind()) {
            (Some(why), _) => StateError::Untrusted { path: path.to_owned(), why },
            (None, io::ErrorKind::Interrupted) => StateError::Interrupted,
            (None, _) => StateError::Io { path: path.to_owned(), source },
        }
    }

    /// Returns whether the file system is full, for this user at least.
    pub(crate) fn is_lack_of_room(&self) -> bool {
        let kind = match self {
            StateError::Io { source, .. } => source.kind(),
            _ => return false,
        };
        matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}
