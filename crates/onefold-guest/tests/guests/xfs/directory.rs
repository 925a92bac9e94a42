//! Directories that take more work than they have names: false lengths, maps that repeat blocks, and equal hashes.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_disk::{Disk, DiskError, FileDisk};
use onefold_guest::filesystem::{FileNumber, FileSystem};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};
use onefold_guest::xfs;

use super::{empty, prepared, with_xfs};
use crate::fixtures::Images;

/// Makes `image` with a directory `many` of 400 names in four blocks.
const MAKE: &str = r#"
export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
truncate -s 100M image
mkfs.xfs -q image
mkdir -p mounted
mount -o loop image mounted
mkdir mounted/many
(cd mounted/many; seq -f 'name-%g-of-a-directory' 400 | xargs touch)
umount mounted
"#;

fn images() -> Option<Images> {
    let images = empty()?;
    images.script(&prepared(MAKE), [""; 0]);
    Some(images)
}

/// Writes into a field of the inode of a directory.
fn change(images: &Images, name: &str, field: &str) {
    images.script(r#"xfs_db -x -c "path /$1" -c "write -d $2" image"#, [name, field]);
}

/// What a test sees of a directory: how many names it lists, whether some names are found, and what is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DirectoryView {
    listed: usize,
    found: Vec<bool>,
    problems: Vec<&'static str>,
}

fn seen(image: &Path, names: &[&str]) -> DirectoryView {
    with_xfs(image, |xfs| {
        let many = directory(xfs, "many");
        let mut listed = 0;
        xfs.each_entry(many, &mut |_| {
            listed += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        let found = names.iter().map(|name| xfs.look_up(many, name.as_bytes()).unwrap().is_some()).collect();
        DirectoryView { listed, found, problems: xfs.damage().first().iter().map(|damage| damage.problem).collect() }
    })
}

fn directory(xfs: &dyn FileSystem, name: &str) -> FileNumber {
    xfs.look_up(xfs.root(), name.as_bytes()).unwrap().unwrap()
}

/// All blocks of the map were read, whatever the length said.
#[test]
fn a_directory_is_read_as_far_as_both_its_length_and_its_blocks_go() {
    let Some(images) = images() else { return };
    let image = images.path("image");
    let (first, last) = ("name-1-of-a-directory", "name-400-of-a-directory");
    let all = DirectoryView { listed: 400, found: vec![true, true], problems: vec![] };
    assert_eq!(seen(&image, &[first, last]), all);
    for length in ["20480", "1048576", "34359742464"] {
        change(&images, "many", &format!("core.size {length}"));
        let problems = vec!["it is longer than its blocks"];
        assert_eq!(seen(&image, &[first, last]), DirectoryView { problems, ..all.clone() }, "length {length}");
    }
    change(&images, "many", "core.size 4096");
    let cut = seen(&image, &[first, last]);
    assert!((1..200).contains(&cut.listed), "{cut:?}");
    assert_eq!(cut.found, [true, false]);
    assert_eq!(cut.problems, ["it has blocks behind its length", "its index leads nowhere"]);
}

/// A block was read as often as the map led to it.
#[test]
fn a_block_that_a_map_repeats_is_read_once() {
    let Some(images) = images() else { return };
    let image = images.path("image");
    let first = images.script("xfs_db -r -c 'path /many' -c 'print u3.bmx[0].startblock' image", [""; 0]);
    let first = first.trim().rsplit(' ').next().unwrap_or_default();
    change(&images, "many", &format!("u3.bmx[1].startblock {first}"));
    let repeated = seen(&image, &[]);
    assert!((1..200).contains(&repeated.listed), "{repeated:?}");
    assert_eq!(repeated.problems, ["two parts of its map have the same block"]);
}

/// Names of sixteen bytes have the same hash where the highest bit of a byte and the lowest of the byte before it
/// change together.
#[test]
fn names_with_equal_hashes_are_all_found() {
    let Some(images) = empty() else { return };
    let script = MAKE.replace("seq -f 'name-%g-of-a-directory' 400 | xargs touch", "python3 -c \"$1\"");
    let names = "import itertools
for bits in itertools.product((0, 1), repeat=8):
    open(b''.join(bytes((0x62 ^ bit, 0x62 ^ bit << 7)) for bit in bits), 'w')";
    images.script(&prepared(&script), [names]);
    with_xfs(&images.path("image"), |xfs| {
        let many = directory(xfs, "many");
        let mut entries = Vec::new();
        xfs.each_entry(many, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(entries.len(), 256);
        for entry in entries {
            assert_eq!(xfs.look_up(many, &entry.name).unwrap(), Some(entry.file));
        }
        assert_eq!(xfs.damage().first(), []);
    });
}

/// A disk that counts what is read of it.
struct CountingDisk {
    disk: FileDisk,
    reads: AtomicU64,
}

impl Disk for CountingDisk {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.disk.read(offset, into)
    }
}

/// The block was read, and its checksum computed, for each of the names.
#[test]
fn names_with_equal_hashes_in_one_block_are_compared_in_one_reading() {
    let Some(images) = empty() else { return };
    let script = MAKE.replace("seq -f 'name-%g-of-a-directory' 400 | xargs touch", "python3 -c \"$1\"");
    let names = "import itertools
for bits in itertools.product((0, 1), repeat=5):
    open(b''.join(bytes((0x62 ^ bit, 0x62 ^ bit << 7)) for bit in bits), 'w')";
    images.script(&prepared(&script), [names]);
    let path = images.path("image");
    let disk = FileDisk::new(std::fs::File::open(&path).unwrap(), &path).unwrap();
    let disk = CountingDisk { disk, reads: AtomicU64::new(0) };
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: disk.size_bytes() }];
    let volume = Volume { origin: VolumeOrigin::WholeDisk, ranges };
    let xfs = xfs::open(VolumeReader::new(&disk, &volume)).unwrap().expect("an XFS file system");
    let (many, mut names) = (directory(&xfs, "many"), Vec::new());
    xfs.each_entry(many, &mut |entry| {
        names.push(entry.name);
        ControlFlow::Continue(())
    })
    .unwrap();
    let reads = names.iter().map(|name| {
        let before = disk.reads.load(Ordering::Relaxed);
        assert!(xfs.look_up(many, name).unwrap().is_some());
        disk.reads.load(Ordering::Relaxed) - before
    });
    let most = reads.max();
    assert!(names.len() == 32 && most.is_some_and(|reads| reads < 8), "{} names, {most:?} reads", names.len());
}

