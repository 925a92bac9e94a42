//! The selection: the files that a run may read and change, decided once from the command line.
//!
//! The scan, the pass (its dry run, too) and the watch use the same selection. A file outside it is neither a source
//! nor a target. Its logs stay for a run that includes it, and its entries stay in the index unchecked. Only mending
//! goes beyond the selection: a hole that a dead host left is filled wherever it is.
//!
//! A selection depends on the names of files. Opt-outs ([`crate::opt_out`]) are different: they belong to the file, and
//! bind all runs.

use std::path::{Path, PathBuf};

use onefold_substrate::ListedKind;

/// The files that a run may read and change.
#[derive(Clone, Copy)]
pub struct Selection<'a> {
    roots: &'a [PathBuf],
    wants: &'a dyn Fn(&Path, ListedKind) -> bool,
}

impl<'a> Selection<'a> {
    /// Returns the selection of all files below some files and folders for which `wants` returns true. Paths are below
    /// the root of the file system. `wants` is asked about each file, and about each folder on the way from the root to
    /// it. Its answer for a folder holds for everything below.
    #[must_use]
    pub fn new(roots: &'a [PathBuf], wants: &'a dyn Fn(&Path, ListedKind) -> bool) -> Selection<'a> {
        Selection { roots, wants }
    }

    /// Returns the selection of all files.
    #[must_use]
    pub const fn all() -> Selection<'static> {
        const ALL: &[PathBuf] = &[PathBuf::new()];
        Selection { roots: ALL, wants: &|_, _| true }
    }

    /// Returns the files and folders at which it begins.
    #[must_use]
    pub fn roots(&self) -> &'a [PathBuf] {
        self.roots
    }

    /// Returns whether a file, or a folder with everything in it, is wanted, if its folder is.
    #[must_use]
    pub fn wants(&self, path: &Path, kind: ListedKind) -> bool {
        (self.wants)(path, kind)
    }

    /// Returns whether a scan that begins at the roots would reach a file of this name.
    #[must_use]
    pub fn contains(&self, file: &Path) -> bool {
        self.roots.iter().any(|root| {
            let Ok(below) = file.strip_prefix(root) else { return false };
            let (mut at, parts) = (root.clone(), below.components().count());
            below.components().enumerate().all(|(number, part)| {
                at.push(part);
                self.wants(&at, if number + 1 == parts { ListedKind::File } else { ListedKind::Folder })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_contained_where_a_scan_would_come_to_it() {
        let roots = [PathBuf::from("vm"), PathBuf::from("other/one.raw")];
        let wants = |path: &Path, kind: ListedKind| match kind {
            ListedKind::Folder => !path.ends_with("backup"),
            _ => path.extension().is_some_and(|extension| extension == "raw"),
        };
        let selection = Selection::new(&roots, &wants);
        for (path, expected) in [
            ("vm/a.raw", true),
            ("vm/deep/er/a.raw", true),
            ("vm/a.img", false),
            ("vm/backup/a.raw", false),
            ("vm/deep/backup/a/a.raw", false),
            ("vmware/a.raw", false),
            ("other/one.raw", true),
            ("other/two.raw", false),
            ("a.raw", false),
        ] {
            assert_eq!(selection.contains(Path::new(path)), expected, "{path}");
        }
        assert!(Selection::all().contains(Path::new("any/where")));
    }
}
