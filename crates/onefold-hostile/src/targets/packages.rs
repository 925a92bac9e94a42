//! Texts of a guest: its table of mounts, its release, the database and the logs of dpkg. A small system is in memory;
//! some of its texts are changed, and all their readers run over it.

use std::io::Write;
use std::ops::ControlFlow;

use flate2::Compression;
use flate2::write::GzEncoder;
use onefold_guest::filesystem::{FileKind, FileNumber};
use onefold_guest::machine::{MachineVolume, machines};
use onefold_guest::memory::MemoryFileSystem;
use onefold_guest::packages::{Owners, PackageDatabase, Verification, open, verify};
use onefold_guest::tree::{Crossing, Links, Tree, Visitor, WalkEntry, WalkError, WalkStep};
use onefold_guest::volume::VolumeOrigin;

use crate::Choices;

const EMPTY_MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";
const LOG_LINES: &str = "2026-01-01 00:00:01 install a:amd64 <none> 1\n2026-01-01 00:00:02 status installed a:amd64 1\n\
    2026-01-01 00:00:03 upgrade lib:amd64 1 1:2\n2026-01-01 00:00:04 remove gone:all 1 <none>\n";
/// The texts of the system: path, and content with `MD5` for a digest.
const TEXTS: [(&str, &str); 14] = [
    ("/etc/os-release", "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID='12'\nPRETTY_NAME=\"a \\\" b\"\n"),
    ("/etc/hostname", "# name\nweb-1\n"),
    ("/etc/fstab", "UUID=b-1 /home ext4 defaults 0 2\n/usr/doc /srv none bind 0 0\nLABEL=a\\040b /mnt auto noauto\n"),
    (
        "/var/lib/dpkg/status",
        "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\nInstalled-Size: 3\nConffiles:\n \
        /etc/a.conf MD5\n /etc/old MD5 obsolete\n\nPackage: lib\nStatus: install ok unpacked\nMulti-Arch: same\n\
        Architecture: amd64\nVersion: 1:2\n",
    ),
    ("/var/lib/dpkg/updates/0001", "Package: b\nStatus: install ok half-installed\nArchitecture: all\nVersion: 3\n"),
    ("/var/lib/dpkg/status.d/base", "Package: base\nVersion: 9\nArchitecture: all\n"),
    ("/var/lib/dpkg/status.d/base.md5sums", "MD5  usr/doc/base\nMD5  bin/base\n"),
    ("/var/lib/dpkg/info/a.list", "/.\n/usr\n/usr/bin\n/bin/sh\n/etc/a.conf\n/usr/doc/a\n/usr/bin/up/up/bin/ls\n"),
    ("/var/lib/dpkg/info/a.md5sums", "MD5  bin/sh\nMD5  usr/doc/a\nMD5  usr/bin/ls\n"),
    ("/var/lib/dpkg/info/lib:amd64.list", "/.\n/lib\n/lib/ring/one/x\n/lib/libc.so\n"),
    ("/var/lib/dpkg/info/format", "1\n"),
    ("/var/lib/dpkg/diversions", "/bin/sh\n/bin/sh.real\ndash\n/usr/bin/ls\n/usr/bin/ls.old\n:\n"),
    ("/var/lib/dpkg/statoverride", "root root 4755 /bin/sh\n"),
    ("/etc/dpkg/dpkg.cfg.d/small", "path-exclude=/usr/doc/*\npath-include=/usr/doc/[ab]?*/copyright\n"),
];
/// Texts to insert.
const TOKENS: [&[u8]; 22] = [
    b"\n",
    b"\n\n",
    b" ",
    b"/",
    b"..",
    b"/../",
    b":",
    b"=",
    b"\\040",
    b"\"",
    b"'",
    b"*",
    b"[",
    b"]",
    b"\0",
    b"\xff",
    b"%",
    b"Package: a\n",
    b"<none>",
    b"\x1b[2J",
    b"UUID=b-1 / x bind\n",
    b"obsolete",
];
const ENTRIES_MAX: usize = 100_000;

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut home = MemoryFileSystem::new("b-1", b"home");
    home.write("/anna", "");
    let system = system(&mut choices);
    let volumes = [(1, &system), (2, &home)].map(|(number, system)| MachineVolume {
        origin: VolumeOrigin::Partition { number },
        system,
        partition_uuid: Some("c-1".to_owned()),
        partition_label: None,
    });
    for machine in machines(&volumes) {
        assert!(machine.mounts.len() == machine.tree.systems().len(), "an entry for each system");
        assert!(machine.mounts.iter().all(|mount| mount.volume < volumes.len()));
        _ = format!("{:?} {:?} {:?}", machine.release, machine.host_name, machine.problems.first());
        walk(&machine.tree);
        if let Ok(Some(database)) = open(&machine.tree) {
            read_database(&machine.tree, database.as_ref());
        }
    }
}

