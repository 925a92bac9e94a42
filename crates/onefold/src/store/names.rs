//! Names inside a pool, in the form that commands take.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use onefold_block::Show;

use crate::failure::{Failure, Outcome};
use crate::machine_name::machine_name;

/// A path inside a pool, from its root, without `.` and `..`. Empty for the root itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolPath(PathBuf);

impl PoolPath {
    /// Interprets `path` as a path inside a pool; a leading `/` means the root.
    pub(crate) fn new(path: &Path) -> Outcome<PoolPath> {
        let mut inside = PathBuf::new();
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => inside.push(name),
                Component::ParentDir | Component::Prefix(_) => {
                    let error = format!("`{}` is not the name of a file in a pool", path.shown());
                    return Err(Failure::usage(error).because_of("names with `..` are not followed"));
                }
            }
        }
        Ok(PoolPath(inside))
    }

    /// Returns it as a relative path.
    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }

    /// Returns it for a JSON document, in the form of [`machine_name`]; the root is `/`.
    pub(crate) fn machine_name(&self) -> String {
        if self.0.as_os_str().is_empty() { "/".to_owned() } else { machine_name(&self.0) }
    }

    /// Returns its components from the root.
    pub(crate) fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(OsStrExt::as_bytes)
    }

    /// Returns its directory and its name there; `None` for the root.
    pub(crate) fn split(&self) -> Option<(PoolPath, &OsStr)> {
        Some((PoolPath(self.0.parent()?.to_owned()), self.0.file_name()?))
    }

    /// Returns the path of `name` in this directory.
    pub(crate) fn join(&self, name: &OsStr) -> PoolPath {
        PoolPath(self.0.join(name))
    }
}

impl fmt::Display for PoolPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.as_os_str().is_empty() { f.write_str("/") } else { self.0.shown().fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PoolPath {
        PoolPath::new(Path::new(text)).unwrap()
    }

    #[test]
    fn paths_start_at_the_root_of_the_pool() {
        assert_eq!(path("/a/b"), path("./a//b/"));
        assert_eq!(path("a/b").components().collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(path("/").to_string(), "/");
        assert!(path("").split().is_none());
        assert_eq!(path("a/b").split(), Some((path("a"), OsStr::new("b"))));
        assert_eq!(path("a").split(), Some((path(""), OsStr::new("a"))));
    }

    #[test]
    fn paths_that_lead_upwards_are_refused() {
        assert!(PoolPath::new(Path::new("../etc/passwd")).is_err());
        assert!(PoolPath::new(Path::new("a/../../b")).is_err());
    }
}
