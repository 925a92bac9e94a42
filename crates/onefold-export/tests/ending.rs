//! How mounts end: unmounted from outside, while busy, by a stop, and before they were served.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::mapping::CountedPages;
use common::{TestMount, assert_clean, can_mount, noise, run};
use onefold_export::{EndError, MountError, MountOptions, mount};
use onefold_pool::{Environment, MEMORY_BYTES_MIN, OpenOptions, Pool};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::UnshareFlags;

fn open(device: &Arc<onefold_testing::device::MemoryDevice>) -> Arc<Pool> {
    let options = OpenOptions { memory_bytes: MEMORY_BYTES_MIN, ..OpenOptions::default() };
    Arc::new(Pool::open(device.clone(), options, Environment::system()).unwrap())
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").unwrap()
}

#[test]
fn umount_from_outside_ends_the_daemon_and_closes_the_pool() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let data = noise(1, 1 << 20);
    fs::write(mount.path("file"), &data).unwrap();
    run("umount", &["-i".as_ref(), mount.root().as_os_str()]);
    let (device, result) = mount.wait();
    result.unwrap();
    assert_clean(&device);
    let mount = TestMount::with(device, |_| ());
    assert!(fs::read(mount.path("file")).unwrap() == data);
    mount.end();
}

#[test]
fn a_busy_mount_is_not_unmounted_and_works_on() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let file = mount.create("file");
    assert!(matches!(mount.stopper.try_end(), Err(EndError::Busy)));
    file.write_all_at(b"works", 0).unwrap();
    drop(file);
    mount.end();
}

#[test]
fn stop_ends_a_busy_mount_and_loses_nothing_written_before() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let data = noise(1, 3 << 20);
    let file = mount.create("file");
    file.write_all_at(&data, 0).unwrap();
    // Only in the page cache: no system call has handed it over.
    let mapped = mount.create("mapped");
    mapped.set_len(4096).unwrap();
    let mapping = common::mapping::SharedMapping::new(&mapped, 4096).unwrap();
    mapping.set(10, 5);
    let root = mount.root();
    mount.stopper.stop().unwrap();
    let (device, result) = mount.wait();
    result.unwrap();
    assert!(file.write_all_at(b"too late", 0).is_err());
    assert!(!mounts().contains(root.to_str().unwrap()));
    drop((file, mapping, mapped));
    assert_clean(&device);
    let mount = TestMount::with(device, |_| ());
    assert!(fs::read(mount.path("file")).unwrap() == data);
    assert_eq!(fs::read(mount.path("mapped")).unwrap()[10], 5);
    mount.end();
}

/// Before Linux 6.16, no call waits for writes that the kernel has begun; unreceived ones were lost with the mount.
#[test]
fn stop_loses_nothing_that_the_kernel_is_handing_over() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(common::slow_pool(), |_| ());
    mount.hold_back_much();
    let mapping = CountedPages::new(&mount.path("mapped"), 24 << 20);
    mount.stopper.stop().unwrap();
    let (device, result) = mount.wait();
    result.unwrap();
    drop(mapping);
    let mount = TestMount::with(device, |_| ());
    assert_eq!(CountedPages::wrong_in(&mount.path("mapped")), 0);
    mount.end();
}

/// Before Linux 6.16, a program that has changed a mapping can end while its changes are still on their way, and does
/// not keep the mount busy.
#[test]
fn an_unmount_loses_nothing_of_a_program_that_has_just_ended() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(common::slow_pool(), |_| ());
    mount.hold_back_much();
    drop(CountedPages::new(&mount.path("mapped"), 24 << 20));
    let mount = TestMount::with(mount.end(), |_| ());
    assert_eq!(CountedPages::wrong_in(&mount.path("mapped")), 0);
    mount.end();
}

/// Seen: the unmount removed the mount point and then waited without limit or message.
#[test]
fn a_bind_mount_keeps_the_pool_mounted_and_is_named() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("file"), b"here").unwrap();
    let bind = tempfile::tempdir().unwrap();
    run("mount", &["--bind".as_ref(), mount.root().as_os_str(), bind.path().as_os_str()]);
    match mount.stopper.try_end() {
        Err(EndError::Held(holder)) => {
            assert_eq!((holder.mountpoint.as_path(), holder.process), (bind.path(), None));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"here", "nothing was unmounted");
    // The mount's own mount point is unmounted by hand, so that the last one is the one to unmount.
    run("umount", &["-i".as_ref(), mount.root().as_os_str()]);
    assert_eq!(fs::read(bind.path().join("file")).unwrap(), b"here");
    mount.stopper.try_end().unwrap();
    let (device, result) = mount.wait();
    result.unwrap();
    assert_clean(&device);
}

