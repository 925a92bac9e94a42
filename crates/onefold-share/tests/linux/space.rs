//! Whether room really comes free, and stays free.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::PoisonError;

use onefold_block::BLOCK_BYTES;
use onefold_block::clock::SystemClock;
use onefold_block::random::SeededRandom;
use onefold_share::pass::{PassReport, ShareReport, SpaceOptions};
use onefold_share::state::State;
use onefold_share::state::locks::Subject;
use onefold_substrate::{Access, CopyHints, Files, Names, Sharing, SubstrateKind, WholeExtents};

use crate::ground::{BTRFS, Ground, K, MIB, Recipe, STARTING, XFS, on, on_each, random_blocks, run as run_program};
use crate::pass::{RunSettings, USUAL, run, shuffled, try_run};

const MANY_BLOCKS: usize = 6 << 8;

/// Enough for images of which a part is copied.
const LARGE_BTRFS: Recipe = Recipe { device_bytes: 640 * MIB, ..BTRFS };

/// Shares, and returns what came of it, and by how much the free room grew.
fn rewriting_among(ground: &Ground, percent: u32, between: &dyn Fn()) -> (ShareReport, u64) {
    let before = ground.settled_room();
    let how = RunSettings { space: SpaceOptions { rewrite_percent: percent, ..USUAL.space }, ..USUAL };
    let shared = try_run(&ground.substrate, how, between).unwrap().passed.shared;
    (shared, ground.settled_room().saturating_sub(before))
}

fn rewriting(ground: &Ground, percent: u32) -> (ShareReport, u64) {
    rewriting_among(ground, percent, &|| {})
}

/// Returns an image of which one block in `unique` is its own, and the others those of `common`, in this order.
fn mixed(common: &[u8], unique: usize, seed: u64) -> Vec<u8> {
    let own = random_blocks(seed, common.len() / BLOCK_BYTES);
    let blocks = common.chunks(BLOCK_BYTES).zip(own.chunks(BLOCK_BYTES)).enumerate();
    blocks.flat_map(|(at, (common, own))| if at % unique == unique / 2 { own } else { common }).copied().collect()
}

/// An image shares nine of ten of its blocks. The tenth pins all of its extents: nothing came free.
#[test]
fn what_pins_an_extent_is_moved_away() {
    let common = random_blocks(1, MANY_BLOCKS);
    let tenth = MANY_BLOCKS / 10;
    for (name, other) in [
        ("shuffled", mixed(&shuffled(&common, 2), 10, 3)),
        ("in runs", mixed(&common, 10, 4)),
        ("apart", [&random_blocks(5, tenth), &common[tenth * BLOCK_BYTES..]].concat()),
    ] {
        on(LARGE_BTRFS, |ground| {
            ground.file("a", &common);
            ground.file("b", &other);
            std::fs::create_dir(ground.root.join("left")).unwrap();
            // The same once more, of other contents: equal blocks would be shared across.
            let [a, b] = [&common, &other].map(|bytes| bytes.iter().map(|byte| byte ^ 0x5a).collect::<Vec<u8>>());
            let (left, gained) = rewriting(ground, 0);
            assert_eq!((left.freed, left.rewritten, left.pinned), (0, 0, left.now), "{name}: {left:?}");
            assert!(gained < MIB, "{name}: {gained} came free, and a pass need not do anything any more");

            ground.file("left/a", &a);
            ground.file("left/b", &b);
            let (found, gained) = rewriting(ground, 50);
            assert_eq!((found.now, found.pinned, found.untold), (left.now, 0, 0), "{name}: {found:?}");
            assert!(found.freed.abs_diff(found.now) <= K, "{name}: {found:?}");
            assert!(found.rewritten <= 2 * tenth as u64 * K, "{name}: {found:?}");
            assert!(gained * 100 > found.now * 93, "{name}: {gained} of {found:?}");
            for (name, content) in [("a", &common), ("b", &other), ("left/a", &a), ("left/b", &b)] {
                assert!(ground.content(name) == *content, "{name}");
            }
            let (again, _) = rewriting(ground, 50);
            assert_eq!((again.now, again.rewritten), (0, 0), "{again:?}");
        });
    }
}

