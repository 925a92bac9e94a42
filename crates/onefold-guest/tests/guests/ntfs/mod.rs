//! NTFS, against NTFS-3G: its mount, and its programs.

mod damage;
mod features;
mod large;
mod lost;
mod runs;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_disk::{Disk, FileDisk};
use onefold_guest::filesystem::{AllocationClass, ExtentKind, FileKind, FileNumber, FileStat, FileSystem, State};
use onefold_guest::ntfs::{self, Ntfs};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

use crate::fixtures::{Images, MADE, has, tell};
use crate::noise;

/// Makes `image` and mounts it: the arguments are its size and the options of `mkntfs`. What follows runs in the mount.
const MOUNT: &str = r#"
size=$1; shift
truncate -s "$size" image
mkntfs -q -F -Q -L 'Größe 1' "$@" image >log 2>&1 || { cat log >&2; exit 1; }
mkdir mounted copy
ntfs-3g -o compression image mounted
cd mounted
"#;

/// Prints a line for each file of the mount, copies them all, and ends the mount.
const LEAVE: &str = r#"
cp -r --sparse=always . ../copy
cd ..
umount mounted
ntfs-3g -o ro image mounted
cd mounted
find . -mindepth 1 -printf '%P\t%i\t%y\t%s\t%n\t%T@\n'
cd ..
umount mounted
"#;

/// Files of all shapes.
const RECIPE: &str = r#"
: >empty
printf x >one
for bytes in 300 700 4095 4096 4097 100000; do head -c $bytes /dev/urandom >bytes-$bytes; done
head -c 4096 /dev/urandom | dd of=holes bs=4096 seek=100 conv=notrunc status=none
truncate -s 3M holes
head -c 5000 /dev/urandom | dd of=sparse bs=1M seek=199 conv=notrunc status=none
python3 - <<'END'
import os
with open("pieces", "wb") as file:
    for piece in range(6000):
        file.seek(piece * 3 * 4096)
        file.write(os.urandom(600))
END
deep=.; for level in $(seq 40); do deep=$deep/level-$level; done; mkdir -p "$deep"; echo deep >"$deep/file"
mkdir "$(printf 'n%.0s' $(seq 255))" 'odd names'
echo 1 >'odd names/ä€😀'; echo 2 >'odd names/Ä€😁'; echo 3 >'odd names/ .x '; echo 4 >"odd names/$(printf '\001\033[31m')"
echo linked >names-1; ln names-1 names-2; ln names-1 'odd names/names-3'
mkdir many; cd many; for file in $(seq 1200); do echo $file >"file number $file"; done; rm 'file number 7'*; cd ..
echo with streams >streams; setfattr -n user.first -v one streams
setfattr -n user.second -v "$(head -c 3000 /dev/zero | tr '\0' y)" streams
mkdir compressed; setfattr -h -v 0x00080000 -n system.ntfs_attrib compressed
head -c 300000 /dev/zero | tr '\0' z >compressed/well; head -c 300000 /dev/urandom >compressed/badly
echo short >compressed/short
"#;

/// A line that `LEAVE` prints.
struct Line {
    number: u64,
    kind: String,
    size_bytes: u64,
    links: u32,
    modified: String,
}

fn lines(printed: &str) -> BTreeMap<String, Line> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[path, number, kind, size, links, modified] = fields.as_slice() else { panic!("{line:?}") };
        let (number, size_bytes, links) = (number.parse().unwrap(), size.parse().unwrap(), links.parse().unwrap());
        let (kind, modified) = (kind.to_owned(), modified.to_owned());
        (path.to_owned(), Line { number, kind, size_bytes, links, modified })
    };
    printed.lines().map(line).collect()
}

/// Opens the NTFS of an image that is one whole volume, and hands it to `test`.
fn with_ntfs<R>(image: &Path, test: impl FnOnce(&Ntfs<'_>) -> R) -> R {
    let disk = FileDisk::new(File::open(image).unwrap(), image).unwrap();
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: disk.size_bytes() }];
    let reader = VolumeReader::new(&disk, &Volume { origin: VolumeOrigin::WholeDisk, ranges });
    test(&ntfs::open(&reader).unwrap().expect("an NTFS"))
}

