//! The packaged files of an image with their names and places, for a common volume. Configuration files are left out.

use std::ops::ControlFlow;

use onefold_block::BLOCK_BYTES_U64;
use onefold_disk::{CachedDisk, Disk};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{ExtentKind, FileKind};
use onefold_guest::guest::Guest;
use onefold_guest::packages::{self, Digest, Package, PackageDatabase, PackageState};
use onefold_guest::tree::{GuestFile, PathId, PathSet};
use onefold_substrate::Substrate;

use super::IdentifyError;
use super::limits::{DIGESTS_MAX, claimed_bytes_max, read_bytes_max};
use super::open::{disk_of, open_listed};
use super::pieces::Pieces;
use super::systems::{System, each_system};
use super::watched::{GuestReads, PacedDisk, WatchedDisk};
use crate::format::guest::Piece;
use crate::pace::Pace;
use crate::scan::ListedFile;

/// Maximum bytes of the paths of one system that are kept.
const PATH_BYTES_MAX: usize = 128 << 20;

/// A file of a package.
pub(in crate::files) struct PackageFile<'p> {
    pub(in crate::files) package: &'p Package,
    pub(in crate::files) path: &'p [u8],
    /// MD5 digest by the package database.
    pub(in crate::files) digest: [u8; 16],
    /// Length in bytes by the inode.
    pub(in crate::files) length: u64,
    /// Places of all of its content, in whole blocks; empty if the content does not lie in whole blocks.
    pub(in crate::files) pieces: &'p [Piece],
}

/// Which packaged files of an image are wanted, and the callback that takes them.
pub(in crate::files) struct PackagedVisit<'a> {
    /// For the cache of the disk.
    pub(in crate::files) cache_bytes: usize,
    /// Asked before each file and at each read, and ends the work with an error.
    pub(in crate::files) pace: &'a Pace<'a>,
    /// Asked for each package.
    pub(in crate::files) wants_package: &'a dyn Fn(&Package) -> bool,
    /// Asked for the digest and length of each file. The places of unwanted files are not looked up.
    pub(in crate::files) wants: &'a mut dyn FnMut([u8; 16], u64) -> bool,
    /// Called with each wanted file.
    pub(in crate::files) take: &'a mut dyn FnMut(&PackageFile<'_>),
}

/// Visits the packaged files of an image.
///
/// # Errors
/// See [`IdentifyError`].
pub(in crate::files) fn each_packaged<S: Substrate>(
    substrate: &S,
    listed: &ListedFile,
    visit: &mut PackagedVisit<'_>,
) -> Result<(), IdentifyError> {
    let (file, stat) = open_listed(substrate, listed)?;
    let disk = disk_of(substrate, listed, &file, stat.length)?;
    let reads = GuestReads::new(visit.pace.reading(), read_bytes_max(&stat));
    let paced = PacedDisk::new(&*disk, &reads);
    let cached = CachedDisk::new(&paced, visit.cache_bytes);
    let watched = WatchedDisk::new(&cached, &reads);
    let mut bytes_left = claimed_bytes_max(&stat);
    let visited = Guest::open(&watched).map_err(IdentifyError::from).and_then(|guest| {
        each_system(&guest, &mut |system| match packages::open(&system.tree)? {
            Some(database) => visit_system(&paced, system, database.as_ref(), visit, &mut bytes_left),
            None => Ok(()),
        })
    });
    reads.check().and(visited)
}

/// A path in a database.
struct ListedPath {
    id: PathId,
    path: Vec<u8>,
    digest: [u8; 16],
    package: usize,
}

