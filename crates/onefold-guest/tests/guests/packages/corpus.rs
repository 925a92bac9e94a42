//! A whole Debian of the corpus, where it was built, against its own programs on the kernel's mount.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use onefold_disk::{CachedDisk, FileDisk};
use onefold_guest::ext;
use onefold_guest::machine::{Machine, MachineVolume, machines};
use onefold_guest::packages::{PackageDatabase, open, verify};
use onefold_guest::partitions;
use onefold_guest::tree::{PathSet, Tree};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

use crate::fixtures::{Images, has, skip};

const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/corpus/cache/debian-12-web.raw");

/// Mounts the file system at byte `$2` of the image `$1`, and notes what the programs say of it.
const ORACLE: &str = r#"
mkdir mounted; mount -o ro,noload,loop,offset="$2" "$1" mounted
admin=mounted/var/lib/dpkg
dpkg-query --admindir=$admin --show --showformat='${Package} ${Version} ${Architecture} ${db:Status-Status}\n' >packages
dpkg-query --admindir=$admin --show --showformat='${binary:Package}\n' |
    xargs dpkg-query --admindir=$admin --listfiles | grep '^/' | sort -u >paths
(cd mounted && sed 's|^/|./|' ../paths | tr '\n' '\0' | xargs -0 stat --format='%i %n' 2>/dev/null || true) >numbers
debsums --all --root="$PWD/mounted" >sums 2>/dev/null || true
. mounted/etc/os-release; echo "$ID $VERSION_ID $(cat mounted/etc/hostname)"
find mounted/boot/ -name 'vmlinuz-*' -printf '%P\n'
"#;

#[test]
fn a_whole_debian_has_the_packages_and_files_that_its_programs_find() {
    if !Path::new(IMAGE).exists() {
        return skip::<()>("the corpus was not built").unwrap_or_default();
    }
    let Some(images) = Images::new() else { return };
    if !["dpkg-query", "debsums"].into_iter().all(has) {
        return;
    }
    let disk = FileDisk::new(File::open(IMAGE).unwrap(), Path::new(IMAGE)).unwrap();
    let disk = CachedDisk::new(&disk, 64 << 20);
    let parts = partitions(&disk).unwrap();
    let opened = parts.iter().find_map(|part| {
        let range = DiskRange { start_bytes: part.start_bytes, length_bytes: part.length_bytes };
        let volume = Volume { origin: VolumeOrigin::WholeDisk, ranges: vec![range] };
        ext::open(VolumeReader::new(&disk, &volume)).unwrap().map(|system| (part.start_bytes, system))
    });
    let (start_bytes, system) = opened.unwrap();
    let facts = images.script(ORACLE, [IMAGE, &start_bytes.to_string()]);
    let volume = MachineVolume {
        origin: VolumeOrigin::Partition { number: 1 },
        system: &system,
        partition_uuid: None,
        partition_label: None,
    };
    let found = machines(&[volume]);
    let [machine] = &found[..] else { panic!("{found:?}") };
    check_machine(machine, &facts);
    let database = open(&machine.tree).unwrap().unwrap();
    check_packages(&images, database.as_ref());
    check_files(&images, &machine.tree, database.as_ref());
    check_sums(&images, &machine.tree, database.as_ref());
    assert_eq!((machine.problems.first(), database.problems().first()), (vec![], vec![]));
}

fn check_machine(machine: &Machine<'_>, facts: &str) {
    let release = machine.release.as_ref().unwrap();
    let host_name = String::from_utf8(machine.host_name.clone().unwrap()).unwrap();
    let mut lines = vec![format!("{} {} {host_name}", release.id, release.version)];
    for kernel in &machine.kernels {
        assert!(kernel.has_modules, "{kernel:?}");
        lines.push(format!("vmlinuz-{}", String::from_utf8_lossy(&kernel.version)));
    }
    assert_eq!(lines, facts.lines().collect::<Vec<_>>());
    assert_eq!(machine.architecture.unwrap().name(), "x86_64");
    assert_eq!(machine.missing, []);
}

fn text(images: &Images, name: &str) -> String {
    std::fs::read_to_string(images.path(name)).unwrap()
}

fn check_packages(images: &Images, database: &dyn PackageDatabase) {
    let found = super::seen(database).packages;
    assert_eq!(found, text(images, "packages").lines().map(str::to_owned).collect());
    assert!(database.installation_times().iter().all(Option::is_some));
}

/// Every path leads to the file that the kernel finds under it.
fn check_files(images: &Images, tree: &Tree<'_>, database: &dyn PackageDatabase) {
    let mut set = PathSet::new();
    let mut paths = BTreeMap::new();
    for package in 0..database.packages().len() {
        database.each_path(package, &mut |owned| {
            let path = String::from_utf8(owned.path.to_vec()).unwrap();
            paths.insert(path, set.add(owned.path).unwrap());
            ControlFlow::Continue(())
        });
    }
    set.resolve(tree, database.problems());
    let listed: BTreeSet<String> = text(images, "paths").lines().map(str::to_owned).collect();
    let found: BTreeSet<String> =
        paths.keys().map(|path| if path == "/" { "/.".to_owned() } else { path.clone() }).collect();
    assert_eq!(found, listed);
    let numbers: BTreeMap<String, u64> = text(images, "numbers")
        .lines()
        .map(|line| {
            let (number, path) = line.split_once(" .").unwrap();
            (if path == "/." { "/" } else { path }.to_owned(), number.parse().unwrap())
        })
        .collect();
    let found: BTreeMap<String, u64> =
        paths.into_iter().filter_map(|(path, id)| Some((path, set.file(id)?.file.0))).collect();
    assert!(found.len() > 10_000);
    assert_eq!(found, numbers);
}

/// `debsums` prints a line for each file with its state.
fn check_sums(images: &Images, tree: &Tree<'_>, database: &dyn PackageDatabase) {
    let found = verify(tree, database, &mut |_, _| ControlFlow::Continue(()));
    let sums = text(images, "sums");
    let (equal, different): (Vec<&str>, Vec<&str>) = sums.lines().partition(|line| line.ends_with(" OK"));
    let path = |line: &&str| line.rsplit_once(' ').unwrap().0.trim_end().to_owned();
    let different: BTreeSet<String> = different.iter().map(path).collect();
    let differences: BTreeSet<String> =
        found.differences.iter().map(|difference| String::from_utf8_lossy(&difference.path).into_owned()).collect();
    assert_eq!(differences, different);
    assert!(equal.len() > 10_000);
    assert_eq!((found.equal_count, found.excluded_count), (equal.len() as u64, 0));
}