/// What is left of an extent is referred to by the arena and by another image, too: all of them are moved, and still
/// share.
#[test]
fn blocks_that_others_share_are_moved_with_all_who_do() {
    on(LARGE_BTRFS, |ground| {
        let quarter = MANY_BLOCKS / 4;
        let [common, more, own, last] = [(1, quarter), (2, quarter), (3, quarter), (4, quarter / 2)]
            .map(|(seed, blocks)| random_blocks(seed, blocks));
        let first = random_blocks(10, 2 * quarter);
        // Half of b's blocks are a's, a quarter is c's, too, and comes into the arena from b.
        let contents = [
            ("a", [&first[..], &common].concat()),
            ("b", [&first[..], &more, &own].concat()),
            ("c", [&more[..], &last].concat()),
        ];
        for (name, content) in &contents {
            ground.file(name, content);
        }
        let (found, gained) = rewriting(ground, 60);
        assert_eq!(found.now, 3 * quarter as u64 * K, "{found:?}");
        assert!(found.rewritten >= 2 * quarter as u64 * K, "{found:?}");
        assert!(found.pinned == 0 && gained * 100 > found.now * 93, "{gained} of {found:?}");
        let [b, c] = ["b", "c"].map(|name| ground.open(name, Access::Read));
        for block in 0..quarter as u64 {
            let places = (ground.offset_of(&b, 2 * quarter as u64 + block), ground.offset_of(&c, block));
            assert!(places.0.is_some() && places.0 == places.1, "block {block}: {places:?}");
        }
        for (name, content) in &contents {
            assert!(ground.content(name) == *content, "{name}");
        }
        // A fourth finds them.
        ground.file("d", &contents[1].1);
        let (found, _) = rewriting(ground, 60);
        assert_eq!(found.now, 4 * quarter as u64 * K, "{found:?}");
    });
}

/// Nothing is copied in vain: where a snapshot, or an image that somebody else has, keeps the extent, or too much of it
/// is in use.
#[test]
fn extents_that_would_stay_are_left_as_they_are() {
    on(LARGE_BTRFS, |ground| {
        let common = random_blocks(1, MANY_BLOCKS);
        let content = mixed(&common, 10, 2);
        run_program("btrfs", ["subvolume", "create", &path_of(ground, "sub")]).unwrap();
        ground.file("sub/b", &content);
        std::fs::create_dir(ground.root.join("out")).unwrap();
        ground.substrate.set_attribute(Path::new("out"), "user.onefold.share", Some(b"off")).unwrap();
        let (sub, kept) = (path_of(ground, "sub"), path_of(ground, "out/kept"));
        run_program("btrfs", ["subvolume", "snapshot", "-r", &sub, &kept]).unwrap();
        ground.file("a", &common);
        let (found, _) = rewriting(ground, 50);
        assert_eq!((found.rewritten, found.freed, found.pinned), (0, 0, found.now), "{found:?}");
        assert!(found.now > 0 && ground.content("sub/b") == content && ground.content("out/kept/b") == content);
    });
    on(LARGE_BTRFS, |ground| {
        let common = random_blocks(3, MANY_BLOCKS);
        ground.file("a", &common);
        // Every second block is its own.
        ground.file("b", &mixed(&common, 2, 4));
        let (found, _) = rewriting(ground, 40);
        assert_eq!((found.rewritten, found.freed, found.pinned), (0, 0, found.now), "{found:?}");
    });
    on(LARGE_BTRFS, |ground| {
        let common = random_blocks(5, MANY_BLOCKS);
        let content = mixed(&common, 10, 6);
        ground.file("b", &content);
        ground.settled_room();
        let door = onefold_linux::LinuxSubstrate::open(&ground.root, Path::new("")).unwrap();
        let state = State::open(&door, &SystemClock, &onefold_block::random::SystemRandom, &|_| {}).unwrap();
        rewriting(ground, 50);
        // Somebody shares with its blocks by hand, and has it from then on.
        let clone = ground.root.join("clone");
        run_program("cp", ["--reflink=always", &path_of(ground, "b"), clone.to_str().unwrap()]).unwrap();
        let file = door.open(Path::new("clone"), Access::Read).unwrap();
        let held = state.try_lock(&Subject::File(door.stat(&file).unwrap().handle)).unwrap().unwrap();
        ground.file("a", &common);
        let (found, _) = rewriting(ground, 50);
        assert_eq!((found.rewritten, found.freed, found.pinned), (0, 0, found.now), "{found:?}");
        assert!(found.now > 0 && ground.content("b") == content && ground.content("clone") == content);
        drop(held);
    });
}

