//! FAT volumes that `mkfs.fat` and mtools make. mtools are the oracle of names, content and clusters, `fsck.fat` that
//! of the map.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_disk::Disk;
use onefold_guest::content::{self, VolumeContent};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{AllocationClass, Doubt, Extent, FileKind, FileNumber, FileSystem, State};
use onefold_guest::volume::VolumeReader;

use super::{disk, whole};
use crate::fixtures::{Images, MADE, has, tell};

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

/// Makes `image` with `$1`, `$2` KiB long, and fills it with `tree`, as far as there is room. Some files are deleted
/// again, so that others lie in pieces. The one called `pieces` fills two gaps.
const MAKE: &str = r#"
rm -rf image tree back; truncate -s "$2"K image; mkfs.fat $1 -n 'The LABEL' -i 1234abcd image >/dev/null
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
"#;

fn make(images: &Images, options: &str, size: &str) {
    images.script(&format!("export MTOOLS_SKIP_CHECK=1 LC_ALL=C.UTF-8\n{MAKE}"), [options, size]);
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
    let mut names: Vec<String> = expected.iter().map(|path| name(path)).collect();
    names.sort();
    assert_eq!(found.keys().collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
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

        let found = tree(&*fat);
        let one = fat.stat(found["/one"]).unwrap();
        assert_eq!(one.modified.seconds, 1_709_210_096, "the time in UTC");
        let mut used = 0;
        let script = "export MTOOLS_SKIP_CHECK=1 LC_ALL=C.UTF-8; while read -r path; do mshowfat -i image \"::$path\"; done <paths";
        let paths: Vec<&String> = found.keys().collect();
        fs::write(images.path("paths"), paths.iter().map(|path| format!("{path}\n")).collect::<String>()).unwrap();
        let printed = images.script(script, [""; 0]);
        let first = first_cluster_place(&*fat);
        for (path, line) in paths.into_iter().zip(printed.lines().filter(|line| !line.is_empty())) {
            let places = extents(&*fat, found[path]).into_iter().flat_map(|extent| {
                (0..extent.length_bytes / facts.block_bytes).map(move |at| extent.place + at * facts.block_bytes)
            });
            let clusters: Vec<u64> = places.map(|place| (place - first) / facts.block_bytes + 2).collect();
            assert_eq!(clusters, printed_clusters(line), "{options}: {line}");
            used += clusters.len() as u64;
        }
        let root = extents(&*fat, fat.root()).iter().map(|extent| extent.length_bytes).sum::<u64>();
        let runs = fat.allocation().unwrap();
        assert!(runs.is_sorted_by(|one, next| one.end_bytes() == next.start_bytes));
        assert_eq!((runs[0].start_bytes, runs.last().unwrap().end_bytes()), (0, disk.size_bytes()));
        let free = free_ranges(&*fat).iter().map(|range| range.end - range.start).sum::<u64>();
        let (taken, all) = fsck_clusters(&images);
        assert_eq!(free, (all - taken) * facts.block_bytes, "{options}");
        assert_eq!(taken, used + root / facts.block_bytes, "{options}");
        assert_eq!(facts.free_bytes, free, "{options}");
    }
    tell(kinds.len(), MADE);
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
        for range in free {
            let noise: Vec<u8> = (range.start..range.end).map(|at| (at * 7 + 13).to_le_bytes()[0] | 1).collect();
            image.write_all_at(&noise, range.start).unwrap();
        }
        images.script(
            "export MTOOLS_SKIP_CHECK=1 LC_ALL=C.UTF-8; fsck.fat -n image; mkdir back; mcopy -s -n -i image '::*' back; diff -r tree back",
            [""; 0],
        );
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

#[test]
fn a_volume_that_is_mounted_or_has_errors_is_unsure() {
    let Some(images) = tools() else { return };
    // Where the state lies in the boot sector, and what entry 1 of the table is with the bit of a mount or an error.
    for (options, state, entry, width) in [("-F 16", 37, 2, 2_usize), ("-F 32 -s 1", 65, 4, 4)] {
        images.script(r#"rm -f sound; truncate -s 40M sound; mkfs.fat $1 sound >/dev/null"#, [options]);
        let doubts = |at: u64, byte: u8| {
            fs::copy(images.path("sound"), images.path("image")).unwrap();
            let image = File::options().write(true).open(images.path("image")).unwrap();
            image.write_all_at(&[byte], at).unwrap();
            let disk = disk(&images.path("image"));
            let content = content::open(&whole(&disk), None);
            let is_whole = content.allocation(disk.size_bytes()).unwrap().len() == 1;
            let VolumeContent::FileSystem(fat) = content else { panic!() };
            match fat.state() {
                State::Certain => Vec::new(),
                State::Unsure(doubts) => {
                    assert!(is_whole, "it is counted whole");
                    doubts.clone()
                }
            }
        };
        let reserved = {
            let bytes = fs::read(images.path("sound")).unwrap();
            u64::from(u16::from_le_bytes([bytes[14], bytes[15]])) * 512
        };
        let flags = reserved + entry + width as u64 - 1;
        let (all, clean, fine) = if width == 2 { (0xff, 0x80, 0x40) } else { (0x0f, 0x08, 0x04) };
        assert_eq!(doubts(state, 0), []);
        assert_eq!(doubts(state, 1), [Doubt::NotUnmounted]);
        assert_eq!(doubts(state, 2), [Doubt::HasErrors]);
        assert_eq!(doubts(flags, all ^ clean), [Doubt::NotUnmounted]);
        assert_eq!(doubts(flags, all ^ fine), [Doubt::HasErrors]);
    }
}

#[test]
fn damaged_tables_lose_no_file_that_the_other_one_has() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 2", "30000");
    let free = {
        let disk = disk(&images.path("image"));
        free_ranges(&*open(&whole(&disk)))
    };
    let image = File::options().write(true).open(images.path("image")).unwrap();
    let (reserved, used) = {
        let bytes = fs::read(images.path("image")).unwrap();
        let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (reserved, table_bytes) = (word(14) * 512, word(22) * 512);
        let second = &bytes[reserved + table_bytes + 4..][..512];
        (reserved as u64, second.chunks_exact(2).filter(|entry| *entry != [0, 0]).count() as u64)
    };
    // Entries 2 to 257 of the first table are lost.
    image.write_all_at(&[0; 512], reserved + 4).unwrap();
    let disk = disk(&images.path("image"));
    let fat = open(&whole(&disk));
    same_as_tree(&images, &*fat);
    assert!(fat.damage().count() > 0);
    assert_eq!(free_ranges(&*fat), free);
    assert!(used > 10, "{used}");
    assert_eq!(fat.allocation_differences().unwrap().between_copies_bytes, used * 4 * 512);
}

#[test]
fn the_copy_of_a_boot_sector_stands_in_for_it() {
    let Some(images) = tools() else { return };
    for (options, size) in [("-F 32 -s 2 -R 64", "80000"), ("-F 32 -s 1 -S 4096 -f 1", "300000")] {
        make(&images, options, size);
        let image = File::options().write(true).open(images.path("image")).unwrap();
        // The first damage contradicts the tables; the second leaves nothing that looks like FAT.
        for damage in [&[0xf8, 0x10][..], &[0; 512]] {
            image.write_all_at(damage, if damage.len() == 2 { 13 } else { 0 }).unwrap();
            let disk = disk(&images.path("image"));
            let fat = open(&whole(&disk));
            let State::Unsure(doubts) = fat.state() else { panic!("{options}") };
            assert!(doubts.contains(&Doubt::MetadataDamaged) && fat.damage().count() > 0);
            same_as_tree(&images, &*fat);
        }
    }
}

#[test]
fn a_chain_without_an_end_is_an_error_and_no_content() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 1", "30000");
    let printed = images.script("MTOOLS_SKIP_CHECK=1 mshowfat -i image ::folder/deeper/deepest/large", [""; 0]);
    let clusters = printed_clusters(&printed);
    let image = File::options().write(true).open(images.path("image")).unwrap();
    let bytes = fs::read(images.path("image")).unwrap();
    let table = u64::from(u16::from_le_bytes([bytes[14], bytes[15]])) * 512;
    let back = u16::try_from(clusters[2]).unwrap();
    image.write_all_at(&back.to_le_bytes(), table + clusters[20] * 2).unwrap();
    let disk = disk(&images.path("image"));
    let fat = open(&whole(&disk));
    let file = tree(&*fat)["/folder/deeper/deepest/large"];
    assert!(matches!(fat.read(file, 0, &mut [0; 10]), Err(GuestError::Damaged(_))));
    assert!(matches!(fat.each_extent(file, &mut |_| ControlFlow::Continue(())), Err(GuestError::Damaged(_))));
    let runs = fat.allocation().unwrap();
    let places = clusters.iter().map(|cluster| fat.facts().block_bytes * (cluster - 2) + first_cluster_place(&*fat));
    for place in places {
        let run = runs.iter().find(|run| (run.start_bytes..run.end_bytes()).contains(&place)).unwrap();
        assert_eq!(run.class, AllocationClass::Data, "what lies behind the damage is in use");
    }
    assert_eq!(free_ranges(&*fat), []);
}

