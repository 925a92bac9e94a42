//! The package database of dpkg against dpkg itself: small packages, made by `dpkg-deb` and installed by `dpkg --root`.

mod corpus;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use onefold_guest::filesystem::FileSystem;
use onefold_guest::memory::MemoryFileSystem;
use onefold_guest::packages::{
    DifferenceKind, InstallationTime, Owners, PackageAction, PackageDatabase, PackageState, open, verify,
};
use onefold_guest::tree::{Links, Tree};

use crate::ext::with_ext;
use crate::fixtures::{Images, has};

/// Makes a system with usual and unusual packages in `root`, and lists them.
const SYSTEM: &str = include_str!("system.sh");

/// What is compared of a database.
struct DatabaseView {
    packages: BTreeSet<String>,
    paths: BTreeSet<(String, String)>,
}

fn seen(database: &dyn PackageDatabase) -> DatabaseView {
    let (mut packages, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, package) in database.packages().iter().enumerate() {
        let state = match package.state {
            PackageState::Installed => "installed",
            PackageState::Partial => "partial",
            PackageState::ConfigurationOnly => "config-files",
        };
        packages.insert(format!("{} {} {} {state}", package.name, package.version, package.architecture));
        let (mut of_paths, mut places) = (Vec::new(), Vec::new());
        database.each_place(index, &mut |place| {
            places.push(place.to_vec());
            ControlFlow::Continue(())
        });
        database.each_path(index, &mut |owned| {
            of_paths.push(owned.path.to_vec());
            let path = if owned.path == b"/" { "/." } else { std::str::from_utf8(owned.path).unwrap() };
            paths.insert((package.name.clone(), path.to_owned()));
            ControlFlow::Continue(())
        });
        assert_eq!(places, of_paths, "{}", package.name);
    }
    DatabaseView { packages, paths }
}

/// Returns the paths that dpkg lists, where it says that they lie.
fn listed_by_dpkg(images: &Images, packages: &BTreeSet<String>) -> BTreeSet<(String, String)> {
    let mut paths = BTreeSet::new();
    for package in packages.iter().map(|line| line.split(' ').next().unwrap()) {
        let listed = images.script("dpkg-query --admindir=root/var/lib/dpkg --listfiles $1", [package]);
        let mut lines: Vec<&str> = listed.lines().collect();
        while let Some(line) = lines.pop() {
            // After the path of a diverted file comes a line that says where it is.
            if line.starts_with("package diverts others to: ") {
                continue;
            }
            let place = line.split_once(" to: ").map(|(_, place)| place);
            if place.is_some() {
                lines.pop();
            }
            paths.insert((package.to_owned(), place.unwrap_or(line).to_owned()));
        }
    }
    paths
}

fn check_system(images: &Images, system: &dyn FileSystem, listed: &str) {
    let tree = Tree::new(system);
    let database = open(&tree).unwrap().unwrap();
    let database = database.as_ref();
    let found = seen(database);
    assert_eq!(found.packages, listed.lines().map(str::to_owned).collect());
    assert_eq!(found.paths, listed_by_dpkg(images, &found.packages));
    check_owners(&tree, database);
    check_differences(&tree, database, images);
    check_history(database);
    assert_eq!(database.problems().first(), []);
}

fn name_of(database: &dyn PackageDatabase, package: Option<usize>) -> Option<&str> {
    package.map(|package| database.packages()[package].name.as_str())
}

fn check_owners(tree: &Tree<'_>, database: &dyn PackageDatabase) {
    let owners = Owners::read(tree, database);
    let owner = |path: &str| {
        name_of(database, owners.package(tree.find(path.as_bytes(), Links::Keep).unwrap().file)).map(str::to_owned)
    };
    for (path, package) in [
        ("/bin/tool", "better-tool"),
        ("/bin/tool.old", "tool"),
        ("/usr/bin/link", "tool"),
        ("/usr/lib/modules/6.1/a.ko", "linux-image"),
        ("/lib/modules/6.1/a.ko", "linux-image"),
        ("/etc/tool.d/with blank", "tool"),
        ("/etc/removed.conf", "removed"),
    ] {
        assert_eq!(owner(path).as_deref(), Some(package), "{path}");
    }
    assert_eq!(owner("/var/log/dpkg.log"), None);
}

/// `dpkg --verify` says the same of every file, but that it knows nothing of paths that are not installed on purpose.
fn check_differences(tree: &Tree<'_>, database: &dyn PackageDatabase, images: &Images) {
    let found = verify(tree, database, &mut |_, _| ControlFlow::Continue(()));
    let mut lines = BTreeSet::new();
    for difference in &found.differences {
        let change = match &difference.kind {
            DifferenceKind::Changed { recorded, found } => {
                assert_ne!(recorded, found);
                "??5??????"
            }
            DifferenceKind::Missing => "missing",
            other => panic!("{other:?}"),
        };
        let mark = if difference.is_configuration { "c" } else { "-" };
        lines.insert(format!("{change} {mark} {}", std::str::from_utf8(&difference.path).unwrap()));
    }
    let verified = images.script("dpkg --root=\"$PWD/root\" --verify || true", [""; 0]);
    let verified: BTreeSet<String> = verified
        .lines()
        .map(|line| {
            let (change, rest) = line.split_once(' ').unwrap();
            let rest = rest.trim_start();
            let (mark, path) = rest.strip_prefix("c ").map_or(("-", rest), |path| ("c", path));
            format!("{change} {mark} {path}")
        })
        .filter(|line| !line.ends_with("/usr/share/doc/tool/README"))
        .collect();
    assert_eq!(lines, verified);
    assert_eq!((lines.len(), found.excluded_count), (3, 1));
    assert_eq!(found.equal_count, 7);
}

