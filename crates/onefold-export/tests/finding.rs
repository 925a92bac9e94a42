//! How a daemon is found by the file of its pool, and which sockets are trusted. Needs no mount.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::doors::{DoorControl, LONG, TestDoor, open_pool};
use common::environment;
use onefold_block::BlockDevice;
use onefold_block::device::{FileDevice, OpenMode};
use onefold_export::control::{ControlClient, ControlError};
use onefold_export::{Daemon, DaemonError, DaemonOptions, PoolPlace, RunDirectory};
use onefold_pool::{CreateOptions, Pool};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

/// A pool in a file, in a folder with a run directory.
struct FilePool {
    folder: tempfile::TempDir,
}

impl FilePool {
    fn new() -> FilePool {
        let folder = tempfile::tempdir().unwrap();
        let in_a_file = FilePool { folder };
        let file = File::create(in_a_file.path("pool")).unwrap();
        file.set_len(32 << 20).unwrap();
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&in_a_file.path("pool"), OpenMode::ReadWrite).unwrap());
        Pool::create(&device, &CreateOptions::default(), &environment()).unwrap();
        in_a_file
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run_directory(&self) -> RunDirectory {
        RunDirectory { path: self.path("run"), user: rustix::process::geteuid().as_raw() }
    }

    fn daemon(&self) -> Result<(Daemon, Arc<DoorControl>), DaemonError> {
        let device = FileDevice::open(&self.path("pool"), OpenMode::ReadWrite).unwrap();
        let options = DaemonOptions {
            place: PoolPlace::of(&device.metadata().unwrap()),
            control_directory: Some(self.path("run")),
            ..DaemonOptions::default()
        };
        let mut daemon = Daemon::new(open_pool(Arc::new(device)), options)?;
        let door = Arc::<DoorControl>::default();
        daemon.add(Box::new(TestDoor(door.clone())));
        Ok((daemon, door))
    }

    fn find(&self, name: &str) -> Result<Option<ControlClient>, ControlError> {
        let place = PoolPlace::of(&fs::metadata(self.path(name)).unwrap()).unwrap();
        ControlClient::find(&place, &[self.run_directory()])
    }

    fn is_found(&self, name: &str) -> bool {
        self.find(name).unwrap().is_some()
    }
}