/// Tables have no checksum, and may call clusters free that a file has behind the damage.
#[test]
fn a_file_that_is_lost_leaves_nothing_free() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 1", "30000");
    let printed = images.script("MTOOLS_SKIP_CHECK=1 mshowfat -i image ::folder/deeper/deepest/large", [""; 0]);
    let clusters = printed_clusters(&printed);
    let image = File::options().read(true).write(true).open(images.path("image")).unwrap();
    let bytes = fs::read(images.path("image")).unwrap();
    let table = u64::from(u16::from_le_bytes([bytes[14], bytes[15]])) * 512;
    let disk = disk(&images.path("image"));
    let has_free = || !free_ranges(&*open(&whole(&disk))).is_empty();
    assert!(has_free());
    // The chain ends early, leads to a free cluster, and goes on in the chain of another file.
    let other = {
        let fat = open(&whole(&disk));
        let mut cluster = [0; 2];
        image.read_exact_at(&mut cluster, tree(&*fat)["/one"].0 + 26).unwrap();
        u16::from_le_bytes(cluster)
    };
    let place = table + clusters[20] * 2;
    for entry in [0xffff_u16, 0, 0xfff7, other] {
        image.write_all_at(&entry.to_le_bytes(), place).unwrap();
        assert!(!has_free(), "{entry:#x}");
    }
    let next = u16::try_from(clusters[21]).unwrap();
    image.write_all_at(&next.to_le_bytes(), place).unwrap();
    assert!(has_free());
}

