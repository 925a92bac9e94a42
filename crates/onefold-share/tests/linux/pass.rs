//! Scans and passes over real file systems: what is equal is shared, and every file reads as it was written.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use onefold_block::BLOCK_BYTES;
use onefold_block::clock::SystemClock;
use onefold_block::random::{SeededRandom, SystemRandom};
use onefold_linux::LinuxSubstrate;
use onefold_share::format::FileBlock;
use onefold_share::pace::Pace;
use onefold_share::pass::{PassError, PassOptions, PassReport, SpaceOptions};
use onefold_share::run::{RunOptions, RunReport, RunStep, Seams};
use onefold_share::scan::{ScanOptions, ScanReport};
use onefold_substrate::{Access, Files};

use crate::ground::{BTRFS, FOLDER, Ground, K, MIB, XFS, no_child, on, on_each, random_blocks, run as run_program};

/// What a run did.
#[derive(Debug)]
pub(crate) struct EngineRun {
    pub(crate) scanned: ScanReport,
    pub(crate) passed: PassReport,
    pub(crate) notices: Vec<String>,
}

/// How a run goes about it.
#[derive(Clone, Copy)]
pub(crate) struct RunSettings {
    pub(crate) memory_bytes: usize,
    pub(crate) min_run_bytes: u64,
    pub(crate) is_dry_run: bool,
    pub(crate) shard_entries_max: u64,
    pub(crate) space: SpaceOptions,
}

pub(crate) const USUAL: RunSettings = RunSettings {
    memory_bytes: 32 << 20,
    min_run_bytes: K,
    is_dry_run: false,
    shard_entries_max: 1 << 24,
    space: SpaceOptions { rewrite_percent: 50, keeps_copies_small: true },
};

pub(crate) fn try_run(
    substrate: &LinuxSubstrate,
    how: RunSettings,
    between: &dyn Fn(),
) -> Result<EngineRun, PassError> {
    let _no_child = no_child();
    let notices = RefCell::new(Vec::new());
    let notice = |notice: onefold_share::state::Notice| notices.borrow_mut().push(notice.to_string());
    let pace = Pace::unlimited();
    let options = RunOptions {
        files: None,
        scan: ScanOptions { threads: 1, ..ScanOptions::new(&pace) },
        pass: PassOptions {
            memory_bytes: how.memory_bytes,
            min_run_bytes: how.min_run_bytes,
            space: how.space,
            threads: 2,
            is_dry_run: how.is_dry_run,
            shard_entries_max: how.shard_entries_max,
            ..PassOptions::new(Path::new("/var/tmp"), &pace, &SystemClock)
        },
        mend_wait: Duration::ZERO,
        step: &|step| {
            if step == RunStep::Pass {
                between();
            }
        },
    };
    let seams = Seams { substrate, clock: &SystemClock, random: &SystemRandom, notices: &notice };
    let RunReport { scanned, passed, .. } = onefold_share::run(&seams, &options)?;
    Ok(EngineRun { scanned, passed, notices: notices.take() })
}

pub(crate) fn run(ground: &Ground) -> EngineRun {
    try_run(&ground.substrate, USUAL, &|| {}).unwrap()
}

/// Returns the blocks in another order, no two of them neighbours as before.
pub(crate) fn shuffled(blocks: &[u8], seed: u64) -> Vec<u8> {
    let random = SeededRandom::new(seed);
    let mut order: Vec<&[u8]> = blocks.chunks(BLOCK_BYTES).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order.concat()
}

#[test]
fn scattered_duplicates_are_all_shared_and_their_space_comes_free() {
    on_each(|ground| {
        let blocks = 4096;
        let content = random_blocks(1, blocks);
        let other = shuffled(&content, 2);
        ground.file("a", &content);
        ground.file("b", &other);
        let before = ground.settled_room();
        let first = run(ground);
        assert_eq!(first.passed.shared.now, blocks as u64 * K, "{first:?}");
        assert_eq!(first.passed.shared.freed, first.passed.shared.now, "{first:?}");
        assert!(ground.content("a") == content && ground.content("b") == other);
        let gained = ground.settled_room().saturating_sub(before);
        // What the records take: the index, extents of a block each in three files.
        assert!(gained > blocks as u64 * K * 8 / 10, "{} KiB of {} came free", gained / 1024, blocks * 4);

        let second = run(ground);
        assert_eq!((second.scanned.read_bytes, second.scanned.unchanged), (0, 2), "{second:?}");
        assert_eq!(second.passed.logs, 0);
    });
}