/// Seen: a stopped daemon removed its mount point and lived on unseen.
#[test]
fn stop_ends_a_mount_that_is_bound_elsewhere() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("file"), b"here").unwrap();
    let bind = tempfile::tempdir().unwrap();
    run("mount", &["--bind".as_ref(), mount.root().as_os_str(), bind.path().as_os_str()]);
    mount.stopper.stop().unwrap();
    let (device, result) = mount.wait();
    result.unwrap();
    run("umount", &["-i".as_ref(), bind.path().as_os_str()]);
    assert_clean(&device);
    let mount = TestMount::with(device, |_| ());
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"here");
    mount.end();
}

/// Starts a bash `script` in a mount namespace of its own, which keeps of all pools the one at `root`: mounts of other
/// tests must not count. `kind` is the flag of unshare(1) that makes the namespace.
fn spawn_elsewhere(kind: &OsStr, root: &Path, script: &str) -> Child {
    let leave_others = "awk -v own=\"$0\" '$3 == \"fuse.onefold\" && $2 != own { print $2 }' /proc/self/mounts | \
        while read -r mount; do printf -v name %b \"$mount\"; umount -i -l -- \"$name\" 2>/dev/null; done; exec";
    Command::new("unshare")
        .arg(kind)
        .args(["--propagation", "private", "bash", "-c", &format!("{leave_others} {script}")])
        .arg(root)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_until_elsewhere(process: u32) {
    // A process that has ended shows none.
    let namespace = |id: u32| fs::read_link(format!("/proc/{id}/ns/mnt")).ok();
    while namespace(process) == namespace(std::process::id()) {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Seen: the mount point was gone, a process kept the pool in use until it ended, and no message named the process.
#[test]
fn a_process_with_another_mount_namespace_is_named_after_two_seconds() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let mut process = spawn_elsewhere("--mount".as_ref(), &mount.root(), "sleep 60");
    wait_until_elsewhere(process.id());
    let started = Instant::now();
    match mount.stopper.try_end() {
        Err(EndError::Held(holder)) => {
            assert_eq!(holder.mountpoint, mount.root());
            assert_eq!(holder.process.map(|found| found.id), Some(process.id()));
        }
        other => panic!("{other:?}"),
    }
    let waited = started.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
    assert!(mounts().contains(mount.root().to_str().unwrap()), "nothing was unmounted");
    process.kill().unwrap();
    process.wait().unwrap();
    mount.end();
}

#[test]
fn a_process_with_another_mount_namespace_that_ends_soon_does_not_keep_the_mount() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let mut process = spawn_elsewhere("--mount".as_ref(), &mount.root(), "sleep 0.5");
    wait_until_elsewhere(process.id());
    mount.stopper.try_end().unwrap();
    let (device, result) = mount.wait();
    result.unwrap();
    process.wait().unwrap();
    assert_clean(&device);
}

/// No process shows a namespace that only a file keeps.
#[test]
fn a_namespace_without_a_process_is_reported_two_seconds_after_the_unmount() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let root = mount.root();
    // The kernel keeps a namespace by a file only in a mount without propagation.
    let kept = tempfile::tempdir().unwrap();
    run("mount", &["--bind".as_ref(), kept.path().as_os_str(), kept.path().as_os_str()]);
    run("mount", &["--make-private".as_ref(), kept.path().as_os_str()]);
    let file = kept.path().join("namespace");
    File::create(&file).unwrap();
    let kind = OsString::from_iter(["--mount=".as_ref(), file.as_os_str()]);
    assert!(spawn_elsewhere(&kind, &root, "true").wait().unwrap().success());
    let started = Instant::now();
    let ended = mount.stopper.try_end();
    let waited = started.elapsed();
    assert!(matches!(ended, Err(EndError::StillHeld(None))), "{ended:?}");
    assert!((Duration::from_secs(2)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
    assert!(!mounts().contains(root.to_str().unwrap()), "the mount point is free");
    run("umount", &[file.as_os_str()]);
    run("umount", &[kept.path().as_os_str()]);
    let (device, result) = mount.wait();
    result.unwrap();
    assert_clean(&device);
}

/// What was wrong: only the first thread of each process was inspected. The pool was unmounted but stayed in use, and
/// no message named the user.
#[test]
#[expect(unsafe_code, reason = "a thread may leave more than its mounts by the call")]
fn a_thread_with_another_mount_namespace_is_named_after_two_seconds() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let root = mount.root();
    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        // SAFETY: the descriptors stay common to all threads; only the mount namespace becomes the thread's own.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        run("mount", &["--make-rprivate".as_ref(), "/".as_ref()]);
        // Mounts of other tests must not count.
        let visible = fs::read_to_string("/proc/thread-self/mounts").unwrap();
        for mount in visible.lines().filter(|mount| mount.contains(" fuse.onefold ")) {
            let other = Path::new(mount.split(' ').nth(1).unwrap());
            if other != root {
                let _ = unmount(other, UnmountFlags::DETACH);
            }
        }
        tell.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
        let _ = ended.recv();
    });
    let id = told.recv().unwrap();
    match mount.stopper.try_end() {
        Err(EndError::Held(holder)) => {
            assert_eq!(holder.mountpoint, mount.root());
            assert_eq!(holder.process.map(|found| found.id), Some(id));
        }
        other => panic!("{other:?}"),
    }
    drop(end);
    thread.join().unwrap();
    mount.end();
}

