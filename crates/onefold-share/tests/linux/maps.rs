//! Maps of extents.

use onefold_block::BLOCK_BYTES;
use onefold_substrate::{Files, MappedExtent, Sharing, SubstrateKind};
use rustix::fs::FallocateFlags;

use crate::ground::{BTRFS, K, on, on_each, random_blocks, run};

#[test]
fn maps_tell_holes_data_and_what_is_set_aside() {
    on_each(|ground| {
        let file = ground.file("file", &random_blocks(1, 4));
        ground.substrate.set_len(&file, 40 * K).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 16 * K, 8 * K).unwrap();
        // Behind the end.
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 40 * K, 8 * K).unwrap();
        let (map, _) = ground.map(&file);
        let ranges: Vec<_> =
            map.iter().map(|extent| (extent.offset / K, extent.length / K, extent.is_unwritten)).collect();
        assert_eq!(ranges, [(0, 4, false), (16, 8, true)]);
        assert!(map.iter().all(|extent| extent.place.is_some() && !extent.is_shared));

        let within = ground.substrate.extents(&file, 2 * K + 5).unwrap();
        let expected = MappedExtent {
            offset: 2 * K + 5,
            length: 2 * K - 5,
            place: map[0].place.map(|at| at + 2 * K + 5),
            ..map[0]
        };
        assert_eq!(within[0], expected);
        assert_eq!(ground.substrate.extents(&file, 30 * K).unwrap(), []);
        assert_eq!(ground.substrate.extents(&file, 40 * K).unwrap(), []);
        assert_eq!(ground.substrate.extents(&file, u64::MAX).unwrap(), []);
    });
}

#[test]
fn what_is_not_written_back_has_no_place() {
    on_each(|ground| {
        let file = ground.file("file", b"");
        ground.substrate.write_at(&file, 0, &random_blocks(1, 4)).unwrap();
        let (map, _) = ground.map(&file);
        assert_eq!((map.len(), map[0].place, map[0].length), (1, None, 4 * K));
        ground.substrate.sync(&file).unwrap();
        assert!(ground.map(&file).0[0].place.is_some());
    });
}

#[test]
fn what_is_compressed_or_within_metadata_has_no_place() {
    on(BTRFS, |ground| {
        let small = ground.file("small", &[1; 100]);
        assert_eq!(ground.place_of(&small, 0), None);
        assert_eq!(ground.map(&small).0.len(), 1);
        let compressed = ground.file("compressed", b"");
        run("chattr", ["+c", ground.root.join("compressed").to_str().unwrap()]).unwrap();
        ground.substrate.write_at(&compressed, 0, &b"again ".repeat(50_000)).unwrap();
        ground.substrate.sync(&compressed).unwrap();
        let (map, _) = ground.map(&compressed);
        assert!(!map.is_empty() && map.iter().all(|extent| extent.place.is_none()), "{map:?}");
    });
}

#[test]
fn maps_of_many_extents_come_in_pieces() {
    const EXTENTS: u64 = 1500;
    on_each(|ground| {
        let file = ground.file("file", b"");
        for index in 0..EXTENTS {
            ground.substrate.write_at(&file, 2 * index * K, &[5; BLOCK_BYTES]).unwrap();
        }
        ground.substrate.sync(&file).unwrap();
        let (map, calls) = ground.map(&file);
        assert!(calls > 3, "{calls} calls");
        // XFS sets space aside between them as well.
        let written: Vec<_> = map.into_iter().filter(|extent| !extent.is_unwritten).collect();
        let offsets: Vec<_> = written.iter().map(|extent| extent.offset).collect();
        assert!(offsets == (0..EXTENTS).map(|index| 2 * index * K).collect::<Vec<_>>());
        assert!(written.iter().all(|extent| extent.length == K && extent.place.is_some()));
    });
}

#[test]
fn the_last_reference_is_told_on_xfs_block_by_block_and_on_btrfs_by_whole_extents() {
    on_each(|ground| {
        let content = random_blocks(1, 8);
        let (one, other) = (ground.file("one", &content), ground.file("other", &content));
        let _ = ground.share((&one, 2), (&other, 2), 2).unwrap();
        let shared = |file| -> u64 {
            ground.map(file).0.iter().filter(|extent| extent.is_shared).map(|extent| extent.length / K).sum()
        };
        let tells = ground.substrate.abilities().tells_last_reference;
        assert_eq!(tells, ground.kind() == SubstrateKind::Xfs);
        assert_eq!(shared(&one), if tells { 2 } else { 8 });
        assert_eq!(shared(&other), 2);
        ground.substrate.write_at(&other, 2 * K, &random_blocks(2, 2)).unwrap();
        ground.settled_room();
        assert_eq!((shared(&one), shared(&other)), (0, 0));
    });
}