/// File systems have longer files than the index has numbers for: what is behind 2 PiB stays as it is.
#[test]
fn blocks_too_far_behind_in_a_file_are_left_alone() {
    on_each(|ground| {
        let content = random_blocks(5, 16);
        for name in ["a", "b"] {
            let file = ground.file(name, &content);
            let last = FileBlock::LIMIT * K;
            for offset in [last - K, last, last + 4 * K] {
                ground.substrate.write_at(&file, offset, &content[..BLOCK_BYTES]).unwrap();
            }
            ground.substrate.sync(&file).unwrap();
        }
        let found = run(ground);
        assert_eq!(found.scanned.logged_blocks, 2 * 17, "{found:?}");
        assert_eq!(found.passed.shared.now, 18 * K, "the last one is equal to the first: {found:?}");
        run(ground);
        let file = ground.open("b", Access::Read);
        let mut far = vec![0; BLOCK_BYTES];
        assert_eq!(ground.substrate.read_at(&file, (FileBlock::LIMIT + 4) * K, &mut far).unwrap(), BLOCK_BYTES);
        assert!(far == content[..BLOCK_BYTES]);
    });
}

#[test]
fn runs_stay_runs() {
    on(XFS, |ground| {
        let content = random_blocks(3, 2048);
        ground.file("a", &content);
        ground.file("b", &content);
        let found = run(ground);
        assert_eq!(found.passed.shared.now, 2048 * K);
        let (extents, _) = ground.map(&ground.open("b", Access::Read));
        assert!(extents.len() <= 8, "8 MiB in {} extents", extents.len());
    });
}

#[test]
fn a_content_at_many_places_is_stored_once_and_zeros_become_holes() {
    on_each(|ground| {
        let one = random_blocks(4, 1);
        let zero = vec![0; BLOCK_BYTES];
        let mut content = [&one[..], &zero, &one, &one, &zero, &zero, &random_blocks(5, 2), &one].concat();
        // A file without any hole would keep its zeros.
        let file = ground.file("a", &content);
        ground.substrate.set_len(&file, 10 * K).unwrap();
        drop(file);
        content.extend(&zero);
        let found = run(ground);
        assert_eq!(found.passed.shared.zeros, 3 * K, "{found:?}");
        assert_eq!(found.passed.shared.now, (3 + 3) * K, "{found:?}");
        assert!(ground.content("a") == content);
        let file = ground.open("a", Access::Read);
        let places: Vec<_> = [0, 2, 3, 8].map(|block| ground.place_of(&file, block)).into();
        assert!(places[0].is_some() && places.iter().all(|place| *place == places[0]), "{places:?}");
        assert_eq!([1, 4, 5].map(|block| ground.place_of(&file, block)), [None; 3]);
    });
}

/// What an administrator has set aside stays set aside: blocks that were never written, and zeros of a file without
/// holes.
#[test]
fn room_that_was_reserved_stays() {
    on_each(|ground| {
        let [data, zeros] = [random_blocks(4, 4), vec![0; 4 * BLOCK_BYTES]];
        let full = ground.file("full", &[&data[..], &zeros].concat());
        let set_aside = ground.file("set-aside", &[&data[..], &zeros].concat());
        rustix::fs::fallocate(&set_aside, rustix::fs::FallocateFlags::empty(), 8 * K, 8 * K).unwrap();
        for file in [&full, &set_aside] {
            ground.substrate.sync(file).unwrap();
        }
        let allocated = |name: &str| ground.substrate.stat(&ground.open(name, Access::Read)).unwrap().allocated;
        let before = [allocated("full"), allocated("set-aside")];
        assert!(before[0] >= 8 * K && before[1] >= 16 * K, "{before:?}");
        drop((full, set_aside));
        for _ in 0..2 {
            let found = run(ground);
            assert_eq!(found.passed.shared.zeros, 0, "{found:?}");
        }
        assert_eq!([allocated("full"), allocated("set-aside")], before);
        // Their data is shared all the same.
        let place = |name: &str| ground.place_of(&ground.open(name, Access::Read), 1);
        assert!(place("full").is_some() && place("full") == place("set-aside"));
    });
}

