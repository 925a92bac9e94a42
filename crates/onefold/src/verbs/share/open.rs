//! What the verbs have in common that look at a file system, or say something of files on it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use onefold_block::clock::SystemClock;
use onefold_share::linux::LinuxSubstrate;
use onefold_share::state::{Notice, State, StateError};

use super::root::{Located, locate};
use crate::failure::{Failure, Outcome};

/// A file system, and paths on it.
pub(super) struct Ground {
    pub(super) root: PathBuf,
    /// Below the root, in the order in which they were named.
    pub(super) paths: Vec<PathBuf>,
    pub(super) substrate: LinuxSubstrate,
}

impl Ground {
    /// Opens the file system that paths lie on; `cannot` says what fails where that does.
    pub(super) fn open(cannot: &str, paths: &[PathBuf]) -> Outcome<Ground> {
        let Located { root, paths } = locate(paths)?;
        let opened = LinuxSubstrate::open(&root, Path::new("")).or_else(|error| {
            // Who owns an image may do things to it without a right to the root: it is tried beside the image.
            let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
            let folder = if root.join(first).is_dir() { Some(first) } else { first.parent() };
            LinuxSubstrate::open(&root, folder.unwrap_or(Path::new(""))).map_err(|_| error)
        });
        let substrate = opened.map_err(|error| Failure::new(cannot).because(&error))?;
        Ok(Ground { root, paths, substrate })
    }

    /// Returns the file or folder that was named first.
    pub(super) fn first(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Does something with the state folder as it is, without touching it; without one where there is none. Returns what
    /// was noticed, too.
    pub(super) fn look<T>(
        &self,
        cannot: &str,
        work: impl FnOnce(Option<&State<'_, LinuxSubstrate>>) -> Outcome<T>,
    ) -> Outcome<(T, Vec<String>)> {
        let notices = RefCell::new(Vec::new());
        let take = |notice: Notice| notices.borrow_mut().push(notice.to_string());
        let state = State::look(&self.substrate, &SystemClock, &take).map_err(|error| state_failure(cannot, &error))?;
        let done = work(state.as_ref())?;
        drop(state);
        Ok((done, notices.take()))
    }
}

/// What a person may do where the identity of the state folder is lost while images wait to be mended.
pub(super) const IDENTITY_LOST: &str = "restore `.onefold/identity` from a backup; or let `onefold share mend --foreign mend` \
    fill the holes, or `onefold share mend --foreign give-up` give them up";

/// Says why the state folder cannot be used.
pub(super) fn state_failure(cannot: &str, error: &StateError) -> Failure {
    let failure = Failure::new(cannot).because(error);
    match error {
        StateError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            failure.hint("run the command as root, or as who ran `onefold share run`")
        }
        StateError::Newer { .. } => {
            failure.hint("use the newer version on this host, too; or delete the folder, and all is found again")
        }
        StateError::Damaged { .. } => {
            failure.hint("the next `onefold share run` drops it and finds again what it held")
        }
        StateError::IdentityLost { .. } => failure.hint(IDENTITY_LOST),
        StateError::Restless => failure.hint("run the command again"),
        StateError::Io { .. } | StateError::Interrupted => failure,
    }
}

/// Appends lines.
pub(super) fn append<'a>(text: &mut String, lines: impl IntoIterator<Item = &'a String>) {
    for line in lines {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    }
}
