//! The packages of a guest: installed packages and their times, the files that belong to them, and the expected
//! contents.
//!
//! | module | is |
//! |---|---|
//! | `dpkg/` | the database of Debian and the systems made from it |
//! | `digest` | digests, as databases record them |
//! | `event` | what was installed, upgraded and removed, and when |
//! | `owners` | the package of a file |
//! | `verify/` | files that differ from their digests |
//!
//! **A new kind of database implements [`PackageDatabase`], and is opened in [`open`].** A database is an untrusted
//! hint of the guest: its information about a file may be wrong.

mod digest;
mod dpkg;
mod event;
mod owners;
mod verify;

use std::ops::ControlFlow;

pub use digest::Digest;
pub use event::{InstallationTime, LocalTime, PackageAction, PackageEvent};
pub use owners::Owners;
pub use verify::{Difference, DifferenceKind, Verification, verify};

use crate::error::GuestError;
use crate::filesystem::Timestamp;
use crate::tree::{Links, ProblemLog, Tree};

/// The packages of a system, as its package manager records them. Unreadable parts are recorded in
/// [`PackageDatabase::problems`] and skipped.
pub trait PackageDatabase: Send + Sync {
    /// Returns the name of the package manager, such as `dpkg`.
    fn manager(&self) -> &'static str;

    /// Returns the packages, sorted by name and architecture.
    fn packages(&self) -> &[Package];

    /// Returns the problems that were found so far.
    fn problems(&self) -> &ProblemLog;

    /// Calls `visit` with each path of a package until it breaks, each path once. `package` is an index into
    /// [`PackageDatabase::packages`]; any other index has no paths.
    fn each_path(&self, package: usize, visit: &mut dyn FnMut(&OwnedPath<'_>) -> ControlFlow<()>);

    /// Calls `visit` with the place of the file for each path of a package, in the form of [`OwnedPath::path`], until
    /// it breaks. Does not read any other information about paths. A path that occurs twice in the database may come
    /// twice.
    fn each_place(&self, package: usize, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>);

    /// Calls `visit` with all events of the history, oldest first, until it breaks.
    fn each_event(&self, visit: &mut dyn FnMut(&PackageEvent) -> ControlFlow<()>);

    /// Returns for each package when its present version was installed, if that is known. A package of which only
    /// configuration files are left has no time.
    fn installation_times(&self) -> Vec<Option<InstallationTime>>;
}

/// A package. Text that is not UTF-8 has replacement characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture, under the package manager's name.
    pub architecture: String,
    /// Its state of installation.
    pub state: PackageState,
    /// Its installed size by its own account, if given.
    pub installed_bytes: Option<u64>,
}

/// State of installation of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PackageState {
    /// Complete.
    Installed,
    /// An installation or removal was not completed.
    Partial,
    /// It was removed, but its configuration files are left.
    ConfigurationOnly,
}

/// A path that belongs to a package, and the information of the database about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedPath<'p> {
    /// The place of the file according to the database: an absolute path, which may lead through symbolic links of the
    /// guest.
    pub path: &'p [u8],
    /// The path in the package. It differs from `path` if the file was diverted.
    pub packaged_path: &'p [u8],
    /// The length of the content, if recorded.
    pub size_bytes: Option<u64>,
    /// When the content changed, if recorded.
    pub modified: Option<Timestamp>,
    /// The permission bits, if recorded.
    pub mode: Option<u16>,
    /// The digest of the packaged content, if recorded.
    pub digest: Option<Digest>,
    /// Whether users are expected to change it.
    pub is_configuration: bool,
    /// Whether the system is configured not to install it, as small images do with documents.
    pub is_excluded: bool,
}

/// Files of databases that are recognised but have no reader.
const NOT_READ: [(&[u8], &str); 7] = [
    (b"/usr/lib/sysimage/rpm", "an RPM database"),
    (b"/var/lib/rpm/rpmdb.sqlite", "an RPM database"),
    (b"/var/lib/rpm/Packages.db", "an RPM database"),
    (b"/var/lib/rpm/Packages", "an RPM database"),
    (b"/lib/apk/db/installed", "an apk database"),
    (b"/usr/lib/apk/db/installed", "an apk database"),
    (b"/var/lib/pacman/local", "a pacman database"),
];

/// Opens the package database of a system; `None` if there is none.
///
/// # Errors
/// When the database has no reader, or its list of packages cannot be read.
pub fn open<'t>(tree: &'t Tree<'t>) -> Result<Option<Box<dyn PackageDatabase + 't>>, GuestError> {
    if let Some(database) = dpkg::Dpkg::open(tree)? {
        return Ok(Some(Box::new(database)));
    }
    match NOT_READ.iter().find(|(path, _)| tree.find(path, Links::Follow).is_ok()) {
        Some((_, name)) => Err(GuestError::Unsupported(name)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryFileSystem;

    #[test]
    fn a_database_that_is_not_read_is_named() {
        let mut system = MemoryFileSystem::default();
        assert!(open(&Tree::new(&system)).unwrap().is_none());
        system.write("/var/lib/rpm/rpmdb.sqlite", "");
        let tree = Tree::new(&system);
        let Err(error) = open(&tree) else { panic!("it was opened") };
        assert_eq!(error.to_string(), "an RPM database cannot be read");
    }
}