/// In a file with holes, zeros that were written become holes. What was set aside stays set aside, even if it was zeros
/// when the file was read.
#[test]
fn unwritten_room_of_a_file_with_holes_stays() {
    on_each(|ground| {
        let data = random_blocks(11, 16);
        let set_aside = |name: &str, first: u64, flags| {
            let file = ground.open(name, Access::Write);
            rustix::fs::fallocate(&file, flags, first * K, 16 * K).unwrap();
            ground.substrate.sync(&file).unwrap();
        };
        for name in ["a", "b"] {
            // Data, a hole, unwritten blocks, written zeros twice, and data.
            let file = ground.file(name, &data);
            set_aside(name, 32, rustix::fs::FallocateFlags::empty());
            ground.substrate.write_at(&file, 48 * K, &vec![0; 32 * BLOCK_BYTES]).unwrap();
            ground.substrate.write_at(&file, 80 * K, &data).unwrap();
            ground.substrate.sync(&file).unwrap();
        }
        let unwritten = |name: &str| {
            let (extents, _) = ground.map(&ground.open(name, Access::Read));
            let unwritten = extents.iter().filter(|extent| extent.is_unwritten);
            unwritten.map(|extent| (extent.offset / K, extent.length / K, extent.place)).collect::<Vec<_>>()
        };
        let before = ["a", "b"].map(unwritten);
        assert!(before.iter().all(|extents| matches!(extents[..], [(32, 16, Some(_))])), "{before:?}");
        // The second zeros were logged as written ones, and are set aside before the pass.
        let zero_range = || {
            for name in ["a", "b"] {
                set_aside(name, 64, rustix::fs::FallocateFlags::ZERO_RANGE);
            }
        };
        let found = try_run(&ground.substrate, USUAL, &zero_range).unwrap();
        assert_eq!(found.passed.shared.zeros, 2 * 16 * K, "{found:?}");
        assert_eq!(found.passed.shared.now, (2 * 16 + 3 * 16) * K, "{found:?}");
        let after = ["a", "b"].map(unwritten);
        for (before, after) in before.iter().zip(&after) {
            assert!(matches!(after[..], [kept, (64, 16, Some(_))] if kept == before[0]), "{before:?}, {after:?}");
        }
        assert_eq!(run(ground).passed.shared.zeros, 0);
        assert_eq!(["a", "b"].map(unwritten), after);
    });
}

#[test]
fn what_came_later_finds_what_was_there() {
    on_each(|ground| {
        let content = random_blocks(6, 300);
        ground.file("a", &content);
        assert_eq!(run(ground).passed.shared.now, 0);
        // Unique to shared.
        ground.file("b", &content[..100 * BLOCK_BYTES]);
        let found = run(ground);
        assert_eq!((found.passed.shared.now, found.passed.planned.promoted), (100 * K, 100), "{found:?}");
        // Shared to shared, and unique to shared.
        ground.file("c", &content);
        let found = run(ground);
        assert_eq!((found.passed.shared.now, found.passed.planned.promoted), (300 * K, 200), "{found:?}");
        for (name, blocks) in [("a", 300), ("b", 100), ("c", 300)] {
            assert!(ground.content(name) == content[..blocks * BLOCK_BYTES], "{name}");
        }
    });
}

