//! Names and inodes that contradict each other: found, named, and repaired.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_pool::check::repair;
use onefold_pool::format::header::BlockKind;
use onefold_pool::{FileKind, Ino, NoProgress};
use onefold_testing::device::MemoryDevice;

use super::common::*;

const INODE: u8 = 1;
const DIR_ENTRY: u8 = 2;
const XATTR: u8 = 3;
const SYMLINK: u8 = 4;

/// Changes the value of the first item of inode `ino` and `kind` for which `pick` is true.
pub(crate) fn change(device: &MemoryDevice, ino: u64, kind: u8, pick: impl Fn(&[u8]) -> bool, how: impl Fn(&mut [u8])) {
    let mut start = ino.to_be_bytes().to_vec();
    start.push(kind);
    for (at, page) in blocks_of_kind(&device.image(), BlockKind::TreePage) {
        let count = usize::from(u16::from_le_bytes([page[18], page[19]]));
        if page[16] != 0 {
            continue;
        }
        for slot in 0..count {
            let cell = usize::from(u16::from_le_bytes([page[24 + slot * 2], page[25 + slot * 2]]));
            if page[cell..cell + 9] != start[..] {
                continue;
            }
            let length = usize::from(u16::from_le_bytes([page[cell + 17], page[cell + 18]]));
            if pick(&page[cell + 19..cell + 19 + length]) {
                reseal(device, at, |bytes| how(&mut bytes[cell + 19..cell + 19 + length]));
                return;
            }
        }
    }
    panic!("no such item");
}

fn any(_: &[u8]) -> bool {
    true
}

/// Inodes of the sample.
const IMAGES: u64 = 2;
const GOLDEN: u64 = 3;
const SMALL: u64 = 5;
const LINK: u64 = 6;

