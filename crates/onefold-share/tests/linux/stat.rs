//! What files are, and room.

use std::collections::HashSet;
use std::path::Path;

use onefold_substrate::{Access, ComparisonResult, FileHandle, Files, Names, Sharing};

use crate::ground::{BTRFS, Ground, K, MIB, on, on_each, random_blocks, run};

fn handle(ground: &Ground, name: &str) -> FileHandle {
    ground.substrate.stat(&ground.open(name, Access::Read)).unwrap().handle
}

#[test]
fn handles_stay_with_the_file_and_are_never_given_again() {
    on_each(|ground| {
        drop(ground.file("file", b"1"));
        let first = handle(ground, "file");
        ground.substrate.rename(Path::new("file"), Path::new("renamed")).unwrap();
        ground.substrate.link(Path::new("renamed"), Path::new("second")).unwrap();
        assert_eq!(handle(ground, "renamed"), first);
        assert_eq!(handle(ground, "second"), first);
        assert!(first.as_bytes().len() > 8 && first.as_bytes().len() <= FileHandle::BYTES_MAX);
        // Inode numbers are given again soon, at least by XFS.
        let mut seen = HashSet::from([first]);
        for _ in 0..200 {
            drop(ground.file("brief", b"2"));
            assert!(seen.insert(handle(ground, "brief")));
            ground.substrate.remove(Path::new("brief")).unwrap();
        }
    });
}

#[test]
fn a_file_in_a_snapshot_is_another_file() {
    on(BTRFS, |ground| {
        let at = |name: &str| ground.root.join(name).to_str().unwrap().to_owned();
        run("btrfs", ["subvolume", "create", &at("sub")]).unwrap();
        drop(ground.file("sub/file", b"1"));
        run("btrfs", ["subvolume", "snapshot", &at("sub"), &at("snapshot")]).unwrap();
        assert_ne!(handle(ground, "sub/file"), handle(ground, "snapshot/file"));
    });
}

#[test]
fn times_tell_writes_and_not_sharing() {
    on_each(|ground| {
        let content = random_blocks(1, 256);
        let (one, other) = (ground.file("one", &content), ground.file("other", &content));
        let before = ground.substrate.stat(&other).unwrap();
        assert_eq!(before.length, MIB);
        assert_eq!(before.allocated, MIB);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(ground.share((&one, 0), (&other, 0), 256).unwrap(), ComparisonResult::Shared);
        assert_eq!(ground.substrate.stat(&other).unwrap(), before);
        ground.substrate.write_at(&other, MIB, &[1]).unwrap();
        let after = ground.substrate.stat(&other).unwrap();
        assert!(after.modified > before.modified && after.changed > before.changed);
        assert_eq!((after.length, after.handle), (MIB + 1, before.handle));
    });
}

#[test]
fn room_shrinks_by_what_is_written() {
    on_each(|ground| {
        let before = ground.settled_room();
        let room = ground.substrate.room().unwrap();
        assert!(room.free < room.total && (200 * MIB..=320 * MIB).contains(&room.total), "{room:?}");
        drop(ground.file("file", &random_blocks(1, 32 << 8)));
        let taken = before - ground.settled_room();
        assert!((32 * MIB..34 * MIB).contains(&taken), "{taken} bytes");
        assert_eq!(ground.substrate.abilities().block_bytes as u64, K);
    });
}
