//! Files of packages that differ from their digests.
//!
//! Files are read in the order of their numbers, which is mostly that of the disk, and each at most once, however many
//! packages list it.

#[cfg(test)]
mod tests;

use std::io::Read;
use std::ops::ControlFlow;

use md5::{Digest as _, Md5};

use super::{Digest, PackageDatabase};
use crate::error::GuestError;
use crate::filesystem::{Doubt, Extent, ExtentKind, FileKind, FileStat, FileSystem, State};
use crate::tree::{GuestFile, Links, PathId, PathSet, Problem, ProblemLog, Tree};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;
/// A file is not read where it is so many times as long as what is stored of it, and longer than a MiB: no package has
/// files of holes, and a hostile one may have 2^60 bytes.
const BYTES_FOR_STORED_MAX: u64 = 64;
const SPARSE_BYTES_MIN: u64 = 1 << 20;
/// So many times the bytes of all file systems are read at most, and a GiB more, but never more than a TiB: no system
/// has so many bytes of packages. Files may share their content; a hostile guest has very many that share
/// one long content.
const BYTES_FOR_SYSTEM_MAX: u64 = 4;
const BYTES_MIN: u64 = 1 << 30;
const BYTES_MAX: u64 = 1 << 40;
/// Symbolic links in the place of files that are followed. A system has some, where its owner moved files.
const LINKS_MAX: usize = 1 << 16;
/// Steps that these links take together, a name or 4 KiB of a directory each.
const LINK_STEPS_MAX: u64 = 1 << 22;
/// Digests that are compared.
const EXPECTED_MAX: usize = 1_000_000;

/// A file that is not as its package had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The package, as an index of [`PackageDatabase::packages`].
    pub package: usize,
    /// The path by the database.
    pub path: Vec<u8>,
    /// What is different.
    pub kind: DifferenceKind,
    /// Whether it is a configuration file, which users are expected to change.
    pub is_configuration: bool,
}

/// How a file differs from what its package had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The content has another digest.
    Changed {
        /// The digest of the package.
        recorded: Digest,
        /// The digest of the file.
        found: Digest,
    },
    /// There is no file.
    Missing,
    /// There is something else than a regular file.
    NotRegular(FileKind),
    /// It cannot be read, for this reason.
    Unreadable(String),
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// The number of files that have their digests.
    pub equal_count: u64,
    /// The number of files that are missing because the system is set up not to install them.
    pub excluded_count: u64,
    /// The files that differ, in the order of packages, then of paths.
    pub differences: Vec<Difference>,
}

/// A digest that a file should have.
struct Expected {
    package: usize,
    path: PathId,
    digest: Digest,
    is_configuration: bool,
    is_excluded: bool,
}

/// Reads every file that has a recorded digest and compares. `on_progress` is called with the number of digests that
/// were compared and of all of them, and ends the work by breaking.
#[must_use]
pub fn verify(
    tree: &Tree<'_>,
    database: &dyn PackageDatabase,
    on_progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Verification {
    let mut paths = PathSet::new();
    let expected = expected(database, &mut paths);
    paths.resolve(tree, database.problems());
    let mut targets =
        Targets { tree, paths: &paths, problems: database.problems(), left: LINKS_MAX, steps_left: LINK_STEPS_MAX };
    let mut files: Vec<(Option<GuestFile>, Expected)> =
        expected.into_iter().map(|one| (targets.of(one.path), one)).collect();
    files.sort_by_key(|(file, _)| *file);
    let total = files.len() as u64;
    let mut verification = Verification::default();
    let mut last: Option<(GuestFile, Found)> = None;
    let mut bytes_left = bytes_max(tree.systems());
    for (done, (file, expected)) in (0..).zip(files) {
        if on_progress(done, total).is_break() {
            break;
        }
        let found = match (file, last.take()) {
            (None, _) => Found::Nothing,
            (Some(file), Some((known, found))) if known == file => found,
            (Some(file), _) => found_in(tree, file, &mut bytes_left),
        };
        verification.compare(&expected, &found, &paths);
        last = file.map(|file| (file, found));
    }
    verification.differences.sort_by(|one, two| (one.package, &one.path).cmp(&(two.package, &two.path)));
    verification
}

/// Returns all digests of the database.
fn expected(database: &dyn PackageDatabase, paths: &mut PathSet) -> Vec<Expected> {
    let mut expected = Vec::new();
    for package in 0..database.packages().len() {
        database.each_path(package, &mut |owned| {
            let (Some(digest), Some(path)) = (owned.digest, paths.add(owned.path)) else {
                return ControlFlow::Continue(());
            };
            if expected.len() >= EXPECTED_MAX {
                let problem = "the packages have more digests than are compared";
                database.problems().note(Problem::of_file(owned.path, problem));
                return ControlFlow::Break(());
            }
            let (is_configuration, is_excluded) = (owned.is_configuration, owned.is_excluded);
            expected.push(Expected { package, path, digest, is_configuration, is_excluded });
            ControlFlow::Continue(())
        });
    }
    if paths.is_full() {
        database.problems().note(Problem::of_file(b"/", "the packages have more paths than are looked up"));
    }
    expected
}

/// The files that paths lead to.
struct Targets<'t> {
    tree: &'t Tree<'t>,
    paths: &'t PathSet,
    problems: &'t ProblemLog,
    /// How many links may still be followed, and how many steps they may take.
    left: usize,
    steps_left: u64,
}

