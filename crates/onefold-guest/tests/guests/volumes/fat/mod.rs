//! FAT volumes that `mkfs.fat` and mtools make. mtools are the oracle of names, content and clusters, `fsck.fat` that
//! of the map.

mod damage;
mod large;
mod unlisted;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::{ControlFlow, Range};
use std::path::Path;

use onefold_disk::Disk;
use onefold_guest::content::{self, VolumeContent};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{AllocationClass, Extent, FileKind, FileNumber, FileSystem, State};
use onefold_guest::volume::VolumeReader;

use super::{disk, whole};
use crate::fixtures::{Images, MADE, has, tell};
use crate::noise;

/// Options of `mkfs.fat`, the size of the volume in KiB, and what it then is.
const KINDS: [(&str, &str, &str); 8] = [
    ("-F 12", "1440", "fat12"),
    ("-F 12 -s 8 -r 512", "8192", "fat12"),
    ("-F 16 -s 1", "16384", "fat16"),
    ("-F 16 -s 32 -f 1", "65536", "fat16"),
    ("-F 32 -s 1", "40960", "fat32"),
    ("-F 32 -s 1 -S 4096 -f 1", "300000", "fat32"),
    ("-F 32 -s 2 -R 64", "80000", "fat32"),
    ("", "600000", "fat32"),
];

/// Makes `image` with `$1`, `$2` KiB long.
const MAKE: &str = "rm -rf image tree back; truncate -s \"$2\"K image
    mkfs.fat $1 -n 'The LABEL' -i 1234abcd image >/dev/null";

/// Fills `image` with `tree`, as far as there is room. Some files are deleted
/// again, so that others lie in pieces. The one called `pieces` fills two gaps.
const FILES: &str = r#"
mkdir -p tree/folder/deeper/deepest 'tree/A folder with a long name' tree/many
printf '' >tree/empty; printf x >tree/one; head -c 4095 /dev/urandom >tree/4095; head -c 4096 /dev/urandom >tree/4096
head -c 4097 /dev/urandom >tree/folder/4097; head -c 200K /dev/urandom >tree/folder/deeper/deepest/large
printf 'hello\n' >"tree/A folder with a long name/a name of more than thirteen characters.text"
printf 'u\n' >'tree/grüße 你好.txt'; printf 'l\n' >tree/lower.txt; printf 'U\n' >tree/UPPER.TXT
printf 'm\n' >tree/Mixed.txt; printf 's\n' >'tree/folder/(a)+,;=b'; for at in $(seq 150); do printf $at >tree/many/file-number-$at; done
cd tree; for at in 1 2 3 4 5 6; do head -c 9K /dev/urandom | mcopy -i ../image - ::gap$at; done
mcopy -s -m -i ../image * ::; mdel -i ../image ::gap2 ::gap4
mcopy -i ../image - ::pieces < <(head -c 40K /dev/urandom); mcopy -i ../image ::pieces ::gap? .; cd ..
touch -d '2024-02-29 12:34:56 UTC' tree/one; TZ=UTC mcopy -o -m -i image tree/one ::
mattrib -i image +r ::Mixed.txt; mattrib -i image +h +s ::lower.txt
"#;

/// Has `fsck.fat` check the image, and mtools copy it: nothing is found, and all is as in `tree`.
const SAME_AS_TREE: &str =
    "fsck.fat -n image; rm -rf back; mkdir back; mcopy -s -n -i image '::*' back; diff -r tree back";

/// Lets mtools in a script take images of any geometry, and names of all characters.
fn mtools(script: &str) -> String {
    format!("export MTOOLS_SKIP_CHECK=1 LC_ALL=C.UTF-8\n{script}")
}

fn make(images: &Images, options: &str, size: &str) {
    make_of(images, FILES, &[options, size]);
}

/// Makes `image`, and fills it by a recipe; the first arguments are its options and its size.
fn make_of(images: &Images, recipe: &str, arguments: &[&str]) {
    images.script(&mtools(&format!("{MAKE}\n{recipe}")), arguments);
}

fn tools() -> Option<Images> {
    let images = Images::new()?;
    (has("mkfs.fat") && has("mcopy") && has("fsck.fat") && has("mshowfat")).then_some(images)
}

fn open<'a>(reader: &VolumeReader<'a>) -> Box<dyn FileSystem + 'a> {
    match content::open(reader, None) {
        VolumeContent::FileSystem(fat) => fat,
        other => panic!("{other:?}"),
    }
}