fn path_of(ground: &Ground, name: &str) -> String {
    ground.root.join(name).to_str().unwrap().to_owned()
}

/// A read-only snapshot that is an image like the others goes along.
#[test]
fn snapshots_are_moved_with_what_they_are_of() {
    on(LARGE_BTRFS, |ground| {
        let common = random_blocks(1, MANY_BLOCKS);
        let content = mixed(&common, 10, 2);
        run_program("btrfs", ["subvolume", "create", &path_of(ground, "sub")]).unwrap();
        ground.file("sub/b", &content);
        let (sub, kept) = (path_of(ground, "sub"), path_of(ground, "kept"));
        run_program("btrfs", ["subvolume", "snapshot", "-r", &sub, &kept]).unwrap();
        ground.file("a", &common);
        let (found, gained) = rewriting(ground, 50);
        let shared_once = (MANY_BLOCKS * 9 / 10) as u64 * K;
        assert!(found.pinned == 0 && found.freed.abs_diff(shared_once) < MIB, "{found:?}");
        assert!(gained * 100 > shared_once * 93, "{gained} of {found:?}");
        assert!(ground.content("sub/b") == content && ground.content("kept/b") == content);
    });
}

/// A guest writes to an image while what pins its extents is moved.
#[test]
fn guests_write_while_extents_are_moved() {
    on(LARGE_BTRFS, |ground| {
        let common = random_blocks(1, MANY_BLOCKS);
        let mut expected = mixed(&common, 10, 2);
        ground.file("a", &common);
        ground.file("b", &expected);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            let guest = scope.spawn(|| {
                let file = OpenOptions::new().write(true).open(ground.root.join("b")).unwrap();
                let (random, mut written) = (SeededRandom::new(3), Vec::new());
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let (block, content) = (random.below(MANY_BLOCKS as u64), random_blocks(random.below(50), 1));
                    file.write_all_at(&content, block * K).unwrap();
                    written.push((block, content));
                }
                written
            });
            let ends = crate::others::StopGuard(&is_over);
            for _ in 0..3 {
                rewriting(ground, 90);
            }
            drop(ends);
            guest.join().unwrap()
        });
        assert!(written.len() > 100, "{} writes", written.len());
        for (block, content) in written {
            expected[block as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&content);
        }
        assert!(ground.content("a") == common && ground.content("b") == expected);
    });
}

