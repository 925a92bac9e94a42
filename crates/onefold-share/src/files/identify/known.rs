//! Facts that still hold for an image that has changed: the files of its packages, if none of its package databases has
//! changed, and the probes of unchanged files.
//!
//! Inodes and maps are read again. This saves reading the texts of the databases, looking up each path in them, and
//! reading three blocks of each file of no package.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use onefold_guest::filesystem::{FileNumber, FileStat, Timestamp};
use onefold_guest::guest::Guest;
use onefold_guest::tree::{GuestFile, SystemIndex, Tree};

use super::IdentifyError;
use super::databases::DatabaseStamps;
use super::owned::OwnedFile;
use super::search::{Search, StopCheck};
use super::systems::each_system;
use crate::files::report::ExaminationReport;
use crate::format::guest::{KeptClaim, KeptFile, KeptGuest};

/// Files of an image that are known from an earlier run.
#[derive(Debug)]
pub(super) struct KnownFiles {
    /// Packages of its databases.
    pub(super) packages: u64,
    pub(super) has_packages: bool,
    databases: u64,
    /// In order of the trees, and of the file systems in each.
    owned: Vec<PackagedFile>,
    probes: HashMap<(u32, GuestFile), KnownProbes>,
}

/// A file of a package.
#[derive(Debug)]
struct PackagedFile {
    tree: u32,
    owned: OwnedFile,
    stamp: u64,
}

/// The probes of a file of no package.
#[derive(Debug)]
struct KnownProbes {
    stamp: u64,
    path: u64,
    probes: u64,
}

impl KnownFiles {
    /// Returns the facts of a kept guest that still hold, with its packages. Returns `None` if a database or a file of
    /// a package has changed, or if the guest had more files than could be examined.
    ///
    /// # Errors
    /// Errors of the guest and of `go_on`.
    pub(super) fn still(
        guest: &Guest<'_>,
        kept: &KeptGuest,
        search: &Search<'_>,
        go_on: StopCheck<'_>,
    ) -> Result<Option<KnownFiles>, IdentifyError> {
        if !search.wants_packaged() || ExaminationReport::of_counts(&kept.head.counts).surplus_files > 0 {
            return Ok(None);
        }
        let known = KnownFiles::of(kept);
        let (mut databases, mut is_still) = (DatabaseStamps::default(), true);
        each_system(guest, &mut |system| {
            go_on().map_err(IdentifyError::Stopped)?;
            databases.add(&system.tree);
            is_still = is_still && known.are_unchanged(system.at, &system.tree);
            Ok(())
        })?;
        Ok((is_still && databases.number() == known.databases).then_some(known))
    }