/// Returns all files below the root directory by their path.
fn tree(fat: &dyn FileSystem) -> BTreeMap<String, FileNumber> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![(String::new(), fat.root())]);
    while let Some((path, directory)) = waiting.pop() {
        fat.each_entry(directory, &mut |entry| {
            let path = format!("{path}/{}", String::from_utf8(entry.name).unwrap());
            if entry.kind == Some(FileKind::Directory) {
                waiting.push((path.clone(), entry.file));
            }
            assert_eq!(found.insert(path, entry.file), None);
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    found
}

fn content_of(fat: &dyn FileSystem, file: FileNumber) -> Vec<u8> {
    let length = usize::try_from(fat.stat(file).unwrap().size_bytes).unwrap();
    let mut content = Vec::new();
    // Pieces that begin and end within clusters.
    while content.len() < length {
        let mut piece = [0; 7001];
        let read = fat.read(file, content.len() as u64, &mut piece).unwrap();
        assert!(read > 0);
        content.extend_from_slice(&piece[..read]);
    }
    assert_eq!(fat.read(file, length as u64, &mut [0; 10]).unwrap(), 0);
    content
}

fn extents(fat: &dyn FileSystem, file: FileNumber) -> Vec<Extent> {
    let mut extents = Vec::new();
    fat.each_extent(file, &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    })
    .unwrap();
    extents
}

/// Checks names, kinds and content against the folder `tree` that the volume was filled from.
fn same_as_tree(images: &Images, fat: &dyn FileSystem) {
    let mut expected = Vec::new();
    let mut waiting = vec![images.path("tree")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path.clone());
            }
            expected.push(path);
        }
    }
    let found = tree(fat);
    let name = |path: &Path| format!("/{}", path.strip_prefix(images.path("tree")).unwrap().to_str().unwrap());
    let names: BTreeSet<String> = expected.iter().map(|path| name(path)).collect();
    let added: Vec<_> = found.keys().filter(|name| !names.contains(*name)).collect();
    let missing: Vec<_> = names.iter().filter(|name| !found.contains_key(*name)).collect();
    assert_eq!((added, missing), (Vec::new(), Vec::new()));
    for path in expected {
        let file = found[&name(&path)];
        assert_eq!(fat.stat(file).unwrap().kind == FileKind::Directory, path.is_dir());
        if path.is_file() {
            assert!(content_of(fat, file) == fs::read(&path).unwrap(), "{}", name(&path));
        }
    }
}

/// Returns the clusters that `mshowfat` prints as `<2-5> <9>`, in order.
fn printed_clusters(printed: &str) -> Vec<u64> {
    let runs = printed.split('<').skip(1).map(|run| run.split('>').next().unwrap());
    let runs = runs.map(|run| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        first.parse::<u64>().unwrap()..=last.parse().unwrap()
    });
    runs.flatten().collect()
}