/// Without checksums and owners, any number of inodes could lead to one giant directory.
#[test]
fn a_block_of_version_4_belongs_to_one_directory() {
    let Some(images) = empty() else { return };
    let script = r#"
        export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
        { printf '/\n0 0\nd--755 0 0\ntwo d--755 0 0\n$\nmany d--755 0 0\n'
          seq -f 'a-file-with-a-long-name-%g p--644 0 0' 2000; printf '$\n$\n'; } >proto
        truncate -s 100M image
        mkfs.xfs -q -m crc=0 -p proto image
        inode() { xfs_db -r -c "path $1" -c 'stack' image | sed -n 's/.*byte offset \([0-9]*\), length \([0-9]*\)/\1/p'; }
        dd if=image of=image bs=1 count=256 skip="$(inode /many)" seek="$(inode /two)" conv=notrunc status=none"#;
    images.script(&prepared(script), [""; 0]);
    with_xfs(&images.path("image"), |xfs| {
        let names = |directory| {
            let mut names = 0;
            xfs.each_entry(directory, &mut |_| {
                names += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
            names
        };
        let (many, two) = (directory(xfs, "many"), directory(xfs, "two"));
        assert_eq!(names(many), 2000);
        let shared = names(two);
        assert!((1..500).contains(&shared), "{shared} names of the first blocks");
        assert_eq!(names(many), 2000, "it is listed again");
        let problems: Vec<&str> = xfs.damage().first().iter().map(|damage| damage.problem).collect();
        assert_eq!(problems, ["another directory has the same block"]);
    });
}

/// A block of version 5 notes its owner, which was compared once all of it was read: any number of inodes could lead to
/// the blocks of one directory, and each read a thousand of them.
#[test]
fn a_block_of_version_5_is_read_in_vain_for_one_directory() {
    let Some(images) = empty() else { return };
    let script = r#"
        export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
        { printf '/\n0 0\nd--755 0 0\none d--755 0 0\n$\ntwo d--755 0 0\n$\nmany d--755 0 0\n'
          seq -f 'a-file-with-a-long-name-%g p--644 0 0' 1200; printf '$\n$\n'; } >proto
        truncate -s 100M image
        mkfs.xfs -q -p proto image
        inode() { xfs_db -r -c "path $1" -c 'stack' image | sed -n 's/.*byte offset \([0-9]*\), .*/\1/p'; }
        for name in one two; do
            number=$(xfs_db -r -c "path /$name" -c 'print v3.inumber' image)
            dd if=image of=image bs=1 count=512 skip="$(inode /many)" seek="$(inode "/$name")" conv=notrunc status=none
            xfs_db -x -c "inode ${number##* }" -c "write -d v3.inumber ${number##* }" image
        done"#;
    images.script(&prepared(script), [""; 0]);
    with_xfs(&images.path("image"), |xfs| {
        let names = |name| {
            let mut names = 0;
            xfs.each_entry(directory(xfs, name), &mut |_| {
                names += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
            names
        };
        assert_eq!((names("one"), names("two"), names("many")), (0, 0, 1200));
        let mut problems: Vec<&str> = xfs.damage().first().iter().map(|damage| damage.problem).collect();
        assert_eq!(problems.pop(), Some("another directory has the same block"));
        assert!(problems.len() > 8 && problems.iter().all(|problem| *problem == "it belongs to something else"));
    });
}

/// A search for one name read all of the directory.
#[test]
fn a_giant_directory_without_an_index_is_not_searched() {
    let Some(images) = empty() else { return };
    // A file full of blocks of entries, of which none is in use, becomes a directory.
    let blocks = "import struct
free = struct.pack('>HH', 0xffff, 4080) + bytes(4074) + struct.pack('>H', 16)
with open('blocks', 'wb') as file:
    for _ in range(257):
        file.write((b'XD2D' + bytes(12) + free) * 256)";
    let script = r#"
        export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
        python3 -c "$1"
        printf '/\n0 0\nd--755 0 0\nlong ---755 0 0 blocks\n$\n' > proto
        truncate -s 330M image
        mkfs.xfs -q -m crc=0 -p proto image
        rm blocks
        xfs_db -x -c 'path /long' -c 'write -d core.mode 040755' image"#;
    images.script(&prepared(script), [blocks]);
    with_xfs(&images.path("image"), |xfs| {
        let error = xfs.look_up(directory(xfs, "long"), b"name").unwrap_err().to_string();
        assert_eq!(error, "a directory of more than 256 MiB without a sound index cannot be read");
    });
}