#[test]
fn a_chain_that_is_longer_than_its_file_is_read_up_to_the_end() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 1", "20000");
    let disk = disk(&images.path("image"));
    let files = {
        let fat = open(&whole(&disk));
        tree(&*fat)
    };
    let image = File::options().read(true).write(true).open(images.path("image")).unwrap();
    // Files of the long chain with a length of their own: the first ones have it whole, the others are left out.
    let mut cluster = [0; 2];
    image.read_exact_at(&mut cluster, files["/folder/deeper/deepest/large"].0 + 26).unwrap();
    let copies: Vec<u64> = (1..=150).map(|at| files[&format!("/many/file-number-{at}")].0).collect();
    for place in &copies {
        image.write_all_at(&cluster, place + 26).unwrap();
        image.write_all_at(&(200_u32 << 10).to_le_bytes(), place + 28).unwrap();
    }
    image.write_all_at(&3000_u32.to_le_bytes(), copies[0] + 28).unwrap();
    let fat = open(&whole(&disk));
    let first = extents(&*fat, FileNumber(copies[0]));
    assert_eq!(first.iter().map(|extent| extent.length_bytes).sum::<u64>(), 4096);
    assert_eq!(content_of(&*fat, FileNumber(copies[0])).len(), 3000);
    let mut visited = 0;
    fat.each_file(&mut |file, _| {
        visited += u64::from(copies.contains(&file.0));
        ControlFlow::Continue(())
    })
    .unwrap();
    // The volume has about 10,000 clusters, and each file the same hundred.
    assert!((90..110).contains(&visited), "{visited}");
    let problems: Vec<_> = fat.damage().first().iter().map(|damage| damage.problem).collect();
    assert!(problems.contains(&"files have too many clusters of others; some are left out"), "{problems:?}");
}

#[test]
fn a_directory_with_two_records_is_listed_once() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 1", "30000");
    let disk = disk(&images.path("image"));
    let (folder, many) = {
        let fat = open(&whole(&disk));
        let files = tree(&*fat);
        (files["/folder"], files["/many"])
    };
    let image = File::options().read(true).write(true).open(images.path("image")).unwrap();
    let mut cluster = [0; 2];
    image.read_exact_at(&mut cluster, folder.0 + 26).unwrap();
    image.write_all_at(&cluster, many.0 + 26).unwrap();
    let fat = open(&whole(&disk));
    let count = |directory| {
        let mut count = 0;
        fat.each_entry(directory, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        count
    };
    let listed = count(folder);
    assert!(listed > 2);
    assert_eq!((fat.damage().count(), count(many), count(folder)), (0, 0, listed));
    assert_eq!(fat.look_up(many, b"deeper").unwrap(), None);
    assert!(fat.look_up(folder, b"deeper").unwrap().is_some());
    assert_eq!(fat.damage().first()[0].problem, "another directory has the same cluster");
}

#[test]
fn half_a_volume_is_unsure_and_gives_what_it_has() {
    let Some(images) = tools() else { return };
    make(&images, "-F 32 -s 1", "40960");
    images.script("truncate -s 20M image", [""; 0]);
    let disk = disk(&images.path("image"));
    let fat = open(&whole(&disk));
    assert_eq!(fat.state(), &State::Unsure(vec![Doubt::LongerThanVolume]));
    same_as_tree(&images, &*fat);
    assert_eq!(fat.allocation().unwrap().last().unwrap().end_bytes(), 20 << 20);
}
