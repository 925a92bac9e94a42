//! A daemon with test doors only: no mount, no root.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::doors::{DoorControl, LONG, TestDoor, open_pool};
use common::{assert_clean, can_mount, new_pool, noise};
use onefold_export::control::{ControlAnswer, ControlClient, ControlReply, ControlRequest, FailureKind};
use onefold_export::{Daemon, DaemonOptions, MountError, MountOptions, ServeError, Stopper};
use onefold_pool::{Durability, FileKind, Ino, NewFile, Pool};
use onefold_testing::device::MemoryDevice;

/// A pool in memory, served through test doors.
struct ServedDaemon {
    device: Arc<MemoryDevice>,
    pool: Arc<Pool>,
    doors: Vec<Arc<DoorControl>>,
    stopper: Stopper,
    socket: PathBuf,
    server: JoinHandle<Result<(), ServeError>>,
    _folder: tempfile::TempDir,
}

impl ServedDaemon {
    fn through(count: usize) -> ServedDaemon {
        let folder = tempfile::tempdir().unwrap();
        let device = new_pool();
        let pool = open_pool(device.clone());
        let options = DaemonOptions { control_directory: Some(folder.path().join("run")), ..DaemonOptions::default() };
        let mut daemon = Daemon::new(pool.clone(), options).unwrap();
        let doors: Vec<Arc<DoorControl>> = (0..count).map(|_| Arc::default()).collect();
        for door in &doors {
            daemon.add(Box::new(TestDoor(door.clone())));
        }
        let (stopper, socket) = (daemon.stopper(), daemon.control_path().to_owned());
        let server = thread::spawn(move || daemon.serve());
        for door in &doors {
            door.wait_until(|state| state.is_serving);
        }
        ServedDaemon { device, pool, doors, stopper, socket, server, _folder: folder }
    }

    /// Sends one request on its own connection and returns the last reply.
    fn ask(&self, request: &ControlRequest) -> ControlReply {
        ask(&self.socket, request)
    }

    fn end(self) -> Result<(), ServeError> {
        let result = self.server.join().unwrap();
        drop((self.pool, self.stopper));
        assert_clean(&self.device);
        result
    }
}

fn ask(socket: &Path, request: &ControlRequest) -> ControlReply {
    let mut stream = UnixStream::connect(socket).unwrap();
    writeln!(stream, "{}", serde_json::to_string(request).unwrap()).unwrap();
    let mut lines = BufReader::new(stream).lines();
    serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
}

/// Sends one request with open files and returns the last reply.
fn ask_about(socket: &Path, request: &ControlRequest, files: &[&File]) -> ControlReply {
    let stream = UnixStream::connect(socket).unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&files)));
    let line = format!("{}\n", serde_json::to_string(request).unwrap());
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&stream, &[io::IoSlice::new(line.as_bytes())], &mut control, flags).unwrap();
    let mut lines = BufReader::new(stream).lines();
    serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
}

fn failure(reply: ControlReply) -> (FailureKind, String) {
    match reply {
        ControlReply::Failed { kind, message } => (kind, message),
        reply => panic!("{reply:?}"),
    }
}

#[track_caller]
fn assert_not_mounted(reply: ControlReply) {
    let (kind, message) = failure(reply);
    assert_eq!(kind, FailureKind::BadRequest);
    assert!(message.contains("not mounted"), "{message}");
}

#[track_caller]
fn assert_done(reply: &ControlReply) {
    assert!(matches!(reply, ControlReply::Done { .. }), "{reply:?}");
}

/// Writes a file that only the end of the daemon makes durable.
fn write(pool: &Pool, name: &str, content: &[u8]) {
    let new = NewFile { kind: FileKind::Regular, mode: 0o600, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &new).unwrap().ino;
    pool.write(ino, 0, content, Durability::Later).unwrap();
    pool.release(ino, 1);
}