    /// Returns the facts of a kept guest about its files.
    fn of(guest: &KeptGuest) -> KnownFiles {
        let (mut owned, mut probes) = (Vec::new(), HashMap::new());
        let visited = guest.files.each(&mut |file, _| {
            let stamp = stamp_of_kept(file);
            let system = SystemIndex(file.system);
            let (tree, of_tree) = (file.tree, GuestFile { system, file: FileNumber(file.file) });
            match file.claim {
                KeptClaim::Digest(digest) | KeptClaim::Content(digest) => {
                    let is_content = matches!(file.claim, KeptClaim::Content(_));
                    let package = file.package;
                    let file = OwnedFile { file: of_tree, digest, package, is_later: true, is_content };
                    owned.push(PackagedFile { tree, owned: file, stamp });
                }
                KeptClaim::Path { path, probes: Some(number) } => {
                    probes.insert((tree, of_tree), KnownProbes { stamp, path, probes: number });
                }
                KeptClaim::Path { probes: None, .. } => {}
            }
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = visited;
        let head = &guest.head;
        let (has_packages, databases) = (head.has_packages, head.databases);
        KnownFiles {
            packages: ExaminationReport::of_counts(&head.counts).packages,
            has_packages,
            databases,
            owned,
            probes,
        }
    }

    /// Returns the packaged files of a system, given by its index among all systems of the guest.
    pub(super) fn owned(&self, at: u32) -> Vec<OwnedFile> {
        self.owned.iter().filter(|known| known.tree == at).map(|known| known.owned).collect()
    }

    /// Returns the probes of a file of no package, if it has not changed and has the path that it had.
    pub(super) fn probes(&self, file: &KeptFile) -> Option<u64> {
        let KeptClaim::Path { path, .. } = file.claim else { return None };
        let of_tree = GuestFile { system: SystemIndex(file.system), file: FileNumber(file.file) };
        let known = self.probes.get(&(file.tree, of_tree))?;
        (known.path == path && known.stamp == stamp_of_kept(file)).then_some(known.probes)
    }

    /// Returns whether all packaged files of a system are unchanged. A file that has another inode now has been
    /// replaced, and the path that led to it leads to another file.
    fn are_unchanged(&self, at: u32, tree: &Tree<'_>) -> bool {
        self.owned.iter().filter(|known| known.tree == at).all(|known| {
            let GuestFile { system, file } = known.owned.file;
            let system = usize::try_from(system.0).ok().and_then(|system| tree.systems().get(system));
            system.is_some_and(|system| system.stat(file).is_ok_and(|stat| stamp_of(&stat) == known.stamp))
        })
    }
}

fn stamp_of(stat: &FileStat) -> u64 {
    let FileStat { generation, size_bytes, modified, changed, created, .. } = *stat;
    stamp(generation, size_bytes, [Some(modified), Some(changed), created])
}

fn stamp_of_kept(file: &KeptFile) -> u64 {
    let KeptFile { generation, size_bytes, modified, changed, created, .. } = *file;
    stamp(generation, size_bytes, [Some(modified), Some(changed), created])
}

/// Returns a number for what changes with a file's content or record.
fn stamp(generation: u64, size_bytes: u64, times: [Option<Timestamp>; 3]) -> u64 {
    let times = times.map(|time| time.map(|time| (time.seconds, time.nanoseconds)));
    let mut hasher = DefaultHasher::new();
    (generation, size_bytes, times).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use onefold_guest::filesystem::FileSystem;
    use onefold_guest::memory::MemoryFileSystem;
    use onefold_guest::tree::Links;

    use super::*;
    use crate::format::guest::{KeptFiles, PhasedPieces};

    fn kept(system: &MemoryFileSystem, path: &str, claim: KeptClaim) -> KeptFile {
        let file = Tree::new(system).find(path.as_bytes(), Links::Keep).unwrap().file.file;
        let FileStat { generation, size_bytes, modified, changed, created, .. } = system.stat(file).unwrap();
        let (package, file) = (Some(0), file.0);
        KeptFile { package, claim, tree: 0, system: 0, file, generation, size_bytes, modified, changed, created }
    }

    fn guest(files: &[KeptFile]) -> KeptGuest {
        let mut kept = KeptFiles::default();
        files.iter().for_each(|file| kept.push(file, &PhasedPieces::default()));
        KeptGuest { packages: vec!["a 1 all".to_owned()], files: kept, ..KeptGuest::default() }
    }

    fn later(time: &mut Timestamp) {
        time.nanoseconds += 1;
    }

    #[test]
    fn probes_are_those_of_a_file_with_the_path_and_the_record_that_it_had() {
        let mut system = MemoryFileSystem::default();
        system.write("/srv/data", "content");
        let file = kept(&system, "/srv/data", KeptClaim::Path { path: 7, probes: Some(8) });
        let known = KnownFiles::of(&guest(std::slice::from_ref(&file)));
        let now = KeptFile { claim: KeptClaim::Path { path: 7, probes: None }, ..file };
        assert_eq!(known.probes(&now), Some(8));
        let change = |change: fn(&mut KeptFile)| {
            let mut changed = now.clone();
            change(&mut changed);
            known.probes(&changed)
        };
        assert_eq!(change(|file| file.claim = KeptClaim::Path { path: 8, probes: None }), None);
        assert_eq!(change(|file| later(&mut file.modified)), None);
        assert_eq!(change(|file| later(&mut file.changed)), None);
        assert_eq!(change(|file| file.size_bytes += 1), None);
        assert_eq!(change(|file| file.generation += 1), None);
        assert_eq!(change(|file| file.file += 1), None);
        assert_eq!(change(|file| file.tree += 1), None);
    }

    #[test]
    fn files_of_packages_are_known_as_long_as_none_has_changed() {
        let mut memory = MemoryFileSystem::default();
        for name in ["one", "two"] {
            memory.write(&format!("/usr/bin/{name}"), name);
        }
        let files = ["/usr/bin/one", "/usr/bin/two"].map(|path| kept(&memory, path, KeptClaim::Digest([9; 16])));
        let of_another_disk = KeptFile { system: 3, ..files[0].clone() };
        let known = KnownFiles::of(&guest(&files));
        let stranger = KnownFiles::of(&guest(&[of_another_disk]));
        assert_eq!(known.owned(0).iter().map(|owned| owned.package).collect::<Vec<_>>(), [Some(0); 2]);
        assert!(known.owned(1).is_empty());
        let check = |memory: &MemoryFileSystem, known: &KnownFiles| known.are_unchanged(0, &Tree::new(memory));
        assert!(check(&memory, &known) && !check(&memory, &stranger));
        let two = Tree::new(&memory).find(b"/usr/bin/two", Links::Keep).unwrap().file.file;
        later(&mut memory.stat_mut(two).unwrap().changed);
        assert!(!check(&memory, &known));
    }
}
