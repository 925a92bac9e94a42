//! Filter of the search: leaves out packages and files that a template had, or that are older than a time.
//!
//! Clones share with their template the blocks that they had from the start. Then only later packages and files are
//! worth a look, as in the paper. Logs of installations rotate, so the template's package database decides which
//! packages came later; the time only counts for files of no package.

use std::collections::HashSet;

use onefold_disk::Disk;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{FileStat, Timestamp};
use onefold_guest::guest::Guest;
use onefold_guest::packages::{self, InstallationTime, LocalTime, Package, PackageDatabase, PackageState};
use onefold_guest::tree::{Links, Tree};

use super::IdentifyError;
use super::systems::each_system;

/// Files of a template whose times tell when its packages were last changed.
const DATED_FILES: [&[u8]; 2] = [b"/var/lib/dpkg/status", b"/var/log/dpkg.log"];

/// Which packages and files are kept.
#[derive(Clone, Debug)]
pub enum Baseline {
    /// Those that a template does not have.
    Template(Template),
    /// Those that were installed or written at a time or later.
    Time {
        /// The time, for times of files.
        time: Timestamp,
        /// The same time on the clocks of guests, for times of their logs.
        local: LocalTime,
    },
}

/// Why an image is no template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It cannot be read.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// No file system was found in it.
    #[error("there is no file system in it")]
    NoFileSystem,
    /// No package database was found in it.
    #[error("there is no package database in it")]
    NoDatabase,
}

/// The packages and the time of an image from which others were made.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// Its packages. A removed package whose configuration files were left differs from an installed one.
    packages: HashSet<Identity>,
    names: HashSet<String>,
    /// Time of the last change of its packages.
    time: Timestamp,
}

impl Template {
    /// Reads the package databases of an image.
    ///
    /// # Errors
    /// If the image cannot be read, or has no package database.
    pub fn read(disk: &dyn Disk) -> Result<Template, TemplateError> {
        let guest = Guest::open(disk)?;
        if guest.volumes().iter().all(|volume| volume.file_system().is_none()) {
            return Err(TemplateError::NoFileSystem);
        }
        let mut template = Template::default();
        let mut has_database = false;
        let read = each_system(&guest, &mut |system| {
            if let Some(database) = packages::open(&system.tree)? {
                has_database = true;
                template.add(&system.tree, database.as_ref());
            }
            Ok(())
        });
        match read {
            // One of several systems may be damaged, or of a kind that is not supported.
            Ok(()) => {}
            Err(_) if has_database => {}
            Err(IdentifyError::Guest(error)) => return Err(error.into()),
            Err(_) => return Err(TemplateError::NoDatabase),
        }
        if has_database { Ok(template) } else { Err(TemplateError::NoDatabase) }
    }

    fn add(&mut self, tree: &Tree<'_>, database: &dyn PackageDatabase) {
        for package in database.packages() {
            self.packages.insert(Identity::of(package));
            self.names.insert(package.name.clone());
        }
        let found = DATED_FILES.iter().filter_map(|path| tree.find(path, Links::Follow).ok());
        let times = found.filter_map(|found| tree.stat(found.file).ok()).map(|stat| stat.modified);
        self.time = times.chain([self.time]).max().unwrap_or_default();
    }

    /// Returns whether a system was made from the template, as its packages show: it has at least half of the
    /// template's package names.
    fn is_ancestor_of(&self, database: &dyn PackageDatabase) -> bool {
        let names: HashSet<&str> = database.packages().iter().map(|package| package.name.as_str()).collect();
        let kept = self.names.iter().filter(|name| names.contains(name.as_str())).count();
        kept >= self.names.len() / 2
    }
}

/// Identity of a package in a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    name: String,
    architecture: String,
    version: String,
    /// Whether the package was removed, and only its configuration files were left.
    is_removed: bool,
}

