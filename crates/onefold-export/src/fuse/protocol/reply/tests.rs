use onefold_pool::{Dedup, FileKind, Ino, SpaceShown};

use super::*;

fn attr() -> Attr {
    let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    Attr {
        ino: Ino(77),
        kind: FileKind::BlockDevice,
        mode: 0o1640,
        link_count: 3,
        uid: 1,
        gid: 2,
        rdev: u32::try_from(libc::makedev(4095, 1_048_575)).unwrap(),
        size_bytes: 1 << 40,
        mapped_blocks: 5,
        accessed: at(i64::MIN, 2),
        modified: at(-1, 999_999_999),
        changed: at(i64::MAX, 5),
        created: at(6, 7),
        domain: 0,
        dedup: Dedup::On,
        space_shown: SpaceShown::ByDoor,
    }
}

fn i64_at(bytes: &[u8], place: usize) -> i64 {
    i64::from_ne_bytes(bytes[place..place + 8].try_into().unwrap())
}

fn u32_at(bytes: &[u8], place: usize) -> u32 {
    u32::from_ne_bytes(bytes[place..place + 4].try_into().unwrap())
}

#[test]
fn replies_have_the_lengths_that_the_kernel_expects() {
    let attr = attr();
    assert_eq!(entry(&attr, StBlocks::Mapped).len(), 128);
    assert_eq!(encode_attributes(&attr, StBlocks::Mapped).len(), 16 + 88);
    assert_eq!(created(&attr, StBlocks::Mapped, 1, 0).len(), 128 + 16);
    assert_eq!(statx(&attr, StBlocks::Mapped).len(), 32 + 256);
    assert_eq!(
        statfs(&FsStat { blocks: 1, blocks_fixed: 1, blocks_free: 1, blocks_available: 1, inodes: 1, inodes_free: 1 })
            .len(),
        80
    );
    assert_eq!(notify_inode(5, &InvalidationReach::Everything).len(), 40);
    assert_eq!(notify_inode(5, &InvalidationReach::Attributes)[24..], [[0xff; 8], [0; 8]].concat());
    let range = notify_inode(5, &InvalidationReach::Range(8192..12288));
    assert_eq!(range[24..32], 8192i64.to_ne_bytes());
    assert_eq!(range[32..], 4096i64.to_ne_bytes());
    // The kernel reads a length of zero as "up to the end", and accepts no larger values than these for either number.
    let end = notify_inode(5, &InvalidationReach::Range(u64::MAX - 1..u64::MAX));
    assert_eq!((&end[24..32], &end[32..]), (&i64::MAX.to_ne_bytes()[..], &1i64.to_ne_bytes()[..]));
}

#[test]
fn attributes_and_times_of_any_age_are_where_the_kernel_looks() {
    let bytes = encode_attributes(&attr(), StBlocks::Mapped);
    let attributes = &bytes[16..];
    assert_eq!(i64_at(attributes, 0), 77);
    assert_eq!((i64_at(attributes, 24), i64_at(attributes, 32), i64_at(attributes, 40)), (i64::MIN, -1, i64::MAX));
    assert_eq!((u32_at(attributes, 48), u32_at(attributes, 52), u32_at(attributes, 56)), (2, 999_999_999, 5));
    assert_eq!(u32_at(attributes, 60), libc::S_IFBLK | 0o1640);
}

#[test]
fn statx_tells_the_creation_and_both_parts_of_a_device_number() {
    let bytes = statx(&attr(), StBlocks::Mapped);
    let statx = &bytes[32..];
    assert_ne!(u32_at(statx, 0) & libc::STATX_BTIME, 0);
    assert_eq!((i64_at(statx, 80), u32_at(statx, 88)), (6, 7), "creation");
    assert_eq!((u32_at(statx, 128), u32_at(statx, 132)), (4095, 1_048_575));
}

#[test]
fn a_listing_holds_whole_entries_only() {
    let named = |name: &[u8]| DirEntry { ino: Ino(9), kind: FileKind::Fifo, name: name.to_vec(), cookie: 3 };
    let mut reply = DirectoryReply::new(72);
    assert!(reply.add(&named(b"12345678"), None), "32 bytes");
    assert!(reply.add(&named(b"123456789"), None), "and 40");
    assert!(!reply.add(&named(b""), None));
    let bytes = reply.into_bytes();
    assert_eq!(bytes.len(), 72);
    assert_eq!((i64_at(&bytes, 8), u32_at(&bytes, 16), u32_at(&bytes, 20)), (3, 8, 1));
    let mut plus = DirectoryReply::new(128 + 24 + 7);
    assert!(!plus.add(&named(b"a"), Some((&attr(), StBlocks::Mapped))));
    assert!(plus.into_bytes().is_empty());
}

#[test]
fn an_error_is_a_negative_number_in_the_header() {
    let header = reply_header(9, libc::ENOENT, 0);
    assert_eq!((u32_at(&header, 0), u32_at(&header, 4).cast_signed(), i64_at(&header, 8)), (16, -libc::ENOENT, 9));
}
