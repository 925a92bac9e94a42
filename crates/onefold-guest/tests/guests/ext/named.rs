//! Which tables of never used inodes the map of free blocks reads on a disk without holes: those with names.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_disk::{CachedDisk, Disk, DiskError, FileDisk};
use onefold_guest::ext;
use onefold_guest::filesystem::FileSystem;
use onefold_guest::volume::{Volume, VolumeReader};

use super::unused::{ALL_FREE, DIGESTS, SUMMED, UNUSED, WITHOUT_SUMS, change, images, poison};
use crate::fixtures::Images;

/// Makes `image` without holes by the options `$1`. Folder `d` in the first group has files with inodes of groups 0 to
/// 3. Its folder `sub` in group 3 has files with inodes of groups 3 and 4. A group has 64 inodes and 2048 blocks.
/// Blocks of the files of groups 2 to 4 lie in group 2, at least in part.
const MAKE: &str = r#"rm -rf tree image; mkdir -p tree/d
for file in $(seq 200); do head -c 20000 /dev/urandom >tree/d/$file; done
truncate -s 24M image; mke2fs -q -F -b 1024 -g 2048 -N 768 -d tree $1 image
(echo mkdir d/sub; for file in $(seq 60); do echo write tree/d/$file d/sub/$file; done) >commands
debugfs -w -f commands image >said 2>&1; e2fsck -fn image >&2; cp --sparse=never image copy; mv copy image
debugfs -R 'stat d' image 2>/dev/null | grep -q '^Inode: 12 '
debugfs -R 'stat d/sub' image 2>/dev/null | grep -q '^Inode: 213 '"#;

/// Prints a digest of the content of all files with inodes of group `$1`.
const CONTENT: &str = r#"for inode in $(seq $((64 * $1 + 1)) $((64 * $1 + 64))); do echo "cat <$inode>"; done >asked
debugfs -f asked image 2>/dev/null >content; [ $(wc -c <content) -gt 300000 ]; sha256sum <content"#;

/// No entry of folder `d` can be followed.
const DAMAGE: &str = r#"for block in $(debugfs -R 'blocks d' image 2>/dev/null); do
    printf '\3\0' | dd of=image bs=1 seek=$((block * 1024 + 4)) conv=notrunc status=none; done"#;

/// Removes the names of all files with inodes of group 2, which keep their links.
const UNLINK: &str = r#"debugfs -R 'ls -l d' image 2>/dev/null |
    awk '$1 > 128 && $1 <= 192 && $NF !~ /^\./ {print "unlink d/" $NF}' >commands; [ $(wc -l <commands) = 64 ]
debugfs -w -f commands image >said 2>&1"#;

/// Puts inode 150 into an orphan file, which gets an inode of another group.
const ORPHAN_FILE: &str = r#"tune2fs -O orphan_file image >&2
file=$(dumpe2fs -h image 2>/dev/null | sed -n 's/^Orphan file inode: *//p'); [ $file -gt 256 ]
block=$(debugfs -R "blocks <$file>" image 2>/dev/null | cut -d' ' -f1)
printf '\x96' | dd of=image bs=1024 seek=$block conv=notrunc status=none
debugfs -w -R 'feature orphan_present' image >said 2>&1"#;

fn content(images: &Images, group: &str) -> String {
    images.script(CONTENT, [group])
}

/// Makes an image, and changes it with a script. These groups then say that they have no inodes, and group 2 that it
/// has no blocks.
fn make(images: &Images, options: &str, script: &str, groups: &[&str]) {
    images.script(MAKE, [options]);
    images.script(script, [""; 0]);
    change(images, "2", "set_bg G free_blocks_count 2030|set_bg G flags 0x6");
    for group in groups {
        change(images, group, &format!("{ALL_FREE}2030|{UNUSED}"));
    }
}

