//! Files of packages that differ from their digests.
//!
//! Files are read in the order of their numbers, which is usually that of the disk. Each is read at most once, however
//! many packages list it.

#[cfg(test)]
mod tests;

use std::io::Read;
use std::ops::ControlFlow;

use md5::{Digest as _, Md5};

use super::{Digest, PackageDatabase};
use crate::error::GuestError;
use crate::filesystem::{Doubt, Extent, ExtentKind, FileKind, FileStat, FileSystem, State};
use crate::tree::{GuestFile, Links, PathId, PathSet, Problem, ProblemLog, Tree};

/// Bytes of one read.
const PIECE_BYTES: usize = 256 << 10;
/// A file is not read if its length exceeds its stored bytes by this factor and is more than 1 MiB. No package has
/// files that consist of holes, and a hostile file may have 2^60 bytes.
const BYTES_FOR_STORED_MAX: u64 = 64;
const SPARSE_BYTES_MIN: u64 = 1 << 20;
/// Limit for the bytes that are read: this multiple of the length of all file systems, plus 1 GiB, but at most 1 TiB.
/// No system has that many bytes of packages. Files may share their content, and a hostile guest may have very many
/// files that share one long content.
const BYTES_FOR_SYSTEM_MAX: u64 = 4;
const BYTES_MIN: u64 = 1 << 30;
const BYTES_MAX: u64 = 1 << 40;
/// Maximum number of symbolic links in place of files that are followed. A system has some if its owner moved files.
const LINKS_MAX: usize = 1 << 16;
/// Maximum total number of steps for these links. A name, or 4 KiB of a directory, takes one.
const LINK_STEPS_MAX: u64 = 1 << 22;
/// Maximum number of digests that are compared.
const EXPECTED_MAX: usize = 1_000_000;

/// A file that differs from its package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The package, as an index into [`PackageDatabase::packages`].
    pub package: usize,
    /// The path in the database.
    pub path: Vec<u8>,
    /// The difference.
    pub kind: DifferenceKind,
    /// Whether it is a configuration file, which users are expected to change.
    pub is_configuration: bool,
}

/// Difference between a file and its package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The content has another digest.
    Changed {
        /// The digest of the package.
        recorded: Digest,
        /// The digest of the file.
        found: Digest,
    },
    /// The file does not exist.
    Missing,
    /// The path leads to something else than a regular file.
    NotRegular(FileKind),
    /// It cannot be read, for this reason.
    Unreadable(String),
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// The number of files with the expected digest.
    pub equal_count: u64,
    /// The number of files that are missing because the system is configured not to install them.
    pub excluded_count: u64,
    /// The files that differ, sorted by package and path.
    pub differences: Vec<Difference>,
}

/// An expected digest of a file.
struct ExpectedDigest {
    package: usize,
    path: PathId,
    digest: Digest,
    is_configuration: bool,
    is_excluded: bool,
}

/// Reads every file with a recorded digest and compares it. Calls `on_progress` with the number of compared digests and
/// the total number; it can break to end the work.
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
    let mut files: Vec<(Option<GuestFile>, ExpectedDigest)> =
        expected.into_iter().map(|one| (targets.of(one.path), one)).collect();
    files.sort_by_key(|(file, _)| *file);
    let total = files.len() as u64;
    let mut verification = Verification::default();
    let mut last: Option<(GuestFile, ReadOutcome)> = None;
    let mut bytes_left = bytes_max(tree.systems());
    for (done, (file, expected)) in (0..).zip(files) {
        if on_progress(done, total).is_break() {
            break;
        }
        let found = match (file, last.take()) {
            (None, _) => ReadOutcome::Nothing,
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
fn expected(database: &dyn PackageDatabase, paths: &mut PathSet) -> Vec<ExpectedDigest> {
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
            expected.push(ExpectedDigest { package, path, digest, is_configuration, is_excluded });
            ControlFlow::Continue(())
        });
    }
    if paths.is_full() {
        database.problems().note(Problem::of_file(b"/", "the packages have more paths than are looked up"));
    }
    expected
}

/// Finds the files to which paths lead.
struct Targets<'t> {
    tree: &'t Tree<'t>,
    paths: &'t PathSet,
    problems: &'t ProblemLog,
    /// Remaining limits for links, and for their steps.
    left: usize,
    steps_left: u64,
}

impl Targets<'_> {
    /// Returns the file to read for a path. For a symbolic link, this is its target, or the link itself if it cannot be
    /// followed.
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

/// Reason to skip a sparse file.
const MOSTLY_HOLES: &str = "it consists of holes mostly, which no package has";

/// Result of reading the file.
enum ReadOutcome {
    Nothing,
    Digest(Digest),
    NotRegular(FileKind),
    Unreadable(String),
}

/// Returns the maximum number of bytes that a verification reads. A file system that is mounted in several places
/// counts once, and one that claims to be longer than its volume does not count.
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

/// Examines a file. Subtracts the bytes that it reads from `bytes_left`.
fn found_in(tree: &Tree<'_>, file: GuestFile, bytes_left: &mut u64) -> ReadOutcome {
    let stat = match tree.stat(file) {
        Ok(stat) => stat,
        Err(error) => return ReadOutcome::Unreadable(error.to_string()),
    };
    if stat.kind != FileKind::Regular {
        return ReadOutcome::NotRegular(stat.kind);
    }
    if is_mostly_holes(&stat) {
        return ReadOutcome::Unreadable(MOSTLY_HOLES.to_owned());
    }
    let Some(left) = bytes_left.checked_sub(stat.size_bytes) else {
        return ReadOutcome::Unreadable("the files are longer together than the disk".to_owned());
    };
    match has_stored_bytes(tree, file, stat.size_bytes) {
        Ok(true) => {}
        Ok(false) => return ReadOutcome::Unreadable(MOSTLY_HOLES.to_owned()),
        Err(error) => return ReadOutcome::Unreadable(error.to_string()),
    }
    *bytes_left = left;
    match digest_of(tree, file, stat.size_bytes) {
        Ok(digest) => ReadOutcome::Digest(digest),
        Err(error) => ReadOutcome::Unreadable(error.to_string()),
    }
}

/// Returns whether a file is sparse according to its metadata.
fn is_mostly_holes(stat: &FileStat) -> bool {
    stat.size_bytes > SPARSE_BYTES_MIN && stat.size_bytes / BYTES_FOR_STORED_MAX > stat.allocated_bytes
}

/// Returns whether the map of a file has enough stored bytes for the file to be read. The metadata may be wrong.
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
    fn compare(&mut self, expected: &ExpectedDigest, found: &ReadOutcome, paths: &PathSet) {
        let kind = match found {
            ReadOutcome::Digest(digest) if *digest == expected.digest => {
                self.equal_count += 1;
                return;
            }
            ReadOutcome::Nothing if expected.is_excluded => {
                self.excluded_count += 1;
                return;
            }
            ReadOutcome::Digest(found) => DifferenceKind::Changed { recorded: expected.digest, found: *found },
            ReadOutcome::Nothing => DifferenceKind::Missing,
            ReadOutcome::NotRegular(kind) => DifferenceKind::NotRegular(*kind),
            ReadOutcome::Unreadable(reason) => DifferenceKind::Unreadable(reason.clone()),
        };
        let ExpectedDigest { package, is_configuration, .. } = *expected;
        let path = paths.added_path(expected.path);
        self.differences.push(Difference { package, path, kind, is_configuration });
    }
}
