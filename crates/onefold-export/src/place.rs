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
/// Where a user without a runtime directory has a run directory: in a cron job, in a service unit, after `su`.
const TEMPORARY_DIRECTORY: &str = "/tmp";
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
    /// root's, all of the client's own, and for root the owner's.
    #[must_use]
    pub fn of_pool_owned_by(owner: u32) -> Vec<RunDirectory> {
        RunDirectory::for_client(rustix::process::geteuid().as_raw(), owner, std::env::var_os)
    }

    /// Returns the directories that a client of `user` with `environment` searches.
    fn for_client(user: u32, owner: u32, environment: impl Fn(&'static str) -> Option<OsString>) -> Vec<RunDirectory> {
        let mut directories = vec![RunDirectory { path: ROOT_DIRECTORY.into(), user: 0 }];
        if user != 0 {
            directories.extend(RunDirectory::of_user(user, environment));
        } else if owner != 0 {
            // The environment is root's, not the owner's.
            directories.extend(RunDirectory::of_user(owner, |_| None));
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

    /// Returns the directories for sockets of this process, in the order in which a daemon tries them.
    pub(crate) fn own() -> Vec<RunDirectory> {
        match rustix::process::geteuid().as_raw() {
            0 => vec![RunDirectory { path: ROOT_DIRECTORY.into(), user: 0 }],
            user => RunDirectory::of_user(user, std::env::var_os),
        }
    }

    /// Returns the run directories of a `user` other than root with this `environment`. A login session sets
    /// `XDG_RUNTIME_DIR`; `su`, `sudo -u`, cron and service units do not, or leave another user's there. A client
    /// searches all of them, because the daemon may have been started another way.
    fn of_user(user: u32, environment: impl Fn(&'static str) -> Option<OsString>) -> Vec<RunDirectory> {
        let given = environment("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let logged_in = Path::new(USERS_DIRECTORY).join(user.to_string());
        let mut paths: Vec<_> = given.into_iter().map(|path| path.join("onefold")).collect();
        if !paths.contains(&logged_in.join("onefold")) {
            paths.push(logged_in.join("onefold"));
        }
        paths.push(Path::new(TEMPORARY_DIRECTORY).join(format!("onefold-{user}")));
        paths.into_iter().map(|path| RunDirectory { path, user }).collect()
    }
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
        let of_user_7: [(PathBuf, u32); 2] = [("/run/user/7/onefold".into(), 7), ("/tmp/onefold-7".into(), 7)];
        let of = |user, owner| {
            let directories = RunDirectory::for_client(user, owner, |_| Some("/run/mine".into()));
            directories.into_iter().map(|found| (found.path, found.user)).collect::<Vec<_>>()
        };
        let root: (PathBuf, u32) = ("/run/onefold".into(), 0);
        assert_eq!(of(0, 0), std::slice::from_ref(&root), "whatever its environment says");
        assert_eq!(
            of(0, 7),
            [std::slice::from_ref(&root), &of_user_7[..]].concat(),
            "root's environment is not the owner's"
        );
        for owner in [0, 7, 8] {
            let expected = [&[root.clone(), ("/run/mine/onefold".into(), 7)], &of_user_7[..]].concat();
            assert_eq!(of(7, owner), expected, "a pool of {owner}");
        }
    }

    /// Seen: without `XDG_RUNTIME_DIR` (su, sudo -u, cron, service units), an ordinary user could not mount at all.
    #[test]
    fn a_relative_or_missing_runtime_directory_leaves_the_systems_one_and_tmp() {
        let own = |value: Option<&str>| {
            let directories = RunDirectory::of_user(7, |_| value.map(OsString::from));
            directories.into_iter().map(|found| found.path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        for value in [None, Some(""), Some("run"), Some("/run/user/7")] {
            assert_eq!(own(value), ["/run/user/7/onefold", "/tmp/onefold-7"], "{value:?}");
        }
        assert_eq!(own(Some("/run/x")), ["/run/x/onefold", "/run/user/7/onefold", "/tmp/onefold-7"]);
    }
}