fn content(device: &MemoryDevice, name: &str) -> Option<Vec<u8>> {
    let pool = open_pool(Arc::new(MemoryDevice::from(device.image())));
    let attr = pool.lookup(Ino::ROOT, name.as_bytes()).ok()?;
    let mut bytes = vec![0; usize::try_from(attr.size_bytes).unwrap()];
    pool.read(attr.ino, 0, &mut bytes).unwrap();
    Some(bytes)
}

#[test]
fn a_daemon_without_a_mount_tells_its_numbers_syncs_and_ends_when_it_is_asked() {
    let served = ServedDaemon::through(1);
    write(&served.pool, "file", &noise(1, 8192));
    let stat = served.ask(&ControlRequest::Stat);
    let ControlReply::Done { answer: ControlAnswer::Stat { stat } } = stat else { panic!("{stat:?}") };
    assert_eq!((stat.apparent_bytes, stat.device_bytes), (8192, 1 << 30));
    assert_eq!(content(&served.device, "file"), None, "not durable yet");
    assert_done(&served.ask(&ControlRequest::Sync));
    assert_eq!(content(&served.device, "file"), Some(noise(1, 8192)));
    for request in [ControlRequest::Grow, ControlRequest::Trim] {
        assert_done(&served.ask(&request));
    }

    write(&served.pool, "later", &noise(2, 4096));
    assert_done(&served.ask(&ControlRequest::Umount));
    assert_eq!(content(&served.device, "later"), Some(noise(2, 4096)), "on disk when the answer comes");
    let socket = served.socket.clone();
    served.end().unwrap();
    assert!(!socket.exists());
}

#[test]
fn open_files_belong_to_no_pool_that_is_not_mounted() {
    let served = ServedDaemon::through(1);
    assert_not_mounted(ask_about(&served.socket, &ControlRequest::FileStat, &[&tempfile::tempfile().unwrap()]));
    assert_eq!(failure(served.ask(&ControlRequest::Clone)).0, FailureKind::BadRequest);
    served.stopper.stop().unwrap();
    served.end().unwrap();
}

