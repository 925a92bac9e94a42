//! Images of which the medium cannot read a place: a bad sector costs what lies there, and calls nothing free.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use onefold_disk::{CachedDisk, Disk, DiskError, FileAction, FileDisk};
use onefold_guest::filesystem::FileSystem;
use onefold_guest::guest::Guest;

use crate::fixtures::{Images, has};

const BAD_BYTES: u64 = 4096;
/// Number of bad places that are tried of an image: the first ones, and as many spread over the rest.
const TRIED: usize = 40;

/// A disk with one bad place.
pub(crate) struct FaultyDisk<'d> {
    pub(crate) disk: &'d dyn Disk,
    pub(crate) bad: Range<u64>,
}

impl Disk for FaultyDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        if offset < self.bad.end && self.bad.start < offset + into.len() as u64 {
            let source = rustix::io::Errno::IO.into();
            return Err(DiskError::File { action: FileAction::Read, path: "image".into(), source });
        }
        self.disk.read(offset, into)
    }
}

/// What can be read of a disk with one file system.
#[derive(Debug)]
struct ReadableParts {
    names: BTreeSet<Vec<u8>>,
    /// Places of the disk that are free.
    free: Vec<Range<u64>>,
}

impl ReadableParts {
    /// Returns what is readable; `None` if the file system cannot be opened.
    fn of(disk: &dyn Disk) -> Option<ReadableParts> {
        let disk = CachedDisk::new(disk, 16 << 20);
        let guest = Guest::open(&disk).ok()?;
        let free = guest.disk_map().unwrap().into_iter().filter(|run| run.use_.is_free());
        let free = free.map(|run| run.range.start_bytes..run.range.end_bytes()).collect();
        let system = guest.volumes().first()?.file_system()?;
        Some(ReadableParts { names: names(system), free })
    }

    fn is_free(&self, range: &Range<u64>) -> bool {
        self.free.iter().any(|free| free.start <= range.start && range.end <= free.end)
    }
}

/// Returns the names in all directories that can be read.
fn names(system: &dyn FileSystem) -> BTreeSet<Vec<u8>> {
    let (mut names, mut directories) = (BTreeSet::new(), vec![system.root()]);
    while let Some(directory) = directories.pop() {
        // Of a directory that cannot be read, there are only the names before the damage.
        let _ = system.each_entry(directory, &mut |entry| {
            // Files without a record are not entered.
            if system.stat(entry.file).is_ok_and(|stat| stat.kind == onefold_guest::filesystem::FileKind::Directory) {
                directories.push(entry.file);
            }
            names.insert(entry.name);
            ControlFlow::Continue(())
        });
    }
    names
}

/// Makes a tree with small and larger files, and its file system in `image`.
const TREE: &str = "mkdir tree; for number in $(seq 40); do mkdir tree/folder-$number; \
    for file in $(seq 10); do echo $file >tree/folder-$number/file-$number-$file; done; done
    head -c 300000 /dev/urandom >tree/large\n";

#[test]
fn a_bad_sector_costs_what_lies_there_and_frees_nothing() {
    for (tool, make) in [
        ("mke2fs", "mke2fs -q -t ext4 -b 1024 -d tree image 16M"),
        ("mke2fs", "mke2fs -q -t ext2 -b 4096 -O ^metadata_csum -d tree image 16M"),
        (
            "mkfs.xfs",
            "truncate -s 320M image; mkfs.xfs -q image; mkdir mounted; mount -o loop image mounted
            cp -a tree/. mounted; umount mounted",
        ),
        (
            "ntfs-3g",
            "truncate -s 24M image; mkntfs -q -F -Q image >/dev/null 2>&1; mkdir mounted; ntfs-3g image mounted
            cp -r tree/. mounted; umount mounted",
        ),
        ("mcopy", "truncate -s 40M image; mkfs.fat -F 32 -s 1 image >/dev/null; mcopy -s -i image tree/* ::"),
    ] {
        if !has(tool) {
            continue;
        }
        let Some(images) = Images::new() else { return };
        images.script(&format!("{TREE}{make}"), [""; 0]);
        must_be_read_around_each_place(&images.path("image"), make);
    }
}