#[test]
fn names_content_clusters_and_maps_are_those_of_mtools_for_all_kinds() {
    compare_with_mtools(&KINDS);
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn the_whole_matrix_of_kinds_sectors_and_clusters_is_that_of_mtools() {
    let mut kinds = Vec::new();
    for (sector, clusters) in
        [(512_u64, 1), (512, 4), (512, 64), (1024, 1), (1024, 16), (2048, 2), (4096, 1), (4096, 8)]
    {
        for (bits, count, kind) in [(12, 3800, "fat12"), (16, 30_000, "fat16"), (32, 70_000, "fat32")] {
            for tables in [1, 2] {
                let size = sector * clusters * count / 1024;
                if (1400..3 << 20).contains(&size) {
                    let options = format!("-F {bits} -S {sector} -s {clusters} -f {tables}");
                    kinds.push((options, size.to_string(), kind));
                }
            }
        }
    }
    let kinds: Vec<_> = kinds.iter().map(|(options, size, kind)| (&**options, &**size, *kind)).collect();
    assert!(kinds.len() > 30, "{kinds:?}");
    compare_with_mtools(&kinds);
}

/// Makes a volume of each kind, and compares all of it with what mtools and `fsck.fat` say.
fn compare_with_mtools(kinds: &[(&str, &str, &str)]) {
    let Some(images) = tools() else { return };
    for &(options, size, kind) in kinds {
        eprintln!("mkfs.fat {options}, {size} KiB");
        make(&images, options, size);
        let disk = disk(&images.path("image"));
        let fat = open(&whole(&disk));
        let facts = fat.facts();
        assert_eq!((facts.kind.name(), facts.uuid.as_str(), &facts.label[..]), (kind, "1234-ABCD", &b"The LABEL"[..]));
        assert_eq!((fat.state(), fat.damage().count()), (&State::Certain, 0), "{options}");
        same_as_tree(&images, &*fat);

        let one = fat.stat(tree(&*fat)["/one"]).unwrap();
        assert_eq!(one.modified.seconds, 1_709_210_096, "the time in UTC");
        same_listing(&images, &*fat);
        same_clusters(&images, &*fat, disk.size_bytes());
    }
    tell(kinds.len(), MADE);
}

/// Prints all that `mdir` knows of each file. Of folder `a` it prints `Directory for ::/a`, and of a file the columns
/// `NAME     EXT      4096 2024-02-29  12:34  long name`, or `<DIR>` in place of its length.
const LISTING: &str = "TZ=UTC mdir -a -f -/ -i image ::/";

/// Checks kinds, lengths and times against `mdir`, and modes against `mattrib`.
fn same_listing(images: &Images, fat: &dyn FileSystem) {
    let read_only = images.script(&mtools("mattrib -/ -X -i image ::/"), [""; 0]);
    let attributes = read_only.lines().filter_map(|line| line.split_once(" ::/"));
    let attributes: BTreeMap<String, &str> = attributes.map(|(letters, path)| (format!("/{path}"), letters)).collect();
    let printed = images.script(&mtools(LISTING), [""; 0]);
    let (mut found, mut folder) = (tree(fat), String::new());
    for line in printed.lines() {
        if let Some(path) = line.strip_prefix("Directory for ::") {
            folder = path.trim_end_matches('/').to_owned();
        }
        let columns: Vec<char> = line.chars().collect();
        let column = |range: Range<usize>| columns[range].iter().collect::<String>().trim().to_owned();
        if columns.len() < 40 || columns[27] != '-' || columns[0] == '.' {
            continue;
        }
        let (name, extension) = (column(0..8), column(9..12));
        let short = if extension.is_empty() { name } else { format!("{name}.{extension}") };
        let long = column(40..columns.len());
        let path = format!("{folder}/{}", if long.is_empty() { short } else { long });
        let stat = fat.stat(found.remove(&path).unwrap_or_else(|| panic!("{path} of {line}"))).unwrap();
        let numbers = [23..27, 28..30, 31..33, 35..37, 38..40].map(|range| column(range).parse::<i64>().unwrap());
        assert_eq!(stat.modified.seconds.div_euclid(60), minutes(numbers), "{line}");
        let is_directory = column(13..22) == "<DIR>";
        assert_eq!(stat.kind == FileKind::Directory, is_directory, "{line}");
        assert!(is_directory || column(13..22) == stat.size_bytes.to_string(), "{line}");
        let is_read_only = attributes[&path].contains('R');
        assert_eq!(stat.mode, if is_read_only { 0o555 } else { 0o755 }, "{path}: {}", attributes[&path]);
    }
    assert_eq!(found, BTreeMap::new(), "not in the listing");
    assert!(attributes["/Mixed.txt"].contains('R') && attributes["/lower.txt"].contains("SH"), "{read_only}");
}

/// Returns the minutes from 1970 to a year, month, day, hour and minute of today's calendar.
fn minutes([year, month, day, hour, minute]: [i64; 5]) -> i64 {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = 28 + i64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let years = (1970..year).map(|year| 365 + i64::from(is_leap(year))).sum::<i64>();
    let days = years + (1..).zip(months).take_while(|(number, _)| *number < month).map(|(_, days)| days).sum::<i64>();
    ((days + day - 1) * 24 + hour) * 60 + minute
}

/// Maximum number of files for which mtools look up a path.
const PATHS_MAX: usize = 1000;

/// Checks the clusters of files against `mshowfat`, and the map against `fsck.fat`.
fn same_clusters(images: &Images, fat: &dyn FileSystem, size_bytes: u64) {
    let (facts, first, found) = (fat.facts(), first_cluster_place(fat), tree(fat));
    let mut clusters = BTreeMap::new();
    for (path, file) in &found {
        let places = extents(fat, *file).into_iter().flat_map(|extent| {
            (0..extent.length_bytes / facts.block_bytes).map(move |at| extent.place + at * facts.block_bytes)
        });
        let of_file: Vec<u64> = places.map(|place| (place - first) / facts.block_bytes + 2).collect();
        if !of_file.is_empty() {
            clusters.insert(path, of_file);
        }
    }
    let script = "while read -r path; do mshowfat -i image \"::$path\"; done <paths";
    let paths = clusters.keys().take(PATHS_MAX).map(|path| format!("{path}\n")).collect::<String>();
    fs::write(images.path("paths"), paths).unwrap();
    let printed = images.script(&mtools(script), [""; 0]);
    let lines: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), clusters.len().min(PATHS_MAX));
    for ((path, clusters), line) in clusters.iter().zip(lines) {
        assert!(*clusters == printed_clusters(line), "{path}: {clusters:?}\n{line}");
    }
    let used = clusters.values().map(|clusters| clusters.len() as u64).sum::<u64>();
    let root = extents(fat, fat.root()).iter().map(|extent| extent.length_bytes).sum::<u64>();
    let runs = fat.allocation().unwrap();
    assert!(runs.is_sorted_by(|one, next| one.end_bytes() == next.start_bytes));
    assert_eq!((runs[0].start_bytes, runs.last().unwrap().end_bytes()), (0, size_bytes));
    let free = free_ranges(fat).iter().map(|range| range.end - range.start).sum::<u64>();
    let (taken, all) = fsck_clusters(images);
    assert_eq!(free, (all - taken) * facts.block_bytes);
    assert_eq!(taken, used + root / facts.block_bytes);
    assert_eq!(facts.free_bytes, Some(free));
}