/// Returns a system with some changed texts.
fn system(choices: &mut Choices<'_>) -> MemoryFileSystem {
    let mut system = MemoryFileSystem::default();
    for (path, link) in [("/bin", "usr/bin"), ("/lib", "/usr/lib"), ("/usr/bin/up", ".."), ("/usr/lib/ring/one", "one")]
    {
        system.symlink(path, link);
    }
    for path in ["/usr/bin/sh", "/usr/bin/ls", "/usr/doc/a", "/etc/a.conf", "/usr/lib/libc.so", "/usr/bin/sh.real"] {
        system.write(path, "");
    }
    for path in ["/home", "/srv", "/usr/lib/modules/6.1"] {
        system.directory(path);
    }
    let changed = choices.index(TEXTS.len());
    for (index, (path, text)) in TEXTS.iter().enumerate() {
        let mut text = text.replace("MD5", EMPTY_MD5).into_bytes();
        if index == changed || choices.below(8) == 1 {
            change(choices, &mut text);
        }
        system.write(path, text);
    }
    put_logs(choices, &mut system);
    for _ in 0..choices.below(4) {
        put_oddity(choices, &mut system);
    }
    system
}

/// Changes a text in some places.
fn change(choices: &mut Choices<'_>, text: &mut Vec<u8>) {
    for _ in 0..1 + choices.below(6) {
        let at = choices.index(text.len() + 1);
        match choices.below(6) {
            0 => text.truncate(at),
            1 => {
                let token = choices.one_of(&TOKENS).repeat(1 + choices.index(64));
                text.splice(at..at, token);
            }
            2 => {
                if let Some(byte) = text.get_mut(at) {
                    *byte = choices.byte();
                }
            }
            3 => {
                let end = (at + choices.index(64)).min(text.len());
                let part = text[at..end].repeat(1 + choices.index(16));
                text.splice(at..at, part);
            }
            4 => {
                let end = (at + choices.index(64)).min(text.len());
                text.drain(at..end);
            }
            _ => {
                let free = choices.take(16).to_vec();
                text.splice(at..at, free);
            }
        }
    }
}

/// Adds a log and an older part of it, whose text is changed before its compression or after.
fn put_logs(choices: &mut Choices<'_>, system: &mut MemoryFileSystem) {
    let mut text = LOG_LINES.as_bytes().to_vec();
    if choices.below(2) == 1 {
        change(choices, &mut text);
    }
    system.write("/var/log/dpkg.log", &text);
    if choices.below(2) == 1 {
        change(choices, &mut text);
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&text).expect("memory takes it");
    let mut packed = encoder.finish().expect("memory takes it");
    if choices.below(2) == 1 {
        change(choices, &mut packed);
    }
    let name = *choices.one_of(&["/var/log/dpkg.log.2.gz", "/var/log/dpkg.log-20260101.gz", "/var/log/dpkg.log.x"]);
    system.write(name, packed);
}

