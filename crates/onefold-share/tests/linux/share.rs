//! Comparing and sharing, cloning, punching.

use std::io::ErrorKind;
use std::path::Path;

use onefold_block::BLOCK_BYTES;
use onefold_linux::LinuxSubstrate;
use onefold_substrate::{Access, At, ComparisonResult, CopyHints, Files, Locks, ShareError, Sharing, SubstrateKind};

use crate::ground::{BTRFS, Ground, K, MIB, Recipe, XFS, on, on_each, random_blocks, soon};

#[test]
fn equal_ranges_share_and_others_do_not() {
    on_each(|ground| {
        let content = random_blocks(1, 16);
        let mut changed = content.clone();
        changed[9 * BLOCK_BYTES + 17] ^= 1;
        let (one, other) = (ground.file("one", &content), ground.file("other", &changed));
        let modified = ground.substrate.stat(&other).unwrap();

        assert_eq!(ground.share((&one, 0), (&other, 0), 16).unwrap(), ComparisonResult::Differ);
        assert_eq!(ground.share((&one, 9), (&other, 9), 1).unwrap(), ComparisonResult::Differ);
        assert_eq!(ground.share((&one, 0), (&other, 1), 4).unwrap(), ComparisonResult::Differ);
        assert!((0..16).all(|block| ground.place_of(&one, block) != ground.place_of(&other, block)));

        assert_eq!(ground.share((&one, 0), (&other, 0), 9).unwrap(), ComparisonResult::Shared);
        assert_eq!(ground.share((&one, 10), (&other, 10), 6).unwrap(), ComparisonResult::Shared);
        assert_eq!(ground.share((&one, 0), (&other, 0), 9).unwrap(), ComparisonResult::Shared, "and again");
        let (map, _) = ground.map(&other);
        assert_eq!(map.iter().filter(|extent| extent.is_shared).map(|extent| extent.length).sum::<u64>(), 15 * K);
        for block in 0..16 {
            let at = |file| {
                let (map, _) = ground.map(file);
                let extent =
                    map.into_iter().find(|extent| (extent.offset..extent.end()).contains(&(block * K))).unwrap();
                extent.place.unwrap() + block * K - extent.offset
            };
            assert_eq!(at(&one) == at(&other), block != 9, "block {block}");
        }
        assert_eq!(ground.substrate.stat(&other).unwrap(), modified, "nobody sees that anything happened");
        assert_eq!(ground.content("one"), content);
        assert_eq!(ground.content("other"), changed);

        // From here on each has its own again.
        ground.substrate.write_at(&one, 2 * K, &[7; 2 * BLOCK_BYTES]).unwrap();
        assert_eq!(ground.content("other"), changed);
    });
}

#[test]
fn sharing_gives_space_back() {
    on_each(|ground| {
        let content = random_blocks(2, 24 << 8);
        let (one, other) = (ground.file("one", &content), ground.file("other", &content));
        let before = ground.settled_room();
        let step = ground.substrate.abilities().share_bytes_max;
        assert_eq!(step, 16 * MIB);
        for start in (0..24 * MIB).step_by(step as usize) {
            let blocks = step.min(24 * MIB - start) / K;
            assert_eq!(ground.share((&one, start / K), (&other, start / K), blocks).unwrap(), ComparisonResult::Shared);
        }
        let freed = ground.settled_room() - before;
        assert!((23 * MIB..=25 * MIB).contains(&freed), "{freed} bytes are free now");
        assert_eq!(ground.content("other"), content);
    });
}

#[test]
fn scattered_blocks_and_blocks_of_one_file_share() {
    on_each(|ground| {
        let content = random_blocks(3, 64);
        let shuffled: Vec<u8> =
            (0..64).flat_map(|block| content[block * 29 % 64 * BLOCK_BYTES..][..BLOCK_BYTES].to_vec()).collect();
        let (one, other) = (ground.file("one", &content), ground.file("other", &shuffled));
        for block in 0..64 {
            assert_eq!(ground.share((&one, block * 29 % 64), (&other, block), 1).unwrap(), ComparisonResult::Shared);
        }
        assert_eq!(ground.content("other"), shuffled);

        let twice = [&content[..], &content].concat();
        let both = ground.file("both", &twice);
        assert_eq!(ground.share((&both, 0), (&both, 64), 64).unwrap(), ComparisonResult::Shared);
        assert_eq!(ground.place_of(&both, 0), ground.place_of(&both, 64));
        assert_eq!(ground.content("both"), twice);
    });
}