/// Asserts that nine of ten bad places cost little, and that no place costs more than it should.
fn must_be_read_around_each_place(path: &Path, make: &str) {
    let disk = FileDisk::new(File::open(path).unwrap(), path).unwrap();
    let sound = ReadableParts::of(&disk).unwrap();
    assert!(sound.names.len() > 440 && !sound.free.is_empty(), "{make}");
    let (mut places, mut at) = (Vec::new(), BAD_BYTES);
    while let Some(data) = disk.next_data(at).unwrap() {
        places.push(data.start.max(at) / BAD_BYTES * BAD_BYTES);
        at = places[places.len() - 1] + BAD_BYTES;
    }
    let (first, rest) = places.split_at(TRIED);
    let spread = rest.iter().step_by(rest.len() / TRIED + 1);
    let (mut tried, mut nearly_all) = (0_usize, 0_usize);
    for start in first.iter().chain(spread).copied() {
        tried += 1;
        let bad = start..(start + BAD_BYTES).min(disk.size_bytes());
        let Some(found) = ReadableParts::of(&FaultyDisk { disk: &disk, bad }) else { continue };
        assert!(found.names.is_subset(&sound.names), "{make}: {start}");
        assert!(found.free.iter().all(|free| sound.is_free(free)), "{make}: {start}");
        nearly_all += usize::from(found.names.len() * 10 >= sound.names.len() * 9);
    }
    assert!(tried > TRIED && nearly_all * 10 >= tried * 9, "{make}: {nearly_all} of {tried}");
}

/// The tables of FAT have no checksum, and may call clusters free that a file in the directory has.
#[test]
fn a_directory_of_fat_that_cannot_be_read_leaves_nothing_free() {
    let Some(images) = Images::new() else { return };
    if !has("mkfs.fat") || !has("mcopy") {
        return;
    }
    for kind in ["-F 16 -s 4", "-F 32 -s 1"] {
        let make = "rm -rf tree image; truncate -s 40M image; mkfs.fat $1 image >/dev/null
            mkdir -p tree/folder; echo x >tree/folder/file; mcopy -s -i image tree/folder ::";
        images.script(make, [kind]);
        let path = images.path("image");
        let disk = FileDisk::new(File::open(&path).unwrap(), &path).unwrap();
        let directories = {
            let guest = Guest::open(&disk).unwrap();
            let system = guest.volumes()[0].file_system().unwrap();
            let folder = system.look_up(system.root(), b"folder").unwrap().unwrap();
            let file = system.look_up(folder, b"file").unwrap().unwrap();
            // A file's number is the place of its record.
            [folder, file].map(|record| record.0 / 512 * 512)
        };
        assert!(!ReadableParts::of(&disk).unwrap().free.is_empty());
        for start in directories {
            let found = ReadableParts::of(&FaultyDisk { disk: &disk, bad: start..start + 512 }).unwrap();
            assert_eq!(found.free, [], "{kind}: {start}");
        }
    }
}

/// The bitmap of NTFS has no checksum, and may call clusters free that a file has.
#[test]
fn a_record_of_ntfs_that_cannot_be_read_leaves_nothing_free() {
    let Some(images) = Images::new() else { return };
    if !has("mkntfs") || !has("ntfs-3g") {
        return;
    }
    let make = "truncate -s 24M image; mkntfs -q -F -Q -c 4096 image >/dev/null 2>&1; mkdir mounted
        ntfs-3g image mounted; mkdir mounted/folder; head -c 10000 /dev/urandom >mounted/folder/file; umount mounted";
    images.script(make, [""; 0]);
    let path = images.path("image");
    let disk = FileDisk::new(File::open(&path).unwrap(), &path).unwrap();
    let mut first_cluster = [0; 8];
    disk.read(0x30, &mut first_cluster).unwrap();
    let table_start = u64::from_le_bytes(first_cluster) * 4096;
    let records = {
        let guest = Guest::open(&disk).unwrap();
        let system = guest.volumes()[0].file_system().unwrap();
        let folder = system.look_up(system.root(), b"folder").unwrap().unwrap();
        [folder, system.look_up(folder, b"file").unwrap().unwrap()]
    };
    assert!(!ReadableParts::of(&disk).unwrap().free.is_empty());
    for record in records {
        let start = table_start + record.0 * 1024;
        let mut magic = [0; 4];
        disk.read(start, &mut magic).unwrap();
        assert_eq!(&magic, b"FILE");
        let found = ReadableParts::of(&FaultyDisk { disk: &disk, bad: start..start + 1024 }).unwrap();
        assert_eq!(found.free, [], "{start}");
    }
}
