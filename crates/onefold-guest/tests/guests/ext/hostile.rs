//! Images made to keep a reader busy: inodes that all lead to the same blocks.

use std::ops::ControlFlow;

use onefold_guest::ext::Ext;
use onefold_guest::filesystem::{AllocationClass, FileSystem};

use super::with_ext;
use crate::fixtures::{Images, has};

/// Begins a script of Python that changes the image of its first argument, which has no checksums, inodes of 128 bytes
/// and group descriptors of 32.
const CHANGES: &str = r#"import struct, sys
image = open(sys.argv[1], "r+b")
def part(offset, length):
    image.seek(offset)
    return image.read(length)
def put(offset, data):
    image.seek(offset)
    image.write(data)
number = lambda data, at: struct.unpack_from("<I", data, at)[0]
superblock = part(1024, 1024)
block_count, first_block, in_group = (number(superblock, at) for at in (4, 20, 32))
block_bytes = 1024 << number(superblock, 24)
groups = range((block_count - first_block + in_group - 1) // in_group)
descriptors = part((first_block + 1) * block_bytes, 32 * len(groups))
start_of = lambda group: first_block + group * in_group
inode_at = lambda inode: number(descriptors, 8) * block_bytes + (inode - 1) * 128
def put_inode(inode, mode, runs):
    extents = b"".join(struct.pack("<IHHI", 32768 * at, 32768, 0, run) for at, run in enumerate(runs))
    head = struct.pack("<HHI16sHHIII", mode, 0, 32768 * len(runs) * block_bytes, b"", 0, 1, 0, 0x80000, 0)
    put(inode_at(inode), head + struct.pack("<HHHHI", 0xf30a, len(runs), 4, 0, 0) + extents)
def alternate_bits():
    for group in groups[2:]:
        put(number(descriptors, 32 * group) * block_bytes, b"\x55" * (in_group // 8))
        free = min(in_group, block_count - start_of(group)) // 2
        put((first_block + 1) * block_bytes + 32 * group + 12, struct.pack("<H", free))
"#;

fn images() -> Option<Images> {
    let images = Images::new()?;
    (has("mke2fs") && has("python3")).then_some(images)
}

/// Makes an ext4 without checksums, and changes it with Python.
fn make(images: &Images, size: &str, block_bytes: u32, changes: &str) {
    let script = "mkdir -p d; truncate -s $1 image
        mke2fs -q -F -t ext4 -b $2 -I 128 -N 4000 -O ^metadata_csum,^64bit,^has_journal -d d image
        python3 -c \"$3\" image";
    images.script(script, [size, &block_bytes.to_string(), &format!("{CHANGES}{changes}")]);
}

fn names(fs: &Ext<'_>, directory: &str) -> usize {
    let mut names = 0;
    let directory = fs.look_up(fs.root(), directory.as_bytes()).unwrap().unwrap();
    fs.each_entry(directory, &mut |_| {
        names += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

/// Each inode of 128 bytes took 6 ms: four extents of 32,768 blocks over bits that alternate.
#[test]
fn files_that_have_more_blocks_than_the_volume_free_nothing() {
    let Some(images) = images() else { return };
    let same = "alternate_bits()\nfor inode in range(12, 112): put_inode(inode, 0x81a4, [start_of(2)] * 4)";
    // As many blocks as the volume has, of which bitmaps call every second one free.
    let other = "alternate_bits()
for inode in range(12, 29): put_inode(inode, 0x81a4, [start_of(2) + 32768 * (4 * (inode - 12) + at) for at in range(4)])";
    let cases = [
        ("1G", 4096, same, "files have more blocks than the file system"),
        ("2300M", 1024, other, "files have too many blocks that bitmaps call free"),
    ];
    for (size, block_bytes, changes, problem) in cases {
        make(&images, size, block_bytes, changes);
        with_ext(&images.path("image"), |fs| {
            let runs = fs.allocation().unwrap();
            assert!(runs.iter().all(|run| run.class != AllocationClass::Free), "{problem}: something is free");
            let damage = fs.damage().first();
            assert!(damage.iter().any(|damage| damage.problem == problem), "{damage:?}");
            assert_eq!(fs.damage().count(), 2, "the pass ends, and files reach blocks that bitmaps call free");
        });
        std::fs::remove_file(images.path("image")).unwrap();
    }
}

/// Each inode of 128 bytes took 0.1 seconds: zeros were no damage, and each directory began anew.
#[test]
fn directories_of_zeros_end_and_do_not_begin_anew() {
    let Some(images) = images() else { return };
    let folders = "mkdir -p d/one d/two d/three";
    images.script(folders, [""; 0]);
    make(&images, "1G", 4096, "for inode in (12, 13, 14): put_inode(inode, 0x41ed, [start_of(3)] * 4)");
    with_ext(&images.path("image"), |fs| {
        for directory in ["one", "two", "three"] {
            assert_eq!(names(fs, directory), 0);
        }
        let count = fs.damage().count();
        assert!((1000..1100).contains(&count), "{count} damaged blocks");
    });
}

#[test]
fn a_block_belongs_to_one_directory() {
    let Some(images) = images() else { return };
    images.script("mkdir -p d/one d/two; cd d/one; touch $(printf 'file-with-a-long-name-%s ' $(seq 2000))", [""; 0]);
    let changes = "folders = [inode for inode in range(12, 2020) if part(inode_at(inode), 2) == b'\\xed\\x41']
one, two = sorted(folders, key=lambda inode: -number(part(inode_at(inode), 128), 4))
put(inode_at(two), part(inode_at(one), 128))";
    make(&images, "64M", 4096, changes);
    with_ext(&images.path("image"), |fs| {
        assert_eq!(names(fs, "one"), 2000);
        let shared = names(fs, "two");
        assert!((1..500).contains(&shared), "{shared} names of the first blocks");
        assert_eq!(names(fs, "one"), 2000, "it is listed again");
        let problems: Vec<&str> = fs.damage().first().iter().map(|damage| damage.problem).collect();
        assert_eq!(problems, ["another directory has the same block"]);
    });
}

/// The block of a directory was read for each of its extents.
#[test]
fn a_block_that_a_map_repeats_is_read_once() {
    let Some(images) = images() else { return };
    images.script("mkdir -p d/one; touch d/one/file", [""; 0]);
    let changes = "block = number(part(inode_at(12), 128), 60)
extents = b''.join(struct.pack('<IHHI', at, 1, 0, block) for at in range(4))
put(inode_at(12) + 4, struct.pack('<I', 4 * block_bytes))
put(inode_at(12) + 40, struct.pack('<HHHHI', 0xf30a, 4, 4, 0, 0) + extents)";
    make(&images, "64M", 4096, changes);
    with_ext(&images.path("image"), |fs| {
        assert_eq!(names(fs, "one"), 1);
        let problems: Vec<&str> = fs.damage().first().iter().map(|damage| damage.problem).collect();
        assert_eq!(problems, ["two parts of its map have the same block"]);
    });
}

/// A search for one name read all of the directory.
#[test]
fn a_giant_directory_without_an_index_is_not_searched() {
    let Some(images) = images() else { return };
    // A file full of blocks with one unused entry becomes a directory.
    let blocks = "import struct
block = struct.pack('<IH', 0, 4096) + bytes(4090)
with open('d/long', 'wb') as file:
    for _ in range(257):
        file.write(block * 256)";
    images.script("mkdir d; python3 -c \"$1\"", [blocks]);
    make(&images, "300M", 4096, "put(inode_at(12), struct.pack('<H', 0o40755))");
    with_ext(&images.path("image"), |fs| {
        let long = fs.look_up(fs.root(), b"long").unwrap().unwrap();
        let error = fs.look_up(long, b"name").unwrap_err().to_string();
        assert_eq!(error, "a directory of more than 256 MiB without a sound index cannot be read");
    });
}