#[test]
fn a_hole_as_source_frees_zeros() {
    on_each(|ground| {
        let zeros = vec![0; MIB as usize];
        let (full, hole) = (ground.file("full", &zeros), ground.file("hole", b""));
        ground.substrate.set_len(&hole, MIB).unwrap();
        assert_eq!(ground.share((&hole, 0), (&full, 0), MIB / K).unwrap(), ComparisonResult::Shared);
        assert_eq!(ground.map(&full).0, []);
        assert_eq!(ground.content("full"), zeros);
    });
}

#[test]
fn data_that_is_not_on_the_disk_yet_is_compared_as_it_reads() {
    on_each(|ground| {
        let content = random_blocks(4, 8);
        let (one, other) = (ground.file("one", &content), ground.file("other", &random_blocks(5, 8)));
        ground.substrate.write_at(&other, 0, &content).unwrap();
        assert_eq!(ground.share((&one, 0), (&other, 0), 8).unwrap(), ComparisonResult::Shared);
        ground.substrate.write_at(&one, 0, &[1]).unwrap();
        assert_eq!(ground.share((&one, 0), (&other, 0), 8).unwrap(), ComparisonResult::Differ);
        assert_eq!(ground.content("other"), content);
    });
}

#[test]
fn what_was_cut_off_meanwhile_differs() {
    on_each(|ground| {
        let content = random_blocks(6, 8);
        let (short, long) = (ground.file("short", &content[..6 * BLOCK_BYTES - 5]), ground.file("long", &content));
        assert_eq!(ground.share((&long, 0), (&short, 0), 6).unwrap(), ComparisonResult::Differ);
        assert_eq!(ground.share((&short, 0), (&long, 0), 6).unwrap(), ComparisonResult::Differ);
        assert_eq!(ground.share((&long, 0), (&short, 100), 1).unwrap(), ComparisonResult::Differ);
        assert_eq!(ground.share((&short, 100), (&long, 0), 1).unwrap(), ComparisonResult::Differ);
        assert_eq!(ground.share((&long, 0), (&short, 0), 5).unwrap(), ComparisonResult::Shared);
    });
}

#[test]
fn requests_that_the_kernel_would_get_wrong_are_bugs() {
    on(XFS, |ground| {
        let (one, other) = (ground.file("one", &random_blocks(1, 2)), ground.file("other", &random_blocks(2, 2)));
        let asks = |from, into, length| {
            let (source, into) = (At { file: &one, offset: from }, At { file: &other, offset: into });
            let call = || drop(ground.substrate.share(source, into, length));
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_ok()
        };
        assert!(asks(0, 0, K));
        // The first of these the kernel answers with "same", having compared nothing.
        for (from, into, length) in [
            (0, 0, 100),
            (0, 0, 0),
            (0, 0, K + 1),
            (1, 0, K),
            (0, 512, K),
            (0, 0, 16 * MIB + K),
            (0, 0_u64.wrapping_sub(K), K),
        ] {
            assert!(!asks(from, into, length), "{from} {into} {length}");
        }
    });
}

#[test]
fn clones_replace_what_was_there_and_holes_leave_what_others_hold() {
    on_each(|ground| {
        let (content, old) = (random_blocks(7, 8), random_blocks(8, 8));
        let (image, arena) = (ground.file("image", &content), ground.file("arena", &old));
        let (source, into) = (At { file: &image, offset: 2 * K }, At { file: &arena, offset: 4 * K });
        ground.substrate.clone_range(source, into, 3 * K).unwrap();
        let expected =
            [&old[..4 * BLOCK_BYTES], &content[2 * BLOCK_BYTES..5 * BLOCK_BYTES], &old[7 * BLOCK_BYTES..]].concat();
        assert_eq!(ground.content("arena"), expected);
        let shared = ground.map(&arena).0.iter().find(|extent| extent.offset == 4 * K).copied().unwrap();
        assert!(shared.is_shared);

        ground.substrate.write_at(&image, 2 * K, &[0; 3 * BLOCK_BYTES]).unwrap();
        ground.substrate.sync(&image).unwrap();
        assert_eq!(ground.content("arena"), expected, "the clone keeps its own reference");
        ground.substrate.punch(&arena, 4 * K, 3 * K).unwrap();
        assert_eq!(ground.map(&arena).0.iter().map(|extent| extent.length).sum::<u64>(), 5 * K);
        assert_eq!(ground.substrate.stat(&arena).unwrap().length, 8 * K);
        assert!(ground.content("arena")[4 * BLOCK_BYTES..7 * BLOCK_BYTES].iter().all(|byte| *byte == 0));
    });
}

