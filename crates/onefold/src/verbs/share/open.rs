//! Common parts of the verbs that examine a file system, or report about its files.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_block::clock::SystemClock;
use onefold_linux::{LinuxSubstrate, ProbeError};
use onefold_share::policy::SharePolicy;
use onefold_share::state::trust::{Distrust, WritableRoot, writable_root};
use onefold_share::state::{Notice, State, StateError};
use onefold_substrate::Substrate;

use super::root::{RootedPaths, locate};
use super::user_paths::UserPaths;
use crate::cli::share_work::RootArgs;
use crate::failure::{Exit, Failure, Outcome};

/// A file system, and paths on it.
pub(super) struct OpenFileSystem {
    pub(super) root: PathBuf,
    /// Paths below the root, in the order in which they were named.
    pub(super) paths: Vec<PathBuf>,
    pub(super) substrate: LinuxSubstrate,
    /// The form in which the user gave paths.
    pub(super) user_paths: UserPaths,
}

impl OpenFileSystem {
    /// Opens the file system that contains `paths`. `cannot` names the failed action if that fails.
    pub(super) fn open(cannot: &str, paths: &[PathBuf]) -> Outcome<OpenFileSystem> {
        let given = paths;
        let RootedPaths { root, paths } = locate(given)?;
        let opened = LinuxSubstrate::open(&root, Path::new("")).or_else(|error| {
            // The owner of an image may use it without rights to the root, so this tries the folder of the image.
            let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
            let folder = if root.join(first).is_dir() { Some(first) } else { first.parent() };
            LinuxSubstrate::open(&root, folder.unwrap_or(Path::new(""))).map_err(|_| error)
        });
        let substrate = opened.map_err(|error| probe_failure(cannot, &error))?;
        let user_paths = UserPaths::new(&root, given, &paths);
        Ok(OpenFileSystem { root, paths, substrate, user_paths })
    }

    /// Opens the file system that contains `paths` to examine it. Writes nothing and tries nothing, so it may be full
    /// or read-only. `cannot` names the failed action if that fails.
    pub(super) fn to_look(cannot: &str, paths: &[PathBuf]) -> Outcome<OpenFileSystem> {
        let given = paths;
        let RootedPaths { root, paths } = locate(given)?;
        let substrate = LinuxSubstrate::look(&root).map_err(|error| probe_failure(cannot, &error))?;
        let user_paths = UserPaths::new(&root, given, &paths);
        Ok(OpenFileSystem { root, paths, substrate, user_paths })
    }

    /// Returns the text of a notice, with its path in the user's form.
    pub(super) fn notice_text(&self, notice: Notice) -> String {
        notice.with_path(|path| self.user_paths.of(path)).to_string()
    }

    /// Returns the failure for a state folder that cannot be used.
    pub(super) fn state_failure(&self, cannot: &str, error: StateError) -> Failure {
        state_failure(cannot, error, &self.user_paths)
    }

    /// Returns the file or folder that was named first.
    pub(super) fn first(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Calls `work` with the state folder as it is, without changing it, or with `None` if there is none. Also returns
    /// notices.
    pub(super) fn look<T>(
        &self,
        cannot: &str,
        work: impl FnOnce(Option<&State<'_, LinuxSubstrate>>) -> Outcome<T>,
    ) -> Outcome<(T, Vec<String>)> {
        let notices = RefCell::new(Vec::new());
        let take = |notice: Notice| notices.borrow_mut().push(self.notice_text(notice));
        let state =
            State::look(&self.substrate, &SystemClock, &take).map_err(|error| self.state_failure(cannot, error))?;
        let done = work(state.as_ref())?;
        drop(state);
        Ok((done, notices.take()))
    }
}

/// Returns the name of the failed action for a verb that shares blocks of `paths`.
pub(super) fn cannot_share(paths: &[PathBuf]) -> String {
    match paths {
        [] => "cannot share blocks".to_owned(),
        [one] => format!("cannot share blocks in `{}`", one.shown()),
        [first, more @ ..] => format!("cannot share blocks in `{}` and {} more", first.shown(), more.len()),
    }
}

/// Returns the failure for a file system that cannot be used.
pub(super) fn probe_failure(cannot: &str, error: &ProbeError) -> Failure {
    let failure = Failure::new(cannot).because(error);
    match error {
        ProbeError::Kind { .. } => failure.hint(
            "use a pool, which shares blocks on any file system: `onefold pool create`, then `onefold pool import`; or \
             move the files to XFS, Btrfs or OCFS2",
        ),
        ProbeError::Root { source, .. } | ProbeError::Io { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            failure.hint("run the command as root, or as a user who may write into the root of the file system")
        }
        ProbeError::Root { .. }
        | ProbeError::Io { .. }
        | ProbeError::NoReflinks { .. }
        | ProbeError::BlockBytes { .. }
        | ProbeError::ClusterBytes { .. }
        | ProbeError::LocalLocks { .. }
        | ProbeError::ReadOnly { .. }
        | ProbeError::KernelTooOld { .. }
        | ProbeError::NotShared { .. } => failure,
    }
}

/// The user's next step if the identity of the state folder is lost while images wait to be mended.
pub(super) const IDENTITY_LOST: &str = "restore `.onefold/identity` from a backup; or let `onefold share mend --foreign mend` \
    fill the holes, or `onefold share mend --foreign give-up` give them up";

/// The user's next step about settings of domains that are not used.
pub(super) const SETTINGS_HINT: &str =
    "the file says which users' files are one domain; nothing is shared until it is clear";

/// Returns the failure for a state folder that cannot be used. It names files as the user would.
pub(super) fn state_failure(cannot: &str, error: StateError, paths: &UserPaths) -> Failure {
    let error = error.with_paths(|path| paths.of(path));
    let failure = Failure::new(cannot).because(&error);
    match &error {
        StateError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            failure.hint("run the command as root, or as the user who ran `onefold share run`")
        }
        StateError::Untrusted { why, .. } => failure.hint(distrust_hint(*why)),
        StateError::Newer { .. } => {
            failure.hint("use the newer version on this host, too; or delete the folder: the next run finds all again")
        }
        StateError::Damaged { .. } => failure.hint("the next `onefold share run` drops it and finds its content again"),
        StateError::IdentityLost { .. } => failure.hint(IDENTITY_LOST),
        StateError::Restless => failure.hint("run the command again"),
        StateError::Settings { .. } => failure.hint(SETTINGS_HINT),
        StateError::Interrupted => Failure { exit: Exit::Interrupted, ..failure },
        StateError::Io { .. } => failure,
    }
}

/// Returns the user's next step about a file or folder of the state that is not used.
pub(super) fn distrust_hint(why: Distrust) -> &'static str {
    match why {
        Distrust::Owner { .. } => {
            "it may hold blocks that its owner must not read, and false records of others: remove or rename the state \
             folder, and the next run finds everything again (on OCFS2, first make sure that no host has died while it \
             shared); each user has a separate state folder"
        }
        Distrust::Links { .. } => "look for its other name, and remove this one: the next run finds its content again",
        Distrust::Writable { .. } => {
            "if no other user can have written it, run chmod -R go-rwx on the state folder; otherwise remove the folder, \
             once no image has holes"
        }
        Distrust::Kind => "remove or rename it: the right file or folder is made again",
    }
}

