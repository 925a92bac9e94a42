//! Finds the files of a scan.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::{BLOCK_BYTES_U64, Clock};
use onefold_substrate::{Access, FileHandle, FileStat, ListedKind, Substrate};

use crate::domain::{DomainRules, Membership};
use crate::format::mark::Mark;
use crate::opt_out::OptOuts;
use crate::selection::Selection;
use crate::state::files::Marks;
use crate::state::{Notice, StateError, StateFolder};

/// An image file that was found.
pub(crate) struct ListedImage {
    pub(crate) path: PathBuf,
    pub(crate) stat: FileStat,
    /// When all files had been found, by the monotonic clock.
    pub(crate) found_at: Duration,
    pub(crate) membership: Membership,
}

/// The files of a selection.
pub(crate) struct SelectedFiles {
    /// All wanted files, in order of their paths, each only once.
    pub(crate) found: Vec<ListedImage>,
    /// Opted-out files, whatever name they are found by.
    pub(crate) opted_out: BTreeSet<FileHandle>,
    /// Number of files that could not be looked at.
    pub(crate) unreadable: u64,
}

/// Returns the files of a selection.
pub(crate) fn find<S: Substrate>(
    substrate: &S,
    clock: &dyn Clock,
    notice: &dyn Fn(Notice),
    files: &Marks,
    domains: &DomainRules<'_, S>,
    selection: &Selection<'_>,
) -> Result<SelectedFiles, StateError> {
    let mut found: BTreeMap<FileHandle, ListedImage> = BTreeMap::new();
    let (mut opted_out, mut unreadable) = (BTreeSet::new(), 0);
    let opt_outs = OptOuts::new(substrate);
    // Folders that are still to be listed, and named files.
    let mut ahead: Vec<(PathBuf, Option<ListedKind>)> =
        selection.roots().iter().map(|root| (root.clone(), None)).collect();
    while let Some((path, kind)) = ahead.pop() {
        if StateFolder::has(&path) {
            continue;
        }
        let listed = match kind {
            Some(ListedKind::File) => Err(io::ErrorKind::NotADirectory.into()),
            _ => substrate.list(&path),
        };
        let outcome = match listed {
            Ok(listed) => {
                for entry in listed {
                    let below = path.join(&entry.name);
                    if entry.kind != ListedKind::Other && selection.wants(&below, entry.kind) {
                        ahead.push((below, Some(entry.kind)));
                    }
                }
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                look(substrate, files, domains, &opt_outs, &path)
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(ScanSight::NotWanted) => {}
            Ok(ScanSight::OptedOut(handle)) => drop(opted_out.insert(handle)),
            // Of several names, the same one is always used: marks hold it, and would be rewritten for another.
            Ok(ScanSight::Image(stat, _)) if found.get(&stat.handle).is_some_and(|found| found.path < path) => {}
            Ok(ScanSight::Image(stat, membership)) => {
                let seen = ListedImage { path, stat, membership, found_at: Duration::ZERO };
                found.insert(seen.stat.handle.clone(), seen);
            }
            // It was removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && kind.is_some() => {}
            Err(why) => {
                unreadable += 1;
                notice(Notice::Unreadable { path, why });
            }
        }
    }
    opted_out.retain(|handle| !found.contains_key(handle));
    let found_at = clock.monotonic();
    let mut found: Vec<ListedImage> = found.into_values().map(|found| ListedImage { found_at, ..found }).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(SelectedFiles { found, opted_out, unreadable })
}

/// A file that a scan came across.
enum ScanSight {
    /// It is too short to be shared, or its path is too long for a mark.
    NotWanted,
    /// It is opted out.
    OptedOut(FileHandle),
    /// It is an image of a domain.
    Image(FileStat, Membership),
}

fn look<S: Substrate>(
    substrate: &S,
    files: &Marks,
    domains: &DomainRules<'_, S>,
    opt_outs: &OptOuts<'_, S>,
    path: &Path,
) -> io::Result<ScanSight> {
    let file = substrate.open(path, Access::Read)?;
    let stat = substrate.stat(&file)?;
    if stat.length < BLOCK_BYTES_U64 || !Mark::is_path_kept(path) {
        return Ok(ScanSight::NotWanted);
    }
    if opt_outs.of(path)?.is_some() {
        return Ok(ScanSight::OptedOut(stat.handle));
    }
    let before = files.of(&stat.handle).map(|mark| &mark.membership);
    let membership = domains.membership(path, &file, &stat, before)?;
    Ok(ScanSight::Image(stat, membership))
}