#[test]
fn stopping_what_is_over_does_nothing() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let (stopper, root) = (mount.stopper.clone(), mount.root());
    stopper.stop().unwrap();
    let (_, result) = mount.wait();
    result.unwrap();
    // Another directory may be there by now.
    fs::create_dir_all(&root).unwrap();
    run("mount", &["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), root.as_os_str()]);
    stopper.stop().unwrap();
    stopper.try_end().unwrap();
    assert!(mounts().contains(root.to_str().unwrap()));
    run("umount", &[root.as_os_str()]);
}

#[test]
fn a_mount_that_is_never_served_goes_away_with_its_handle() {
    if !can_mount() {
        return;
    }
    let device = common::new_pool();
    let directory = tempfile::tempdir().unwrap();
    let options = MountOptions { control_directory: Some(directory.path().join("run")), ..MountOptions::new("x.pool") };
    let mountpoint = directory.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let pool = open(&device);
    let mounted = mount(pool.clone(), &mountpoint, &options).unwrap();
    assert!(mounts().contains(&format!("x.pool {} fuse.onefold", mountpoint.to_str().unwrap())));
    let socket = mounted.control_path().to_owned();
    assert!(socket.exists());
    drop(mounted);
    assert!(!mounts().contains(mountpoint.to_str().unwrap()));
    assert!(!socket.exists());
    pool.close().unwrap();
}

/// What was wrong, found in a review: a mount that ended unasked was only detached. Its connection lives as long as
/// anything in the daemon has it open, so processes that waited there for an answer waited on.
#[test]
fn nobody_waits_for_an_answer_of_a_mount_that_ended_unasked() {
    if !can_mount() {
        return;
    }
    let device = common::new_pool();
    let directory = tempfile::tempdir().unwrap();
    let options = MountOptions { control_directory: Some(directory.path().join("run")), ..MountOptions::new("x.pool") };
    let mountpoint = directory.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let pool = open(&device);
    let mounted = mount(pool.clone(), &mountpoint, &options).unwrap();
    // A daemon's signal thread holds the connection like this.
    let stopper = mounted.stopper();
    // Opened before the mount ends: the path would lead elsewhere afterwards.
    let root =
        rustix::fs::open(&mountpoint, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(rustix::fs::statat(&root, "name", AtFlags::empty()).map(|_| ())));
    assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "nobody serves the mount");
    drop(mounted);
    let answer = told.recv_timeout(Duration::from_secs(20)).expect("the wait ends with the mount");
    assert!(matches!(answer, Err(Errno::CONNABORTED | Errno::NOTCONN)), "{answer:?}");
    drop(stopper);
    assert!(!mounts().contains(mountpoint.to_str().unwrap()));
    pool.close().unwrap();
}

#[test]
fn what_is_no_directory_is_no_mount_point() {
    if !can_mount() {
        return;
    }
    let device = common::new_pool();
    let pool = open(&device);
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path(), Path::new("/nowhere/at/all")] {
        let result = mount(pool.clone(), path, &MountOptions::new("x.pool"));
        assert!(matches!(result, Err(MountError::Mountpoint { .. })));
    }
    pool.close().unwrap();
}

#[test]
fn one_thread_serves_as_well() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(common::new_pool(), |options| options.threads = std::num::NonZeroUsize::MIN);
    let data = noise(1, 5 << 20);
    fs::write(mount.path("file"), &data).unwrap();
    assert!(fs::read(mount.path("file")).unwrap() == data);
    drop(File::open(mount.root()).unwrap());
    mount.end();
}

/// Seen once in many runs of another test: a daemon ended with an error. A thread was about to read the release of a
/// closed file, and the kernel reported the unmount to it as an abort.
#[test]
fn an_unmount_right_after_files_were_closed_is_no_error() {
    if !can_mount() {
        return;
    }
    let mut mount = TestMount::new();
    let names: Vec<String> = (0..60).map(|number| format!("file{number}")).collect();
    names.iter().for_each(|name| drop(mount.create(name)));
    for _ in 0..60 {
        let open: Vec<File> = names.iter().map(|name| File::open(mount.path(name)).unwrap()).collect();
        drop(open);
        mount = mount.remount();
    }
    mount.end();
}
