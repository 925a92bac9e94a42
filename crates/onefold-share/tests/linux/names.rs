//! Opening, making, finding and removing names; locks.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::PoisonError;

use onefold_block::BLOCK_BYTES;
use onefold_linux::LinuxFile;
use onefold_substrate::{
    Access, ComparisonResult, CopyHints, Files, FolderEntry, ListedKind, Locks, Names, Refusal, ShareError, Sharing,
    SubstrateKind,
};
use rustix::io::Errno;
use rustix::process::Uid;

use crate::ground::{BTRFS, Ground, K, Recipe, STARTING, XFS, on, on_each, random_blocks, run, skip, soon};

fn kind<T>(outcome: io::Result<T>) -> ErrorKind {
    outcome.err().unwrap().kind()
}

fn raw<T>(outcome: io::Result<T>) -> Errno {
    Errno::from_io_error(&outcome.err().unwrap()).unwrap()
}

fn open(ground: &Ground, path: &str, access: Access) -> io::Result<LinuxFile> {
    ground.substrate.open(Path::new(path), access)
}

fn listed(ground: &Ground, folder: &str) -> Vec<(String, ListedKind)> {
    let named = |listed: FolderEntry| (listed.name.to_str().unwrap().to_owned(), listed.kind);
    let mut names: Vec<_> = ground.substrate.list(Path::new(folder)).unwrap().into_iter().map(named).collect();
    names.sort_by(|one, other| one.0.cmp(&other.0));
    names
}

#[test]
fn names_are_made_found_and_removed() {
    on_each(|ground| {
        let substrate = &ground.substrate;
        let path = Path::new;
        substrate.create_dir(path("folder")).unwrap();
        assert_eq!(kind(substrate.create_dir(path("folder"))), ErrorKind::AlreadyExists);
        drop(ground.file("folder/file", b"one"));
        assert_eq!(kind(substrate.create(path("folder/file"))), ErrorKind::AlreadyExists);
        for (name, mode) in [("folder", 0o700), ("folder/file", 0o600)] {
            assert_eq!(ground.root.join(name).metadata().unwrap().permissions().mode() & 0o777, mode, "{name}");
        }

        substrate.link(path("folder/file"), path("second")).unwrap();
        assert_eq!(kind(substrate.link(path("folder/file"), path("second"))), ErrorKind::AlreadyExists);
        assert_eq!(kind(substrate.link(path("missing"), path("third"))), ErrorKind::NotFound);
        drop(ground.file("other", b"two"));
        substrate.rename(path("second"), path("other")).unwrap();
        assert_eq!(std::fs::read(ground.root.join("other")).unwrap(), b"one");
        assert_eq!(kind(substrate.rename(path("second"), path("other"))), ErrorKind::NotFound);

        symlink("other", ground.root.join("symlink")).unwrap();
        let expected = [("folder", ListedKind::Folder), ("other", ListedKind::File), ("symlink", ListedKind::Other)];
        assert_eq!(listed(ground, ""), expected.map(|(name, kind)| (name.to_owned(), kind)));
        assert_eq!(listed(ground, "."), listed(ground, ""));
        assert_eq!(listed(ground, "folder"), [("file".to_owned(), ListedKind::File)]);
        assert_eq!(kind(substrate.list(path("missing"))), ErrorKind::NotFound);
        assert_eq!(kind(substrate.list(path("other"))), ErrorKind::NotADirectory);

        substrate.remove(path("other")).unwrap();
        assert_eq!(kind(substrate.remove(path("other"))), ErrorKind::NotFound);
        assert_eq!(kind(open(ground, "other", Access::Read)), ErrorKind::NotFound);
        open(ground, "folder/file", Access::Write).unwrap();
    });
}

#[test]
fn files_are_read_written_and_cut() {
    on_each(|ground| {
        let (substrate, file) = (&ground.substrate, ground.file("file", b"0123456789"));
        let mut into = [0; 6];
        assert_eq!(substrate.read_at(&file, 2, &mut into).unwrap(), 6);
        assert_eq!(&into, b"234567");
        assert_eq!(substrate.read_at(&file, 7, &mut into).unwrap(), 3);
        assert_eq!(substrate.read_at(&file, 10, &mut into).unwrap(), 0);
        substrate.set_len(&file, 2 * K).unwrap();
        substrate.write_at(&file, K, b"end").unwrap();
        substrate.sync(&file).unwrap();
        assert_eq!(substrate.stat(&file).unwrap().length, 2 * K);
        let mut block = vec![1; 2 * BLOCK_BYTES];
        assert_eq!(substrate.read_at(&file, 0, &mut block).unwrap(), block.len());
        assert_eq!((&block[..10], &block[BLOCK_BYTES..][..3]), (&b"0123456789"[..], &b"end"[..]));
        assert!(block[10..BLOCK_BYTES].iter().all(|byte| *byte == 0));

        let reader = ground.open("file", Access::Read);
        assert!(file.is_writable() && !reader.is_writable());
        assert_eq!(kind(substrate.write_at(&reader, 0, b"x")), ErrorKind::PermissionDenied);
        assert_eq!(kind(substrate.set_len(&reader, 0)), ErrorKind::PermissionDenied);
        assert_eq!(kind(substrate.punch(&reader, 0, K)), ErrorKind::PermissionDenied);
    });
}

