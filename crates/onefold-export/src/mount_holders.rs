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
use std::iter;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::Show;

use crate::mount_table::{DeviceNumber, MountTable, TableMount};

/// The pause between two looks at mounts that keep a pool in use.
pub(crate) const HOLDERS_POLL: Duration = Duration::from_millis(50);

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
    /// Its number, or that of a thread with its own mount namespace: the number that can be ended or looked at.
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
    /// Reads the tables of all mount namespaces that have a thread visible in `/proc`.
    ///
    /// A thread may have a mount namespace of its own (unshare(2)), and a process whose first thread has ended shows no
    /// table in its own folder. So this inspects threads. A thread's table lacks the mounts outside its root directory,
    /// so each pair of namespace and root directory is read. The kernel shows that pair only to root and the thread's
    /// user, but the table to every user. Of a process whose pairs are hidden, one thread is read: the kernel takes
    /// milliseconds to print a long table.
    ///
    /// # Errors
    /// When this process's own table cannot be read.
    pub(crate) fn read() -> io::Result<VisibleMounts> {
        let mut views: HashSet<ThreadView> = ThreadView::of(Path::new("/proc/self")).into_iter().collect();
        let mut texts = HashSet::from([fs::read("/proc/self/mountinfo")?]);
        let mut others = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(id) = number_of(&entry) else { continue };
            // A process or a thread may end at any time.
            let Ok(threads) = fs::read_dir(entry.path().join("task")) else { continue };
            let mut has_read_hidden = false;
            for thread in threads.flatten() {
                let view = ThreadView::of(&thread.path());
                let is_known = view.as_ref().map_or(has_read_hidden, |view| views.contains(view));
                if is_known {
                    continue;
                }
                let Ok(text) = fs::read(thread.path().join("mountinfo")) else { continue };
                has_read_hidden |= view.is_none();
                views.extend(view);
                if texts.contains(&text) {
                    continue;
                }
                let name = fs::read(entry.path().join("comm")).unwrap_or_default();
                let name = String::from_utf8_lossy(&name).trim_end().to_owned();
                // A process can be ended; only the thread shows the namespace where it has one of its own.
                let id = if is_seen_in(&entry, &thread) { id } else { number_of(&thread).unwrap_or(id) };
                others.push((HolderProcess { id, name }, MountTable::parse(&text)));
                texts.insert(text);
            }
        }
        // Read last: a mount that was made meanwhile in this namespace is not taken for one of another.
        let own = fs::read("/proc/self/mountinfo")?;
        Ok(VisibleMounts { own: MountTable::parse(&own), others })
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
        // A mount has one number in all tables that show it, and one table may lack the parent that another one has.
        let mut counted: HashSet<u64> = unmounted.iter().map(|mount| mount.id).collect();
        let tables =
            || iter::once((None, &self.own)).chain(self.others.iter().map(|(holder, table)| (Some(holder), table)));
        for (_, table) in tables() {
            counted.extend(table.of_device(device).filter(|mount| goes_too(table, mount)).map(|mount| mount.id));
        }
        let mut left = Vec::new();
        for (process, table) in tables() {
            let found = table.of_device(device).filter(|mount| counted.insert(mount.id));
            left.extend(
                found.map(|mount| MountHolder { mountpoint: mount.mountpoint.clone(), process: process.cloned() }),
            );
        }
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

/// The mount namespace and the root directory of a thread, as the kernel names them.
#[derive(PartialEq, Eq, Hash)]
struct ThreadView {
    namespace: PathBuf,
    root: PathBuf,
}

