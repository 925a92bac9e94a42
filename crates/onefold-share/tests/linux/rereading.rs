//! What is read again of an image that changes, on real file systems.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use onefold_block::BLOCK_BYTES;
use onefold_block::clock::SystemClock;
use onefold_block::random::{SeededRandom, SystemRandom};
use onefold_share::clone::{CloneOptions, ExistingFilePolicy, clone};
use onefold_share::pace::Pace;
use onefold_share::pass::{PassOptions, PassReport, pass};
use onefold_share::scan::{RereadPolicy, ScanOptions, ScanReport, Turn, scan};
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_substrate::{FileStat, Sharing, SubstrateKind};

use crate::ground::{BTRFS, Ground, K, XFS, no_child, on, on_each, random_blocks};

/// Longer than what is kept in memory or read whole without a second thought, and short enough for a test.
const IMAGE_BLOCKS: usize = 64 << 8;
const WRITES: u64 = 20;

fn scanned(ground: &Ground, turn: Turn) -> ScanReport {
    let _no_child = no_child();
    let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &|_| {}).unwrap();
    let (pace, turn_of) = (Pace::unlimited(), |_: &FileStat| turn);
    let rereading = RereadPolicy { turn: &turn_of, ..RereadPolicy::default() };
    let options = ScanOptions { threads: 1, rereading, ..ScanOptions::new(&pace) };
    scan(&state, &mut Marks::load(&state).unwrap(), &options).unwrap()
}

fn passed(ground: &Ground) -> PassReport {
    let _no_child = no_child();
    let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &|_| {}).unwrap();
    let pace = Pace::unlimited();
    let options = PassOptions { threads: 2, ..PassOptions::new(Path::new("/var/tmp"), &pace, &SystemClock) };
    pass(&state, &mut Marks::load(&state).unwrap(), &options).unwrap()
}

/// Writes single blocks of a content at random places of an image, as its guest does.
fn write_blocks(ground: &Ground, name: &str, content: &[u8], seed: u64) {
    let file = std::fs::File::options().write(true).open(ground.root.join(name)).unwrap();
    let random = SeededRandom::new(seed);
    for block in content.chunks(BLOCK_BYTES) {
        file.write_all_at(block, random.below(IMAGE_BLOCKS as u64) * K).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    // The next change gets another time.
    std::thread::sleep(Duration::from_millis(50));
}

/// Reads all images and shares; the first reading of a file that was just written is followed by another one.
fn settled(ground: &Ground) {
    std::thread::sleep(Duration::from_millis(50));
    scanned(ground, Turn::Whole);
    passed(ground);
    // What a pass has set about files is no change of theirs.
    assert_eq!(scanned(ground, Turn::Within(0)).read_bytes, 0);
}

/// Twenty writes of 4 KiB had the whole image read, in each round.
#[test]
fn a_few_writes_into_an_image_have_few_blocks_read() {
    on_each(|ground| {
        ground.file("image", &random_blocks(1, IMAGE_BLOCKS));
        ground.file("other", &random_blocks(2, WRITES as usize));
        settled(ground);
        let mut read = 0;
        for round in 0..3 {
            write_blocks(ground, "image", &random_blocks(2, WRITES as usize), 100 + round);
            let found = scanned(ground, Turn::Within(WRITES * K));
            assert!(found.read_bytes <= 2 * WRITES * K + 8 * K, "{found:?}");
            read += found.read_bytes;
            let shared = passed(ground).shared.now;
            if ground.kind() == SubstrateKind::Btrfs {
                assert!(shared >= (WRITES - 2) * K, "all that changed is shared in the next round: {shared}");
            }
        }
        assert!(read >= 3 * WRITES * K, "{read}");
        if ground.kind() == SubstrateKind::Xfs {
            // Overwritten where they lay: the image is read to its end once nobody writes to it.
            let found = scanned(ground, Turn::Whole);
            assert!(found.read_bytes > IMAGE_BLOCKS as u64 * K * 9 / 10, "{found:?}");
            assert!(passed(ground).shared.now >= (WRITES - 2) * K);
        }
        assert_eq!(scanned(ground, Turn::Whole).read_bytes, 0);
    });
}

/// All that a pass had shared was elsewhere, and would have been taken for changed.
#[test]
fn what_a_pass_has_shared_is_not_read_again_and_what_a_guest_overwrites_of_it_is() {
    on_each(|ground| {
        let content = random_blocks(3, IMAGE_BLOCKS);
        ground.file("one", &content);
        ground.file("two", &content);
        ground.file("other", &random_blocks(2, WRITES as usize));
        settled(ground);
        for (round, image) in ["one", "two"].into_iter().enumerate() {
            write_blocks(ground, image, &random_blocks(2, WRITES as usize), 7 + round as u64);
            let found = scanned(ground, Turn::Within(0));
            assert!((WRITES * K..=2 * WRITES * K + 8 * K).contains(&found.read_bytes), "{found:?}");
            assert!(passed(ground).shared.now >= (WRITES - 2) * K);
        }
    });
}

/// The first write into a clone of a template had all of it read.
#[test]
fn of_a_clone_only_what_its_guest_writes_is_read() {
    on_each(|ground| {
        ground.file("template", &random_blocks(1, IMAGE_BLOCKS));
        ground.file("other", &random_blocks(2, WRITES as usize));
        settled(ground);
        let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &|_| {}).unwrap();
        let options = CloneOptions {
            existing: ExistingFilePolicy::Keep,
            temporary_folder: Path::new("/var/tmp"),
            memory_bytes: 1 << 20,
            clock: &SystemClock,
            random: &SystemRandom,
        };
        let (source, target) = (Path::new("template"), Path::new("clone"));
        clone(&ground.substrate, Some(&state), source, target, &options).unwrap();
        drop(state);
        write_blocks(ground, "clone", &random_blocks(2, WRITES as usize), 3);
        let found = scanned(ground, Turn::Within(0));
        assert!((WRITES * K..=2 * WRITES * K + 8 * K).contains(&found.read_bytes), "{found:?}");
        assert!(passed(ground).shared.now >= (WRITES - 2) * K);
    });
}