/// The limits match the page, `docs/format/control.md`.
#[test]
fn requests_are_answered_in_order_and_one_that_is_too_long_or_unknown_ends_the_connection() {
    let served = ServedDaemon::through(1);
    let replies = |sent: &[u8]| -> Vec<ControlReply> {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.write_all(sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        BufReader::new(stream).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
    };
    let padded = |bytes: usize| {
        let mut line = br#"{"verb":"stat"}"#.to_vec();
        line.resize(bytes - 1, b' ');
        line.push(b'\n');
        line
    };
    let is_stat = |reply: &ControlReply| matches!(reply, ControlReply::Done { answer: ControlAnswer::Stat { .. } });
    let is_bad = |reply: &ControlReply| matches!(reply, ControlReply::Failed { kind: FailureKind::BadRequest, .. });
    let longest = replies(&padded(4096));
    assert!(matches!(&longest[..], [only] if is_stat(only)), "{longest:?}");
    for bad in [padded(4097), b"{\"verb\":\"format\"}\n".to_vec(), b"\n".to_vec()] {
        let replies = replies(&[padded(16), bad, padded(16)].concat());
        assert!(matches!(&replies[..], [first, last] if is_stat(first) && is_bad(last)), "{replies:?}");
    }
    let several = replies(b"{\"verb\":\"sync\"}\n{\"verb\":\"clone\"}\n{\"verb\":\"stat\"}\n");
    let [ControlReply::Done { answer: ControlAnswer::Nothing }, refused, last] = &several[..] else {
        panic!("{several:?}")
    };
    assert!(is_bad(refused) && is_stat(last), "a request that is refused leaves the connection open");
    served.stopper.stop().unwrap();
    served.end().unwrap();
}

#[test]
fn a_door_with_clients_keeps_the_daemon_and_all_is_durable_nevertheless() {
    let served = ServedDaemon::through(1);
    let door = served.doors[0].clone();
    door.set(|state| state.clients = 1);
    write(&served.pool, "file", &noise(1, 4096));
    let (kind, message) = failure(served.ask(&ControlRequest::Umount));
    assert_eq!(kind, FailureKind::Busy);
    assert!(message.contains("the test's door"), "{message}");
    assert_eq!(door.hand_overs.load(Ordering::SeqCst), 1);
    assert_eq!(content(&served.device, "file"), Some(noise(1, 4096)));
    assert_done(&served.ask(&ControlRequest::Stat));

    door.set(|state| state.clients = 0);
    assert_done(&served.ask(&ControlRequest::Umount));
    served.end().unwrap();
}

#[test]
fn a_daemon_that_is_told_to_stop_cuts_its_clients_off_once_all_is_durable() {
    let served = ServedDaemon::through(2);
    served.doors[1].set(|state| state.clients = 3);
    write(&served.pool, "file", &noise(1, 4096));
    served.stopper.stop().unwrap();
    let hand_overs = |door: usize| served.doors[door].hand_overs.load(Ordering::SeqCst);
    assert_eq!([hand_overs(0), hand_overs(1)], [0, 1], "of those that are in use");
    assert_eq!(content(&served.device, "file"), Some(noise(1, 4096)));
    served.stopper.stop().expect("nothing is left to do");
    served.end().unwrap();
}

#[test]
fn the_daemon_ends_with_its_last_door() {
    let served = ServedDaemon::through(3);
    for door in [0, 2] {
        served.doors[door].set(|state| state.has_ended = true);
        assert_done(&served.ask(&ControlRequest::Stat));
    }
    assert!(!served.server.is_finished());
    served.doors[1].set(|state| state.has_ended = true);
    served.end().unwrap();
}

#[test]
fn a_door_that_fails_leaves_the_others_and_is_reported_at_the_end() {
    let served = ServedDaemon::through(2);
    served.doors[1].set(|state| state.failure = Some("its wire broke"));
    served.doors[1].wait_until(|state| state.has_ended);
    write(&served.pool, "file", &noise(1, 4096));
    let (kind, message) = failure(served.ask(&ControlRequest::Umount));
    assert_eq!(kind, FailureKind::Failed);
    assert!(message.contains("the test's door failed: its wire broke"), "{message}");
    let device = served.device.clone();
    let result = served.end();
    assert!(
        matches!(&result, Err(ServeError::Door { source, .. }) if source.to_string() == "its wire broke"),
        "{result:?}"
    );
    assert_eq!(content(&device, "file"), Some(noise(1, 4096)), "the pool was closed in good order");
}

#[test]
fn a_door_that_panics_leaves_the_others_and_the_pool_is_closed() {
    for count in [1, 2] {
        let served = ServedDaemon::through(count);
        write(&served.pool, "file", &noise(1, 4096));
        served.doors[0].set(|state| state.panics = true);
        served.doors[0].wait_until(|state| state.has_ended);
        if count == 2 {
            assert_done(&served.ask(&ControlRequest::Stat));
            served.doors[1].set(|state| state.has_ended = true);
        }
        let device = served.device.clone();
        let result = served.end();
        assert!(
            matches!(&result, Err(ServeError::Door { door, source })
                if door == "the test's door" && source.to_string().contains("panicked")),
            "{result:?}"
        );
        assert_eq!(content(&device, "file"), Some(noise(1, 4096)));
    }
}

#[test]
fn a_daemon_that_is_dropped_takes_its_doors_away_and_leaves_the_pool_open() {
    let folder = tempfile::tempdir().unwrap();
    let pool = open_pool(new_pool());
    let options = DaemonOptions { control_directory: Some(folder.path().join("run")), ..DaemonOptions::default() };
    let mut daemon = Daemon::new(pool.clone(), options).unwrap();
    let door = Arc::<DoorControl>::default();
    daemon.add(Box::new(TestDoor(door.clone())));
    let socket = daemon.control_path().to_owned();
    assert!(socket.exists());
    drop(daemon);
    assert!(door.state.lock().has_ended && !socket.exists());
    write(&pool, "file", b"still open");
    pool.close().unwrap();
}

/// Returns a daemon with a test door and a mount at `folder/mnt`.
fn mounted(folder: &Path, pool: Arc<Pool>) -> (Daemon, Arc<DoorControl>, PathBuf) {
    let mountpoint = folder.join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let options = DaemonOptions { control_directory: Some(folder.join("run")), ..DaemonOptions::default() };
    let mut daemon = Daemon::new(pool, options).unwrap();
    let door = Arc::<DoorControl>::default();
    daemon.add(Box::new(TestDoor(door.clone())));
    daemon.mount(&mountpoint, &MountOptions::new("x.pool")).unwrap();
    (daemon, door, mountpoint)
}

/// The kernel may give the number of an ended mount to any other mount. A user could mount a file system that shows the
/// number of any inode that the user wants to read.
#[test]
fn open_files_of_a_mount_that_has_ended_are_refused() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = new_pool();
    let (daemon, _door, mountpoint) = mounted(folder.path(), open_pool(device.clone()));
    let (stopper, socket) = (daemon.stopper(), daemon.control_path().to_owned());
    let server = thread::spawn(move || daemon.serve());
    fs::write(mountpoint.join("source"), noise(1, 4096)).unwrap();
    let source = File::open(mountpoint.join("source")).unwrap();
    let target = File::create(mountpoint.join("target")).unwrap();
    assert_done(&ask_about(&socket, &ControlRequest::FileStat, &[&source]));

    let forced = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
    rustix::mount::unmount(&mountpoint, forced).unwrap();
    assert_not_mounted(ask_about(&socket, &ControlRequest::FileStat, &[&source]));
    assert_not_mounted(ask_about(&socket, &ControlRequest::Clone, &[&source, &target]));
    assert_not_mounted(ask_about(&socket, &ControlRequest::FileStat, &[&tempfile::tempfile().unwrap()]));
    assert_done(&ask(&socket, &ControlRequest::Stat));
    drop((source, target));
    stopper.stop().unwrap();
    server.join().unwrap().unwrap();
    assert_eq!(content(&device, "target"), Some(Vec::new()));
}