impl Identity {
    fn of(package: &Package) -> Identity {
        Identity {
            name: package.name.clone(),
            architecture: package.architecture.clone(),
            version: package.version.clone(),
            is_removed: package.state == PackageState::ConfigurationOnly,
        }
    }

    /// Returns whether a template had all files of this package: the template had it in the same state, or more of it.
    fn is_in(&self, template: &Template) -> bool {
        let installed = || Identity { is_removed: false, ..self.clone() };
        template.packages.contains(self) || self.is_removed && template.packages.contains(&installed())
    }
}

/// The packages of a system that came later.
pub(super) struct LaterPackages {
    is_later: Vec<bool>,
    /// Whether the system was not made from the template.
    pub(super) is_stranger: bool,
}

impl LaterPackages {
    /// Returns whether a package is kept, given by its index.
    pub(super) fn has(&self, package: usize) -> bool {
        self.is_later.get(package).copied().unwrap_or(true)
    }
}

impl Baseline {
    /// Returns which packages of a system are kept. A package with an unknown time of installation is kept.
    pub(super) fn later_packages(&self, database: &dyn PackageDatabase) -> LaterPackages {
        match self {
            Baseline::Template(template) => {
                let packages = database.packages().iter();
                LaterPackages {
                    is_later: packages.map(|package| !Identity::of(package).is_in(template)).collect(),
                    is_stranger: !template.is_ancestor_of(database),
                }
            }
            Baseline::Time { time, local } => {
                let is_later = |installed: Option<InstallationTime>| match installed {
                    Some(InstallationTime::Logged(logged)) => logged >= *local,
                    Some(InstallationTime::ListWritten(written)) => written >= *time,
                    None => true,
                };
                let times = database.installation_times().into_iter();
                LaterPackages { is_later: times.map(is_later).collect(), is_stranger: false }
            }
        }
    }

    /// Returns whether a file of no package is kept. The time of its record counts, too: archives give files old times.
    pub(super) fn has_file(&self, stat: &FileStat) -> bool {
        let since = match self {
            Baseline::Template(template) => template.time,
            Baseline::Time { time, .. } => *time,
        };
        stat.modified.max(stat.changed) >= since
    }
}

#[cfg(test)]
mod tests {
    use onefold_guest::filesystem::{FileKind, FileSystem};
    use onefold_guest::memory::MemoryFileSystem;

    use super::*;

    /// A system with packages of these names and versions.
    fn system(packages: &[(&str, &str)], log: &str) -> MemoryFileSystem {
        let installed = packages.iter().map(|(name, version)| (*name, *version, "installed"));
        let mut system = system_of(installed);
        system.write("/var/log/dpkg.log", log);
        system
    }

    /// A system with packages of these names, installed as completely as their states say.
    fn states(packages: &[(&str, &str)]) -> MemoryFileSystem {
        system_of(packages.iter().map(|(name, state)| (*name, "1", *state)))
    }

