//! Names of state folders. Each user has its own, so that no user can take the name of another one's folder, above all
//! root's.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use onefold_block::Show;
use onefold_substrate::{Substrate, SubstrateKind, UserNo};

/// Root's folder, and the one in a pool, which has no users.
const ROOTS: &str = ".onefold";

/// The name of a user's state folder in the root of the file system: `.onefold` for root, `.onefold-NUMBER` for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFolder(PathBuf);

impl StateFolder {
    /// Returns the state folder of the user that a substrate works for.
    #[must_use]
    pub fn of<S: Substrate>(substrate: &S) -> StateFolder {
        match substrate.abilities().kind {
            SubstrateKind::Pool => StateFolder::of_user(UserNo::ROOT),
            _ => StateFolder::of_user(substrate.user()),
        }
    }

    /// Returns the state folder of a user.
    #[must_use]
    pub(crate) fn of_user(user: UserNo) -> StateFolder {
        match user {
            UserNo::ROOT => StateFolder(ROOTS.into()),
            UserNo(number) => StateFolder(format!("{ROOTS}-{number}").into()),
        }
    }

    /// Returns whether a path below the root of the file system leads into the state folder of any user, or is one.
    #[must_use]
    pub fn has(path: &Path) -> bool {
        let mut names = path.components().filter(|part| *part != Component::CurDir);
        matches!(names.next(), Some(Component::Normal(name)) if StateFolder::is_name(name))
    }

    fn is_name(name: &OsStr) -> bool {
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(ROOTS)) else { return false };
        let number = rest.strip_prefix('-').filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        rest.is_empty() || number.is_some_and(|number| number.parse::<u32>().is_ok())
    }

    /// Returns its path below the root of the file system.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file or folder in it.
    #[must_use]
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }
}

impl fmt::Display for StateFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.shown().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_name_of_its_own() {
        assert_eq!(StateFolder::of_user(UserNo::ROOT).to_string(), ".onefold");
        assert_eq!(StateFolder::of_user(UserNo(1000)).to_string(), ".onefold-1000");
        assert_eq!(StateFolder::of_user(UserNo(7)).join("arena/0"), Path::new(".onefold-7/arena/0"));
    }

    #[test]
    fn the_state_folders_of_all_users_are_known_by_their_names() {
        for path in [".onefold", ".onefold/arena/0", ".onefold-1000", ".onefold-4294967295/logs", "./.onefold-7"] {
            assert!(StateFolder::has(Path::new(path)), "{path}");
        }
        for path in
            ["", ".", "a/.onefold", ".onefolder", ".onefold-", ".onefold-x", ".onefold-4294967296", ".onefold-+1"]
        {
            assert!(!StateFolder::has(Path::new(path)), "{path}");
        }
    }
}
