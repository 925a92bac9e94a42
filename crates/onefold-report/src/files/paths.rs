//! Finds the paths of the files that own some blocks of a disk.

use std::collections::BTreeMap;

use onefold_disk::{CacheMemory, CachedDisk, Disk};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{FileKind, FileNumber};
use onefold_guest::guest::Guest;
use onefold_guest::tree::{Crossing, Links, Tree, Visitor, WalkEntry, WalkError, WalkStep};

use super::survey::PAGE_BYTES;

/// Returns for each of these bytes of a disk the path of a file that has it, within the file's own file system; `None`
/// if no file has it. Caches `cache_bytes` of the disk. Ends early once `is_over` returns true.
///
/// # Errors
/// Those of the disk and its partition table.
pub(crate) fn paths_of(
    disk: &dyn Disk,
    places: &[u64],
    cache_bytes: usize,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<Option<Vec<u8>>>, GuestError> {
    let cached = CachedDisk::with_memory(disk, cache_bytes, CacheMemory::of_pages(PAGE_BYTES));
    let guest = Guest::open(&cached)?;
    let owners = guest.owning_regular_files(places)?;
    let file_of = |owner: &onefold_guest::guest::Owner| {
        let file = owner.files.iter().find(|file| file.file_kind == FileKind::Regular)?;
        Some((owner.volume?.0, file.file))
    };
    let files: Vec<Option<(usize, FileNumber)>> = owners.iter().map(file_of).collect();
    let mut found: BTreeMap<usize, BTreeMap<FileNumber, Option<Vec<u8>>>> = BTreeMap::new();
    for (volume, file) in files.iter().flatten() {
        found.entry(*volume).or_default().insert(*file, None);
    }
    for (at, wanted) in &mut found {
        let Some(system) = guest.volumes().get(*at).and_then(|volume| volume.file_system()) else { continue };
        let tree = Tree::new(system);
        if let Ok(root) = tree.find(b"/", Links::Keep) {
            tree.walk(&root, Crossing::Stay, &mut Finder { left: wanted.len(), wanted, is_over })?;
        }
    }
    let path = |(volume, file): (usize, FileNumber)| found.get(&volume)?.get(&file)?.clone();
    Ok(files.into_iter().map(|file| file.and_then(path)).collect())
}

/// Records the first path of each wanted file, and ends after the last one.
struct Finder<'w> {
    wanted: &'w mut BTreeMap<FileNumber, Option<Vec<u8>>>,
    left: usize,
    is_over: &'w dyn Fn() -> bool,
}

impl Visitor for Finder<'_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        if let Some(path @ None) = self.wanted.get_mut(&entry.file.file) {
            *path = Some(entry.path.to_vec());
            self.left = self.left.saturating_sub(1);
        }
        if self.left == 0 || (self.is_over)() { WalkStep::Stop } else { WalkStep::Enter }
    }

    fn failed(&mut self, _: &[u8], _: WalkError) {}
}
