//! Clones that are known from the start.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_block::BLOCK_BYTES;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_share::clone::{
    CloneError, CloneOptions, CloneReport, ExistingFilePolicy, Registration, ScanReason, clone,
};
use onefold_share::state::State;
use onefold_substrate::Access;

use crate::ground::{FOLDER, Ground, K, XFS, no_child, on, on_each, random_blocks};
use crate::pass::{RunSettings, USUAL, run, try_run};

fn try_clone(
    ground: &Ground,
    source: &str,
    target: &str,
    existing: ExistingFilePolicy,
) -> Result<CloneReport, CloneError> {
    let _no_child = no_child();
    let quiet = |_| {};
    let has_state = ground.root.join(FOLDER).exists();
    let state = has_state.then(|| State::open(&ground.substrate, &SystemClock, &SystemRandom, &quiet).unwrap());
    let options = CloneOptions {
        existing,
        temporary_folder: Path::new("/var/tmp"),
        memory_bytes: 1 << 20,
        clock: &SystemClock,
        random: &SystemRandom,
    };
    clone(&ground.substrate, state.as_ref(), Path::new(source), Path::new(target), &options)
}

fn known(ground: &Ground, source: &str, target: &str) -> Registration {
    try_clone(ground, source, target, ExistingFilePolicy::Keep).unwrap().known
}

fn place(ground: &Ground, name: &str, block: u64) -> Option<u64> {
    ground.place_of(&ground.open(name, Access::Read), block)
}

#[test]
fn a_clone_of_what_did_not_change_is_not_read_and_its_blocks_are_known() {
    on_each(|ground| {
        // Unique ones, shared ones, one that is there twice, a hole, zeros, and an end within a block.
        let (own, common) = (random_blocks(1, 60), random_blocks(2, 30));
        let zeros = vec![0; 2 * BLOCK_BYTES];
        let content = [&own[..], &common, &own[..BLOCK_BYTES], &zeros, b"tail"].concat();
        ground.file("template", &content);
        ground.file("other", &common);
        ground.settled_room();
        run(ground);
        assert_eq!(run(ground).scanned.unchanged, 2);
        let Registration::Blocks(blocks) = known(ground, "template", "clone") else { panic!("left to the scan") };
        // Zeros are holes since.
        assert_eq!(blocks, 60 + 30 + 1);
        assert!(ground.content("clone") == content);
        let found = run(ground);
        assert_eq!((found.scanned.files, found.scanned.read_bytes, found.scanned.unchanged), (3, 0, 3), "{found:?}");
        assert_eq!((found.passed.shared.now, found.passed.shared.differed), (0, 0), "{found:?}");
        // What comes later is shared with template and clone alike, and nothing is there twice.
        ground.file("later", &own);
        let found = run(ground);
        assert_eq!(found.passed.shared.now, 60 * K, "{found:?}");
        for block in 0..60 {
            let places = ["template", "clone", "later"].map(|name| place(ground, name, block));
            assert!(places[0].is_some() && places.iter().all(|place| *place == places[0]), "{block}: {places:?}");
        }
        for (name, expected) in [("template", &content[..]), ("clone", &content), ("later", &own)] {
            assert!(ground.content(name) == expected, "{name}");
        }
    });
}

#[test]
fn logs_that_wait_are_known_of_the_clone_too() {
    on_each(|ground| {
        let content = random_blocks(3, 40);
        ground.file("template", &content);
        ground.settled_room();
        try_run(&ground.substrate, RunSettings { is_dry_run: true, ..USUAL }, &|| {}).unwrap();
        let Registration::Blocks(blocks) = known(ground, "template", "clone") else { panic!("left to the scan") };
        assert_eq!(blocks, 40);
        ground.file("later", &content);
        let found = run(ground);
        assert_eq!((found.scanned.read_bytes, found.passed.shared.now), (40 * K, 40 * K), "{found:?}");
        let places = ["template", "clone", "later"].map(|name| place(ground, name, 39));
        assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    });
}

