//! Where the index of an archive gets its room: a cache of this user, and the folder for temporary files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use onefold_image::archive::{Archive, IndexRoom};

/// Memory of the index, unless a verb gives it another share of its own.
const MEMORY_BYTES: usize = 16 << 20;
/// The folder in that for caches.
const FOLDER: &str = "onefold-index";

/// Returns the usual room.
pub(super) fn usual() -> IndexRoom {
    of_memory(MEMORY_BYTES)
}

fn of_memory(memory_bytes: usize) -> IndexRoom {
    let temporary = onefold_disk::temporary_folder();
    IndexRoom { cache: caches().map(|folder| folder.join(FOLDER)), ..IndexRoom::new(memory_bytes, &temporary) }
}

/// Gives the index of an archive so much memory.
pub(in crate::verbs) fn give(archive: &Archive, memory_bytes: u64) {
    archive.set_index_room(of_memory(usize::try_from(memory_bytes).unwrap_or(usize::MAX)));
}

/// Returns the folder for caches, if there is one and it belongs to this user. `su` and `sudo` can leave the `HOME` of
/// another user behind.
fn caches() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    folder.filter(|folder| is_own(folder))
}

fn is_own(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
}