/// A process whose call hangs in the kernel keeps its files open: it gives up its locks itself.
#[test]
fn all_locks_can_be_given_up_at_once() {
    on_each(|ground| {
        let others = LinuxSubstrate::open(&ground.root, Path::new("")).unwrap();
        let [one, two, free] = ["one", "two", "free"].map(|name| ground.file(name, b""));
        for file in [&one, &two] {
            assert!(ground.substrate.try_lock(file).unwrap());
        }
        let is_free = |name: &str| others.try_lock(&others.open(Path::new(name), Access::Write).unwrap()).unwrap();
        assert!(!is_free("one") && !is_free("two") && is_free("free"));
        let calls = ground.substrate.calls();
        drop(ground.open("free", Access::Read));
        assert!(ground.substrate.calls() > calls);
        drop(two);
        assert_eq!(ground.substrate.give_up_locks(), 1, "one is closed");
        // Other tests start programs, which have all that is open for a moment.
        assert!(is_free("one") && soon(|| is_free("two")));
        drop((one, free));
    });
}

/// How much room a copy on write of one block in each 256 KiB of a shared file takes.
fn taken_by_small_writes(ground: &Ground, name: &str, is_kept_small: bool) -> u64 {
    let content = random_blocks(9, 16 << 8);
    let (one, other) = (ground.file(&format!("{name}.one"), &content), ground.file(&format!("{name}.other"), &content));
    assert_eq!(ground.share((&one, 0), (&other, 0), 16 << 8).unwrap(), ComparisonResult::Shared);
    if is_kept_small {
        assert_eq!(ground.substrate.keep_copies_small(&other).unwrap(), ground.kind() == SubstrateKind::Xfs);
        let changed = ground.substrate.stat(&other).unwrap().changed;
        assert!(!ground.substrate.keep_copies_small(&other).unwrap());
        assert_eq!(ground.substrate.stat(&other).unwrap().changed, changed, "said once, it is not said again");
    }
    let before = ground.settled_room();
    for start in (0..16 * MIB).step_by(256 << 10) {
        ground.substrate.write_at(&other, start, &[1; BLOCK_BYTES]).unwrap();
    }
    ground.substrate.sync(&other).unwrap();
    before - ground.substrate.room().unwrap().free
}

#[test]
fn small_writes_into_shared_blocks_take_little_room_once_told_to() {
    on_each(|ground| {
        let kept = taken_by_small_writes(ground, "kept", true);
        assert!(kept <= 64 * K * 2, "{kept} bytes");
        if ground.kind() == SubstrateKind::Xfs {
            let usual = taken_by_small_writes(ground, "usual", false);
            assert!(usual >= 64 * K * 16, "{usual} bytes: XFS needs not be told any more");
        }
    });
}

#[test]
fn a_full_file_system_says_so_and_keeps_all_bytes() {
    const BLOCKS: u64 = 8 << 8;
    // With one copy of metadata a full Btrfs has no room for any more of it, with two it mostly keeps some.
    let small_btrfs = Recipe { mkfs: &["mkfs.btrfs", "-q", "-m", "single"], device_bytes: 128 * MIB, ..BTRFS };
    for recipe in [XFS, small_btrfs] {
        on(recipe, |ground| {
            let content = random_blocks(10, BLOCKS as usize);
            let (one, other) = (ground.file("one", &content), ground.file("other", &content));
            fill(ground);
            // Single blocks in an order that makes an extent of its own of each.
            let mut refused = 0;
            for block in (0..BLOCKS).map(|index| index * 1021 % BLOCKS) {
                match ground.share((&one, block), (&other, block), 1) {
                    Ok(compared) => assert_eq!(compared, ComparisonResult::Shared, "block {block}"),
                    Err(ShareError::Full) => refused += 1,
                    Err(error) => panic!("block {block}: {error}"),
                }
            }
            assert_eq!(refused > 0, ground.kind() == SubstrateKind::Btrfs, "{refused} refused");
            drop((one, other));
            assert!(ground.content("one") == content && ground.content("other") == content);
        });
    }
}

/// Writes until nothing more can be written.
fn fill(ground: &Ground) {
    let (filler, piece) = (ground.file("filler", b""), vec![0xa5; MIB as usize]);
    let write = |offset| {
        ground.substrate.write_at(&filler, offset, &piece)?;
        ground.substrate.sync(&filler)
    };
    let full = (0..).step_by(MIB as usize).find_map(|offset| write(offset).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
}
