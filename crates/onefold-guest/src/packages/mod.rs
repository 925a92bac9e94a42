//! The packages of a guest: what is installed, since when, which files belong to it, and what these should contain.
//!
//! | module | is |
//! |---|---|
//! | `dpkg/` | the database of Debian and the systems made from it |
//! | `digest` | digests, as databases record them |
//! | `event` | what was installed, upgraded and removed, and when |
//! | `owners` | the package of a file |
//! | `verify/` | files that differ from their digests |
//!
//! **A new kind of database implements [`PackageDatabase`], and is opened in [`open`].** A database is a hint of a
//! guest that nobody vouches for: what it says of a file may be wrong.

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

/// The packages that a system has, as its package manager records them. What cannot be read is noted in
/// [`PackageDatabase::problems`] and left out.
pub trait PackageDatabase: Send + Sync {
    /// Returns the name of the package manager, such as `dpkg`.
    fn manager(&self) -> &'static str;

    /// Returns the packages in the order of their names, then of their architectures.
    fn packages(&self) -> &[Package];

    /// Returns what could not be read so far.
    fn problems(&self) -> &ProblemLog;

    /// Calls `visit` with each path of a package until it breaks, each path once. `package` is an index in
    /// [`PackageDatabase::packages`]; there are no paths of another one.
    fn each_path(&self, package: usize, visit: &mut dyn FnMut(&OwnedPath<'_>) -> ControlFlow<()>);

    /// Calls `visit` with where the file of each path of a package is, as [`OwnedPath::path`] has it, until it breaks.
    /// Whatever else the database knows of paths is not read, and a path that it has twice may come twice.
    fn each_place(&self, package: usize, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>);

    /// Calls `visit` with everything that the history has, the oldest first, until it breaks.
    fn each_event(&self, visit: &mut dyn FnMut(&PackageEvent) -> ControlFlow<()>);

    /// Returns for each package since when it is installed in its present version, where this is known. A package of
    /// which only configuration files are left has no time.
    fn installation_times(&self) -> Vec<Option<InstallationTime>>;
}

/// A package. Text that is not UTF-8 has replacements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture, by the name that the package manager gives it.
    pub architecture: String,
    /// How far it is installed.
    pub state: PackageState,
    /// The bytes that it takes by its own account, where it gives one.
    pub installed_bytes: Option<u64>,
}

/// How far a package is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PackageState {
    /// Wholly.
    Installed,
    /// Its installation or removal was not completed.
    Partial,
    /// It was removed, and its configuration files were left.
    ConfigurationOnly,
}

/// A path that belongs to a package, and what the database knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedPath<'p> {
    /// Where the file is by the database: an absolute path, which may lead through symbolic links of the guest.
    pub path: &'p [u8],
    /// The path that the package has for it. It differs from `path` where the file was diverted.
    pub packaged_path: &'p [u8],
    /// The length of the content, where it is recorded.
    pub size_bytes: Option<u64>,
    /// When the content changed, where it is recorded.
    pub modified: Option<Timestamp>,
    /// The permission bits, where they are recorded.
    pub mode: Option<u16>,
    /// The digest of the content as it was packaged, where it is recorded.
    pub digest: Option<Digest>,
    /// Whether users are expected to change it.
    pub is_configuration: bool,
    /// Whether the system is set up not to install it, as small images do with documents.
    pub is_excluded: bool,
}

/// Files of databases that are recognised and that no reader here knows.
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
/// When the database is of a kind that is not read, or its list of packages cannot be read.
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
