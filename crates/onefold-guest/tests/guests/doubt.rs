//! Volumes in doubt: no reader calls a byte of them free, by whatever method.

use std::path::Path;

use onefold_disk::{CachedDisk, Disk, FileDisk};
use onefold_guest::budget::Budget;
use onefold_guest::filesystem::{AllocationClass, Doubt, FileSystem};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};
use onefold_guest::{ext, fat, ntfs, xfs};

use crate::fixtures::{Images, has};

/// Opens the file system of a kind.
type Open = for<'d> fn(&VolumeReader<'d>) -> Box<dyn FileSystem + 'd>;

fn check(path: &Path, name: &str, open: Open) {
    let file = FileDisk::new(std::fs::File::open(path).unwrap(), path).unwrap();
    let disk = CachedDisk::new(&file, 16 << 20);
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: disk.size_bytes() }];
    let reader = VolumeReader::new(&disk, &Volume { origin: VolumeOrigin::WholeDisk, ranges });
    let mut system = open(&reader);
    let has_free = |system: &dyn FileSystem| {
        let map = system.allocation().unwrap();
        assert_eq!(map.iter().map(|run| run.length_bytes).sum::<u64>(), disk.size_bytes(), "{name}");
        let is_free = map.iter().any(|run| run.class == AllocationClass::Free);
        (is_free, !system.free_by_bitmaps(&Budget::default()).unwrap().is_empty())
    };
    assert_eq!(has_free(&*system), (true, true), "{name}");
    system.add_doubt(Doubt::InUse);
    assert_eq!(has_free(&*system), (false, false), "{name}");
}

#[test]
fn nothing_of_a_volume_in_doubt_is_free() {
    let ext: Open = |reader| Box::new(ext::open(reader.clone()).unwrap().unwrap());
    let xfs: Open = |reader| Box::new(xfs::open(reader.clone()).unwrap().unwrap());
    let ntfs: Open = |reader| Box::new(ntfs::open(reader).unwrap().unwrap());
    let fat: Open = |reader| Box::new(fat::Fat::open(reader.clone()).unwrap().unwrap());
    for (name, tool, make, open) in [
        ("ext2", "mke2fs", "mke2fs -q -t ext2 image 16M", ext),
        ("ext4", "mke2fs", "mke2fs -q -t ext4 image 64M", ext),
        ("XFS", "mkfs.xfs", "truncate -s 320M image; mkfs.xfs -q image", xfs),
        ("NTFS", "mkntfs", "truncate -s 16M image; mkntfs -q -F -Q image >/dev/null 2>&1", ntfs),
        ("FAT16", "mkfs.fat", "truncate -s 16M image; mkfs.fat -F 16 image >/dev/null", fat),
        ("FAT32", "mkfs.fat", "truncate -s 64M image; mkfs.fat -F 32 image >/dev/null", fat),
    ] {
        let Some(images) = Images::new() else { return };
        if has(tool) {
            images.script(make, [""; 0]);
            check(&images.path("image"), name, open);
        }
    }
}