#[test]
fn a_daemon_is_found_by_every_path_of_its_pool_and_by_no_copy() {
    let pool = FilePool::new();
    assert!(!pool.is_found("pool"), "nobody serves it");
    let (daemon, _door) = pool.daemon().unwrap();
    let server = thread::spawn(move || daemon.serve());
    fs::hard_link(pool.path("pool"), pool.path("hard-link")).unwrap();
    std::os::unix::fs::symlink("hard-link", pool.path("link")).unwrap();
    fs::copy(pool.path("pool"), pool.path("copy")).unwrap();
    fs::rename(pool.path("pool"), pool.path("renamed")).unwrap();
    fs::rename(pool.path("copy"), pool.path("pool")).unwrap();
    for name in ["hard-link", "link", "renamed"] {
        let mut client = pool.find(name).unwrap().unwrap();
        assert_eq!(client.stat().unwrap().device_bytes, 32 << 20, "{name}");
    }
    assert!(!pool.is_found("pool"), "a copy with the same UUID took its name");

    pool.find("renamed").unwrap().unwrap().umount().unwrap();
    server.join().unwrap().unwrap();
    assert!(!pool.is_found("renamed"));
    // The thread of the last client may take a moment to notice that the client has gone.
    let deadline = Instant::now() + LONG;
    while FileDevice::open(&pool.path("renamed"), OpenMode::ReadWrite).is_err() {
        assert!(Instant::now() < deadline, "somebody still has it open");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_socket_of_a_dead_daemon_counts_as_none_and_the_next_daemon_takes_its_name() {
    let pool = FilePool::new();
    let (daemon, _) = pool.daemon().unwrap();
    let socket = daemon.control_path().to_owned();
    drop(daemon);
    // As after kill -9: the file stays, but no process listens.
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists() && !pool.is_found("pool"));
    let (daemon, _door) = pool.daemon().unwrap();
    assert_eq!(daemon.control_path(), socket);
    let stopper = daemon.stopper();
    let server = thread::spawn(move || daemon.serve());
    assert!(pool.is_found("pool"));
    stopper.stop().unwrap();
    server.join().unwrap().unwrap();
}

#[test]
fn sockets_in_folders_that_others_can_change_are_neither_made_nor_believed() {
    let pool = FilePool::new();
    let (daemon, _door) = pool.daemon().unwrap();
    assert!(pool.is_found("pool"));
    let open_to_others = |mode| fs::set_permissions(pool.path("run"), PermissionsExt::from_mode(mode)).unwrap();
    open_to_others(0o777);
    assert!(!pool.is_found("pool"));
    drop(daemon);
    assert!(matches!(pool.daemon().map(|_| ()), Err(DaemonError::Control(_))));
    open_to_others(0o755);
    assert!(pool.daemon().is_ok());
}

/// Another user's run directory could hold a link to a socket of root, so that root, looking there for that user's
/// daemon, would end another pool.
#[test]
fn a_socket_of_another_user_than_the_run_directorys_counts_as_none() {
    let pool = FilePool::new();
    let (_daemon, _door) = pool.daemon().unwrap();
    let user = rustix::process::geteuid().as_raw();
    if user != 0 {
        eprintln!("skipped: giving folders away needs root");
        return;
    }
    std::os::unix::fs::chown(pool.path("run"), Some(65_534), None).unwrap();
    let place = PoolPlace::of(&fs::metadata(pool.path("pool")).unwrap()).unwrap();
    let of = |user| {
        ControlClient::find(&place, &[RunDirectory { path: pool.path("run"), user }]).map(|found| found.is_some())
    };
    assert!(matches!(of(65_534), Ok(false)), "root's socket in the folder of the user");
    assert!(matches!(of(0), Ok(false)), "a folder of another user");
    std::os::unix::fs::chown(pool.path("run"), Some(0), None).unwrap();
    assert!(matches!(of(0), Ok(true)));
}

/// Makes a socket at `path` that listens but has no room for a client; it lasts as long as the returned files.
fn full_socket(path: &Path) -> Vec<OwnedFd> {
    let address = SocketAddrUnix::new(path).unwrap();
    let socket = |flags| socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let listener = socket(SocketFlags::CLOEXEC);
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let mut open = vec![listener];
    loop {
        let client = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let connected = connect(&client, &address);
        open.push(client);
        match connected {
            Ok(()) => {}
            Err(errno) => {
                assert_eq!(errno, rustix::io::Errno::AGAIN);
                return open;
            }
        }
    }
}

#[test]
fn a_process_that_listens_and_takes_no_client_is_told_and_does_not_stop_the_next_daemon() {
    let pool = FilePool::new();
    let (daemon, _) = pool.daemon().unwrap();
    let socket = daemon.control_path().to_owned();
    drop(daemon);
    let full = full_socket(&socket);
    let found = pool.find("pool").map(|found| found.is_some());
    assert!(matches!(found, Err(ControlError::Silent { .. })), "{found:?}");
    let (daemon, _) = pool.daemon().unwrap();
    assert_ne!(daemon.control_path(), socket, "somebody listens there");
    drop(full);
    assert!(!pool.is_found("pool"));
}

/// Every kind of file that a user can put at the path of a socket.
#[test]
fn what_is_no_control_socket_counts_as_none() {
    let pool = FilePool::new();
    let (daemon, _) = pool.daemon().unwrap();
    let socket = daemon.control_path().to_owned();
    drop(daemon);
    let _datagrams = UnixDatagram::bind(&socket).unwrap();
    assert!(!pool.is_found("pool"), "a socket of another kind");
    for make in [(|path: &Path| std::os::unix::fs::symlink(path, path)) as fn(&Path) -> std::io::Result<()>, |path| {
        fs::create_dir(path)
    }] {
        let _ = fs::remove_file(&socket);
        make(&socket).unwrap();
        assert!(!pool.is_found("pool"));
    }
    let long = RunDirectory { path: pool.path(&"x".repeat(100)), ..pool.run_directory() };
    fs::create_dir(&long.path).unwrap();
    let place = PoolPlace::of(&fs::metadata(pool.path("pool")).unwrap()).unwrap();
    assert!(ControlClient::find(&place, &[long]).unwrap().is_none(), "a path that no socket can have");
}

/// Root searches the directory of a pool's owner, who could make root wait or fail.
#[test]
fn what_fails_in_the_directory_of_another_user_counts_as_none() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: giving folders away needs root");
        return;
    }
    let pool = FilePool::new();
    let (daemon, _) = pool.daemon().unwrap();
    let socket = daemon.control_path().to_owned();
    drop(daemon);
    std::os::unix::fs::chown(pool.path("run"), Some(65_534), None).unwrap();
    let theirs = RunDirectory { path: pool.path("run"), user: 65_534 };
    let place = PoolPlace::of(&fs::metadata(pool.path("pool")).unwrap()).unwrap();
    let _full = full_socket(&socket);
    assert!(ControlClient::find(&place, &[theirs]).unwrap().is_none());
}