    fn system_of<'p>(packages: impl Iterator<Item = (&'p str, &'p str, &'p str)>) -> MemoryFileSystem {
        let mut system = MemoryFileSystem::default();
        let mut status = String::new();
        for (name, version, state) in packages {
            status.push_str(&format!(
                "Package: {name}\nStatus: install ok {state}\nArchitecture: all\nVersion: {version}\n\n"
            ));
            system.write(&format!("/var/lib/dpkg/info/{name}.list"), "/.\n");
        }
        system.write("/var/lib/dpkg/status", &status);
        system
    }

    fn template_of(system: &MemoryFileSystem) -> Template {
        let tree = Tree::new(system);
        let mut template = Template::default();
        template.add(&tree, packages::open(&tree).unwrap().unwrap().as_ref());
        template
    }

    fn later(since: &Baseline, system: &MemoryFileSystem) -> (Vec<String>, bool) {
        let tree = Tree::new(system);
        let database = packages::open(&tree).unwrap().unwrap();
        let later = since.later_packages(database.as_ref());
        let names = database.packages().iter().enumerate().filter(|(at, _)| later.has(*at));
        (names.map(|(_, package)| package.name.clone()).collect(), later.is_stranger)
    }

    #[test]
    fn packages_in_versions_that_the_template_has_are_left_out_whatever_the_log_says() {
        let log = "2030-01-01 00:00:00 install old:all <none> 1\n";
        let since = Baseline::Template(template_of(&system(&[("old", "1"), ("upgraded", "1"), ("gone", "1")], "")));
        let clone = system(&[("new", "1"), ("old", "1"), ("upgraded", "2")], log);
        assert_eq!(later(&since, &clone), (vec!["new".to_owned(), "upgraded".to_owned()], false));
    }

    /// A package that was removed from the template, and not purged, was not installed in it.
    #[test]
    fn a_package_of_which_the_template_has_only_the_configuration_is_kept() {
        let since = Baseline::Template(template_of(&states(&[("gone", "config-files"), ("left", "config-files")])));
        let clone = states(&[("gone", "installed"), ("left", "config-files")]);
        assert_eq!(later(&since, &clone), (vec!["gone".to_owned()], false));
        let since = Baseline::Template(template_of(&states(&[("removed", "installed")])));
        assert_eq!(later(&since, &states(&[("removed", "config-files")])).0, Vec::<String>::new());
    }

    #[test]
    fn a_system_without_most_of_the_templates_packages_was_not_made_from_it() {
        let since = Baseline::Template(template_of(&system(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")], "")));
        assert!(!later(&since, &system(&[("a", "2"), ("b", "2"), ("z", "1")], "")).1);
        let (kept, is_stranger) = later(&since, &system(&[("a", "1"), ("y", "1"), ("z", "1")], ""));
        assert!(is_stranger && kept == ["y", "z"]);
    }

    #[test]
    fn a_time_is_compared_with_the_log() {
        let log = "2026-01-02 12:00:00 install old:all <none> 1\n2026-01-02 12:00:01 status installed old:all 1\n\
                   2026-01-03 12:00:00 install new:all <none> 1\n2026-01-03 12:00:01 status installed new:all 1\n";
        let local = LocalTime { year: 2026, month: 1, day: 3, hour: 0, minute: 0, second: 0 };
        let since = Baseline::Time { time: Timestamp { seconds: 1_767_398_400, nanoseconds: 0 }, local };
        assert_eq!(later(&since, &system(&[("new", "1"), ("old", "1")], log)).0, ["new"]);
    }

    #[test]
    fn a_file_is_kept_if_its_content_or_its_record_is_as_late() {
        let local = LocalTime { year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 10 };
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 };
        let since = Baseline::Time { time: at(10), local };
        let mut memory = MemoryFileSystem::default();
        let file = memory.write("/file", "content");
        let stat = memory.stat(file).unwrap();
        assert_eq!(stat.kind, FileKind::Regular);
        for (modified, changed, expected) in [(9, 9, false), (10, 0, true), (0, 10, true), (11, 11, true)] {
            let stat = FileStat { modified: at(modified), changed: at(changed), ..stat.clone() };
            assert_eq!(since.has_file(&stat), expected, "{modified} {changed}");
        }
    }

    #[test]
    fn a_disk_without_a_guest_is_no_template() {
        struct Zeros;
        impl Disk for Zeros {
            fn size_bytes(&self) -> u64 {
                1 << 20
            }
            fn next_data(&self, _: u64) -> Result<Option<std::ops::Range<u64>>, onefold_disk::DiskError> {
                Ok(None)
            }
            fn in_file(&self, _: u64) -> Result<onefold_disk::FilePlacement, onefold_disk::DiskError> {
                Ok(onefold_disk::FilePlacement { offset: None, length_bytes: 1 << 20 })
            }
            fn read(&self, _: u64, into: &mut [u8]) -> Result<(), onefold_disk::DiskError> {
                into.fill(0);
                Ok(())
            }
        }
        assert!(matches!(Template::read(&Zeros), Err(TemplateError::NoFileSystem)));
    }
}
