//! Tables that hide a part of a file: nothing is free then, because `$Bitmap` has no checksum.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_disk::{Disk, FileDisk};
use onefold_guest::filesystem::{AllocationClass, Doubt, FileNumber, FileSystem, State};
use onefold_guest::ntfs;
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

use super::damage::{change_attribute, write_at};
use super::{MOUNT, content, tools, tree, with_ntfs};
use crate::fixtures::Images;
use crate::unreadable::FaultyDisk;

const CLUSTER_BYTES: u64 = 4096;
const DATA: u32 = 0x80;
const LIST: u32 = 0x20;
/// Offsets in an attribute outside of its record.
const LAST: usize = 24;
const ALLOCATED: usize = 40;
const INITIALIZED: usize = 56;
/// Cluster of the volume with the start of the MFT.
const MFT_CLUSTER: u8 = 4;

/// Makes a volume of 16 MiB and fills it by a recipe.
fn made(recipe: &str) -> Option<Images> {
    if !tools() {
        return None;
    }
    let images = Images::new()?;
    images.script(&format!("{MOUNT}{recipe}\ncd ..; umount mounted"), ["16M"]);
    Some(images)
}

/// Returns whether a part of the volume is free, and whether damage is known then.
fn free_and_damaged(image: &Path) -> (bool, bool) {
    with_ntfs(image, |ntfs| {
        let map = ntfs.allocation().unwrap();
        (map.iter().any(|run| run.class == AllocationClass::Free), ntfs.damage().count() > 0)
    })
}

fn number_at(attribute: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(attribute[at..at + 8].try_into().unwrap())
}

/// Returns the place of the first run of an attribute in the volume.
fn place_of(attribute: &[u8]) -> u64 {
    let pairs = &attribute[usize::from(attribute[32])..];
    let (count, distance) = (usize::from(pairs[0] & 15), usize::from(pairs[0] >> 4));
    let bytes = pairs[1 + count..1 + count + distance].iter().rev();
    bytes.fold(0, |cluster, byte| cluster << 8 | u64::from(*byte)) * CLUSTER_BYTES
}

/// A mount reads records behind a hole, and between the initialised and the whole length.
#[test]
fn a_part_of_the_mft_that_is_not_read_leaves_nothing_free() {
    let recipe = "mkdir many; for file in $(seq 300); do echo $file >many/$file; done";
    let Some(images) = made(recipe) else { return };
    let image = images.path("image");
    let before = std::fs::read(&image).unwrap();
    assert_eq!(free_and_damaged(&image), (true, false));
    let must_be_in_doubt = |what: &str| {
        with_ntfs(&image, |ntfs| assert_eq!(ntfs.state(), &State::Unsure(vec![Doubt::MetadataDamaged]), "{what}"));
        assert_eq!(free_and_damaged(&image), (false, true), "{what}");
        std::fs::write(&image, &before).unwrap();
    };
    // A hole of one cluster behind 60 others. The list has eight bytes of room, and no end.
    change_attribute(&image, 0, DATA, |attribute| {
        let clusters = number_at(attribute, ALLOCATED) / CLUSTER_BYTES;
        let pairs = usize::from(attribute[32]);
        let rest = u8::try_from(clusters - 61).unwrap();
        assert!((1..0x80).contains(&rest), "{clusters} clusters");
        attribute[pairs..pairs + 8].copy_from_slice(&[0x11, 60, MFT_CLUSTER, 0x01, 1, 0x11, rest, 61]);
    });
    must_be_in_doubt("a hole");
    change_attribute(&image, 0, DATA, |attribute| {
        let cut = number_at(attribute, INITIALIZED) - 100 * 1024;
        attribute[INITIALIZED..INITIALIZED + 8].copy_from_slice(&cut.to_le_bytes());
    });
    must_be_in_doubt("an initialised length");
}

