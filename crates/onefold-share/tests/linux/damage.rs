//! A state folder that is damaged, or gone: this costs savings and nothing else.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use onefold_block::random::SeededRandom;
use onefold_substrate::Access;

use crate::ground::{FOLDER, K, XFS, on, on_each, random_blocks};
use crate::pass::{RunSettings, USUAL, run, try_run};

#[test]
fn all_state_may_be_deleted_at_any_time() {
    on_each(|ground| {
        let content = random_blocks(9, 500);
        ground.file("a", &content);
        ground.file("b", &content);
        run(ground);
        fs::remove_dir_all(ground.root.join(FOLDER)).unwrap();
        let found = run(ground);
        assert_eq!((found.passed.shared.now, found.passed.shared.before), (0, 500 * K), "{found:?}");
        assert!(ground.content("a") == content && ground.content("b") == content);
    });
}

/// Returns all files in a folder, in order.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files_below(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all.sort();
    all
}

#[test]
fn damaged_state_costs_savings_and_nothing_else() {
    on(XFS, |ground| {
        let random = SeededRandom::new(10);
        let content = random_blocks(11, 64);
        let mut expected: Vec<(String, Vec<u8>)> = Vec::new();
        for round in 0..60 {
            let name = format!("{round}");
            let own = [&content[..], &random_blocks(100 + round, 8)].concat();
            ground.file(&name, &own);
            expected.push((name, own));
            if round % 7 == 3 {
                // Logs are left, too.
                try_run(&ground.substrate, RunSettings { is_dry_run: true, ..USUAL }, &|| {}).unwrap();
            }
            let state = ground.root.join(FOLDER);
            let victims = if state.exists() { files_below(&state) } else { Vec::new() };
            if let Some(victim) = victims.get(random.below(victims.len() as u64) as usize) {
                let length = fs::metadata(victim).unwrap().len();
                let file = OpenOptions::new().write(true).open(victim).unwrap();
                match random.below(3) {
                    0 => file.set_len(random.below(length.max(1))).unwrap(),
                    1 => file.write_all_at(&random_blocks(round, 1)[..1], random.below(length.max(1))).unwrap(),
                    _ => fs::remove_file(victim).unwrap(),
                }
            }
            // A damaged index ends the first try, and is gone for the second.
            try_run(&ground.substrate, USUAL, &|| {}).or_else(|_| try_run(&ground.substrate, USUAL, &|| {})).unwrap();
            for (name, expected) in &expected {
                assert!(ground.content(name) == *expected, "{name} after round {round}");
            }
        }
    });
}

/// Somebody wrote to the arena: slots that hold other contents than the index says were tried again and again, in vain.
#[test]
fn slots_that_hold_something_else_are_dropped_and_their_contents_shared_anew() {
    on_each(|ground| {
        let content = random_blocks(60, 200);
        for name in ["a", "b"] {
            ground.file(name, &content);
        }
        ground.settled_room();
        run(ground);
        let arena = files_below(&ground.root.join(FOLDER).join("arena")).remove(0);
        let file = OpenOptions::new().write(true).open(&arena).unwrap();
        let damaged = 3;
        for slot in [7, 8, 150] {
            file.write_all_at(&random_blocks(61 + slot, 1), slot * K).unwrap();
        }
        file.sync_all().unwrap();
        ground.file("c", &content);
        ground.settled_room();
        let found = run(ground);
        assert_eq!(
            (found.passed.shared.now, found.passed.shared.differed),
            ((200 - damaged) * K, damaged * K),
            "{found:?}"
        );
        assert_eq!(found.passed.swept_slots, damaged, "{found:?}");
        let found = run(ground);
        assert_eq!(found.passed.shared.differed, 0, "{found:?}");
        // Of the three files only the last was read since: it is where the contents are known to be.
        assert_eq!(found.passed.planned.new, damaged, "{found:?}");
        ground.file("d", &content);
        ground.settled_room();
        let found = run(ground);
        assert_eq!((found.passed.shared.now, found.passed.shared.differed), (200 * K, 0), "{found:?}");
        assert_eq!(found.passed.planned.promoted, damaged, "{found:?}");
        let place = |name: &str, block| ground.offset_of(&ground.open(name, Access::Read), block);
        for block in [6, 7, 8, 150, 151] {
            assert_eq!(place("c", block), place("d", block), "block {block}");
        }
        for name in ["a", "b", "c", "d"] {
            assert!(ground.content(name) == content, "{name}");
        }
    });
}
