//! Paths in the form in which the user gave them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Turns paths below the root of a file system into those that the user would write.
#[derive(Clone, Debug)]
pub(super) struct UserPaths {
    root: PathBuf,
    /// Folders and files: below the root, and as the user gave them.
    given: Vec<(PathBuf, PathBuf)>,
}

impl UserPaths {
    /// Returns the forms of the paths `given`, which are `below` the root in the same order. Folders above a given path
    /// get its form, too, as far up as the user named them.
    pub(super) fn new(root: &Path, given: &[PathBuf], below: &[PathBuf]) -> UserPaths {
        let mut paths = UserPaths { root: root.to_owned(), given: Vec::new() };
        for (given, below) in given.iter().zip(below) {
            let (mut given, mut below) = (given.as_path(), below.as_path());
            loop {
                paths.given.push((below.to_owned(), given.to_owned()));
                let is_named = given.file_name().is_some() && given.file_name() == below.file_name();
                let (Some(up), Some(up_below)) = (given.parent(), below.parent()) else { break };
                let folder = if up.as_os_str().is_empty() { Path::new(".") } else { up };
                // A link may have the name of the folder that it leads to.
                if !is_named || folder.canonicalize().ok() != root.join(up_below).canonicalize().ok() {
                    break;
                }
                (given, below) = (up, up_below);
            }
        }
        // The form with most in common comes first.
        paths.given.sort_by_key(|(below, _)| std::cmp::Reverse(below.components().count()));
        paths
    }

    /// Returns the root of the file system.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the user's form of a path below the root; the whole path if the user named no folder above it.
    pub(super) fn of(&self, path: &Path) -> PathBuf {
        let named = self.given.iter().find_map(|(below, given)| Some((given, path.strip_prefix(below).ok()?)));
        match named {
            Some((given, rest)) if rest.as_os_str().is_empty() => given.clone(),
            Some((given, rest)) if given.as_os_str() == OsStr::new(".") => rest.to_owned(),
            Some((given, rest)) => given.join(rest),
            None => self.root.join(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(given: &[&str], below: &[&str]) -> UserPaths {
        let [given, below] = [given, below].map(|paths| paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        UserPaths::new(Path::new("/nowhere/data"), &given, &below)
    }

    #[test]
    fn a_path_has_the_form_of_the_folder_that_was_named() {
        let of = |given: &str, below: &str, path: &str| paths(&[given], &[below]).of(Path::new(path));
        assert_eq!(of("images", "vm/images", "vm/images/a.raw"), Path::new("images/a.raw"));
        assert_eq!(of("images/", "vm/images", "vm/images"), Path::new("images"));
        assert_eq!(of(".", "vm", "vm/a.raw"), Path::new("a.raw"));
        assert_eq!(of("/nowhere/data", "", "vm/a.raw"), Path::new("/nowhere/data/vm/a.raw"));
        assert_eq!(of("images", "vm/images", "other/a.raw"), Path::new("/nowhere/data/other/a.raw"));
        assert_eq!(of("link", "vm", "vm/a.raw"), Path::new("link/a.raw"));
    }

    #[test]
    fn files_beside_a_named_file_have_its_form() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("vm")).unwrap();
        let paths = UserPaths::new(&root, &[root.join("vm/a.raw")], &[PathBuf::from("vm/a.raw")]);
        assert_eq!(paths.of(Path::new("vm/b.raw")), root.join("vm/b.raw"));
        std::os::unix::fs::symlink(root.join("vm"), root.join("vm/vm")).unwrap();
        let linked = UserPaths::new(&root, &[root.join("vm/vm/a.raw")], &[PathBuf::from("vm/a.raw")]);
        assert_eq!(linked.of(Path::new("vm/b.raw")), root.join("vm/vm/b.raw"));
        assert_eq!(linked.of(Path::new("b.raw")), root.join("b.raw"), "the link's folder is not that folder's parent");
    }
}
