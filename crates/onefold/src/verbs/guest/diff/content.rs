//! Compares the content of two files.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{Extent, FileStat, FileSystem};
use onefold_guest::packages::{Digest, PackageDatabase};
use onefold_guest::tree::{GuestFile, PathSet, Problem, Tree};

use crate::verbs::guest::stored;

/// Number of bytes of each file that are read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Maximum number of extents that are compared. A file with more is read.
const EXTENTS_MAX: usize = 10_000;
/// Maximum number of digests that are kept for one side. Files beyond that are read.
const DIGESTS_MAX: usize = 1_000_000;

/// The digests that packages record of files.
#[derive(Default)]
pub(super) struct PackagedDigests(HashMap<GuestFile, Digest>);

impl PackagedDigests {
    pub(super) fn of(tree: &Tree<'_>, database: &dyn PackageDatabase) -> PackagedDigests {
        let mut paths = PathSet::new();
        let mut recorded = Vec::new();
        for package in 0..database.packages().len() {
            database.each_path(package, &mut |owned| {
                let (Some(digest), Some(path)) = (owned.digest, paths.add(owned.path)) else {
                    return ControlFlow::Continue(());
                };
                if recorded.len() >= DIGESTS_MAX {
                    let problem = "the packages have more digests than are compared";
                    database.problems().note(Problem::of_file(owned.path, problem));
                    return ControlFlow::Break(());
                }
                recorded.push((path, digest));
                ControlFlow::Continue(())
            });
        }
        paths.resolve(tree, database.problems());
        PackagedDigests(recorded.into_iter().filter_map(|(path, digest)| Some((paths.file(path)?, digest))).collect())
    }

    fn get(&self, file: GuestFile) -> Option<&Digest> {
        self.0.get(&file)
    }
}

/// An error of the first (0) or the second (1) side.
#[derive(Debug)]
pub(super) struct SideError {
    pub(super) side: usize,
    pub(super) error: GuestError,
}

/// Names the side of an error.
pub(super) trait OfSide<T> {
    fn of_side(self, side: usize) -> Result<T, SideError>;
}

impl<T> OfSide<T> for Result<T, GuestError> {
    fn of_side(self, side: usize) -> Result<T, SideError> {
        self.map_err(|error| SideError { side, error })
    }
}

/// A regular file of one of two trees.
pub(super) struct ComparedFile<'s> {
    pub(super) side: usize,
    pub(super) system: &'s dyn FileSystem,
    pub(super) file: GuestFile,
    pub(super) stat: &'s FileStat,
    pub(super) digests: &'s PackagedDigests,
}

/// Returns whether two files of equal length are known to be equal without reading them. Either they are one file in
/// two copies of a disk, at the same place and not changed since. Or they have the same recorded digest, and the same
/// time.
///
/// Only times that a running kernel has set show that a file was not changed, and these have a fraction of a second.
/// Tools that make a file system from a folder write whole seconds, often one second for all files, and give equal
/// folders equal places. FAT and small inodes have no fraction either. Their files are read.
///
/// # Errors
/// When a map is damaged.
pub(super) fn are_known_equal(one: &ComparedFile<'_>, two: &ComparedFile<'_>) -> Result<bool, SideError> {
    if one.stat.modified != two.stat.modified {
        return Ok(false);
    }
    let digests = (one.digests.get(one.file), two.digests.get(two.file));
    if let (Some(first), Some(second)) = digests
        && first == second
    {
        return Ok(true);
    }
    let is_one_file = one.file.file == two.file.file && one.stat.generation == two.stat.generation;
    Ok(is_one_file
        && one.stat.changed == two.stat.changed
        && one.stat.changed.nanoseconds != 0
        && extents(one)?.is_some_and(|map| Some(map) == extents(two).ok().flatten()))
}

/// Returns the extents of a file; `None` if there are very many.
fn extents(side: &ComparedFile<'_>) -> Result<Option<Vec<Extent>>, SideError> {
    let mut extents = Vec::new();
    let read = side.system.each_extent(side.file.file, &mut |extent| {
        extents.push(extent);
        if extents.len() <= EXTENTS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    read.of_side(side.side)?;
    Ok((extents.len() <= EXTENTS_MAX).then_some(extents))
}

/// Reads two files of equal length, and returns whether they are equal. Skips holes of both, which may be endless.
///
/// # Errors
/// When one of them cannot be read.
pub(super) fn are_equal(one: &ComparedFile<'_>, two: &ComparedFile<'_>) -> Result<bool, SideError> {
    let parts =
        |side: &ComparedFile<'_>| stored::parts(side.system, side.file.file, one.stat.size_bytes).of_side(side.side);
    let length = usize::try_from(one.stat.size_bytes).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
    let mut pieces = [vec![0; length], vec![0; length]];
    for (start, end) in stored::in_either(&parts(one)?, &parts(two)?) {
        if !is_equal_part(one, two, start..end, &mut pieces)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_equal_part(
    one: &ComparedFile<'_>,
    two: &ComparedFile<'_>,
    part: Range<u64>,
    pieces: &mut [Vec<u8>; 2],
) -> Result<bool, SideError> {
    let [first, second] = pieces;
    let mut offset = part.start;
    while offset < part.end {
        let length = usize::try_from(part.end - offset).unwrap_or(usize::MAX).min(first.len());
        let read = |side: &ComparedFile<'_>, piece: &mut [u8]| {
            side.system.read(side.file.file, offset, piece).map(|count| count.min(length)).of_side(side.side)
        };
        let [first, second] = [&mut first[..length], &mut second[..length]];
        let (count, other) = (read(one, first)?, read(two, second)?);
        if count != other || first.get(..count) != second.get(..count) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        offset += count as u64;
    }
    Ok(true)
}
