//! What tells that package databases of a guest have changed, without reading them.

use std::hash::{DefaultHasher, Hash, Hasher};

use onefold_disk::CachedDisk;
use onefold_guest::filesystem::Timestamp;
use onefold_guest::guest::Guest;
use onefold_guest::tree::{Links, Tree};
use onefold_substrate::Substrate;

use super::IdentifyError;
use super::open::{disk_of, open_listed};
use super::systems::each_system;
use crate::scan::ListedFile;

/// Files and folders of a database. Each change of it replaces one of these files, or one in a folder.
const PATHS: [&[u8]; 5] = [
    b"/var/lib/dpkg/status",
    b"/var/lib/dpkg/updates",
    b"/var/lib/dpkg/status.d",
    b"/var/lib/dpkg/info",
    b"/var/lib/dpkg/diversions",
];

/// Returns the number of the databases of an image, of which nothing else is read.
///
/// # Errors
/// As [`IdentifyError`] says.
pub(in crate::files) fn databases_of<S: Substrate>(
    substrate: &S,
    listed: &ListedFile,
    cache_bytes: usize,
) -> Result<u64, IdentifyError> {
    let (file, stat) = open_listed(substrate, listed)?;
    let disk = disk_of(substrate, listed, &file, stat.length)?;
    let cached = CachedDisk::new(&*disk, cache_bytes);
    let guest = Guest::open(&cached)?;
    let mut stamps = DatabaseStamps::default();
    each_system(&guest, &mut |system| {
        stamps.add(&system.tree);
        Ok(())
    })?;
    Ok(stamps.number())
}

/// Takes the stamps of the databases of all systems of a guest, in order.
#[derive(Default)]
pub(super) struct DatabaseStamps {
    hasher: DefaultHasher,
}

impl DatabaseStamps {
    /// Adds a system: which file systems it has, and the stamps of its database.
    pub(super) fn add(&mut self, tree: &Tree<'_>) {
        let words = |time: Timestamp| (time.seconds, time.nanoseconds);
        for system in tree.systems() {
            system.facts().uuid.hash(&mut self.hasher);
        }
        for path in PATHS {
            let found = tree.find(path, Links::Follow).and_then(|found| Ok((found.file, tree.stat(found.file)?)));
            let stamp = found.ok().map(|(file, stat)| {
                (file, stat.generation, stat.size_bytes, words(stat.modified), words(stat.changed))
            });
            stamp.hash(&mut self.hasher);
        }
    }

    /// Returns a number for all of them.
    pub(super) fn number(&self) -> u64 {
        self.hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use onefold_guest::memory::MemoryFileSystem;

    use super::*;

    fn number(systems: &[&MemoryFileSystem]) -> u64 {
        let mut stamps = DatabaseStamps::default();
        systems.iter().for_each(|system| stamps.add(&Tree::new(*system)));
        stamps.number()
    }

    #[test]
    fn a_change_of_a_database_is_seen_and_one_beside_it_is_not() {
        let mut system = MemoryFileSystem::default();
        assert_ne!(number(&[]), number(&[&system]));
        system.write("/var/lib/dpkg/status", "Package: a\n");
        let before = number(&[&system]);
        system.write("/srv/data", "content");
        assert_eq!(number(&[&system]), before);
        assert_ne!(number(&[&system, &system]), before);
        system.write("/var/lib/dpkg/status", "Package: a\nPackage: b\n");
        let after = number(&[&system]);
        assert_ne!(after, before);
        system.write("/var/lib/dpkg/diversions", "");
        assert_ne!(number(&[&system]), after);
    }
}