#[test]
fn no_path_leads_out_of_the_root() {
    on_each(|ground| {
        let (substrate, path) = (&ground.substrate, Path::new);
        let outside = ground.place.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        symlink(&outside, ground.root.join("absolute")).unwrap();
        symlink("../outside", ground.root.join("relative")).unwrap();
        symlink("inside", ground.root.join("harmless")).unwrap();
        drop(ground.file("inside", b"inside"));

        for way in ["absolute/secret", "relative/secret", "harmless"] {
            assert_eq!(raw(open(ground, way, Access::Read)), Errno::LOOP, "{way}");
            assert_eq!(raw(open(ground, way, Access::Write)), Errno::LOOP, "{way}");
        }
        for way in ["../outside/secret", "inside/../../outside/secret", outside.to_str().unwrap(), ".."] {
            assert_eq!(kind(open(ground, way, Access::Read)), ErrorKind::InvalidInput, "{way}");
            assert_eq!(kind(substrate.create(path(way))), ErrorKind::InvalidInput, "{way}");
            assert_eq!(kind(substrate.remove(path(way))), ErrorKind::InvalidInput, "{way}");
            assert_eq!(kind(substrate.list(path(way))), ErrorKind::InvalidInput, "{way}");
        }
        // What makes and removes names goes no other ways than what opens them.
        for folder in ["absolute", "relative"] {
            let (new, old) = (format!("{folder}/new"), format!("{folder}/secret"));
            assert_eq!(raw(substrate.create(path(&new))), Errno::LOOP);
            assert_eq!(raw(substrate.create_dir(path(&new))), Errno::LOOP);
            assert_eq!(raw(substrate.link(path("inside"), path(&new))), Errno::LOOP);
            assert_eq!(raw(substrate.rename(path("inside"), path(&new))), Errno::LOOP);
            assert_eq!(raw(substrate.rename(path(&old), path("stolen"))), Errno::LOOP);
            assert_eq!(raw(substrate.remove(path(&old))), Errno::LOOP);
            assert_eq!(raw(substrate.list(path(folder))), Errno::LOOP);
        }
        // A link to a symbolic link is one to the link itself, and one that waits where a file is to be created does
        // not lead elsewhere.
        symlink(outside.join("made"), ground.root.join("waiting")).unwrap();
        assert_eq!(kind(substrate.create(path("waiting"))), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    });
}

#[test]
fn other_mounts_are_refused_and_subvolumes_are_not() {
    on_each(|ground| {
        std::fs::create_dir(ground.root.join("mounted")).unwrap();
        let mount_point = ground.root.join("mounted");
        run("mount", ["-t", "tmpfs", "tmpfs", mount_point.to_str().unwrap()]).unwrap();
        std::fs::write(mount_point.join("file"), "file").unwrap();
        assert_eq!(kind(open(ground, "mounted/file", Access::Read)), ErrorKind::CrossesDevices);
        assert_eq!(kind(ground.substrate.create(Path::new("mounted/new"))), ErrorKind::CrossesDevices);
        assert_eq!(kind(ground.substrate.remove(Path::new("mounted/file"))), ErrorKind::CrossesDevices);
        assert_eq!(kind(ground.substrate.list(Path::new("mounted"))), ErrorKind::CrossesDevices);
    });
    on(BTRFS, |ground| {
        run("btrfs", ["subvolume", "create", ground.root.join("sub").to_str().unwrap()]).unwrap();
        let content = random_blocks(1, 2);
        let (inner, outer) = (ground.file("sub/file", &content), ground.file("file", &content));
        assert_eq!(ground.share((&outer, 0), (&inner, 0), 2).unwrap(), ComparisonResult::Shared);
        assert_eq!(ground.place_of(&inner, 0), ground.place_of(&outer, 0));
        let link = ground.substrate.link(Path::new("file"), Path::new("sub/second"));
        assert_eq!(kind(link), ErrorKind::CrossesDevices);
    });
}

#[test]
fn pipes_sockets_devices_and_folders_are_not_opened() {
    on_each(|ground| {
        let at = |name: &str| ground.root.join(name).to_str().unwrap().to_owned();
        run("mkfifo", [at("pipe")]).unwrap();
        // Opening /dev/full succeeds; opening a device number that no driver serves fails.
        run("mknod", [&at("served"), "c", "1", "7"]).unwrap();
        run("mknod", [&at("unserved"), "b", "240", "77"]).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for name in ["pipe", "served", "unserved", "socket", "folder", "", "."] {
            for access in [Access::Read, Access::Write] {
                assert_eq!(kind(open(ground, name, access)), ErrorKind::InvalidInput, "{name}");
            }
        }
        let others = listed(ground, "").into_iter().filter(|(_, kind)| *kind == ListedKind::Other);
        assert_eq!(others.count(), 4);
    });
}

#[test]
fn reading_leaves_the_time_of_last_access() {
    for recipe in [XFS, BTRFS] {
        on(Recipe { options: "loop,strictatime", ..recipe }, |ground| {
            drop(ground.file("file", &random_blocks(1, 1)));
            let path = ground.root.join("file");
            let accessed = || path.metadata().map(|metadata| (metadata.atime(), metadata.atime_nsec())).unwrap();
            let before = accessed();
            let file = ground.open("file", Access::Read);
            ground.substrate.read_at(&file, 0, &mut [0; 100]).unwrap();
            assert_eq!(accessed(), before);
            std::fs::read(&path).unwrap();
            assert_ne!(accessed(), before, "the mount keeps no such times");
        });
    }
}

#[test]
fn a_lock_keeps_other_openings_out_until_the_file_is_dropped() {
    on_each(|ground| {
        let first = ground.file("file", b"");
        let (second, reader) = (ground.open("file", Access::Write), ground.open("file", Access::Read));
        let lock = |file: &LinuxFile| ground.substrate.try_lock(file).unwrap();
        assert!(lock(&first));
        assert!(lock(&first), "the holder may ask again");
        assert!(!lock(&second) && !lock(&reader));
        drop(first);
        assert!(soon(|| lock(&reader)), "a descriptor for reading locks as well");
        assert!(!lock(&second));
    });
}

#[test]
fn who_asks_whether_a_file_is_locked_is_not_taken_for_who_has_the_lock() {
    on_each(|ground| {
        drop(ground.file("file", b""));
        let open = || ground.open("file", Access::Write);
        let is_locked = |file: &LinuxFile| ground.substrate.is_locked(file).unwrap();
        let (first, second) = (open(), open());
        assert!(!is_locked(&first) && !is_locked(&second), "neither of the two applicants has it");
        drop((first, second));
        let holder = open();
        assert!(soon(|| ground.substrate.try_lock(&holder).unwrap()));
        let (first, second) = (open(), open());
        assert!(is_locked(&first) && is_locked(&second));
    });
}

/// A process that takes a lease of a file, so that the kernel has every other opener wait until it is given back (45 s
/// at most).
const LEASE: &str = "
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
sys.stdin.read()
";

#[test]
fn nobodys_lease_makes_an_opening_wait() {
    on_each(|ground| {
        drop(ground.file("leased", b""));
        let mut python = Command::new("python3");
        python.args(["-c", LEASE]).arg(ground.root.join("leased")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        let spawned = python.spawn();
        drop(starting);
        let Ok(mut owner) = spawned else { return skip("there is no python3").unwrap_or_default() };
        assert_eq!(owner.stdout.as_mut().unwrap().read(&mut [0]).unwrap(), 1, "the lease is not taken");
        for access in [Access::Read, Access::Write] {
            assert_eq!(kind(open(ground, "leased", access)), ErrorKind::WouldBlock);
        }
        drop(owner.stdin.take());
        assert!(owner.wait().unwrap().success());
        open(ground, "leased", Access::Write).unwrap();
    });
}

/// Runs something as another user, who has no rights but those of files.
fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        let user = Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[test]
fn owners_share_into_files_they_may_not_write_and_strangers_do_not() {
    const OWNER: u32 = 12_345;
    on_each(|ground| {
        let content = random_blocks(1, 4);
        let source = ground.file("source", &content);
        drop(ground.file("read-only", &content));
        let path = ground.root.join("read-only");
        std::os::unix::fs::chown(&path, Some(OWNER), None).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
        std::fs::set_permissions(&ground.root, PermissionsExt::from_mode(0o755)).unwrap();

        as_user(OWNER + 1, || {
            assert_eq!(kind(open(ground, "read-only", Access::Write)), ErrorKind::PermissionDenied);
            assert_eq!(kind(open(ground, "source", Access::Read)), ErrorKind::PermissionDenied);
            let file = ground.open("read-only", Access::Read);
            let refused = ground.share((&source, 0), (&file, 0), 4);
            assert!(matches!(refused, Err(ShareError::Refused(Refusal::NotPermitted))), "{refused:?}");
        });
        as_user(OWNER, || {
            let file = ground.open("read-only", Access::Write);
            assert!(!file.is_writable());
            assert_eq!(ground.share((&source, 0), (&file, 0), 4).unwrap(), ComparisonResult::Shared);
            ground.substrate.keep_copies_small(&file).unwrap();
        });
        assert_eq!(ground.content("read-only"), content);
        assert!(matches!(ground.kind(), SubstrateKind::Xfs | SubstrateKind::Btrfs));
        File::open(&path).unwrap();
    });
}
