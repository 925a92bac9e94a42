//! The control socket of a really mounted pool.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;

use common::false_mount::FalseMount;
use common::mapping::CountedPages;
use common::{TestMount, assert_clean, can_mount, noise};
use onefold_export::CONTROL_XATTR;
use onefold_export::control::{
    ControlAnswer, ControlClient, ControlError, ControlReply, ControlRequest, FailureKind, hand_over,
};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

const MIB: usize = 1 << 20;

fn connect(mount: &TestMount) -> ControlClient {
    ControlClient::connect(&mount.root()).unwrap()
}

fn socket(mount: &TestMount) -> PathBuf {
    let mut value = [0; 4096];
    let bytes = rustix::fs::getxattr(mount.root(), CONTROL_XATTR, &mut value).unwrap();
    PathBuf::from(std::str::from_utf8(&value[..bytes]).unwrap())
}

fn kind<T: std::fmt::Debug>(result: Result<T, ControlError>) -> FailureKind {
    match result {
        Err(ControlError::Refused { kind, .. }) => kind,
        other => panic!("not refused: {other:?}"),
    }
}

/// Runs `work` in a thread of the user nobody. The rest of the process stays root.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

#[test]
fn the_root_names_the_socket_and_nothing_else_does() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    assert!(socket(&mount).exists());
    let mut names = [0; 256];
    let bytes = rustix::fs::listxattr(mount.root(), &mut names).unwrap();
    assert!(!names[..bytes].windows(7).any(|name| name == b"control"), "not listed");
    assert_eq!(rustix::fs::setxattr(mount.root(), CONTROL_XATTR, b"x", XattrFlags::empty()), Err(Errno::PERM));
    assert_eq!(rustix::fs::removexattr(mount.root(), CONTROL_XATTR), Err(Errno::PERM));
    fs::create_dir(mount.path("dir")).unwrap();
    assert!(matches!(ControlClient::connect(&mount.path("dir")), Err(ControlError::NotAMount { .. })));
    assert!(matches!(ControlClient::connect("/proc".as_ref()), Err(ControlError::NotAMount { .. })));
    mount.end();
}

/// What was wrong: the client trusted the path that a mount names. A user's mount could name the socket of root's
/// daemon, and root's `pool umount` of it would have unmounted another pool.
#[test]
fn a_mount_that_names_the_socket_of_another_user_is_not_believed() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let directory = tempfile::tempdir().unwrap();
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let nobody = 65534;
    {
        let _false_mount = FalseMount::new(&point, nobody, &socket(&mount));
        let asked = ControlClient::connect(&point).map(|_| ());
        let is_refused = matches!(asked, Err(ControlError::NotTheDaemon { mount_user: 65534, socket_user: 0 }));
        assert!(is_refused, "{asked:?}");
    }
    {
        let _own_mount = FalseMount::new(&point, 0, &socket(&mount));
        ControlClient::connect(&point).map(|_| ()).expect("its own user's");
    }
    // An attribute of an ordinary folder.
    let path = socket(&mount);
    match rustix::fs::setxattr(&point, CONTROL_XATTR, path.as_os_str().as_encoded_bytes(), XattrFlags::empty()) {
        Err(Errno::NOTSUP) => {}
        set => {
            set.unwrap();
            assert!(matches!(ControlClient::connect(&point), Err(ControlError::NotAMount { .. })));
        }
    }
    mount.end();
}

#[test]
fn numbers_of_pool_and_file_are_told() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("file"), noise(1, MIB)).unwrap();
    let mut client = connect(&mount);
    client.sync().unwrap();
    let stat = client.stat().unwrap();
    assert_eq!(stat.device_bytes, 1 << 30);
    assert_eq!(stat.apparent_bytes, MIB as u64);
    let file = File::open(mount.path("file")).unwrap();
    let file_stat = client.file_stat(&file, &mut |_, _| ()).unwrap();
    assert_eq!((file_stat.apparent_bytes, file_stat.unique_bytes), (MIB as u64, MIB as u64));
    let elsewhere = tempfile::tempfile().unwrap();
    assert_eq!(kind(client.file_stat(&elsewhere, &mut |_, _| ())), FailureKind::BadRequest);
    assert_eq!(kind(client.request(&ControlRequest::FileStat, &[], &mut |_, _| ())), FailureKind::BadRequest);
    drop((file, client));
    mount.end();
}