#[test]
fn nothing_that_changed_since_it_was_read_is_shared() {
    on_each(|ground| {
        let content = random_blocks(7, 256);
        ground.file("a", &content);
        ground.file("b", &content);
        let mut expected = [content.clone(), content.clone()];
        let changed = random_blocks(8, 256);
        let overwrite = || {
            for (name, block) in [("a", 10), ("a", 200), ("b", 20), ("b", 200)] {
                let file = OpenOptions::new().write(true).open(ground.root.join(name)).unwrap();
                file.write_all_at(&changed[block * BLOCK_BYTES..][..BLOCK_BYTES], block as u64 * K).unwrap();
            }
        };
        let found = try_run(&ground.substrate, USUAL, &overwrite).unwrap();
        for (at, blocks) in [(0, [10, 200]), (1, [20, 200])] {
            for block in blocks {
                let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
                expected[at][range.clone()].copy_from_slice(&changed[range]);
            }
        }
        assert!(ground.content("a") == expected[0] && ground.content("b") == expected[1], "{found:?}");
        assert_eq!(found.passed.shared.now, 253 * K, "{found:?}");
        // They are read again, as their times have changed, and what is equal now is shared now.
        let found = run(ground);
        assert_eq!(found.passed.shared.now, K, "block 200: {found:?}");
        assert!(ground.content("a") == expected[0] && ground.content("b") == expected[1]);
    });
}

#[test]
fn a_file_replaced_by_another_of_the_same_name_is_another() {
    on_each(|ground| {
        let content = random_blocks(12, 200);
        ground.file("a", &content);
        run(ground);
        fs::remove_file(ground.root.join("a")).unwrap();
        let other = random_blocks(13, 200);
        ground.file("a", &other);
        ground.file("b", &content);
        let found = run(ground);
        assert_eq!(found.passed.shared.now, 0, "{found:?}");
        assert!(found.passed.planned.stale > 0, "{found:?}");
        assert!(ground.content("a") == other && ground.content("b") == content);
    });
}

#[test]
fn names_change_nothing_and_hard_links_are_one_file() {
    on_each(|ground| {
        let content = random_blocks(14, 100);
        ground.file("a", &content);
        fs::hard_link(ground.root.join("a"), ground.root.join("z")).unwrap();
        let found = run(ground);
        assert_eq!((found.scanned.files, found.scanned.read_bytes), (1, 100 * K), "{found:?}");
        fs::remove_file(ground.root.join("a")).unwrap();
        fs::create_dir(ground.root.join("folder")).unwrap();
        fs::rename(ground.root.join("z"), ground.root.join("folder/y")).unwrap();
        ground.file("b", &content);
        let found = run(ground);
        assert_eq!(found.passed.shared.now, 100 * K, "{found:?}");
    });
}

