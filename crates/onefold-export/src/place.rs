//! Places and names of control sockets, by which clients find them.
//!
//! A daemon names its socket after the file or partition of its pool ([`PoolPlace`]), in the run directory of its user.
//! Clients search the run directories of users whom they trust ([`RunDirectory`]). `docs/decisions/0013-doors.md`
//! explains why this is safe.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// Run directory of root's daemons.
const ROOT_DIRECTORY: &str = "/run/onefold";
/// Where the system makes the runtime directories of users, one for each, named after their numbers.
const USERS_DIRECTORY: &str = "/run/user";
/// Permissions that users other than the owner of a run directory must not have.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The file or partition of a pool, as numbered by the kernel. All paths to it lead to the same place. While it is
/// open, no other file or partition has its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPlace {
    /// A regular file.
    File {
        /// Device number of its file system (`st_dev`).
        device: u64,
        /// Its inode number.
        inode: u64,
    },
    /// A partition or disk.
    Disk {
        /// Its device number (`st_rdev`).
        device: u64,
    },
}

impl PoolPlace {
    /// Returns the place of a file with this `metadata`; `None` if its kind holds no pool.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Option<PoolPlace> {
        let kind = metadata.file_type();
        if kind.is_file() {
            Some(PoolPlace::File { device: metadata.dev(), inode: metadata.ino() })
        } else if kind.is_block_device() {
            Some(PoolPlace::Disk { device: metadata.rdev() })
        } else {
            None
        }
    }

    /// Returns the name of the control socket, without `.sock`. Different places have different names.
    pub(crate) fn socket_name(&self) -> String {
        match *self {
            PoolPlace::File { device, inode } => format!("file-{}-{}-{inode}", major(device), minor(device)),
            PoolPlace::Disk { device } => format!("disk-{}-{}", major(device), minor(device)),
        }
    }
}

/// A directory in which only one user, and root, can put control sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectory {
    /// Its path.
    pub path: PathBuf,
    /// The user whose daemons make their sockets there.
    pub user: u32,
}

impl RunDirectory {
    /// Returns the directories that a client searches for the daemon of a pool whose file belongs to user `owner`:
    /// root's, the client's own, and for root the owner's.
    #[must_use]
    pub fn of_pool_owned_by(owner: u32) -> Vec<RunDirectory> {
        RunDirectory::for_client(rustix::process::geteuid().as_raw(), owner, std::env::var_os)
    }

    /// Returns the directories that a client of `user` with `environment` searches.
    fn for_client(user: u32, owner: u32, environment: impl Fn(&'static str) -> Option<OsString>) -> Vec<RunDirectory> {
        let mut directories = vec![RunDirectory { path: ROOT_DIRECTORY.into(), user: 0 }];
        if user != 0 {
            directories.extend(own_directory(environment).map(|path| RunDirectory { path, user }));
        } else if owner != 0 {
            let path = Path::new(USERS_DIRECTORY).join(owner.to_string()).join("onefold");
            directories.push(RunDirectory { path, user: owner });
        }
        directories
    }

    /// Returns a directory whose sockets belong to the user of this process.
    pub(crate) fn of_this_user(path: PathBuf) -> RunDirectory {
        RunDirectory { path, user: rustix::process::geteuid().as_raw() }
    }

    /// Returns whether the directory exists and only its user and root can change its content.
    pub(crate) fn is_trusted(&self) -> io::Result<bool> {
        // A link could lead to a directory of the same user with other sockets.
        let found = fs::symlink_metadata(&self.path)?;
        Ok(found.is_dir() && [0, self.user].contains(&found.uid()) && found.mode() & WRITABLE_BY_OTHERS == 0)
    }

    /// Returns the path of the socket `name`.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.sock"))
    }

