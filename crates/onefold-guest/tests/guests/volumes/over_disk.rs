//! Disks that have a partition table and are something else as well: no byte of them may be called free, unless the
//! other thing is nothing.

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use onefold_disk::{Disk, DiskError};
use onefold_guest::content::VolumeContent;
use onefold_guest::guest::Guest;
use onefold_guest::volume::VolumeOrigin;

use super::disk;
use crate::fixtures::{Images, has};

const MIB: usize = 1 << 20;
/// Not a multiple of 64 KiB, as few disks are.
const DISK_BYTES: usize = 8 * MIB + 8192;
const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
const MD_10: usize = DISK_BYTES - 8192;
const MD_090: usize = 8 * MIB - (64 << 10);

struct Memory(Vec<u8>);

impl Disk for Memory {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok((offset < self.size_bytes()).then_some(offset..self.size_bytes()))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let offset = usize::try_from(offset).unwrap();
        into.copy_from_slice(&self.0[offset..offset + into.len()]);
        Ok(())
    }
}

/// What a test sees of a disk.
#[derive(Debug, PartialEq, Eq)]
enum DiskView {
    /// The volumes are sure, and there are free bytes.
    Free,
    /// All volumes can be read, but are unsure for a reason with these words.
    Doubt(String),
    /// One volume that is not read, of this kind.
    NotRead(&'static str, String),
}

/// Returns a disk with an MBR whose one partition is a swap area from MiB 1 to `end`.
fn with_swap(end: usize, pieces: &[(usize, &[u8])]) -> Memory {
    let mut bytes = vec![0; DISK_BYTES];
    let mut put = |at: usize, piece: &[u8]| bytes[at..at + piece.len()].copy_from_slice(piece);
    put(446, &[0, 0, 0, 0, 0x82]);
    put(454, &2048_u32.to_le_bytes());
    put(458, &u32::try_from((end - MIB) / 512).unwrap().to_le_bytes());
    put(510, &[0x55, 0xaa]);
    put(MIB + 1024, &1_u32.to_le_bytes());
    put(MIB + 1028, &u32::try_from((end - MIB) / 4096 - 1).unwrap().to_le_bytes());
    put(MIB + 4086, b"SWAPSPACE2");
    pieces.iter().for_each(|(at, piece)| put(*at, piece));
    Memory(bytes)
}

fn seen(disk: &dyn Disk) -> DiskView {
    let guest = Guest::open(disk).unwrap();
    let has_free = guest.disk_map().unwrap().iter().any(|run| run.use_.is_free());
    if let [volume] = guest.volumes()
        && let VolumeContent::NotRead(found) = &volume.content
        && volume.volume.origin == VolumeOrigin::WholeDisk
    {
        assert!(!has_free);
        assert_eq!(volume.volume.size_bytes(), disk.size_bytes());
        assert!(guest.table().is_some() && guest.whole_because(0).is_some() && guest.counts_whole(0));
        return DiskView::NotRead(found.name, found.detail.clone());
    }
    assert_ne!(guest.doubt().is_some(), has_free);
    for at in 0..guest.volumes().len() {
        let is_unsure = guest.doubt().is_some();
        assert_eq!([guest.counts_whole(at), guest.whole_because(at).is_some()], [is_unsure; 2]);
        assert!(matches!(guest.volumes()[at].volume.origin, VolumeOrigin::Partition { .. }));
    }
    guest.doubt().map_or(DiskView::Free, |doubt| DiskView::Doubt(doubt.to_owned()))
}

fn not_read(name: &'static str, detail: &str) -> DiskView {
    DiskView::NotRead(name, detail.to_owned())
}

fn expect_doubt(end: usize, pieces: &[(usize, &[u8])], what: &str) {
    match seen(&with_swap(end, pieces)) {
        DiskView::Doubt(doubt) => assert!(doubt.contains(what), "{doubt}"),
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_disk_of_an_array_is_one_volume_that_is_not_read_whatever_its_table_says() {
    let end = 4 * MIB;
    assert_eq!(seen(&with_swap(end, &[])), DiskView::Free, "a sound disk keeps its free bytes");
    let sector = (MD_10 as u64 / 512).to_le_bytes();
    let one = [(MD_10, &MD_MAGIC[..]), (MD_10 + 4, &[1]), (MD_10 + 92, &[2]), (MD_10 + 144, &sector)];
    assert_eq!(seen(&with_swap(end, &one)), not_read("Linux RAID", "version 1.0, level 0, 2 disks"));
    let zero = [(MD_090, &MD_MAGIC[..]), (MD_090 + 40, &[2])];
    assert_eq!(seen(&with_swap(end, &zero)), not_read("Linux RAID", "version 0.90, level 0, 2 disks"));
    let intel = b"Intel Raid ISM Cfg Sig. 1.3.00\0\0";
    let ddf = [&b"\xde\x11\xde\x11"[..], &[7; 28], b"01.02.00"].concat();
    let swapped = [&b"\x11\xde\x11\xde"[..], &[7; 28], b"01.02.00"].concat();
    let firmware: [(usize, &[u8], &str, &str); 9] = [
        (1024, intel, "Intel RAID", "version 1.3.00"),
        (8192, intel, "Intel RAID", "version 1.3.00"),
        (512, &ddf, "DDF RAID", "version 01.02.00"),
        (4096, &swapped, "DDF RAID", "version 01.02.00"),
        (257 * 512, &ddf, "DDF RAID", "version 01.02.00"),
        (1024, b"NVIDIA  ", "NVIDIA RAID", ""),
        (512, b"$XIDE$", "LSI RAID", ""),
        (63 * 512, b"Promise Technology, Inc.", "Promise RAID", ""),
        (3087 * 512, b"Promise Technology, Inc.", "Promise RAID", ""),
    ];
    for (distance, magic, name, detail) in firmware {
        assert_eq!(seen(&with_swap(end, &[(DISK_BYTES - distance, magic)])), not_read(name, detail));
    }
}

/// In a partition, a superblock may be that of the partition or a former one. A striped array has a table that its one
/// disk contradicts.
#[test]
fn a_superblock_in_a_partition_leaves_a_doubt_unless_the_table_contradicts_its_disk() {
    let zero = [(MD_090, &MD_MAGIC[..]), (MD_090 + 40, &[2])];
    // A member that is the partition has its superblock there, too.
    expect_doubt(8 * MIB + 4096, &zero, "Linux RAID, version 0.90");
    expect_doubt(8 * MIB - 4096, &zero, "Linux RAID, version 0.90");
    let sectors = 0x0010_0000_u32.to_le_bytes();
    let striped = [zero[0], zero[1], (458, &sectors)];
    assert_eq!(seen(&with_swap(4 * MIB, &striped)), not_read("Linux RAID", "version 0.90, level 0, 2 disks"));
}

#[test]
fn what_else_a_whole_disk_is_leaves_a_doubt_about_all_its_partitions() {
    let sector = 8_u64.to_le_bytes();
    let array = [(4096, &MD_MAGIC[..]), (4100, &[1]), (4096 + 144, &sector)];
    expect_doubt(4 * MIB, &array, "Linux RAID, version 1.2");
    let bcache = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    let others: [(usize, &[u8], &str); 8] = [
        (0, b"LUKS\xba\xbe\0\x01", "LUKS"),
        (3, b"-FVE-FS-", "BitLocker"),
        (3, b"NTFS    ", "NTFS"),
        (512 + 24, b"LVM2 001", "LVM2"),
        (4096 + 24, bcache, "bcache"),
        ((64 << 10) + 64, b"_BHRfS_M", "Btrfs"),
        (1024 + 56, b"\x53\xef", "ext"),
        (128 << 10, &0x00ba_b10c_u64.to_le_bytes(), "ZFS"),
    ];
    for (at, magic, what) in others {
        expect_doubt(4 * MIB, &[(at, magic)], what);
    }
}

/// A GPT with FAT32 and ext3, both with free room.
const DISK: &str = r#"
truncate -s 200M "$1"; sfdisk -q "$1" <<<$'label: gpt\nstart=2048, size=100M, type=U\nsize=80M, type=L'
mkfs.fat -F 32 --offset 2048 "$1" $((100 << 10)) >/dev/null; mke2fs -q -F -t ext3 -E offset=$((101 << 20)) "$1" 80M
"#;

#[test]
fn partitions_that_are_sure_are_not_those_of_a_disk_whose_array_has_them() {
    let Some(images) = Images::new() else { return };
    if !["sfdisk", "mkfs.fat", "mke2fs"].into_iter().all(has) {
        return;
    }
    images.script(DISK, ["image"]);
    let path = images.path("image");
    assert_eq!(seen(&disk(&path)), DiskView::Free);
    // The array is shorter than its disk, so that its GPT ends before its superblock.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len((200 << 20) + (64 << 10)).unwrap();
    let at = (200_u64 << 20) + (56 << 10);
    let mut block = [0; 256];
    block[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    block[92] = 2;
    block[144..152].copy_from_slice(&(at / 512).to_le_bytes());
    file.write_all_at(&block, at).unwrap();
    assert_eq!(seen(&disk(&path)), not_read("Linux RAID", "version 1.0, level 0, 2 disks"));
}