/// Returns all files by their paths.
fn tree(ntfs: &Ntfs<'_>) -> BTreeMap<String, (FileNumber, FileStat)> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![(String::new(), ntfs.root())];
    while let Some((path, directory)) = ahead.pop() {
        ntfs.each_entry(directory, &mut |entry| {
            let path = format!("{path}{}", String::from_utf8(entry.name.clone()).unwrap());
            let stat = ntfs.stat(entry.file).unwrap();
            assert!(entry.kind.is_none_or(|kind| kind == stat.kind), "{path}");
            assert_eq!(ntfs.look_up(directory, &entry.name).unwrap(), Some(entry.file), "{path}");
            if stat.kind == FileKind::Directory {
                ahead.push((format!("{path}/"), entry.file));
            }
            assert!(found.insert(path, (entry.file, stat)).is_none(), "a name is listed twice");
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    found
}

fn content(ntfs: &Ntfs<'_>, file: FileNumber, from: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![1; length];
    let read = ntfs.read(file, from, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

/// Checks that the content of a file is that of its copy, and that its extents lead to it.
fn assert_content(ntfs: &Ntfs<'_>, file: FileNumber, copy: &Path, image: &File) {
    let copied = File::open(copy).unwrap();
    let size_bytes = copied.metadata().unwrap().len();
    let piece = |from: u64, length: usize| {
        let mut bytes = vec![0; length.min(usize::try_from(size_bytes.saturating_sub(from)).unwrap())];
        copied.read_exact_at(&mut bytes, from).unwrap();
        bytes
    };
    for from in [0, size_bytes / 2, size_bytes.saturating_sub(70_000)] {
        assert!(content(ntfs, file, from, 200_000) == piece(from, 200_000), "{copy:?} from {from}");
    }
    ntfs.each_extent(file, &mut |extent| {
        let (length, mut stored) = (usize::try_from(extent.length_bytes).unwrap(), Vec::new());
        if matches!(extent.kind, ExtentKind::Written | ExtentKind::Inline) {
            stored.resize(piece(extent.offset, length).len(), 0);
            image.read_exact_at(&mut stored, extent.place).unwrap();
        }
        // The last two bytes of each 512 of a record are replaced.
        let expected = piece(extent.offset, stored.len());
        let differ = stored.iter().zip(&expected).filter(|(one, other)| one != other).count();
        assert!(differ <= if extent.kind == ExtentKind::Inline { 4 } else { 0 }, "{copy:?}: {extent:?}");
        assert!(content(ntfs, file, extent.offset, 5000) == piece(extent.offset, 5000), "{copy:?}: {extent:?}");
        ControlFlow::Continue(())
    })
    .unwrap();
}

/// Checks all files against what the script printed and copied.
fn assert_tree(ntfs: &Ntfs<'_>, images: &Images, printed: &BTreeMap<String, Line>) {
    let image = File::open(images.path("image")).unwrap();
    let found = tree(ntfs);
    assert_eq!(found.keys().collect::<Vec<_>>(), printed.keys().collect::<Vec<_>>());
    for (path, (file, stat)) in &found {
        let line = &printed[path];
        assert_eq!((file.0, stat.links), (line.number, line.links), "{path}");
        let seconds = format!("{}.{:09}0", stat.modified.seconds, stat.modified.nanoseconds);
        assert_eq!(seconds, line.modified, "{path}");
        match stat.kind {
            FileKind::Directory => assert_eq!(line.kind, "d", "{path}"),
            FileKind::Regular => {
                assert_eq!((line.kind.as_str(), stat.size_bytes), ("f", line.size_bytes), "{path}");
                if stat.encoding.is_none() {
                    assert_content(ntfs, *file, &images.path("copy").join(path), &image);
                }
            }
            kind => panic!("{path}: {kind:?}"),
        }
    }
}

/// Checks that exactly the clusters that `ntfscat` shows as free are free.
fn assert_allocation(ntfs: &Ntfs<'_>, images: &Images) {
    images.script("ntfscat -f -i 6 image >bitmap", [""; 0]);
    let bitmap = std::fs::read(images.path("bitmap")).unwrap();
    let (facts, map) = (ntfs.facts(), ntfs.allocation().unwrap());
    let mut at = 0;
    let mut free_bytes = 0;
    for run in &map {
        assert_eq!(run.start_bytes, at);
        at = run.end_bytes();
        let is_free = run.class == AllocationClass::Free;
        free_bytes += if is_free { run.length_bytes } else { 0 };
        if run.class != AllocationClass::Outside {
            for cluster in run.start_bytes / facts.block_bytes..run.end_bytes() / facts.block_bytes {
                let byte = bitmap[usize::try_from(cluster / 8).unwrap()];
                assert_eq!(byte >> (cluster % 8) & 1 == 0, is_free, "cluster {cluster} in {run:?}");
            }
        }
    }
    assert_eq!((at, Some(free_bytes)), (std::fs::metadata(images.path("image")).unwrap().len(), facts.free_bytes));
}

fn tools() -> bool {
    ["mkntfs", "ntfs-3g", "ntfscat", "ntfscluster", "ntfsfix", "setfattr", "python3"].into_iter().all(has)
}

/// Makes an image by a recipe, and checks everything in it.
fn check_everything(size: &str, options: &[&str], recipe: &str) -> Option<Images> {
    let images = Images::new()?;
    let arguments = [&[size], options].concat();
    let printed = lines(&images.script(&format!("{MOUNT}{recipe}{LEAVE}"), arguments));
    with_ntfs(&images.path("image"), |ntfs| {
        assert_eq!(ntfs.state(), &State::Certain, "{:?}", ntfs.damage().first());
        assert_tree(ntfs, &images, &printed);
        assert_all_files(ntfs);
        runs::assert_runs(ntfs, &images);
        assert_allocation(ntfs, &images);
        assert_eq!(ntfs.damage().first(), []);
    });
    poison(&images);
    Some(images)
}

/// Checks that the pass over all files finds those of the tree, in the order of their records, as they are there.
fn assert_all_files(ntfs: &Ntfs<'_>) {
    let mut ahead: BTreeMap<FileNumber, FileStat> = tree(ntfs).into_values().collect();
    let mut last = None;
    ntfs.each_file(&mut |file, stat| {
        let (record, stream) = ntfs::stream_number(file);
        assert!(last < Some((record, stream)));
        last = Some((record, stream));
        assert_eq!(&ntfs.stat(file).unwrap(), stat);
        if let Some(found) = ahead.remove(&file) {
            assert_eq!(&found, stat);
        } else {
            assert!(record < 64 || stream > 0, "{record} has no name");
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(ahead.is_empty(), "{ahead:?}");
}

/// Overwrites all free bytes with noise: NTFS-3G finds nothing, and every file is as before.
fn poison(images: &Images) {
    let image = File::options().write(true).open(images.path("image")).unwrap();
    let free = with_ntfs(&images.path("image"), |ntfs| {
        let map = ntfs.allocation().unwrap();
        map.into_iter().filter(|run| run.class == AllocationClass::Free).collect::<Vec<_>>()
    });
    assert!(noise::overwrite(&image, free.iter().map(|run| (run.start_bytes, run.end_bytes()))) > 0);
    let script = "ntfsfix -n image >fixed || { cat fixed; exit 1; }
        ntfs-3g -o ro image mounted; diff -r mounted copy; umount mounted";
    images.script(script, [""; 0]);
}

/// Fewer files, for the many sizes that a volume can have.
const SHORT_RECIPE: &str = r#"
for bytes in 0 1 700 4096 100000; do head -c $bytes /dev/urandom >bytes-$bytes; done
head -c 4096 /dev/urandom | dd of=holes bs=4096 seek=1000 conv=notrunc status=none
mkdir many; cd many; for file in $(seq 300); do : >"file number $file"; done; cd ..
"#;

/// Fills a small volume, frees every second cluster, and makes files: their records lie in pieces of the MFT, which are
/// so many that its own map needs other records.
const PIECES_OF_MFT: &str = r#"
python3 - <<'END'
import os
def make(name, content):
    try:
        with open(name, "wb", buffering=0) as file: file.write(content)
        return True
    except OSError: return False
os.mkdir("filling")
count = 0
while make(f"filling/{count}", b"x" * 1024): count += 1
for number in range(0, count + 1, 2):
    if os.path.exists(f"filling/{number}"): os.unlink(f"filling/{number}")
count = 0
while count < 3000 and make(f"small-{count}", str(count).encode()): count += 1
END
"#;

#[test]
fn volumes_of_all_sizes_are_read() {
    if !tools() {
        return;
    }
    for (size, options) in [
        ("16M", ["-c", "512", "-s", "512"]),
        ("64M", ["-c", "65536", "-s", "512"]),
        ("32M", ["-c", "4096", "-s", "4096"]),
        ("520M", ["-c", "2097152", "-s", "512"]),
    ] {
        check_everything(size, &options, SHORT_RECIPE);
    }
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn the_whole_matrix_of_clusters_and_sectors_is_read() {
    if !tools() {
        return;
    }
    let mut made = 0;
    for sector in [512, 1024, 2048, 4096_u64] {
        for cluster in (9..=21).map(|shift| 1_u64 << shift).filter(|cluster| *cluster >= sector) {
            let size = format!("{}M", (cluster * 260 / (1 << 20)).max(96));
            eprintln!("mkntfs -c {cluster} -s {sector}");
            // Only clusters of at most 4 KiB can be compressed.
            let recipe = if cluster <= 4096 { RECIPE } else { SHORT_RECIPE };
            let options = ["-c", &cluster.to_string(), "-s", &sector.to_string()];
            made += usize::from(check_everything(&size, &options, recipe).is_some());
        }
    }
    tell(made, MADE);
}

#[test]
fn an_mft_in_many_pieces_is_read() {
    if !tools() || !has("ntfsinfo") {
        return;
    }
    let Some(images) = check_everything("8M", &["-c", "512"], PIECES_OF_MFT) else { return };
    let parts = images.script("ntfsinfo -f -i 0 image | grep -c '^Dumping attribute [$]DATA'", [""; 0]);
    assert!(parts.trim().parse::<u32>().unwrap() > 1, "the map of the MFT is in one record");
}

#[test]
fn every_file_is_what_the_mount_shows() {
    if tools() {
        check_everything("96M", &[], RECIPE);
    }
}