#[test]
fn a_map_of_one_cluster_that_is_cut_off_leaves_nothing_free() {
    let Some(images) = made("head -c 3000 /dev/urandom >one; head -c 50000 /dev/urandom >large; : >empty") else {
        return;
    };
    let image = images.path("image");
    let (one, large) = with_ntfs(&image, |ntfs| (tree(ntfs)["one"].0.0, tree(ntfs)["large"].0.0));
    let before = std::fs::read(&image).unwrap();
    assert_eq!(free_and_damaged(&image), (true, false));
    for last in [0, u64::MAX] {
        change_attribute(&image, one, DATA, |attribute| {
            assert_eq!(number_at(attribute, LAST), 0);
            attribute[LAST..LAST + 8].copy_from_slice(&last.to_le_bytes());
            attribute[usize::from(attribute[32])] = 0;
        });
        assert_eq!(free_and_damaged(&image), (false, true), "{last}");
        std::fs::write(&image, &before).unwrap();
    }
    // Some drivers leave out the last cluster.
    change_attribute(&image, large, DATA, |attribute| attribute[LAST..LAST + 8].fill(0));
    assert_eq!(free_and_damaged(&image), (true, false));
}

#[test]
fn a_list_of_attributes_that_ends_too_early_leaves_nothing_free() {
    // So many links take several records, and a list outside of the first one.
    let recipe = "echo >file; for link in $(seq 60); do ln file \"a link with the number $link\"; done";
    let Some(images) = made(recipe) else { return };
    let image = images.path("image");
    let file = with_ntfs(&image, |ntfs| tree(ntfs)["file"].0.0);
    let before = std::fs::read(&image).unwrap();
    assert_eq!(free_and_damaged(&image), (true, false));
    let mut list = 0;
    change_attribute(&image, file, LIST, |attribute| {
        assert_eq!(attribute[8], 1, "it is in the record");
        list = place_of(attribute);
    });
    let first = u64::from(before[usize::try_from(list).unwrap() + 4]);
    write_at(&image, list + first + 4, &[0; 2]);
    assert_eq!(free_and_damaged(&image), (false, true), "the length of an entry");
    std::fs::write(&image, &before).unwrap();
    change_attribute(&image, file, LIST, |attribute| {
        attribute[INITIALIZED..INITIALIZED + 8].copy_from_slice(&first.to_le_bytes());
    });
    assert_eq!(free_and_damaged(&image), (false, true), "the initialised length");
}

/// A count of zero would show a volume that is full.
#[test]
fn free_space_that_cannot_be_counted_is_unknown() {
    let Some(images) = made("head -c 50000 /dev/urandom >large") else { return };
    let image = images.path("image");
    let bitmap = FileNumber(6);
    let (place, length) = with_ntfs(&image, |ntfs| {
        assert!(ntfs.facts().free_bytes.is_some_and(|free| free > 1 << 20));
        assert_eq!(ntfs.damage().count(), 0);
        let mut first = None;
        ntfs.each_extent(bitmap, &mut |extent| {
            first = Some((extent.place, extent.length_bytes));
            std::ops::ControlFlow::Break(())
        })
        .unwrap();
        assert!(!content(ntfs, bitmap, 0, 10).is_empty());
        first.unwrap()
    });
    let disk = FileDisk::new(File::open(&image).unwrap(), &image).unwrap();
    let faulty = FaultyDisk { disk: &disk, bad: place..place + length };
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: disk.size_bytes() }];
    let reader = VolumeReader::new(&faulty, &Volume { origin: VolumeOrigin::WholeDisk, ranges });
    let ntfs = ntfs::open(&reader).unwrap().unwrap();
    assert_eq!((ntfs.facts().free_bytes, ntfs.damage().count()), (None, 1), "a bad sector");
    change_attribute(&image, bitmap.0, DATA, |attribute| attribute[INITIALIZED..INITIALIZED + 8].fill(0));
    with_ntfs(&image, |ntfs| {
        assert_eq!((ntfs.facts().free_bytes, ntfs.damage().count()), (None, 1), "a bitmap that is too short");
    });
    File::options().write(true).open(&image).unwrap().write_all_at(&[0xee; 600], 4 * 4096 + 6 * 1024).unwrap();
    with_ntfs(&image, |ntfs| {
        assert_eq!(ntfs.facts().free_bytes, None);
        assert!(ntfs.damage().count() > 0, "no bitmap");
    });
}