/// Returns the numbers of clusters in use and of all that `fsck.fat` prints.
fn fsck_clusters(images: &Images) -> (u64, u64) {
    let printed = images.script("fsck.fat -n image | tail -1", [""; 0]);
    let (numbers, _) = printed.rsplit_once(" clusters").unwrap();
    let (taken, all) = numbers.rsplit(' ').next().unwrap().split_once('/').unwrap();
    (taken.parse().unwrap(), all.parse().unwrap())
}

/// Returns where the first cluster lies: behind the tables and the root directory.
fn first_cluster_place(fat: &dyn FileSystem) -> u64 {
    let runs = fat.allocation().unwrap();
    let is_before = |class| matches!(class, AllocationClass::Table(kind) if kind != onefold_guest::filesystem::TableKind::Directory);
    let tables = runs.iter().take_while(|run| is_before(run.class)).last().unwrap().end_bytes();
    tables + if fat.facts().kind.name() == "fat32" { 0 } else { fat.stat(fat.root()).unwrap().size_bytes }
}

fn free_ranges(fat: &dyn FileSystem) -> Vec<Range<u64>> {
    let runs = fat.allocation().unwrap();
    let free = runs.iter().filter(|run| run.class == AllocationClass::Free);
    free.map(|run| run.start_bytes..run.end_bytes()).collect()
}

#[test]
fn nobody_reads_what_the_map_calls_free() {
    let Some(images) = tools() else { return };
    for (options, size, _) in [KINDS[0], KINDS[3], KINDS[4]] {
        make(&images, options, size);
        let free = {
            let disk = disk(&images.path("image"));
            free_ranges(&*open(&whole(&disk)))
        };
        assert!(!free.is_empty());
        let image = File::options().write(true).open(images.path("image")).unwrap();
        noise::overwrite(&image, free.into_iter().map(|range| (range.start, range.end)));
        images.script(&mtools(SAME_AS_TREE), [""; 0]);
        let disk = disk(&images.path("image"));
        same_as_tree(&images, &*open(&whole(&disk)));
    }
}

#[test]
fn names_are_found_whatever_their_case() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16", "20000");
    let disk = disk(&images.path("image"));
    let fat = open(&whole(&disk));
    let look_up = |name: &str| fat.look_up(fat.root(), name.as_bytes()).unwrap();
    let folder = look_up("A folder with a long name");
    assert!(folder.is_some());
    for name in ["a FOLDER with a long name", "AFOLDE~1", "afolde~1"] {
        assert_eq!(look_up(name), folder, "{name}");
    }
    assert_eq!(look_up("GR\u{dc}\u{df}E \u{4f60}\u{597d}.TXT"), look_up("gr\u{fc}\u{df}e \u{4f60}\u{597d}.txt"));
    assert_eq!(look_up("gap2"), None, "it was deleted");
    let file = look_up("one").unwrap();
    assert!(matches!(fat.look_up(file, b"x"), Err(GuestError::NotADirectory)));
    for number in [1, 31, 33, u64::MAX, u64::MAX - 31, 512] {
        assert!(fat.stat(FileNumber(number)).is_err(), "{number}");
    }
}
