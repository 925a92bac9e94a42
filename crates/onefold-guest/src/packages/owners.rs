//! The package of a file.

use std::ops::ControlFlow;

use super::PackageDatabase;
use crate::tree::{GuestFile, PathId, PathSet, Problem, Tree};

/// The files that belong to packages.
///
/// A path counts where it leads, through the symbolic links of the guest. A file that several packages have, as
/// directories are, belongs to the first of them.
#[derive(Debug, Default)]
pub struct Owners {
    /// Each file once, in order.
    files: Vec<(GuestFile, u32)>,
}

impl Owners {
    /// Looks for all paths of a database in its tree.
    #[must_use]
    pub fn read(tree: &Tree<'_>, database: &dyn PackageDatabase) -> Owners {
        let problems = database.problems();
        let mut paths = PathSet::new();
        let mut listed: Vec<(PathId, u32)> = Vec::new();
        for package in 0..database.packages().len() {
            let number = u32::try_from(package).unwrap_or(u32::MAX);
            database.each_place(package, &mut |place| {
                listed.extend(paths.add(place).map(|path| (path, number)));
                ControlFlow::Continue(())
            });
            // A million equal paths are one path.
            if listed.len() > LISTED_MAX {
                listed.sort_unstable();
                listed.dedup_by_key(|(path, _)| *path);
            }
        }
        if paths.is_full() {
            problems.note(Problem::of_file(b"/", "the packages have more paths than are looked up"));
        }
        paths.resolve(tree, problems);
        Owners::of_files(listed.into_iter().filter_map(|(path, package)| Some((paths.file(path)?, package))).collect())
    }

    fn of_files(mut files: Vec<(GuestFile, u32)>) -> Owners {
        files.sort_unstable();
        files.dedup_by_key(|(file, _)| *file);
        Owners { files }
    }

    /// Returns the package that a file belongs to, as an index of [`PackageDatabase::packages`].
    #[must_use]
    pub fn package(&self, file: GuestFile) -> Option<usize> {
        let at = self.files.binary_search_by_key(&file, |(file, _)| *file).ok()?;
        self.files.get(at).and_then(|(_, package)| usize::try_from(*package).ok())
    }

    /// Returns the files with their packages, in the order of the files.
    pub fn files(&self) -> impl Iterator<Item = (GuestFile, usize)> {
        self.files.iter().filter_map(|(file, package)| Some((*file, usize::try_from(*package).ok()?)))
    }
}

/// Paths with their packages that are kept before equal ones are dropped. A path set has room for half as many.
const LISTED_MAX: usize = 2_000_000;