/// Refuses a file system on which another user can replace the state folder by an earlier one, if that does harm there
/// and the user has not accepted it.
pub(super) fn check_root<S: Substrate>(cannot: &str, substrate: &S, accepted: RootArgs) -> Outcome<()> {
    if !SharePolicy::of(substrate.abilities()).is_declared() || accepted.accept_writable_root {
        return Ok(());
    }
    match writable_root(substrate).map_err(|error| Failure::of_io(cannot, &error))? {
        None => Ok(()),
        Some(root) => Err(unaccepted(cannot, root)),
    }
}

fn unaccepted(cannot: &str, root: WritableRoot) -> Failure {
    Failure::new(cannot)
        .because_of(format!(
            "{root}: such users can put an earlier state folder in place of the present one, and on OCFS2 that one names \
             holes in images that were filled long ago"
        ))
        .hint(
            "make root own that folder, and let no other user write to it; or give --accept-writable-root if those users \
             may do it",
        )
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

#[cfg(test)]
mod tests {
    use onefold_substrate::UserNo;

    use super::*;

    #[test]
    fn a_root_folder_of_another_user_is_named_with_what_to_do() {
        let root = WritableRoot { owner: UserNo(1000), mode: 0o755, user: UserNo::ROOT };
        let message = unaccepted("cannot share blocks", root).to_string();
        let parts = ["belongs to user 1000", "earlier state folder", "--accept-writable-root"];
        assert!(parts.iter().all(|part| message.contains(part)) && !message.contains("  such"), "{message}");
        let root = WritableRoot { owner: UserNo::ROOT, mode: 0o777, user: UserNo::ROOT };
        let message = unaccepted("cannot share blocks", root).to_string();
        assert!(
            message.contains("others than root may write into the root folder") && message.contains("777"),
            "{message}"
        );
    }

    #[test]
    fn a_file_system_that_cannot_share_is_named_once_with_the_way_out() {
        let paths = [PathBuf::from("images"), PathBuf::from("more")];
        let error = ProbeError::Kind { path: PathBuf::from("/data"), kind: "ext4".to_owned() };
        let message = probe_failure(&cannot_share(&paths[..1]), &error).to_string();
        assert!(message.starts_with("error: cannot share blocks in `images`\n"), "{message}");
        assert!(message.contains("/data is ext4") && message.contains("`onefold pool create`"), "{message}");
        assert_eq!(message.matches("cannot share blocks in").count(), 1, "{message}");
        assert_eq!(cannot_share(&paths), "cannot share blocks in `images` and 1 more");
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = ProbeError::Io { op: "create a file", path: PathBuf::from("/data"), source };
        assert!(probe_failure("cannot clone", &error).to_string().contains("hint: run the command as root"));
    }

    #[test]
    fn a_file_that_is_not_trusted_is_named_with_the_reason_and_what_to_do() {
        let path = PathBuf::from(".onefold/arena/0");
        let paths = UserPaths::new(Path::new("/nowhere"), &[PathBuf::from("images")], &[PathBuf::new()]);
        for (why, reason, step) in [
            (
                Distrust::Owner { owner: UserNo(7), user: UserNo::ROOT },
                "belongs to user 7, and this runs for root",
                "rename",
            ),
            (Distrust::Links { links: 2, most: 1 }, "has 2 names, and should have one", "other name"),
            (Distrust::Writable { mode: 0o666 }, "mode 666", "chmod -R go-rwx"),
            (Distrust::Kind, "neither the folder nor the regular file", "remove"),
        ] {
            let error = StateError::Untrusted { path: path.clone(), why };
            let message = state_failure("cannot share", error, &paths).to_string();
            assert!(["`images/.onefold/arena/0`", reason, step].iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