fn check_history(database: &dyn PackageDatabase) {
    let mut events = Vec::new();
    database.each_event(&mut |event| {
        events.push((event.action, event.package.clone(), event.version_after.clone().unwrap_or_default()));
        ControlFlow::Continue(())
    });
    let at = |action, package: &str, version: &str| {
        let event = (action, package.to_owned(), version.to_owned());
        events.iter().position(|known| *known == event).unwrap_or_else(|| panic!("{event:?} in {events:?}"))
    };
    assert!(at(PackageAction::Install, "libx", "1:2.0-1") < at(PackageAction::Remove, "removed", ""));
    assert!(at(PackageAction::Purge, "purged", "") < at(PackageAction::Upgrade, "libx", "1:2.0-2"));
    for (package, time) in database.packages().iter().zip(database.installation_times()) {
        match package.state {
            PackageState::Installed => {
                assert!(matches!(time, Some(InstallationTime::Logged(_))), "{package:?} {time:?}")
            }
            _ => assert_eq!(time, None, "{package:?}"),
        }
    }
}

#[test]
fn packages_paths_differences_and_history_are_those_of_dpkg() {
    let Some(images) = Images::new() else { return };
    if !["dpkg", "dpkg-deb", "dpkg-divert", "gzip", "mke2fs"].into_iter().all(has) {
        return;
    }
    let listed = images.script(SYSTEM, [""; 0]);
    images.script("truncate -s 16M image; mke2fs -q -t ext4 -d root image", [""; 0]);
    with_ext(&images.path("image"), |system| check_system(&images, system, &listed));
}

/// An image without dpkg has a file for each package, and the paths are those of its digests.
#[test]
fn images_without_dpkg_have_their_packages_in_a_folder() {
    let mut system = MemoryFileSystem::default();
    let digest = "b1946ac92492d2347c6235b4d2611184";
    system.write("/var/lib/dpkg/status.d/base", "Package: base-files\nVersion: 12\nArchitecture: amd64\n");
    system.write("/var/lib/dpkg/status.d/base.md5sums", format!("{digest}  etc/a\n{digest}  etc/b\n"));
    system.write("/etc/a", "hello\n");
    let tree = Tree::new(&system);
    let database = open(&tree).unwrap().unwrap();
    let found = seen(database.as_ref());
    assert_eq!(found.packages.into_iter().collect::<Vec<_>>(), ["base-files 12 amd64 installed"]);
    let paths: Vec<String> = found.paths.into_iter().map(|(_, path)| path).collect();
    assert_eq!(paths, ["/etc/a", "/etc/b"]);
    let found = verify(&tree, database.as_ref(), &mut |_, _| ControlFlow::Continue(()));
    assert_eq!((found.equal_count, found.differences.len()), (1, 1));
    assert_eq!(found.differences[0].kind, DifferenceKind::Missing);
    assert_eq!(found.differences[0].path, b"/etc/b");
}

#[test]
fn a_database_of_an_unknown_format_is_refused() {
    let mut system = MemoryFileSystem::default();
    system.write("/var/lib/dpkg/status", "");
    system.write("/var/lib/dpkg/info/format", "2\n");
    let tree = Tree::new(&system);
    let Err(error) = open(&tree) else { panic!("it was opened") };
    assert_eq!(error.to_string(), "a dpkg database of an unknown format cannot be read");
}

#[test]
fn a_damaged_list_of_packages_is_replaced_by_its_copy() {
    let mut system = MemoryFileSystem::default();
    let text = "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n";
    let status = system.write("/var/lib/dpkg/status", text);
    system.stat_mut(status).unwrap().size_bytes = 1 << 60;
    let tree = Tree::new(&system);
    let Err(error) = open(&tree) else { panic!("it was opened") };
    assert_eq!(error.to_string(), "a text of this length cannot be read");
    system.write("/var/lib/dpkg/status-old", text);
    let tree = Tree::new(&system);
    let database = open(&tree).unwrap().unwrap();
    assert_eq!(database.packages().len(), 1);
    let problem = "/var/lib/dpkg/status: a text of this length cannot be read; its copy from before the last change is \
        read instead";
    assert_eq!(database.problems().first()[0].to_string(), problem);
}

#[test]
fn a_million_equal_paths_are_one() {
    let mut system = MemoryFileSystem::default();
    let digest = "b1946ac92492d2347c6235b4d2611184";
    system.write("/var/lib/dpkg/status", "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n");
    system.write("/var/lib/dpkg/info/a.list", "/usr/bin/same\n".repeat(1_000_000));
    system.write("/var/lib/dpkg/info/a.md5sums", format!("{digest}  usr/bin/same\n").repeat(1_000_000));
    system.write("/usr/bin/same", "hello\n");
    let tree = Tree::new(&system);
    let database = open(&tree).unwrap().unwrap();
    assert_eq!(seen(database.as_ref()).paths.len(), 1);
    let found = verify(&tree, database.as_ref(), &mut |_, _| ControlFlow::Continue(()));
    assert_eq!((found.equal_count, found.differences.len()), (1, 0));
}