/// Small writes into shared blocks took sixteen times their room, and the next scan is not to read for what was done
/// about it.
#[test]
fn files_that_share_are_copied_from_in_small_pieces() {
    on_each(|ground| {
        let content = random_blocks(1, 16 << 8);
        for name in ["a", "b", "told"] {
            ground.file(name, &content);
        }
        let told = path_of(ground, "told");
        if ground.kind() == SubstrateKind::Xfs {
            run_program("xfs_io", ["-c", "cowextsize 65536", &told]).unwrap();
        }
        ground.settled_room();
        assert_eq!(run(ground).passed.shared.now, 2 * (16 << 8) * K);
        let again = run(ground);
        assert_eq!((again.scanned.read_bytes, again.scanned.unchanged), (0, 3), "{again:?}");
        let file = OpenOptions::new().write(true).open(ground.root.join("a")).unwrap();
        let before = ground.settled_room();
        for start in (0..16 * MIB).step_by(256 << 10) {
            file.write_all_at(&[1; BLOCK_BYTES], start).unwrap();
        }
        file.sync_all().unwrap();
        let taken = before.saturating_sub(ground.substrate.room().unwrap().free);
        assert!(taken <= 64 * K * 4, "{taken} bytes");
        // What somebody had set is as it was.
        if ground.kind() == SubstrateKind::Xfs {
            let starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
            let output = std::process::Command::new("xfs_io").args(["-c", "cowextsize", &told]).output().unwrap();
            drop(starting);
            assert!(String::from_utf8_lossy(&output.stdout).contains("[65536]"), "{output:?}");
        }
    });
    on(XFS, |ground| {
        let content = random_blocks(2, 64);
        ground.file("a", &content);
        ground.file("b", &content);
        let space = SpaceOptions { keeps_copies_small: false, ..USUAL.space };
        try_run(&ground.substrate, RunSettings { space, ..USUAL }, &|| {}).unwrap();
        let file = ground.open("a", Access::Read);
        assert!(ground.substrate.keep_copies_small(&file).unwrap(), "nobody did so");
    });
}

/// Fills a file system until so little is left for its own records that a pass leaves it alone.
fn use_up_records(ground: &Ground) {
    std::fs::create_dir(ground.root.join("small")).unwrap();
    // None of these is an image.
    ground.substrate.set_attribute(Path::new("small"), "user.onefold.share", Some(b"off")).unwrap();
    let left = || {
        rustix::fs::syncfs(std::fs::File::open(&ground.root).unwrap()).unwrap();
        ground.substrate.room_for_records().unwrap()
    };
    let is_btrfs = ground.kind() == SubstrateKind::Btrfs;
    let goes_on = || if is_btrfs { ground.substrate.room().unwrap().free > 20 * MIB } else { left() > 7 * MIB / 2 };
    for number in 0.. {
        // On Btrfs until nothing can become room for records that is not.
        if !goes_on() {
            break;
        }
        // Each by itself: XFS sets aside for a long one what may be appended, and takes it back later.
        std::fs::write(ground.root.join(format!("small/filler-{number}")), random_blocks(number, 256)).unwrap();
        if number.is_multiple_of(16) {
            left();
        }
    }
    // Files so small that they lie among the records of Btrfs.
    for number in (0..).take_while(|number| number % 512 > 0 || left() > 7 * MIB / 2) {
        std::fs::write(ground.root.join(format!("small/{number}")), &random_blocks(number, 1)[..1900]).unwrap();
    }
}

/// Before the file system is full a pass ends, and says how much is left; guests go on writing.
#[test]
fn a_pass_ends_before_room_for_records_does() {
    on_each(|ground| {
        let content = random_blocks(1, 8 << 8);
        let mut guest_content = shuffled(&content, 2);
        ground.file("a", &content);
        ground.file("guest", &guest_content);
        use_up_records(ground);
        let guest = OpenOptions::new().write(true).open(ground.root.join("guest")).unwrap();
        let left = ground.substrate.room_for_records().unwrap();
        assert!(left < 4 * MIB, "{left} bytes on {}", ground.kind());
        let PassReport { trouble, shared, .. } = run(ground).passed;
        assert!(trouble.is_full && trouble.records_left.is_some_and(|left| left < 4 * MIB), "{trouble:?}");
        assert_eq!(shared.now, 0, "{shared:?}");
        for block in (0..200).map(|block| block * 7) {
            let written = random_blocks(block as u64, 1);
            guest.write_all_at(&written, block as u64 * K).unwrap();
            guest_content[block * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&written);
        }
        guest.sync_all().unwrap();
        assert!(ground.content("a") == content && ground.content("guest") == guest_content);
        std::fs::remove_dir_all(ground.root.join("small")).unwrap();
        ground.settled_room();
        let found = run(ground).passed;
        assert_eq!(found.shared.now, ((8 << 8) - 200) * K, "{found:?}");
        assert!(found.trouble.records_left.is_none());
        assert!(ground.content("a") == content && ground.content("guest") == guest_content);
    });
}