#[test]
fn slots_of_deleted_images_come_free() {
    on_each(|ground| {
        let before = ground.settled_room();
        let content = random_blocks(15, 4096);
        ground.file("a", &content);
        ground.file("b", &shuffled(&content, 14));
        run(ground);
        for name in ["a", "b"] {
            fs::remove_file(ground.root.join(name)).unwrap();
        }
        // XFS tells of the last reference once it has dropped the others: a reader that looks at once looks again.
        let mut swept = 0;
        for _ in 0..20 {
            swept += run(ground).passed.swept_slots;
            ground.settled_room();
            if swept == 4096 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(swept, 4096);
        assert!(before.saturating_sub(ground.settled_room()) < 4 * MIB);
    });
}

#[test]
fn short_runs_are_left_alone_where_the_user_wants_it() {
    on(XFS, |ground| {
        let content = random_blocks(17, 64);
        let parts = [&content[..BLOCK_BYTES * 20], &random_blocks(18, 1), &content[BLOCK_BYTES * 40..BLOCK_BYTES * 44]];
        ground.file("a", &content);
        ground.file("b", &parts.concat());
        let found = try_run(&ground.substrate, RunSettings { min_run_bytes: 64 << 10, ..USUAL }, &|| {}).unwrap();
        assert_eq!((found.passed.shared.now, found.passed.shared.too_short), (20 * K, 4 * K), "{found:?}");
    });
}

#[test]
fn a_dry_run_shares_nothing_and_is_taken_up() {
    on_each(|ground| {
        let content = random_blocks(19, 128);
        ground.file("a", &content);
        ground.file("b", &content);
        // A file that changed a moment ago is read again.
        ground.settled_room();
        let found = try_run(&ground.substrate, RunSettings { is_dry_run: true, ..USUAL }, &|| {}).unwrap();
        assert_eq!((found.passed.planned.targets, found.passed.shared.now), (128, 0), "{found:?}");
        assert_eq!(found.passed.to_free, Some(128 * K), "{found:?}");
        let found = run(ground);
        assert_eq!((found.scanned.read_bytes, found.passed.shared.now), (0, 128 * K), "{found:?}");
        assert_eq!(found.passed.to_free, None, "{found:?}");
        // A copy that shares its blocks already, and one that does not.
        ground.file("copy", &content);
        let paths = ["a", "clone"].map(|name| ground.root.join(name));
        run_program("cp", ["--reflink=always".as_ref(), paths[0].as_os_str(), paths[1].as_os_str()]).unwrap();
        ground.settled_room();
        let found = try_run(&ground.substrate, RunSettings { is_dry_run: true, ..USUAL }, &|| {}).unwrap();
        assert_eq!(found.passed.to_free, Some(128 * K), "{found:?}");
    });
}

#[test]
fn little_memory_is_enough() {
    on(XFS, |ground| {
        let content = random_blocks(20, 8192);
        let other = shuffled(&content, 21);
        ground.file("a", &content);
        ground.file("b", &other);
        let found = try_run(&ground.substrate, RunSettings { memory_bytes: 64 << 10, ..USUAL }, &|| {}).unwrap();
        assert_eq!(found.passed.shared.now, 8192 * K, "{found:?}");
        assert!(ground.content("a") == content && ground.content("b") == other);
    });
}

#[test]
fn a_full_file_system_loses_nothing() {
    for recipe in [XFS, BTRFS] {
        on(recipe, |ground| {
            let content = random_blocks(22, 8192);
            let other = shuffled(&content, 23);
            ground.file("a", &content);
            ground.file("b", &other);
            // Filled to the last byte by somebody else.
            let full = fs::File::create(ground.root.join("full")).unwrap();
            let junk = random_blocks(24, 256);
            let mut at = 0;
            for size in [junk.len(), BLOCK_BYTES] {
                while full.write_all_at(&junk[..size], at).is_ok() {
                    at += size as u64;
                }
            }
            let _ = full.sync_all();
            drop(full);
            // It may do its work or say why not.
            let found = try_run(&ground.substrate, USUAL, &|| {});
            if let Err(error) = &found {
                assert!(error.to_string().contains("No space"), "{error}");
            }
            assert!(ground.content("a") == content && ground.content("b") == other);
            fs::remove_file(ground.root.join("full")).unwrap();
            ground.settled_room();
            run(ground);
            assert!(ground.content("a") == content && ground.content("b") == other);
        });
    }
}

/// An index of many small shards is one index.
#[test]
fn shards_that_split_share_what_one_shares() {
    let how = RunSettings { shard_entries_max: 100, ..USUAL };
    on_each(|ground| {
        let content = random_blocks(40, 2000);
        let mut expected = Vec::new();
        for round in 0..4 {
            // The same blocks in another order each time, and some that are new.
            let mut own = shuffled(&content, 41 + round);
            own.extend(random_blocks(50 + round, 200));
            let name = format!("image-{round}");
            ground.file(&name, &own);
            expected.push((name, own));
            // A file that changed a moment ago is read again.
            ground.settled_room();
            let found = try_run(&ground.substrate, how, &|| {}).unwrap();
            let (counts, bytes) = found.passed.index.unwrap();
            assert_eq!(counts.all(), 2000 + 200 * (round + 1), "{found:?}");
            assert!(bytes < counts.all() * 23 + 40 * 100, "{found:?}");
            assert!(found.notices.is_empty(), "{found:?}");
        }
        let shards = fs::read_dir(ground.root.join(FOLDER).join("shards")).unwrap().count();
        assert!((8..=16).contains(&shards), "{shards} files");
        let found = try_run(&ground.substrate, how, &|| {}).unwrap();
        assert_eq!((found.scanned.read_bytes, found.passed.shared.now), (0, 0), "{found:?}");
        for (name, expected) in expected {
            assert!(ground.content(&name) == expected, "{name}");
        }
    });
}