/// A way to damage the sample, the structure and words of the report, and the named file.
type Damage = (fn(&MemoryDevice), &'static str, &'static str, &'static str);

fn damages() -> Vec<Damage> {
    vec![
        (|d| change(d, SMALL, INODE, any, |v| v[4] = 7), "inode", "link count 7, expected 1", "/small"),
        (|d| change(d, IMAGES, INODE, any, |v| v[4] = 9), "inode", "link count 9, expected 2", "/images"),
        (|d| change(d, SMALL, INODE, any, |v| v[4] = 0), "orphan list", "never freed", "/small"),
        (|d| change(d, SMALL, INODE, any, |v| v[0] = 99), "inode", "makes no sense", "/small"),
        (|d| change(d, IMAGES, INODE, any, |v| v[0] = 99), "inode", "makes no sense", "/images"),
        (|d| change(d, SMALL, INODE, any, |v| v[32] = 5), "inode", "expected 3 and 0 by its map", "/small"),
        (|d| change(d, SMALL, INODE, any, |v| v[128 + 8 + 5] = 0xff), "file map", "an impossible place", "/small"),
        (|d| change(d, SMALL, INODE, any, |v| v[24..26].fill(0)), "file map", "past its end", "/small"),
        (|d| change(d, IMAGES, INODE, any, |v| v[24] = 5), "directory", "2 entries, its inode says 5", "/images"),
        (|d| change(d, IMAGES, INODE, any, |v| v[48] = IMAGES as u8), "directory", "below itself", "/images"),
        (
            |d| change(d, GOLDEN, INODE, any, |v| v[56..62].fill(0x77)),
            "file map",
            "an impossible place",
            "/images/golden.raw",
        ),
        (|d| change(d, 1, DIR_ENTRY, |v| v.ends_with(b"small"), |v| v[0] = 77), "directory", "does not exist", "/"),
        (|d| change(d, 1, DIR_ENTRY, |v| v.ends_with(b"small"), |v| v[8] = 2), "directory", "but its entry", "/small"),
        (|d| change(d, 1, DIR_ENTRY, |v| v.ends_with(b"small"), |v| v[8] = 77), "directory", "makes no sense", "/"),
        (|d| change(d, 1, DIR_ENTRY, |v| v.ends_with(b"small"), |v| v[9] = b'/'), "directory", "impossible name", "/"),
        (
            |d| change(d, 1, DIR_ENTRY, |v| v.ends_with(b"small"), |v| v[9] = b't'),
            "directory",
            "no look-up finds it",
            "/",
        ),
        (|d| change(d, SMALL, XATTR, |v| v[5..].starts_with(b"user.note"), |v| v[1] = 1), "attribute", "", "/small"),
        (
            |d| change(d, SMALL, XATTR, |v| v[5..].starts_with(b"user.note"), |v| v[7] = b'x'),
            "attribute",
            "no look-up finds it",
            "/small",
        ),
        (|d| change(d, LINK, INODE, any, |v| v[24] ^= 1), "symbolic link", "2500 bytes", "/link"),
        (|d| change(d, LINK, INODE, any, |v| v[0] = 4), "symbolic link", "not a symbolic link", "/link"),
        (|d| change(d, LINK, SYMLINK, any, |_| ()), "", "", ""),
    ]
}

#[test]
fn contradictions_of_names_and_inodes_are_told_with_their_files() {
    for (number, (damage, structure, what, file)) in damages().into_iter().enumerate() {
        let device = sample();
        damage(&device);
        let report = checked(&device);
        if structure.is_empty() {
            assert!(report.is_clean());
            continue;
        }
        let found = report.problems.iter().any(|problem| {
            problem.structure == structure && problem.what.contains(what) && problem.files.contains(&file.to_owned())
        });
        assert!(found, "damage {number}: no {structure:?} that says {what:?} of {file:?}: {report:#?}");
    }
}

#[test]
fn contradictions_of_names_and_inodes_are_mended() {
    for (number, (damage, structure, _, _)) in damages().into_iter().enumerate() {
        let device = sample();
        damage(&device);
        let seam: Arc<dyn BlockDevice> = device.clone();
        let report = repair(&seam, &options(), &environment(), &NoProgress).unwrap();
        assert_eq!(report.is_clean(), structure.is_empty(), "damage {number}");
        let left = checked(&device);
        assert!(left.is_clean(), "damage {number}: {left:#?}");
        let pool = open(&device);
        assert_eq!(pool.lookup(Ino::ROOT, b"images").is_ok(), number != 4, "damage {number}");
        make(&pool, Ino::ROOT, b"new", FileKind::Regular);
        pool.close().unwrap();
        assert_clean(&device);
    }
}

#[test]
fn what_no_directory_leads_to_is_found_again() {
    let device = sample();
    change(&device, IMAGES, INODE, any, |value| value[0] = 99);
    let seam: Arc<dyn BlockDevice> = device.clone();
    repair(&seam, &options(), &environment(), &NoProgress).unwrap();
    let pool = open(&device);
    let home = pool.lookup(Ino::ROOT, b"lost+found").unwrap().ino;
    let golden = pool.lookup(home, b"inode-3").unwrap();
    let mut bytes = vec![0; 2_100_000];
    assert_eq!(pool.read(golden.ino, 0, &mut bytes).unwrap(), bytes.len());
    assert!(bytes == noise(1, 2_100_000));
}

#[test]
fn directories_that_lie_in_each_other_are_told_and_found_again() {
    let device = new_pool(8192);
    let pool = open(&device);
    let outer = make(&pool, Ino::ROOT, b"outer", FileKind::Directory);
    let inner = make(&pool, outer, b"inner", FileKind::Directory);
    make(&pool, inner, b"entry", FileKind::Directory);
    make(&pool, Ino::ROOT, b"other", FileKind::Directory);
    pool.close().unwrap();
    forget_log(&device);
    // The entry leads back up, and the root's entry leads to the directory that was below.
    change(&device, inner.0, DIR_ENTRY, any, |value| value[0] = outer.0 as u8);
    change(&device, 1, DIR_ENTRY, |value| value.ends_with(b"outer"), |value| value[0] = inner.0 as u8 + 1);
    change(&device, outer.0, INODE, any, |value| value[48] = inner.0 as u8);
    change(&device, inner.0 + 1, INODE, any, |value| value[48] = 1);
    let report = checked(&device);
    let loops: Vec<_> = report.problems.iter().filter(|problem| problem.what.contains("below itself")).collect();
    assert_eq!((loops.len(), report.problems_total), (2, 2), "{report:#?}");
    let seam: Arc<dyn BlockDevice> = device.clone();
    repair(&seam, &options(), &environment(), &NoProgress).unwrap();
    assert_clean(&device);
    let pool = open(&device);
    let home = pool.lookup(Ino::ROOT, b"lost+found").unwrap().ino;
    let outer_again = pool.lookup(home, b"inode-2").unwrap().ino;
    assert_eq!(pool.lookup(outer_again, b"inner").unwrap().ino, inner);
}
