//! Detects changes of a guest's package databases without reading them.

use std::hash::{DefaultHasher, Hash, Hasher};

use onefold_disk::{CachedDisk, Disk};
use onefold_guest::filesystem::Timestamp;
use onefold_guest::guest::Guest;
use onefold_guest::tree::{Links, Tree};
use onefold_substrate::Substrate;

use super::IdentifyError;
use super::limits::LOOK_BYTES_MAX;
use super::open::{disk_of, open_listed};
use super::systems::each_system;
use super::watched::{GuestReads, PacedDisk, WatchedDisk};
use crate::pace::ReadPace;
use crate::scan::ListedFile;

/// Files and folders of a database. Each change of it replaces one of these files, or one in a folder.
const PATHS: [&[u8]; 5] = [
    b"/var/lib/dpkg/status",
    b"/var/lib/dpkg/updates",
    b"/var/lib/dpkg/status.d",
    b"/var/lib/dpkg/info",
    b"/var/lib/dpkg/diversions",
];

/// Returns the number that stands for the databases of an image. Nothing else of the image is read.
///
/// # Errors
/// See [`IdentifyError`]: `Unread` if a part of the image could not be read, and `Exhausted` if the search of its guest
/// would take too long.
pub(in crate::files) fn databases_of<S: Substrate>(
    substrate: &S,
    listed: &ListedFile,
    read_pace: ReadPace<'_>,
    cache_bytes: usize,
) -> Result<u64, IdentifyError> {
    let (file, stat) = open_listed(substrate, listed)?;
    let disk = disk_of(substrate, listed, &file, stat.length)?;
    databases_on(&*disk, &GuestReads::new(read_pace, LOOK_BYTES_MAX), cache_bytes)
}

fn databases_on(disk: &dyn Disk, reads: &GuestReads<'_>, cache_bytes: usize) -> Result<u64, IdentifyError> {
    let paced = PacedDisk::new(disk, reads);
    let cached = CachedDisk::new(&paced, cache_bytes);
    let number = number_of(&WatchedDisk::new(&cached, reads));
    reads.check()?;
    if reads.have_failed() { Err(IdentifyError::Unread) } else { number }
}

fn number_of(disk: &dyn Disk) -> Result<u64, IdentifyError> {
    let guest = Guest::open(disk)?;
    let mut stamps = DatabaseStamps::default();
    each_system(&guest, &mut |system| {
        stamps.add(&system.tree);
        Ok(())
    })?;
    Ok(stamps.number())
}

/// Collects the stamps of the databases of all systems of a guest, in order.
#[derive(Default)]
pub(super) struct DatabaseStamps {
    hasher: DefaultHasher,
}

impl DatabaseStamps {
    /// Adds a system: its file systems, and the stamps of its database.
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
    use std::ops::Range;

    use onefold_disk::DiskError;
    use onefold_guest::memory::MemoryFileSystem;

    use super::*;
    use crate::pace::Pace;
    use crate::state::StateError;

    /// A disk of zeros; a bad one cannot be read at all.
    struct Zeros {
        is_bad: bool,
    }

    impl Disk for Zeros {
        fn size_bytes(&self) -> u64 {
            1 << 30
        }

        fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, DiskError> {
            Ok(None)
        }

        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
            if self.is_bad {
                return Err(DiskError::Other("a bad sector".into()));
            }
            into.fill(0);
            Ok(())
        }
    }

    /// Readers skip unreadable parts. The number of the rest is that of no database, and looks like a change.
    #[test]
    fn an_image_that_was_not_read_as_a_whole_has_no_number() {
        let look = |is_bad, bytes_max, pace: &Pace<'_>| {
            databases_on(&Zeros { is_bad }, &GuestReads::new(pace.reading(), bytes_max), 1 << 20)
        };
        let (on, ends) = (Pace::unlimited(), Pace::unlimited().stopped_by(&|| true));
        assert_eq!(look(false, LOOK_BYTES_MAX, &on).unwrap(), DatabaseStamps::default().number());
        assert!(matches!(look(true, LOOK_BYTES_MAX, &on), Err(IdentifyError::Unread)));
        assert!(matches!(look(false, 4096, &on), Err(IdentifyError::Exhausted)));
        assert!(matches!(look(true, 0, &ends), Err(IdentifyError::Stopped(StateError::Interrupted))));
    }

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