    /// Returns the directory for sockets of this process; `None` if its user has none.
    pub(crate) fn own() -> Option<RunDirectory> {
        let is_root = rustix::process::geteuid().is_root();
        let path = if is_root { Some(ROOT_DIRECTORY.into()) } else { own_directory(std::env::var_os) };
        path.map(RunDirectory::of_this_user)
    }
}

/// Returns the run directory of a user other than root with this `environment`.
fn own_directory(environment: impl Fn(&'static str) -> Option<OsString>) -> Option<PathBuf> {
    let runtime = environment("XDG_RUNTIME_DIR").map(PathBuf::from)?;
    runtime.is_absolute().then(|| runtime.join("onefold"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn place(path: &Path) -> PoolPlace {
        PoolPlace::of(&fs::metadata(path).unwrap()).unwrap()
    }

    #[test]
    fn all_paths_to_a_file_lead_to_one_place_and_a_copy_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "pool").unwrap();
        let before = place(&path("a"));
        fs::hard_link(path("a"), path("b")).unwrap();
        std::os::unix::fs::symlink(path("b"), path("c")).unwrap();
        fs::copy(path("a"), path("copy")).unwrap();
        fs::rename(path("a"), path("renamed")).unwrap();
        for name in ["b", "c", "renamed"] {
            assert_eq!(place(&path(name)).socket_name(), before.socket_name(), "{name}");
        }
        assert_ne!(place(&path("copy")).socket_name(), before.socket_name());
        assert_eq!(PoolPlace::of(&fs::metadata(folder.path()).unwrap()), None);
        assert_eq!(PoolPlace::of(&fs::metadata("/dev/null").unwrap()), None);
    }

    #[test]
    fn places_have_names_of_their_own() {
        let device = rustix::fs::makedev(254, 1);
        let names = [
            PoolPlace::File { device, inode: 12 },
            PoolPlace::File { device, inode: 1 },
            PoolPlace::File { device: rustix::fs::makedev(254, 11), inode: 2 },
            PoolPlace::Disk { device },
        ]
        .map(|place| place.socket_name());
        assert_eq!(names, ["file-254-1-12", "file-254-1-1", "file-254-11-2", "disk-254-1"]);
    }

    #[test]
    fn a_directory_that_others_can_change_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let of = |path: &Path, user| RunDirectory { path: path.to_owned(), user };
        let trusted = |mode: u32| {
            fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            of(folder.path(), user).is_trusted().unwrap()
        };
        assert!(trusted(0o700) && trusted(0o755));
        assert!(!trusted(0o775) && !trusted(0o702) && !trusted(0o1777));
        assert!(trusted(0o755));
        if user != 0 {
            assert!(!of(folder.path(), user + 1).is_trusted().unwrap(), "another user's");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(!of(&link, user).is_trusted().unwrap());
        assert!(of(&folder.path().join("none"), user).is_trusted().is_err());
    }

    #[test]
    fn clients_look_where_root_they_themselves_and_for_root_the_pools_owner_have_sockets() {
        let of = |user, owner| {
            let directories = RunDirectory::for_client(user, owner, |_| Some("/run/mine".into()));
            directories.into_iter().map(|found| (found.path, found.user)).collect::<Vec<_>>()
        };
        let root: (PathBuf, u32) = ("/run/onefold".into(), 0);
        assert_eq!(of(0, 0), std::slice::from_ref(&root), "whatever its environment says");
        assert_eq!(of(0, 7), [root.clone(), ("/run/user/7/onefold".into(), 7)]);
        for owner in [0, 7, 8] {
            assert_eq!(of(7, owner), [root.clone(), ("/run/mine/onefold".into(), 7)], "a pool of {owner}");
        }
    }

    #[test]
    fn a_relative_or_missing_runtime_directory_is_none() {
        let own = |value: Option<&str>| own_directory(|_| value.map(OsString::from));
        assert_eq!(own(Some("/run/user/7")), Some("/run/user/7/onefold".into()));
        assert_eq!([own(None), own(Some("")), own(Some("run"))], [None, None, None]);
    }
}