#[test]
fn a_clone_of_what_changed_is_left_to_the_scan() {
    on_each(|ground| {
        assert!(matches!(
            {
                ground.file("a", &random_blocks(4, 8));
                known(ground, "a", "early")
            },
            Registration::LeftToScan(ScanReason::NoState)
        ));
        assert!(!ground.root.join(FOLDER).exists());
        let content = random_blocks(5, 40);
        ground.file("template", &content);
        run(ground);
        ground.file("unseen", &content);
        assert!(matches!(known(ground, "unseen", "one"), Registration::LeftToScan(ScanReason::SourceUnread)));
        ground.settled_room();
        run(ground);
        let file = OpenOptions::new().write(true).open(ground.root.join("template")).unwrap();
        let changed = random_blocks(6, 1);
        file.write_all_at(&changed, 7 * K).unwrap();
        assert!(matches!(known(ground, "template", "two"), Registration::LeftToScan(ScanReason::SourceChanged)));
        let found = run(ground);
        assert!(found.scanned.read_bytes >= 40 * K, "{found:?}");
        let mut expected = content.clone();
        expected[7 * BLOCK_BYTES..8 * BLOCK_BYTES].copy_from_slice(&changed);
        assert!(ground.content("two") == expected && ground.content("template") == expected);
    });
}

#[test]
fn a_clone_that_is_written_to_is_read() {
    on_each(|ground| {
        let content = random_blocks(7, 40);
        ground.file("template", &content);
        ground.settled_room();
        run(ground);
        assert!(matches!(known(ground, "template", "clone"), Registration::Blocks(40)));
        let other = random_blocks(8, 1);
        OpenOptions::new().write(true).open(ground.root.join("clone")).unwrap().write_all_at(&other, 3 * K).unwrap();
        ground.file("same", &other);
        let found = run(ground);
        assert_eq!(place(ground, "clone", 3), place(ground, "same", 0), "{found:?}");
        let mut expected = content.clone();
        expected[3 * BLOCK_BYTES..4 * BLOCK_BYTES].copy_from_slice(&other);
        assert!(ground.content("clone") == expected && ground.content("template") == content);
    });
}

#[test]
fn what_is_there_is_replaced_only_where_that_is_wanted_and_nothing_is_left_of_what_failed() {
    on(XFS, |ground| {
        let content = random_blocks(9, 8);
        ground.file("template", &content);
        ground.file("there", b"there");
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(&ground.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        for target in ["there", "template"] {
            let refused = try_clone(ground, "template", target, ExistingFilePolicy::Keep);
            assert!(matches!(refused, Err(CloneError::Exists { .. } | CloneError::Same)), "{refused:?}");
        }
        assert!(matches!(
            try_clone(ground, "template", "template", ExistingFilePolicy::Replace),
            Err(CloneError::Same)
        ));
        assert!(matches!(try_clone(ground, "none", "x", ExistingFilePolicy::Keep), Err(CloneError::Source { .. })));
        assert!(try_clone(ground, "template", "none/x", ExistingFilePolicy::Keep).is_err());
        fs::create_dir(ground.root.join("folder")).unwrap();
        let refused = try_clone(ground, "template", "folder", ExistingFilePolicy::Replace);
        assert!(matches!(refused, Err(CloneError::Target { .. })), "{refused:?}");
        fs::remove_dir(ground.root.join("folder")).unwrap();
        assert_eq!((names(), ground.content("there")), (before.clone(), b"there".to_vec()));
        // A process that has the old one open keeps it.
        let old = ground.open("there", Access::Read);
        try_clone(ground, "template", "there", ExistingFilePolicy::Replace).unwrap();
        assert!(ground.content("there") == content);
        let mut bytes = [0; 5];
        onefold_substrate::Files::read_at(&ground.substrate, &old, 0, &mut bytes).unwrap();
        assert_eq!((&bytes, names()), (b"there", before));
    });
}
