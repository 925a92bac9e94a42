//! Finds the files of the guest that have bytes of its disk, for many bytes at once.

use std::collections::{BTreeMap, BTreeSet};

use onefold_disk::{CachedDisk, Disk};
use onefold_guest::budget::Budget;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{FileNumber, FileSystem};
use onefold_guest::guest::Guest;
use onefold_guest::tree::{Crossing, Links, Tree, Visitor, WalkEntry, WalkError, WalkStep};

use super::describe::origin;

const CACHE_BYTES: usize = 16 << 20;
/// Memory for maps of files.
const MAP_BYTES: usize = 32 << 20;

/// The use of a byte of a disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::verbs) struct PlaceUse {
    /// The volume; `None` if the byte lies in none.
    pub(in crate::verbs) volume: Option<String>,
    /// A path of its file within the volume, as bytes of the guest; `None` if no named file has it.
    pub(in crate::verbs) path: Option<Vec<u8>>,
}

/// Returns the use of each of these bytes of a disk, in their order.
///
/// # Errors
/// When the disk cannot be read.
pub(in crate::verbs) fn files_at(disk: &dyn Disk, places: &[u64]) -> Result<Vec<PlaceUse>, GuestError> {
    let cached = CachedDisk::new(disk, CACHE_BYTES);
    let guest = Guest::open(&cached)?.with_budget(Budget::new(MAP_BYTES));
    let owners = guest.owning_files(places)?;
    let mut files: BTreeMap<usize, BTreeSet<FileNumber>> = BTreeMap::new();
    for owner in &owners {
        if let (Some((volume, _)), Some(file)) = (owner.volume, owner.files.first()) {
            files.entry(volume).or_default().insert(file.file);
        }
    }
    let mut paths = BTreeMap::new();
    for (at, files) in files {
        if let Some(system) = guest.volumes().get(at).and_then(|volume| volume.file_system()) {
            paths.insert(at, paths_of(system, files)?);
        }
    }
    let place_use = |owner: &onefold_guest::guest::Owner| {
        let volume = owner.volume.and_then(|(at, _)| Some((at, guest.volumes().get(at)?)));
        let path = |at| paths.get(&at)?.get(&owner.files.first()?.file).cloned();
        PlaceUse {
            volume: volume.map(|(_, volume)| origin(&volume.volume.origin)),
            path: volume.and_then(|(at, _)| path(at)),
        }
    };
    Ok(owners.iter().map(place_use).collect())
}

/// Returns a path of each of these files of a file system.
fn paths_of(system: &dyn FileSystem, files: BTreeSet<FileNumber>) -> Result<BTreeMap<FileNumber, Vec<u8>>, GuestError> {
    let tree = Tree::new(system);
    let root = tree.find(b"/", Links::Keep)?;
    let mut finder = PathFinder { files, paths: BTreeMap::new() };
    finder.note(root.file.file, b"/");
    tree.walk(&root, Crossing::Stay, &mut finder)?;
    Ok(finder.paths)
}

/// Takes the first path of each wanted file in a walk over all files.
struct PathFinder {
    files: BTreeSet<FileNumber>,
    paths: BTreeMap<FileNumber, Vec<u8>>,
}

impl PathFinder {
    fn note(&mut self, file: FileNumber, path: &[u8]) {
        if self.files.remove(&file) {
            self.paths.insert(file, path.to_vec());
        }
    }
}

impl Visitor for PathFinder {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        self.note(entry.file.file, entry.path);
        if self.files.is_empty() { WalkStep::Stop } else { WalkStep::Enter }
    }

    /// A file that cannot be reached stays without a path.
    fn failed(&mut self, _: &[u8], _: WalkError) {}
}
