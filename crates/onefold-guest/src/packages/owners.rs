//! Finds the package of a file.

use std::ops::{ControlFlow, Range};

use super::PackageDatabase;
use crate::filesystem::FileNumber;
use crate::tree::{GuestFile, PathId, PathSet, Problem, SystemIndex, Tree};

/// The files that belong to packages.
///
/// A path stands for the file to which it leads through the symbolic links of the guest. A file of several packages,
/// which directories often are, belongs to the first of them.
#[derive(Debug, Default)]
pub struct Owners {
    /// Each file once, sorted.
    files: Vec<(GuestFile, u32)>,
    /// The part of `files` for each file system, in order.
    sections: Vec<Section>,
}

/// The files of one file system. In most file systems, the numbers of files are dense. So only few files share their
/// upper bits, and these are searched.
#[derive(Debug)]
struct Section {
    system: SystemIndex,
    /// Number of bits below the upper ones.
    shift: u32,
    /// For each value of the upper bits, the index of the first file with these bits or greater ones in the list of all
    /// files.
    starts: Vec<u32>,
}

impl Section {
    /// Returns the section for the sorted files of one file system, which begin at `first` in the list of all files.
    fn new(files: &[(GuestFile, u32)], first: usize) -> Option<Section> {
        let (start, end) = (files.first()?.0, files.last()?.0);
        let shift = (0..u64::BITS).find(|shift| end.file.0 >> shift <= 2 * files.len() as u64)?;
        let buckets = usize::try_from(end.file.0 >> shift).ok()?;
        let mut starts = Vec::with_capacity(buckets + 2);
        for (at, (file, _)) in (first..).zip(files) {
            let bucket = usize::try_from(file.file.0 >> shift).ok()?;
            starts.resize(starts.len().max(bucket + 1), u32::try_from(at).ok()?);
        }
        starts.push(u32::try_from(first + files.len()).ok()?);
        Some(Section { system: start.system, shift, starts })
    }

    /// Returns the range in the list of all files that may contain a file.
    fn range(&self, file: FileNumber) -> Option<Range<usize>> {
        let bucket = usize::try_from(file.0 >> self.shift).ok()?;
        Some(*self.starts.get(bucket)? as usize..*self.starts.get(bucket.checked_add(1)?)? as usize)
    }
}

impl Owners {
    /// Looks up all paths of a database in its tree.
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
        let mut first = 0;
        let mut sections = Vec::new();
        for part in files.chunk_by(|(one, _), (two, _)| one.system == two.system) {
            sections.extend(Section::new(part, first));
            first += part.len();
        }
        Owners { files, sections }
    }

    /// Returns the package of a file, as an index into [`PackageDatabase::packages`].
    #[must_use]
    pub fn package(&self, file: GuestFile) -> Option<usize> {
        let section = self.sections.iter().find(|section| section.system == file.system)?;
        let files = self.files.get(section.range(file.file)?)?;
        let at = files.binary_search_by_key(&file, |(file, _)| *file).ok()?;
        files.get(at).and_then(|(_, package)| usize::try_from(*package).ok())
    }

    /// Returns the files with their packages, sorted by file.
    pub fn files(&self) -> impl Iterator<Item = (GuestFile, usize)> {
        self.files.iter().filter_map(|(file, package)| Some((*file, usize::try_from(*package).ok()?)))
    }
}

/// Maximum number of paths with their packages before equal ones are dropped. A path set has room for half of it.
const LISTED_MAX: usize = 2_000_000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn file(system: u32, number: u64) -> GuestFile {
        GuestFile { system: SystemIndex(system), file: FileNumber(number) }
    }

    /// Checks that these files have their packages, and that other files, including adjacent ones, have none.
    fn check(files: &[(GuestFile, u32)]) {
        let owners = Owners::of_files(files.to_vec());
        let mut expected: BTreeMap<GuestFile, u32> = BTreeMap::new();
        for (file, package) in files {
            let first = expected.entry(*file).or_insert(*package);
            *first = (*first).min(*package);
        }
        let beside = |file: &GuestFile| [file.file.0.wrapping_sub(1), file.file.0, file.file.0.wrapping_add(1)];
        let asked = files.iter().flat_map(|(known, _)| beside(known).map(|number| (known.system.0, number)));
        let ends = (0..4).flat_map(|system| [0, 1, 1 << 40, u64::MAX].map(|number| (system, number)));
        for (system, number) in asked.chain(ends) {
            let asked = file(system, number);
            let package = expected.get(&asked).map(|package| *package as usize);
            assert_eq!(owners.package(asked), package, "{asked:?} of {}", files.len());
        }
        let all: Vec<_> = expected.into_iter().map(|(file, package)| (file, package as usize)).collect();
        assert_eq!(owners.files().collect::<Vec<_>>(), all);
    }

    #[test]
    fn each_file_has_the_first_of_its_packages() {
        check(&[]);
        check(&[(file(0, 0), 3)]);
        check(&[(file(1, u64::MAX), 3), (file(1, u64::MAX), 2)]);
        check(&[(file(2, 7), 5), (file(0, 7), 4), (file(0, 8), 4), (file(2, 7), 1), (file(2, 9), 0)]);
        let dense: Vec<_> = (0..3000).map(|number| (file(u32::from(number % 3 == 0), 11 + number), 1)).collect();
        check(&dense);
        let far: Vec<_> = (0..64).map(|bit| (file(0, 1 << bit), bit)).collect();
        check(&far);
        let heaps = (0..500_u64).map(|number| (file(3, ((number % 5) << 33) + number * number), 9));
        check(&heaps.collect::<Vec<_>>());
    }
}
