use std::ffi::CString;
use std::fs::File;
use std::thread;

use onefold_block::BlockDevice;
use onefold_export::MountOptions;
use onefold_pool::{CreateOptions, Environment, MEMORY_BYTES_MIN, OpenOptions, Pool};
use onefold_testing::device::MemoryDevice;
use rustix::mount::MountFlags;

use super::*;

const LOCKS: &str = "1: FLOCK  ADVISORY  WRITE 471 fe:00:10207265 0 EOF\n\
    2: POSIX  ADVISORY  WRITE 472 fe:00:10207265 0 EOF\n\
    2: -> FLOCK  ADVISORY  WRITE 473 fe:00:10207265 0 EOF\n\
    3: FLOCK  ADVISORY  READ 474 fe:00:7 0 EOF\n\
    broken\n";

#[test]
fn who_holds_the_lock_is_found_and_who_waits_for_it_is_not() {
    assert_eq!(lock_holders(LOCKS, "fe:00:10207265"), [471]);
    assert_eq!(lock_holders(LOCKS, "fe:00:7"), [474]);
    assert_eq!(lock_holders(LOCKS, "fe:00:8"), [0_u32; 0]);
}

#[test]
fn a_name_with_parentheses_hides_no_state() {
    assert!(is_zombie("471 (one) Z fold) Z 418 418 0"));
    assert!(!is_zombie("471 (one) Z fold) S 418 418 0"));
    assert!(!is_zombie(""));
}

/// A folder with mount points. Dropping it unmounts everything that is still mounted there.
struct MountFolder(tempfile::TempDir);

impl MountFolder {
    /// Returns `None`, with a message, on a machine that cannot mount.
    fn new() -> Option<MountFolder> {
        let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
        if !can {
            eprintln!("SKIPPED: mounting needs root and /dev/fuse");
        }
        can.then(|| MountFolder(tempfile::tempdir().unwrap()))
    }

    /// Makes a directory and returns its path.
    fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for MountFolder {
    fn drop(&mut self) {
        let table = String::from_utf8_lossy(&fs::read("/proc/self/mounts").unwrap_or_default()).into_owned();
        let below = format!("{}/", self.0.path().to_str().unwrap());
        for place in table.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(|at| at.starts_with(&below)) {
            let _ = rustix::mount::unmount(place, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
    }
}

/// Makes a mount that no process serves. It is dead when the connection is dropped.
fn mount_unserved(at: &Path) -> File {
    let connection = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let words = format!("fd={},rootmode=40000,user_id=0,group_id=0,subtype=onefold", connection.as_raw_fd());
    let words = CString::new(words).unwrap();
    rustix::mount::mount("/nowhere/test.pool", at, "fuse", MountFlags::NOSUID | MountFlags::NODEV, &*words).unwrap();
    connection
}

/// Makes a dead mount, and returns its line of the mount table.
fn dead_mount(at: &Path) -> PoolMount {
    drop(mount_unserved(at));
    let mount = mounts::mounted().unwrap().into_iter().find(|mount| mount.mountpoint == at).unwrap();
    assert!(is_dead(&mount));
    mount
}

fn mount_something(at: &Path) {
    rustix::mount::mount("none", at, "tmpfs", MountFlags::empty(), None).unwrap();
}

/// Returns the number of file systems mounted at a place.
fn mounted_at(at: &Path) -> usize {
    let table = String::from_utf8_lossy(&fs::read("/proc/self/mounts").unwrap()).into_owned();
    table.lines().filter(|line| line.split(' ').nth(1) == at.to_str()).count()
}

#[test]
fn a_dead_mount_is_cleared_once() {
    let Some(folder) = MountFolder::new() else { return };
    let at = folder.directory("mnt");
    let dead = dead_mount(&at);
    for _ in 0..2 {
        clear(&dead).unwrap();
        assert_eq!(mounted_at(&at), 0);
    }
}

/// Regression, found in a review: a mount found dead was cleared by its path. If another process had meanwhile cleared
/// it and mounted anew, the new mount was removed, by force.
#[test]
fn what_was_mounted_since_at_the_place_of_a_dead_mount_stays() {
    let Some(folder) = MountFolder::new() else { return };
    let at = folder.directory("mnt");
    let dead = dead_mount(&at);
    // Mounted while the dead mount exists, so it has another number.
    let elsewhere = folder.directory("elsewhere");
    mount_something(&elsewhere);
    rustix::mount::unmount(&at, UnmountFlags::DETACH).unwrap();
    rustix::mount::mount_bind(&elsewhere, &at).unwrap();
    clear(&dead).unwrap();
    assert_eq!(mounted_at(&at), 1);
}

/// The same if the kernel has given the number of the dead mount to the new one.
#[test]
fn a_mount_with_the_number_of_a_dead_one_stays_if_a_daemon_serves_it() {
    let Some(folder) = MountFolder::new() else { return };
    let at = folder.directory("mnt");
    let device: std::sync::Arc<dyn BlockDevice> = std::sync::Arc::new(MemoryDevice::new(4096));
    Pool::create(&device, &CreateOptions::default(), &Environment::system()).unwrap();
    let options = OpenOptions { memory_bytes: MEMORY_BYTES_MIN, ..OpenOptions::default() };
    let pool = std::sync::Arc::new(Pool::open(device, options, Environment::system()).unwrap());
    let mut options = MountOptions::new("/nowhere/test.pool");
    options.control_directory = Some(folder.directory("run"));
    let mounted = onefold_export::mount(pool, &at, &options).unwrap();
    let stopper = mounted.stopper();
    let server = thread::spawn(move || mounted.serve());
    let living = mounts::mounted().unwrap().into_iter().find(|mount| mount.mountpoint == at).unwrap();
    let refused = clear(&living).unwrap_err();
    assert!(refused.to_string().contains("a daemon serves it"), "{refused}");
    assert_eq!(mounted_at(&at), 1);
    stopper.stop().unwrap();
    server.join().unwrap().unwrap();
}

#[test]
fn a_dead_mount_under_another_one_is_told() {
    let Some(folder) = MountFolder::new() else { return };
    let at = folder.directory("mnt");
    let dead = dead_mount(&at);
    mount_something(&at);
    let refused = clear(&dead).unwrap_err();
    assert!(refused.to_string().contains("mounted over it"), "{refused}");
    assert_eq!(mounted_at(&at), 2);
}

/// The owner of a directory in the path can redirect it at any moment.
#[test]
fn a_way_that_was_changed_is_not_followed() {
    let Some(folder) = MountFolder::new() else { return };
    let (way, elsewhere) = (folder.directory("way"), folder.directory("elsewhere"));
    let at = folder.directory("way/below/mnt");
    let dead = dead_mount(&at);
    mount_something(&folder.directory("elsewhere/below/mnt"));
    fs::rename(&way, way.with_file_name("moved")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &way).unwrap();
    let refused = clear(&dead).unwrap_err();
    assert!(refused.to_string().contains("was renamed"), "{refused}");
    assert_eq!(mounted_at(&elsewhere.join("below/mnt")), 1);
}
