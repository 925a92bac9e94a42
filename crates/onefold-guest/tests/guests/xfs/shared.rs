//! Trees whose branches grow together: each block of them is read once.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_guest::filesystem::{AllocationClass, FileSystem, TableKind};

use super::allocation::map_of;
use super::{empty, prepared, with_xfs};

const BLOCK: u64 = 4096;

/// Returns the checksum of a structure of version 5, whose own field is at byte `at`.
fn checksum(bytes: &[u8], at: usize) -> [u8; 4] {
    let mut sum = !0_u32;
    for (index, byte) in bytes.iter().enumerate() {
        sum ^= u32::from(if (at..at + 4).contains(&index) { 0 } else { *byte });
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    (!sum).to_le_bytes()
}

fn read_at<const LENGTH: usize>(image: &File, place: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    image.read_exact_at(&mut bytes, place).unwrap();
    bytes
}

fn problems(xfs: &dyn FileSystem) -> Vec<&'static str> {
    xfs.damage().first().iter().map(|damage| damage.problem).collect()
}

/// All keys of a block led to the next block below. A walk over eight levels of them never came to an end.
#[test]
fn a_tower_of_owners_is_walked_once() {
    let Some(images) = empty() else { return };
    let script = "export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1; truncate -s 64M image
        mkfs.xfs -q -d agcount=1 -m rmapbt=1 image";
    images.script(&prepared(script), [""; 0]);
    let path = images.path("image");
    let image = File::options().read(true).write(true).open(&path).unwrap();
    let mut header: [u8; 512] = read_at(&image, 512);
    let root = u32::from_be_bytes(header[24..28].try_into().unwrap());
    let tower: u32 = 64 * 256 - 16;
    for level in 0..8_u32 {
        let mut block: [u8; 4096] = read_at(&image, u64::from(root) * BLOCK);
        let number = tower + level;
        block[4..6].copy_from_slice(&u16::try_from(level).unwrap().to_be_bytes());
        block[6..8].copy_from_slice(&if level == 0 { 1_u16 } else { 91 }.to_be_bytes());
        block[16..24].copy_from_slice(&(u64::from(number) * 8).to_be_bytes());
        if level > 0 {
            block[56..56 + 91 * 40].fill(0);
            for child in 0..91 {
                block[56 + 91 * 40 + child * 4..][..4].copy_from_slice(&(number - 1).to_be_bytes());
            }
        }
        let sum = checksum(&block, 52);
        block[52..56].copy_from_slice(&sum);
        image.write_all_at(&block, u64::from(number) * BLOCK).unwrap();
    }
    header[24..28].copy_from_slice(&(tower + 7).to_be_bytes());
    header[36..40].copy_from_slice(&8_u32.to_be_bytes());
    let sum = checksum(&header, 216);
    header[216..220].copy_from_slice(&sum);
    image.write_all_at(&header, 512).unwrap();
    with_xfs(&path, |xfs| {
        let map = map_of(xfs, 64 << 20);
        let found = problems(xfs);
        assert!(found.contains(&"it has a block twice") && !found.contains(&"it has more blocks than there can be"));
        let start = u64::from(tower) * BLOCK;
        let class = map.iter().find(|run| run.start_bytes == start).map(|run| (run.length_bytes, run.class));
        assert_eq!(class, Some((8 * BLOCK, AllocationClass::Table(TableKind::Tree))));
    });
}

/// Makes an image of version 4 with small files `one` and `two`; returns the places of their inodes.
fn two_files(path: &Path) -> [u64; 2] {
    with_xfs(path, |xfs| {
        ["one", "two"].map(|name| {
            let file = xfs.look_up(xfs.root(), name.as_bytes()).unwrap().unwrap();
            file.0 * inode_bytes(path)
        })
    })
}

fn inode_bytes(path: &Path) -> u64 {
    u64::from(u16::from_be_bytes(read_at(&File::open(path).unwrap(), 104)))
}

/// Version 4 notes no owner in the blocks of a map. Thousands of inodes led to one large tree, and each visit kept all
/// of its extents.
#[test]
fn files_of_version_4_that_share_a_map_are_met_once() {
    let Some(images) = empty() else { return };
    let script = r#"export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1; truncate -s 64M image; echo hello > small
        printf '/dev/null\n0 0\nd--755 0 0\none ---644 0 0 small\ntwo ---644 0 0 small\n$\n' > proto
        mkfs.xfs -q -d agcount=1 -m crc=0 -p proto image"#;
    images.script(&prepared(script), [""; 0]);
    let path = images.path("image");
    let before = with_xfs(&path, |xfs| map_of(xfs, 64 << 20));
    assert!(before.iter().any(|run| run.class == AllocationClass::Free));
    let (places, inode_bytes) = (two_files(&path), inode_bytes(&path));
    let image = File::options().read(true).write(true).open(&path).unwrap();
    // A leaf with 40 extents of one block each, which only this tree knows.
    let (leaf, first) = (64 * 256 - 400_u32, 64 * 256 - 300_u64);
    let mut block = vec![0; 4096];
    block[..8].copy_from_slice(b"BMAP\0\0\0\x28");
    block[8..24].fill(0xff);
    for extent in 0..40 {
        let low = (first + extent * 2) << 21 | 1;
        let at = 24 + usize::try_from(extent).unwrap() * 16;
        block[at..at + 8].copy_from_slice(&(extent << 9).to_be_bytes());
        block[at + 8..at + 16].copy_from_slice(&low.to_be_bytes());
    }
    image.write_all_at(&block, u64::from(leaf) * BLOCK).unwrap();
    for place in places {
        image.write_all_at(&[3], place + 5).unwrap();
        image.write_all_at(&400_u64.wrapping_mul(1024).to_be_bytes(), place + 56).unwrap();
        image.write_all_at(&40_u64.to_be_bytes(), place + 64).unwrap();
        image.write_all_at(&40_u32.to_be_bytes(), place + 76).unwrap();
        let mut root = vec![0; usize::try_from(inode_bytes).unwrap() - 100];
        let keys = (root.len() - 4) / 16;
        root[..4].copy_from_slice(&[0, 1, 0, 1]);
        root[4 + keys * 8..][..8].copy_from_slice(&u64::from(leaf).to_be_bytes());
        image.write_all_at(&root, place + 100).unwrap();
    }
    with_xfs(&path, |xfs| {
        let map = map_of(xfs, 64 << 20);
        assert!(problems(xfs).contains(&"two files lead to it"), "{:?}", problems(xfs));
        assert!(map.iter().all(|run| run.class != AllocationClass::Free), "{map:?}");
        let block = map.iter().find(|run| run.end_bytes() > u64::from(leaf) * BLOCK).unwrap();
        assert_eq!(block.class, AllocationClass::Table(TableKind::Tree));
    });
    with_xfs(&path, |xfs| {
        let mut found = 0;
        xfs.each_file(&mut |file, _| {
            found += u32::from(places.contains(&(file.0 * inode_bytes)));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(found, 1, "a pass over all files visits the first of them");
        assert_eq!(problems(xfs), ["two files lead to it"]);
    });
}
