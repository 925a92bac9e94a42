//! Other mounts that keep a pool in use after its own mount is removed: bind mounts, and copies in the mount namespaces
//! of other processes.
//!
//! An unmount does not end a file system that is mounted elsewhere as well, and the kernel does not report that. A new
//! mount namespace begins with a copy of every mount. If the parent folder of a mount is shared with that of its copy
//! (mount_namespaces(7)), the unmount also removes the copy; such a copy keeps nothing in use.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use onefold_block::Show;

use crate::mount_table::{DeviceNumber, MountTable, TableMount};

/// Type of a mounted pool in the kernel's table.
const POOL_KIND: &str = "fuse.onefold";

/// Another mount that keeps a pool in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountHolder {
    /// Its mount point, as seen in its mount namespace.
    pub mountpoint: PathBuf,
    /// A process in its mount namespace; `None` for this process's own namespace.
    pub process: Option<HolderProcess>,
}

/// A process in whose mount namespace a pool is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderProcess {
    /// Its number, or that of a thread with its own mount namespace: the number that `nsenter` takes.
    pub id: u32,
    /// The name of its program, from the kernel.
    pub name: String,
}

impl fmt::Display for MountHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mountpoint = self.mountpoint.shown();
        match &self.process {
            None => write!(f, "it is also mounted at `{mountpoint}`"),
            Some(HolderProcess { id, name }) => {
                let name = Path::new(name);
                write!(
                    f,
                    "process {id} (`{}`) has it mounted at `{mountpoint}` in another mount namespace",
                    name.shown()
                )
            }
        }
    }
}

/// The mount tables visible to this process.
pub(crate) struct VisibleMounts {
    own: MountTable,
    others: Vec<(HolderProcess, MountTable)>,
}

impl VisibleMounts {
    /// Reads the tables of all mount namespaces, except those of processes that this one may not inspect.
    ///
    /// A thread may have a mount namespace of its own (unshare(2)), and a process whose first thread has ended shows no
    /// table in its own folder. So this inspects threads.
    ///
    /// # Errors
    /// When this process's own table cannot be read.
    pub(crate) fn read() -> io::Result<VisibleMounts> {
        let mut namespaces: HashSet<PathBuf> = fs::read_link("/proc/self/ns/mnt").into_iter().collect();
        let mut others = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(id) = number_of(&entry) else { continue };
            // A process or a thread may end at any time.
            let Ok(threads) = fs::read_dir(entry.path().join("task")) else { continue };
            for thread in threads.flatten() {
                let Ok(namespace) = fs::read_link(thread.path().join("ns/mnt")) else { continue };
                if namespaces.contains(&namespace) {
                    continue;
                }
                let Ok(table) = fs::read(thread.path().join("mountinfo")) else { continue };
                namespaces.insert(namespace);
                let name = fs::read(entry.path().join("comm")).unwrap_or_default();
                let name = String::from_utf8_lossy(&name).trim_end().to_owned();
                // An administrator can end the process; `nsenter` needs the thread.
                let id = if is_seen_in(&entry, &thread) { id } else { number_of(&thread).unwrap_or(id) };
                others.push((HolderProcess { id, name }, MountTable::parse(&table)));
            }
        }
        Ok(VisibleMounts { own: MountTable::own()?, others })
    }

    /// Returns where an unmount of `device` has to begin: at `mountpoint`, or at the first of its mounts in this
    /// process's namespace if the one at `mountpoint` was removed.
    pub(crate) fn first_mount_of(&self, device: DeviceNumber, mountpoint: &Path) -> Option<PathBuf> {
        let at_place = self.own.topmost_at(mountpoint).filter(|mount| mount.device == device);
        let first = at_place.or_else(|| self.own.mounts.iter().find(|mount| mount.device == device))?;
        Some(first.mountpoint.clone())
    }

    /// Returns the mounts of `device` that remain after the mount at `mountpoint` is removed; those of this process's
    /// own namespace come first. Returns all of them if `device` is not mounted there.
    pub(crate) fn left_by_unmount(&self, mountpoint: &Path, device: DeviceNumber) -> Vec<MountHolder> {
        let unmounted = self.own.topmost_at(mountpoint).filter(|mount| mount.device == device);
        let place = unmounted.and_then(|mount| self.own.place_of(mount));
        let groups =
            unmounted.and_then(|mount| self.own.parent_of(mount)?.peer_group).map(|group| self.receivers_of(group));
        let goes_too = |table: &MountTable, mount: &TableMount| {
            let (Some(groups), Some(parent)) = (&groups, table.parent_of(mount)) else { return false };
            let receives =
                [parent.peer_group, parent.master_group].into_iter().flatten().any(|group| groups.contains(&group));
            receives && table.place_of(mount) == place
        };
        let is_unmounted = |mount: &TableMount| unmounted.is_some_and(|unmounted| unmounted.id == mount.id);
        let in_table = |process: Option<&HolderProcess>, table: &MountTable| -> Vec<MountHolder> {
            let is_left = |mount: &&TableMount| {
                mount.device == device && !(process.is_none() && is_unmounted(mount)) && !goes_too(table, mount)
            };
            let holder =
                |mount: &TableMount| MountHolder { mountpoint: mount.mountpoint.clone(), process: process.cloned() };
            table.mounts.iter().filter(is_left).map(holder).collect()
        };
        let mut left = in_table(None, &self.own);
        left.extend(self.others.iter().flat_map(|(process, table)| in_table(Some(process), table)));
        left
    }

    /// Returns a peer group and all groups that receive unmounts from it.
    fn receivers_of(&self, group: u64) -> HashSet<u64> {
        let mut groups = HashSet::from([group]);
        loop {
            let before = groups.len();
            for mount in self.others.iter().map(|(_, table)| table).chain([&self.own]).flat_map(|table| &table.mounts) {
                if let (Some(master), Some(peer)) = (mount.master_group, mount.peer_group)
                    && groups.contains(&master)
                {
                    groups.insert(peer);
                }
            }
            if groups.len() == before {
                return groups;
            }
        }
    }
}

