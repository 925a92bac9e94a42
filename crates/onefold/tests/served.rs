//! The verbs on a pool that a daemon serves without a mount: the daemon is the test's own process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{DAMAGE, FAILED, Folder, Run, onefold};
use onefold_block::device::{FileDevice, OpenMode};
use onefold_export::control::{ControlAnswer, ControlReply, ControlRequest, FailureKind, ScrubProblem, ScrubReport};
use onefold_export::{Daemon, DaemonOptions, Door, DoorHandle, EndError, MountOptions, PoolPlace, ServeError};
use onefold_pool::{Environment, MEMORY_BYTES_MIN, OpenOptions, Pool};
use parking_lot::{Condvar, Mutex};

/// A door that serves nobody until it is ended.
#[derive(Clone, Default)]
struct IdleDoor(Arc<DoorState>);

#[derive(Default)]
struct DoorState {
    has_ended: Mutex<bool>,
    changed: Condvar,
    /// Whether it claims to have clients.
    is_used: AtomicBool,
    /// Whether it reports a failure at its end.
    fails: bool,
}

impl Door for IdleDoor {
    fn handle(&self) -> Arc<dyn DoorHandle> {
        Arc::new(self.clone())
    }

    fn serve(self: Box<Self>) -> io::Result<()> {
        self.0.changed.wait_while(&mut self.0.has_ended.lock(), |has_ended| !*has_ended);
        if self.0.fails { Err(io::Error::other("its wire broke")) } else { Ok(()) }
    }
}

impl DoorHandle for IdleDoor {
    fn name(&self) -> String {
        "the test's door".to_owned()
    }

    fn try_end(&self, _patience: Duration) -> Result<(), EndError> {
        if self.0.is_used.load(Ordering::SeqCst) { Err(EndError::Clients { door: self.name() }) } else { self.end() }
    }

    fn hand_over(&self) {}

    fn end(&self) -> Result<(), EndError> {
        *self.0.has_ended.lock() = true;
        self.0.changed.notify_all();
        Ok(())
    }
}

/// A pool in a file, served by this process, and the runtime directory of its clients.
struct ServedPool {
    folder: Folder,
    pool: PathBuf,
    socket: PathBuf,
    server: JoinHandle<Result<(), ServeError>>,
}

impl ServedPool {
    fn new() -> ServedPool {
        ServedPool::through(IdleDoor::default(), OpenMode::ReadWrite, None)
    }

    /// Serves a pool through `door` and, if it is given, a mount at the folder `mountpoint`.
    fn through(door: IdleDoor, mode: OpenMode, mountpoint: Option<&str>) -> ServedPool {
        let folder = Folder::new();
        let pool = folder.pool();
        let device = FileDevice::open(&pool, mode).unwrap();
        // Clients of root look into /run/onefold, whatever their environment says.
        let is_root = rustix::process::geteuid().is_root();
        let options = DaemonOptions {
            place: PoolPlace::of(&device.metadata().unwrap()),
            control_directory: (!is_root).then(|| folder.path("onefold")),
            ..DaemonOptions::default()
        };
        let read_only = mode == OpenMode::ReadOnly;
        let open = OpenOptions { memory_bytes: MEMORY_BYTES_MIN, read_only, ..OpenOptions::default() };
        let opened = Pool::open(Arc::new(device), open, Environment::system()).unwrap();
        let mut daemon = Daemon::new(Arc::new(opened), options).unwrap();
        if let Some(mountpoint) = mountpoint {
            let mountpoint = folder.path(mountpoint);
            std::fs::create_dir(&mountpoint).unwrap();
            daemon.mount(&mountpoint, &MountOptions::new(pool.to_str().unwrap())).unwrap();
        }
        daemon.add(Box::new(door));
        let socket = daemon.control_path().to_owned();
        let server = thread::spawn(move || daemon.serve());
        ServedPool { folder, pool, socket, server }
    }

    /// Runs a verb on `paths`.
    fn run(&self, verb: &str, paths: &[&Path]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
        command.args(verb.split_whitespace()).args(paths).env("XDG_RUNTIME_DIR", self.folder.path(""));
        Run::of(command.output().unwrap())
    }
}

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && std::fs::File::open("/dev/fuse").is_ok();
    if !can {
        eprintln!("SKIPPED: mounting needs root and /dev/fuse");
    }
    can
}

#[test]
fn verbs_on_the_pools_file_reach_a_daemon_that_has_no_mount() {
    let served = ServedPool::new();
    let link = served.folder.path("link");
    std::fs::hard_link(&served.pool, &link).unwrap();
    for path in [&served.pool, &link] {
        let stat = served.run("pool stat --json", &[path]).done().json();
        assert_eq!(stat["pool"]["device_bytes"], 512 << 20, "{stat}");
    }
    served.run("pool trim", &[&served.pool]).done();
    served.run("pool scrub", &[&served.pool]).done();
    let grown = served.run("pool grow --size 600M --json", &[&served.pool]).done().json();
    assert_eq!(grown["gained_bytes"], 88 << 20, "{grown}");

    let image = served.folder.image("image.raw", 1, 1);
    for (verb, paths) in [
        ("pool import", &[served.pool.as_path(), &image][..]),
        ("pool stat", &[&served.pool, Path::new("image.raw")]),
        ("pool clone", &[&served.pool, Path::new("image.raw"), Path::new("clone.raw")]),
    ] {
        served.run(verb, paths).failed(FAILED, "this user sees no mount of it");
    }
    for verb in ["pool check", "pool dedup", "pool create --force"] {
        served.run(verb, &[&served.pool]).failed(FAILED, "a daemon serves it");
    }

    let ended = served.run("pool umount --json", &[&link]).done().json();
    assert!(ended["mountpoint"].is_null() && ended["daemon_had_died"] == false, "{ended}");
    served.server.join().unwrap().unwrap();
    onefold("pool check --data", &[&served.pool]).done();
    onefold("pool umount", &[&served.pool]).failed(FAILED, "it is not mounted");
}