#[test]
fn a_clone_is_seen_at_once_also_where_the_target_was_cached() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let data = noise(1, 5 * MIB + 123);
    fs::write(mount.path("source"), &data).unwrap();
    fs::write(mount.path("target"), noise(2, 2 * MIB)).unwrap();
    fs::read(mount.path("target")).unwrap();
    let source = File::open(mount.path("source")).unwrap();
    let target = File::options().write(true).open(mount.path("target")).unwrap();
    let mut client = connect(&mount);
    assert_eq!(kind(client.clone_file(&source, &target)), FailureKind::Failed, "only an empty file becomes a clone");
    target.set_len(0).unwrap();
    client.clone_file(&source, &target).unwrap();
    assert_eq!(target.metadata().unwrap().len(), data.len() as u64);
    assert!(fs::read(mount.path("target")).unwrap() == data);
    target.write_all_at(b"apart", 100).unwrap();
    assert!(fs::read(mount.path("source")).unwrap() == data);
    for number in 0..100 {
        client.clone_file(&source, &mount.create(&format!("vm{number}"))).unwrap();
    }
    assert!(fs::read(mount.path("vm99")).unwrap() == data);
    drop((source, target, client));
    let mount = mount.remount();
    assert!(fs::read(mount.path("vm0")).unwrap() == data);
    mount.end();
}

#[test]
fn a_clone_takes_what_a_mapping_of_the_source_wrote() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let source = mount.create("source");
    source.set_len(8192).unwrap();
    let mapping = common::mapping::SharedMapping::new(&source, 8192).unwrap();
    mapping.set(5000, 77);
    let target = mount.create("target");
    hand_over(&source).unwrap();
    connect(&mount).clone_file(&source, &target).unwrap();
    assert_eq!(fs::read(mount.path("target")).unwrap()[5000], 77);
    drop((mapping, source, target));
    mount.end();
}

/// Seen on Linux 6.1, where `sync_file_range` does not wait: pages of a clone were old if their writes were in
/// progress.
#[test]
fn a_clone_takes_what_the_kernel_is_handing_over() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(common::slow_pool(), |_| ());
    mount.hold_back_much();
    let mapping = CountedPages::new(&mount.path("source"), 24 * MIB);
    let (source, target) = (File::open(mount.path("source")).unwrap(), mount.create("target"));
    hand_over(&source).unwrap();
    ControlClient::connect(&mount.root()).unwrap().clone_file(&source, &target).unwrap();
    assert_eq!(CountedPages::wrong_in(&mount.path("target")), 0);
    drop((mapping, source, target));
    mount.end();
}

#[test]
fn a_clone_needs_the_files_open_for_it() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("source"), b"source").unwrap();
    fs::write(mount.path("target"), b"target").unwrap();
    let mut client = connect(&mount);
    let read = |name| File::open(mount.path(name)).unwrap();
    let write = |name| File::options().write(true).open(mount.path(name)).unwrap();
    let append = File::options().append(true).open(mount.path("target")).unwrap();
    assert_eq!(kind(client.clone_file(&read("source"), &read("target"))), FailureKind::NotPermitted);
    assert_eq!(kind(client.clone_file(&write("source"), &write("target"))), FailureKind::NotPermitted);
    assert_eq!(kind(client.clone_file(&read("source"), &append)), FailureKind::NotPermitted);
    let elsewhere = tempfile::tempfile().unwrap();
    assert_eq!(kind(client.clone_file(&elsewhere, &write("target"))), FailureKind::BadRequest);
    let one = read("source");
    assert_eq!(kind(client.request(&ControlRequest::Clone, &[one.as_fd()], &mut |_, _| ())), FailureKind::BadRequest);
    assert_eq!(fs::read(mount.path("target")).unwrap(), b"target");
    drop((append, one, client));
    mount.end();
}