/// Returns the number in the name of an entry of `/proc`; `None` for other entries.
fn number_of(entry: &DirEntry) -> Option<u32> {
    entry.file_name().to_str()?.parse().ok()
}

/// Returns whether the process's own folder shows the mount namespace of this thread.
fn is_seen_in(process: &DirEntry, thread: &DirEntry) -> bool {
    process.file_name() == thread.file_name()
}

impl MountTable {
    fn parent_of(&self, mount: &TableMount) -> Option<&TableMount> {
        self.mounts.iter().find(|parent| parent.id == mount.parent)
    }

    /// Returns the folder that a mount covers, as a path within that folder's file system.
    fn place_of(&self, mount: &TableMount) -> Option<PathBuf> {
        let parent = self.parent_of(mount)?;
        Some(parent.root.join(mount.mountpoint.strip_prefix(&parent.mountpoint).ok()?))
    }
}

/// Returns the mounts of the pool at `pool`, a canonical path, in the mount namespaces of other processes, except
/// processes that this one may not inspect.
///
/// # Errors
/// When the kernel's tables cannot be read.
pub fn holders_elsewhere(pool: &Path) -> io::Result<Vec<MountHolder>> {
    let is_of_pool = |mount: &TableMount| mount.kind == OsStr::new(POOL_KIND) && mount.source == pool;
    let of_table = |(process, table): (HolderProcess, MountTable)| -> Vec<MountHolder> {
        let found = table.mounts.into_iter().filter(is_of_pool);
        found.map(|mount| MountHolder { mountpoint: mount.mountpoint, process: Some(process.clone()) }).collect()
    };
    Ok(VisibleMounts::read()?.others.into_iter().flat_map(of_table).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 37 };

    fn left(own: &str, other: &str) -> Vec<String> {
        let process = HolderProcess { id: 9, name: "sleep".to_owned() };
        let others = vec![(process, MountTable::parse(other.as_bytes()))];
        let mounts = VisibleMounts { own: MountTable::parse(own.as_bytes()), others };
        let left = mounts.left_by_unmount(Path::new("/mnt"), DEVICE);
        left.iter()
            .map(|holder| {
                format!("{:?} {}", holder.process.as_ref().map(|process| process.id), holder.mountpoint.shown())
            })
            .collect()
    }

    const OWN: &str =
        "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n40 22 0:37 / /mnt rw shared:9 - fuse.onefold a.pool rw\n";

    #[test]
    fn a_mount_alone_leaves_nothing() {
        assert!(left(OWN, "").is_empty());
    }

    #[test]
    fn bind_mounts_are_left_also_of_one_file() {
        let binds = "41 22 0:37 / /other rw shared:9 - fuse.onefold a.pool rw\n\
            42 22 0:37 /file /one rw shared:9 - fuse.onefold a.pool rw\n";
        assert_eq!(left(&format!("{OWN}{binds}"), ""), ["None /other", "None /one"]);
    }

    #[test]
    fn a_private_copy_of_a_namespace_is_left_and_a_receiving_one_is_not() {
        let copy = |root: &str| {
            format!("62 61 8:1 / / rw {root}- ext4 /dev/sda1 rw\n70 62 0:37 / /mnt rw - fuse.onefold a.pool rw\n")
        };
        assert_eq!(left(OWN, &copy("")), ["Some(9) /mnt"]);
        assert!(left(OWN, &copy("shared:1 ")).is_empty());
        assert!(left(OWN, &copy("master:1 ")).is_empty());
        assert_eq!(left(OWN, &copy("master:2 ")), ["Some(9) /mnt"]);
        // Receives from a group that itself receives.
        let between = "80 61 8:1 / /x rw shared:5 master:1 - ext4 /dev/sda1 rw\n";
        assert!(left(OWN, &format!("{between}{}", copy("master:5 "))).is_empty());
    }

    #[test]
    fn a_container_that_shows_a_part_of_the_folder_receives_by_the_place_not_by_the_path() {
        let part = |at: &str| {
            format!(
                "62 61 8:1 /mnt /data rw master:1 - ext4 /dev/sda1 rw\n70 62 0:37 / {at} rw - fuse.onefold a.pool rw\n"
            )
        };
        assert!(left(OWN, &part("/data")).is_empty());
        assert_eq!(left(OWN, &part("/data/below")), ["Some(9) /data/below"]);
    }

    #[test]
    fn everything_is_left_where_nothing_is_taken_away() {
        let bind = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n41 22 0:37 / /other rw - fuse.onefold a.pool rw\n";
        assert_eq!(left(bind, ""), ["None /other"]);
    }

    #[test]
    fn an_unmount_begins_at_the_own_place_or_at_the_first_that_is_left() {
        let binds =
            "41 22 0:37 / /other rw - fuse.onefold a.pool rw\n42 22 0:37 / /third rw - fuse.onefold a.pool rw\n";
        let first = |table: &str| {
            let mounts = VisibleMounts { own: MountTable::parse(table.as_bytes()), others: Vec::new() };
            mounts.first_mount_of(DEVICE, Path::new("/mnt"))
        };
        assert_eq!(first(&format!("{binds}{OWN}")), Some("/mnt".into()));
        assert_eq!(first(binds), Some("/other".into()));
        assert_eq!(first(""), None);
    }

    #[test]
    fn the_tables_of_this_machine_can_be_read() {
        let mounts = VisibleMounts::read().unwrap();
        assert!(!mounts.own.mounts.is_empty());
    }
}