/// Adds an entry that no sound system has.
fn put_oddity(choices: &mut Choices<'_>, system: &mut MemoryFileSystem) {
    let path = *choices.one_of(&["/usr/bin", "/var/lib/dpkg/info", "/usr/doc", "/etc", "/usr/bin/ls", "/home"]);
    let Ok(found) = Tree::new(system).find(path.as_bytes(), Links::Keep).map(|found| found.file.file) else { return };
    match choices.below(4) {
        0 => {
            let other = FileNumber(choices.below(40));
            let name = choices.one_of(&TOKENS).to_vec();
            let is_name = !name.contains(&b'/') && !name.contains(&0);
            system.link(found, if is_name { &name } else { b"x" }, other);
        }
        1 => {
            if let Some(stat) = system.stat_mut(found) {
                stat.kind = *choices.one_of(&[FileKind::Regular, FileKind::SymbolicLink, FileKind::BlockDevice]);
            }
        }
        2 => {
            if let Some(stat) = system.stat_mut(found) {
                stat.size_bytes = *choices.one_of(&[0, 1 << 20, 1 << 60, u64::MAX]);
            }
        }
        _ => _ = system.symlink(path, choices.one_of::<&str>(&["/", "..", "home", "/usr/bin/up/up/up", ""])),
    }
}

/// Counts the results of a walk.
#[derive(Default)]
struct Counter {
    entries: usize,
}

impl Visitor for Counter {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        assert!(entry.path.ends_with(entry.name) && entry.depth > 0);
        self.entries += 1;
        assert!(self.entries < ENTRIES_MAX, "a walk without end");
        WalkStep::Enter
    }

    fn failed(&mut self, path: &[u8], error: WalkError) {
        _ = format!("{path:?}: {error}");
    }
}

fn walk(tree: &Tree<'_>) {
    let Ok(root) = tree.find(b"/", Links::Follow) else { return };
    let mut counter = Counter::default();
    _ = tree.walk(&root, Crossing::Enter, &mut counter);
    for path in ["/usr/bim/ls", "/home/ana", "/lib/ring/one/x"] {
        assert!(tree.similar(path.as_bytes()).len() <= 3);
    }
}

/// Reads everything in a database, and checks what callers rely on.
fn read_database(tree: &Tree<'_>, database: &dyn PackageDatabase) {
    let packages = database.packages();
    assert!(packages.is_sorted_by_key(|package| (&package.name, &package.architecture)));
    let mut digests = 0;
    for package in 0..packages.len() + 1 {
        let mut paths = Vec::new();
        database.each_path(package, &mut |owned| {
            assert!(owned.path.starts_with(b"/") && owned.packaged_path.starts_with(b"/"), "{owned:?}");
            paths.push(owned.packaged_path.to_vec());
            digests += u64::from(owned.digest.is_some());
            ControlFlow::Continue(())
        });
        let count = paths.len();
        paths.sort();
        paths.dedup();
        assert!(paths.len() == count, "a path comes once");
    }
    assert_eq!(database.installation_times().len(), packages.len());
    database.each_event(&mut |event| {
        assert!((1..=12).contains(&event.time.month));
        ControlFlow::Continue(())
    });
    let owners = Owners::read(tree, database);
    for (file, package) in owners.files() {
        assert!(package < packages.len() && owners.package(file) == Some(package));
    }
    let found = verify(tree, database, &mut |_, _| ControlFlow::Continue(()));
    must_add_up(&found, digests, packages.len());
    _ = format!("{:?}", database.problems().first());
}

/// Checks that every digest is compared once. A path whose name no file can have is not compared.
fn must_add_up(found: &Verification, digests: u64, packages: usize) {
    let compared = found.equal_count + found.excluded_count + found.differences.len() as u64;
    assert!(compared <= digests, "{found:?} of {digests}");
    assert!(found.differences.iter().all(|difference| difference.package < packages));
}