#[test]
fn an_unmount_leaves_a_daemon_that_has_another_door() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = new_pool();
    let (mut daemon, door, mountpoint) = mounted(folder.path(), open_pool(device.clone()));
    let twice = daemon.mount(&mountpoint, &MountOptions::new("x.pool"));
    assert!(matches!(twice, Err(MountError::Twice)));
    let socket = daemon.control_path().to_owned();
    let server = thread::spawn(move || daemon.serve());

    fs::write(mountpoint.join("file"), noise(1, 4096)).unwrap();
    let file = File::open(mountpoint.join("file")).unwrap();
    let mut client = ControlClient::connect(&mountpoint).unwrap();
    assert_eq!(client.file_stat(&file, &mut |_, _| ()).unwrap().apparent_bytes, 4096);
    drop(file);
    // Programs that other tests start may briefly have copies of open files.
    let deadline = Instant::now() + LONG;
    while rustix::mount::unmount(&mountpoint, rustix::mount::UnmountFlags::empty()).is_err() {
        assert!(Instant::now() < deadline, "it stays busy");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!mountpoint.join("file").exists());
    assert_done(&ask(&socket, &ControlRequest::Stat));
    assert!(!server.is_finished());
    assert_done(&ask(&socket, &ControlRequest::Umount));
    assert!(door.state.lock().has_ended);
    server.join().unwrap().unwrap();
    assert_eq!(content(&device, "file"), Some(noise(1, 4096)));
}