impl ThreadView {
    /// Returns the view of the thread whose folder in `/proc` is `thread`; `None` if this process may not inspect it.
    fn of(thread: &Path) -> Option<ThreadView> {
        let link = |name: &str| fs::read_link(thread.join(name)).ok();
        Some(ThreadView { namespace: link("ns/mnt")?, root: link("root")? })
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
    fn of_device(&self, device: DeviceNumber) -> impl Iterator<Item = &TableMount> {
        self.mounts.iter().filter(move |mount| mount.device == device)
    }

    fn parent_of(&self, mount: &TableMount) -> Option<&TableMount> {
        self.mounts.iter().find(|parent| parent.id == mount.parent)
    }

    /// Returns the folder that a mount covers, as a path within that folder's file system.
    fn place_of(&self, mount: &TableMount) -> Option<PathBuf> {
        let parent = self.parent_of(mount)?;
        Some(parent.root.join(mount.mountpoint.strip_prefix(&parent.mountpoint).ok()?))
    }
}

/// Returns the mounts of the pool at `pool`, a canonical path, in the mount namespaces of other processes.
///
/// # Errors
/// When the kernel's tables cannot be read.
pub fn holders_elsewhere(pool: &Path) -> io::Result<Vec<MountHolder>> {
    let VisibleMounts { own, others } = VisibleMounts::read()?;
    let is_elsewhere = |mount: &TableMount| {
        mount.kind == OsStr::new(POOL_KIND) && mount.source == pool && own.mounts.iter().all(|own| own.id != mount.id)
    };
    let of_table = |(process, table): (HolderProcess, MountTable)| -> Vec<MountHolder> {
        let found = table.mounts.into_iter().filter(is_elsewhere);
        found.map(|mount| MountHolder { mountpoint: mount.mountpoint, process: Some(process.clone()) }).collect()
    };
    Ok(others.into_iter().flat_map(of_table).collect())
}

/// Returns a mount of another mount namespace that keeps the pool mounted at `mountpoint` in use after that mount is
/// removed, for a process that sees more than the daemon. Waits up to `patience` for such mounts to go. Returns `None`
/// if the process `daemon` has another mount namespace than this one, or a mount of this namespace keeps the pool in
/// use: the daemon sees that as well.
///
/// # Errors
/// When the kernel's tables cannot be read.
pub fn holder_after_unmount(mountpoint: &Path, daemon: u32, patience: Duration) -> io::Result<Option<MountHolder>> {
    let namespace = |process: &str| fs::read_link(Path::new("/proc").join(process).join("ns/mnt")).ok();
    let own = namespace("self");
    if own.is_none() || own != namespace(&daemon.to_string()) {
        return Ok(None);
    }
    let started = Instant::now();
    loop {
        let visible = VisibleMounts::read()?;
        let Some(mount) = visible.own.topmost_at(mountpoint) else { return Ok(None) };
        let left = visible.left_by_unmount(mountpoint, mount.device);
        let holder = left.into_iter().next().filter(|holder| holder.process.is_some());
        if holder.is_none() || started.elapsed() >= patience {
            return Ok(holder);
        }
        thread::sleep(HOLDERS_POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 37 };

    fn left(own: &str, other: &str) -> Vec<String> {
        left_of(own, &[(9, other)])
    }

    fn left_of(own: &str, others: &[(u32, &str)]) -> Vec<String> {
        let other = |&(id, table): &(u32, &str)| {
            (HolderProcess { id, name: "sleep".to_owned() }, MountTable::parse(table.as_bytes()))
        };
        let others = others.iter().map(other).collect();
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

    /// A user may not see the namespaces of root's processes, but their tables. A changed root directory makes a table
    /// of the own namespace look like one of another.
    #[test]
    fn processes_of_the_own_namespace_with_another_root_directory_hold_nothing_more() {
        let rooted = |also: &str| format!("40 22 0:37 / /in/mnt rw shared:9 - fuse.onefold a.pool rw\n{also}");
        assert!(left(OWN, &rooted("")).is_empty());
        let bind = "41 22 0:37 / /other rw - fuse.onefold a.pool rw\n";
        assert_eq!(left(&format!("{OWN}{bind}"), &rooted(bind)), ["None /other"]);
    }

    #[test]
    fn a_mount_whose_parent_only_one_process_sees_goes_with_the_unmount() {
        let mount = "70 62 0:37 / /mnt rw - fuse.onefold a.pool rw\n";
        let with_parent = |groups: &str| format!("62 61 8:1 / / rw {groups}- ext4 /dev/sda1 rw\n{mount}");
        assert!(left_of(OWN, &[(8, mount), (9, &with_parent("master:1 "))]).is_empty());
        assert_eq!(left_of(OWN, &[(8, mount), (9, &with_parent(""))]), ["Some(8) /mnt"]);
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