#[test]
fn names_decide_which_unused_inodes_count() {
    let Some(images) = images() else { return };
    let orphan = format!("{UNLINK}; debugfs -w -R 'set_super_value last_orphan 150' image >said 2>&1");
    let no_names = format!("{UNLINK}; {DAMAGE}");
    let in_file = format!("{UNLINK}; {ORPHAN_FILE}");
    for (what, options, script, keeps_free, keeps_content) in [
        ("a folder names them", SUMMED, "", true, true),
        ("nothing names them", SUMMED, UNLINK, true, false),
        ("the list of orphans has one of them", SUMMED, &orphan, true, true),
        ("the orphan file has one of them", SUMMED, &in_file, true, true),
        ("the folder is damaged", SUMMED, DAMAGE, true, true),
        ("the folder is damaged, and names none of them", SUMMED, &no_names, true, true),
        ("a folder without checksums names them", WITHOUT_SUMS, "", false, true),
        ("nothing without checksums names them", WITHOUT_SUMS, UNLINK, true, false),
        ("the folder without checksums is damaged", WITHOUT_SUMS, DAMAGE, false, true),
    ] {
        make(&images, options, script, &["2"]);
        let before = content(&images, "2");
        let free = poison(&images.path("image"));
        assert!(if keeps_free { free > 1 << 20 } else { free == 0 }, "{what}: {free} bytes are free");
        assert_eq!(content(&images, "2") == before, keeps_content, "{what}");
    }
}

#[test]
fn a_folder_with_an_unused_inode_names_others() {
    let Some(images) = images() else { return };
    make(&images, SUMMED, "", &["3", "4"]);
    let (before, mounted) = (content(&images, "4"), images.script(&format!("mkdir mounted; {DIGESTS}"), [""; 0]));
    assert_eq!(mounted.lines().count(), 260);
    assert!(poison(&images.path("image")) > 1 << 20);
    assert_eq!(content(&images, "4"), before);
    assert!(images.script(DIGESTS, [""; 0]) == mounted);
}

/// A disk that counts the bytes that are read.
pub(super) struct CountingDisk {
    disk: FileDisk,
    bytes: AtomicU64,
}

impl CountingDisk {
    /// Opens an image.
    pub(super) fn of(image: &Path) -> CountingDisk {
        CountingDisk { disk: FileDisk::new(File::open(image).unwrap(), image).unwrap(), bytes: AtomicU64::new(0) }
    }

    /// Returns the number of bytes that were read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Disk for CountingDisk {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<std::ops::Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.disk.read(offset, into)
    }
}

/// Returns the number of bytes that are read for a map.
fn bytes_of_map(image: &Path) -> u64 {
    let disk = CountingDisk::of(image);
    let cached = CachedDisk::new(&disk, 16 << 20);
    let volume = Volume::whole_disk(disk.size_bytes()).unwrap();
    let fs = ext::open(VolumeReader::new(&cached, &volume)).unwrap().expect("an ext file system");
    fs.allocation().unwrap();
    assert_eq!(fs.damage().first(), []);
    disk.bytes()
}

/// 9 MB were read of the second one: all tables, which have 8 MB.
#[test]
fn a_disk_without_holes_takes_few_bytes_more_than_one_with_holes() {
    let Some(images) = images() else { return };
    let script =
        "rm -f image full; mkdir -p tree/1/2/3; for file in a b c d; do head -c 5000 /dev/urandom >tree/1/2/$file; done
        truncate -s 512M image; mke2fs -q -F -t ext4 -d tree $1 image; cp --sparse=never image full";
    for options in ["", "-O ^metadata_csum,uninit_bg", "-O inline_data"] {
        images.script(script, [options]);
        let (sparse, full) = (bytes_of_map(&images.path("image")), bytes_of_map(&images.path("full")));
        println!("{sparse} bytes with holes, {full} without");
        assert!(sparse < 2 << 20 && full < sparse + (256 << 10), "{options}: {sparse} and {full} bytes");
    }
}