#[test]
fn other_users_clone_what_they_can_open_and_manage_nothing() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("source"), b"content").unwrap();
    let (source, target) = (File::open(mount.path("source")).unwrap(), mount.create("target"));
    as_nobody(|| {
        let mut client = ControlClient::connect(&mount.root()).unwrap();
        client.stat().unwrap();
        client.clone_file(&source, &target).unwrap();
        assert_eq!(kind(client.grow()), FailureKind::NotPermitted);
        assert_eq!(kind(client.trim(&mut |_, _| ())), FailureKind::NotPermitted);
        assert_eq!(kind(client.scrub(None, &mut |_, _| ())), FailureKind::NotPermitted);
        assert_eq!(kind(client.sync()), FailureKind::NotPermitted);
        assert_eq!(kind(client.umount()), FailureKind::NotPermitted);
    });
    assert_eq!(fs::read(mount.path("target")).unwrap(), b"content");
    drop((source, target));
    mount.end();
}

#[test]
fn upkeep_is_done_on_a_mounted_pool() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    fs::write(mount.path("file"), noise(1, 4 * MIB)).unwrap();
    let mut client = connect(&mount);
    client.sync().unwrap();
    let report = client.scrub(None, &mut |_, _| ()).unwrap();
    assert_eq!(report.problems_total, 0, "{report:?}");
    assert!(report.data_blocks_hashed >= 1024, "{report:?}");
    assert!(client.trim(&mut |_, _| ()).unwrap() > 0);
    assert_eq!(client.grow().unwrap(), 1 << 30, "nothing was gained");
    drop(client);
    mount.end();
}

#[test]
fn umount_answers_when_the_pool_is_closed() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let data = noise(1, MIB);
    fs::write(mount.path("file"), &data).unwrap();
    let path = socket(&mount);
    let mut client = connect(&mount);
    client.umount().unwrap();
    let (device, result) = mount.wait();
    result.unwrap();
    assert_clean(&device);
    assert!(!path.exists());
    let mount = TestMount::with(device, |_| ());
    assert!(fs::read(mount.path("file")).unwrap() == data);
    mount.end();
}

#[test]
fn umount_of_a_busy_mount_says_so_and_leaves_it_working() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let file = mount.create("file");
    let mut client = connect(&mount);
    assert_eq!(kind(client.umount()), FailureKind::Busy);
    file.write_all_at(b"goes on", 0).unwrap();
    drop(file);
    client.umount().unwrap();
    let (device, result) = mount.wait();
    result.unwrap();
    assert_clean(&device);
}

#[test]
fn hostile_lines_are_refused_and_harm_nobody() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let path = socket(&mount);
    let deep = "[".repeat(4000);
    let long = format!("{{\"verb\":\"{}\"}}", "x".repeat(100_000));
    for line in ["", "null", "{\"verb\":\"format\"}", "{\"verb\":\"scrub\",\"bytes_per_second\":-1}", &deep, &long] {
        let mut stream = UnixStream::connect(&path).unwrap();
        // The daemon may close before it has received all of an overlong line.
        let _ = stream.write_all(line.as_bytes());
        let _ = stream.write_all(b"\n");
        let mut reply = String::new();
        let read = BufReader::new(&stream).read_line(&mut reply);
        if read.is_ok() {
            let reply: ControlReply = serde_json::from_str(&reply).unwrap();
            assert!(matches!(reply, ControlReply::Failed { kind: FailureKind::BadRequest, .. }), "{reply:?}");
        }
    }
    // Cut off, silent, and gone without reading the answer.
    UnixStream::connect(&path).unwrap().write_all(b"{\"verb\":").unwrap();
    let _silent = UnixStream::connect(&path).unwrap();
    UnixStream::connect(&path).unwrap().write_all(b"{\"verb\":\"stat\"}\n").unwrap();
    assert!(matches!(
        connect(&mount).request(&ControlRequest::Stat, &[], &mut |_, _| ()),
        Ok(ControlAnswer::Stat { .. })
    ));
    mount.end();
}

#[test]
fn clients_are_bounded_and_root_finds_room_beside_guests() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let path = socket(&mount);
    let guests: Vec<UnixStream> = as_nobody(|| (0..16).map(|_| UnixStream::connect(&path).unwrap()).collect());
    // A client beyond the maximum gets the reason.
    let mut refused = String::new();
    as_nobody(|| UnixStream::connect(&path).unwrap()).read_to_string(&mut refused).unwrap();
    assert!(refused.contains("too-many-clients"), "{refused}");
    let mut keeper = connect(&mount);
    keeper.stat().unwrap();
    let keepers: Vec<UnixStream> = (0..15).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert_eq!(kind(connect(&mount).stat()), FailureKind::TooManyClients);
    drop((guests, keeper, keepers));
    mount.end();
}
