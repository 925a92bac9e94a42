//! Trees whose branches grow together: each block of them is read once.

use std::fs::File;
use std::os::unix::fs::FileExt;

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