/// Visits the packaged files of a system in the order of its file systems. If an image claims more bytes than it may,
/// the rest of its files is skipped.
fn visit_system(
    disk: &dyn Disk,
    system: &System<'_>,
    database: &dyn PackageDatabase,
    visit: &mut PackagedVisit<'_>,
    bytes_left: &mut u64,
) -> Result<(), IdentifyError> {
    let (mut paths, mut listed, mut path_bytes_left) = (PathSet::new(), Vec::<ListedPath>::new(), PATH_BYTES_MAX);
    for (package, _) in database.packages().iter().enumerate().filter(|(_, package)| {
        // Otherwise the database names the digests of a version that is not, or not completely, there.
        package.state == PackageState::Installed && (visit.wants_package)(package)
    }) {
        database.each_path(package, &mut |owned| {
            let Some(left) = path_bytes_left.checked_sub(owned.path.len()).filter(|_| listed.len() < DIGESTS_MAX)
            else {
                return ControlFlow::Break(());
            };
            if let (false, Some(Digest::Md5(digest))) = (owned.is_configuration, owned.digest)
                && let Some(id) = paths.add(owned.path)
            {
                path_bytes_left = left;
                listed.push(ListedPath { id, path: owned.packaged_path.to_vec(), digest, package });
            }
            ControlFlow::Continue(())
        });
    }
    paths.resolve(&system.tree, database.problems());
    let mut found: Vec<_> = listed.into_iter().filter_map(|one| Some((paths.file(one.id)?, one))).collect();
    found.sort_by_key(|(file, _)| *file);
    found.dedup_by_key(|(file, _)| *file);
    let mut pieces = Pieces::default();
    for (file, ListedPath { path, digest, package, .. }) in &found {
        visit.pace.boundary().map_err(|stopped| IdentifyError::Stopped(stopped.into()))?;
        let of_tree = system.tree.system(file.system);
        let Some(package) = database.packages().get(*package) else { continue };
        let stat = match of_tree.damage().skip(of_tree.stat(file.file)) {
            Ok(Some(stat)) if stat.kind == FileKind::Regular && stat.size_bytes > 0 => stat,
            Ok(_) | Err(GuestError::NotFound) => continue,
            Err(error) => return Err(error.into()),
        };
        let length = stat.size_bytes;
        if !(visit.wants)(*digest, length) {
            continue;
        }
        pieces.clear();
        let is_whole = whole_pieces(disk, system, *file, length, &mut pieces, bytes_left)?;
        let aligned = pieces.phases().find(|(phase, _)| *phase == 0).map(|(_, pieces)| pieces);
        let pieces = aligned.filter(|_| is_whole).unwrap_or_default();
        (visit.take)(&PackageFile { package, path, digest: *digest, length, pieces });
        if *bytes_left == 0 {
            break;
        }
    }
    Ok(())
}

/// Finds the pieces of a file. Returns whether they are all of its content, in order and in whole blocks.
fn whole_pieces(
    disk: &dyn Disk,
    system: &System<'_>,
    file: GuestFile,
    length: u64,
    pieces: &mut Pieces,
    bytes_left: &mut u64,
) -> Result<bool, IdentifyError> {
    let Some(reader) = system.reader(file.system) else { return Ok(false) };
    let of_tree = system.tree.system(file.system);
    let (mut is_plain, mut mapped) = (true, Ok(()));
    let visited = of_tree.each_extent(file.file, &mut |extent| {
        *bytes_left = bytes_left.saturating_sub(extent.length_bytes.max(BLOCK_BYTES_U64));
        is_plain &= *bytes_left > 0 && matches!(extent.kind, ExtentKind::Written | ExtentKind::Shared);
        if !is_plain {
            return ControlFlow::Break(());
        }
        let mut offset = extent.offset;
        reader.each_on_disk(extent.place, extent.length_bytes, &mut |range| {
            match pieces.add_of_disk(disk, range, offset, length) {
                Ok(unmapped) => is_plain &= unmapped == 0,
                Err(error) => mapped = Err(error),
            }
            offset = offset.saturating_add(range.length_bytes);
        });
        ControlFlow::Continue(())
    });
    match of_tree.damage().skip(visited) {
        Ok(Some(())) => {}
        Ok(None) | Err(GuestError::NotFound) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    mapped?;
    let mut next = 0;
    let is_ordered = pieces.phases().all(|(phase, pieces)| {
        phase == 0
            && pieces.iter().all(|piece| {
                let follows = piece.content == next;
                next = piece.content.saturating_add(piece.count);
                follows
            })
    });
    Ok(is_plain && is_ordered && next == length.div_ceil(BLOCK_BYTES_U64))
}