#[test]
fn generations_tell_single_blocks_and_clones_but_not_of_files_that_are_overwritten_in_place() {
    on(BTRFS, |ground| {
        use onefold_substrate::{Access, At};
        let substrate = &ground.substrate;
        let image = ground.file("image", &random_blocks(1, 4096));
        let other = ground.file("other", &random_blocks(2, 16));
        let Some(since) = substrate.generation(&image).unwrap() else { panic!("root is told generations") };
        let changed = |since| {
            let mut found = Vec::new();
            while let Some(more) = Some(substrate.changed_since(&image, since, found.last().map_or(0, end)).unwrap()) {
                if more.is_empty() {
                    return found;
                }
                found.extend(more);
            }
            found
        };
        assert_eq!(changed(0).iter().map(|extent| extent.length).sum::<u64>(), 4096 * K);
        // Another transaction.
        substrate.sync_shares(&image).unwrap();
        let now = substrate.generation(&image).unwrap().unwrap().max(since + 1);
        write_blocks(ground, "image", &random_blocks(2, 1), 5);
        let news: Vec<_> = changed(now).into_iter().filter(|extent| extent.generation >= now).collect();
        assert!(news.len() == 1 && news[0].length == K, "{news:?}");
        let clone = ground.open("image", Access::Write);
        substrate.clone_range(At { file: &other, offset: 0 }, At { file: &clone, offset: 100 * K }, 4 * K).unwrap();
        let place = ground.place_of(&other, 0);
        assert!(changed(now).iter().any(|extent| extent.offset == 100 * K && extent.place == place));
        let in_place = ground.root.join("in-place");
        std::fs::File::create(&in_place).unwrap();
        crate::ground::run("chattr", ["+C".as_ref(), in_place.as_os_str()]).unwrap();
        assert_eq!(substrate.generation(&ground.open("in-place", Access::Read)).unwrap(), None);
    });
    on(XFS, |ground| {
        assert_eq!(ground.substrate.generation(&ground.file("image", &random_blocks(1, 4))).unwrap(), None);
    });
}

fn end(extent: &onefold_substrate::AgedExtent) -> u64 {
    extent.end()
}