impl Targets<'_> {
    /// Returns the file that is read for a path: where it is a symbolic link, what this leads to, and the link itself
    /// where it cannot be followed.
    fn of(&mut self, path: PathId) -> Option<GuestFile> {
        let file = self.paths.file(path)?;
        match self.tree.stat(file) {
            Ok(stat) if stat.kind == FileKind::SymbolicLink && self.left > 0 => {}
            _ => return Some(file),
        }
        self.left -= 1;
        let path = self.paths.path(path);
        match self.tree.find_within(&path, Links::Follow, &mut self.steps_left) {
            Ok(found) => Some(found.file),
            Err(GuestError::NotFound | GuestError::NotADirectory) => None,
            Err(error) => {
                self.problems.note(Problem::of_file(&path, error.to_string()));
                Some(file)
            }
        }
    }
}

/// Why a sparse file is not read.
const MOSTLY_HOLES: &str = "it consists of holes mostly, which no package has";

/// What there is in the place of a file.
enum Found {
    Nothing,
    Digest(Digest),
    NotRegular(FileKind),
    Unreadable(String),
}

/// Returns how many bytes a verification reads at most. A file system that a system mounts in several places counts
/// once, and one that claims to be longer than its volume does not count.
fn bytes_max(systems: &[&dyn FileSystem]) -> u64 {
    let mut known: Vec<*const ()> = Vec::new();
    let mut bytes: u64 = 0;
    for system in systems {
        let place = std::ptr::from_ref(*system).cast::<()>();
        let is_too_long = matches!(system.state(), State::Unsure(doubts) if doubts.contains(&Doubt::LongerThanVolume));
        if !is_too_long && !known.contains(&place) {
            known.push(place);
            bytes = bytes.saturating_add(system.facts().size_bytes);
        }
    }
    bytes.saturating_mul(BYTES_FOR_SYSTEM_MAX).saturating_add(BYTES_MIN).min(BYTES_MAX)
}

/// Looks at a file. Takes what it reads from `bytes_left`.
fn found_in(tree: &Tree<'_>, file: GuestFile, bytes_left: &mut u64) -> Found {
    let stat = match tree.stat(file) {
        Ok(stat) => stat,
        Err(error) => return Found::Unreadable(error.to_string()),
    };
    if stat.kind != FileKind::Regular {
        return Found::NotRegular(stat.kind);
    }
    if is_mostly_holes(&stat) {
        return Found::Unreadable(MOSTLY_HOLES.to_owned());
    }
    let Some(left) = bytes_left.checked_sub(stat.size_bytes) else {
        return Found::Unreadable("the files are longer together than the disk".to_owned());
    };
    match has_stored_bytes(tree, file, stat.size_bytes) {
        Ok(true) => {}
        Ok(false) => return Found::Unreadable(MOSTLY_HOLES.to_owned()),
        Err(error) => return Found::Unreadable(error.to_string()),
    }
    *bytes_left = left;
    match digest_of(tree, file, stat.size_bytes) {
        Ok(digest) => Found::Digest(digest),
        Err(error) => Found::Unreadable(error.to_string()),
    }
}

/// Returns whether a file is sparse by its own account.
fn is_mostly_holes(stat: &FileStat) -> bool {
    stat.size_bytes > SPARSE_BYTES_MIN && stat.size_bytes / BYTES_FOR_STORED_MAX > stat.allocated_bytes
}

/// Returns whether the map of a file has as many stored bytes as it takes to be read. Its own account may be wrong.
fn has_stored_bytes(tree: &Tree<'_>, file: GuestFile, size_bytes: u64) -> Result<bool, GuestError> {
    let wanted = size_bytes / BYTES_FOR_STORED_MAX;
    if size_bytes <= SPARSE_BYTES_MIN {
        return Ok(true);
    }
    let mut stored: u64 = 0;
    tree.system(file.system).each_extent(file.file, &mut |extent: Extent| {
        let left = size_bytes.saturating_sub(extent.offset);
        if extent.kind != ExtentKind::Unwritten {
            stored = stored.saturating_add(extent.length_bytes.min(left));
        }
        if left == 0 || stored >= wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(stored >= wanted)
}

fn digest_of(tree: &Tree<'_>, file: GuestFile, size_bytes: u64) -> std::io::Result<Digest> {
    let mut content = tree.content(file);
    let mut hasher = Md5::new();
    let mut piece = vec![0; usize::try_from(size_bytes).unwrap_or(usize::MAX).clamp(1, PIECE_BYTES)];
    loop {
        let count = content.read(&mut piece)?;
        if count == 0 {
            return Ok(Digest::Md5(hasher.finalize().into()));
        }
        hasher.update(piece.get(..count).unwrap_or_default());
    }
}

impl Verification {
    fn compare(&mut self, expected: &Expected, found: &Found, paths: &PathSet) {
        let kind = match found {
            Found::Digest(digest) if *digest == expected.digest => {
                self.equal_count += 1;
                return;
            }
            Found::Nothing if expected.is_excluded => {
                self.excluded_count += 1;
                return;
            }
            Found::Digest(found) => DifferenceKind::Changed { recorded: expected.digest, found: *found },
            Found::Nothing => DifferenceKind::Missing,
            Found::NotRegular(kind) => DifferenceKind::NotRegular(*kind),
            Found::Unreadable(reason) => DifferenceKind::Unreadable(reason.clone()),
        };
        let Expected { package, is_configuration, .. } = *expected;
        let path = paths.added_path(expected.path);
        self.differences.push(Difference { package, path, kind, is_configuration });
    }
}