#[test]
fn a_pool_that_is_served_read_only_is_scrubbed_and_ended() {
    let served = ServedPool::through(IdleDoor::default(), OpenMode::ReadOnly, None);
    let scrub = served.run("pool scrub --json", &[&served.pool]).done();
    assert!(scrub.err.is_empty() && scrub.json()["clean"] == true, "{scrub:?}");
    served.run("pool trim", &[&served.pool]).failed(FAILED, "read-only");
    served.run("pool umount", &[&served.pool]).done();
    served.server.join().unwrap().unwrap();
}

/// A daemon that finds damage, and can't make anything durable.
fn serve_badly(listener: &UnixListener) {
    let problem = ScrubProblem { structure: "data".into(), block: Some(7), files: vec![], what: "it rotted".into() };
    let report = ScrubReport { problems: vec![problem], problems_total: 1, ..ScrubReport::default() };
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        if line.is_empty() {
            // A client that only looks whether somebody is there.
            continue;
        }
        let (reply, is_last) = match serde_json::from_str(&line).unwrap() {
            ControlRequest::Scrub { .. } => {
                (ControlReply::Done { answer: ControlAnswer::Scrub { report: report.clone() } }, false)
            }
            request => {
                assert_eq!(request, ControlRequest::Sync);
                let message = "the disk is gone".to_owned();
                (ControlReply::Failed { kind: FailureKind::Failed, message }, true)
            }
        };
        writeln!(stream, "{}", serde_json::to_string(&reply).unwrap()).unwrap();
        if is_last {
            return;
        }
    }
}

#[test]
fn what_a_scrub_found_is_printed_also_where_the_end_fails() {
    let served = ServedPool::new();
    served.run("pool umount", &[&served.pool]).done();
    let listener = UnixListener::bind(&served.socket).unwrap();
    let daemon = thread::spawn(move || serve_badly(&listener));
    let scrub = served.run("pool scrub --json", &[&served.pool]).failed(DAMAGE, "the disk is gone");
    let found = scrub.json();
    assert!(found["clean"] == false && found["problems"][0]["what"] == "it rotted", "{found}");
    daemon.join().unwrap();
    std::fs::remove_file(&served.socket).unwrap();
    served.server.join().unwrap().unwrap();
}

#[test]
fn a_pool_that_is_served_is_not_mounted_by_another_daemon() {
    let served = ServedPool::new();
    let mountpoint = served.folder.path("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    served.run("pool mount", &[&served.pool, &mountpoint]).failed(FAILED, "a daemon serves it");
    served.run("pool umount", &[&served.pool]).done();
    served.server.join().unwrap().unwrap();
}

/// A daemon may take seconds to hand over what its clients have left to write.
#[test]
fn a_mount_waits_for_a_daemon_that_is_about_to_end() {
    if !can_mount() {
        return;
    }
    let served = ServedPool::new();
    let mountpoint = served.folder.path("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    thread::scope(|scope| {
        let mounted = scope.spawn(|| served.run("pool mount", &[&served.pool, &mountpoint]));
        thread::sleep(Duration::from_secs(3));
        served.run("pool umount", &[&served.pool]).done();
        mounted.join().unwrap().done();
    });
    served.run("pool umount", &[&mountpoint]).done();
    served.server.join().unwrap().unwrap();
}

#[test]
fn a_daemon_that_has_ended_badly_is_told_from_one_that_has_not_ended() {
    let door = IdleDoor(Arc::new(DoorState { fails: true, is_used: true.into(), ..DoorState::default() }));
    let served = ServedPool::through(door.clone(), OpenMode::ReadWrite, None);
    served.run("pool umount", &[&served.pool]).failed(FAILED, "cannot end the daemon of");
    door.0.is_used.store(false, Ordering::SeqCst);
    let ended = served.run("pool umount", &[&served.pool]).failed(FAILED, "has ended, but something was wrong");
    assert!(ended.err.contains("its wire broke"), "{ended:?}");
    assert!(served.server.join().unwrap().is_err());
    onefold("pool check --data", &[&served.pool]).done();
}

#[test]
fn an_unmount_says_at_once_that_another_door_of_the_daemon_is_used() {
    if !can_mount() {
        return;
    }
    let door = IdleDoor::default();
    door.0.is_used.store(true, Ordering::SeqCst);
    let served = ServedPool::through(door.clone(), OpenMode::ReadWrite, Some("mnt"));
    let mountpoint = served.folder.path("mnt");
    std::fs::write(mountpoint.join("note"), "text").unwrap();
    let started = Instant::now();
    let unmounted = served.run("pool umount", &[&mountpoint]).failed(FAILED, "still serves the pool");
    assert!(unmounted.err.contains("clients use the test's door"), "{unmounted:?}");
    assert!(started.elapsed() < Duration::from_secs(8), "there is no end to wait for");
    assert!(!mountpoint.join("note").exists());
    door.0.is_used.store(false, Ordering::SeqCst);
    served.run("pool umount", &[&served.pool]).done();
    served.server.join().unwrap().unwrap();
}
