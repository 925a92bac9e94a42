//! What lies at one place is read once.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use onefold_block::BLOCK_BYTES;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_share::pace::Pace;
use onefold_share::scan::{ScanOptions, ScanReport, scan};
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_substrate::Access;

use crate::ground::{FOLDER, Ground, K, no_child, on_each, random_blocks, run as start};
use crate::pass::run;

fn scanned(ground: &Ground, places_bytes: usize) -> ScanReport {
    let _no_child = no_child();
    let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &|_| {}).unwrap();
    let pace = Pace::unlimited();
    let options = ScanOptions { threads: 1, places_bytes, ..ScanOptions::new(&pace) };
    scan(&state, &mut Marks::load(&state).unwrap(), &options).unwrap()
}

/// Has `cp` make a clone, as users do.
fn copy(ground: &Ground, from: &str, to: &str) {
    let paths = [from, to].map(|name| ground.root.join(name));
    start("cp", [Path::new("--reflink=always").as_os_str(), paths[0].as_os_str(), paths[1].as_os_str()]).unwrap();
}

/// Makes a template of 800 blocks, a hole and a tail, a clone of it, and one in which 3 blocks were overwritten.
fn template_and_clones(ground: &Ground) -> Vec<u8> {
    let content = [&random_blocks(1, 500)[..], &[0; 4 * BLOCK_BYTES], &random_blocks(2, 300), b"tail"].concat();
    ground.file("a-template", &content);
    copy(ground, "a-template", "b-clone");
    copy(ground, "a-template", "c-changed");
    let changed = OpenOptions::new().write(true).open(ground.root.join("c-changed")).unwrap();
    for block in [7, 8, 600] {
        changed.write_all_at(&random_blocks(3 + block, 1), block * K).unwrap();
    }
    changed.sync_all().unwrap();
    ground.settled_room();
    std::thread::sleep(Duration::from_millis(50));
    content
}

#[test]
fn a_clone_made_by_cp_costs_its_map() {
    on_each(|ground| {
        let content = template_and_clones(ground);
        let first = scanned(ground, 1 << 20);
        // What was overwritten is read, with a bit around it: one request costs less than two.
        assert!((803 * K..1000 * K).contains(&first.read_bytes), "{first:?}");
        assert!(first.once_bytes > 2 * 700 * K, "{first:?}");
        // All files are known as if they had been read.
        let passed = run(ground);
        assert_eq!((passed.scanned.read_bytes, passed.scanned.unchanged), (0, 3), "{passed:?}");
        assert_eq!((passed.passed.shared.differed, passed.passed.shared.now), (0, 0), "{passed:?}");
        // What equals blocks of the clones is found by their logs.
        ground.file("d-later", &content[300 * BLOCK_BYTES..500 * BLOCK_BYTES]);
        let passed = run(ground);
        assert_eq!(passed.passed.shared.now, 200 * K, "{passed:?}");
        let place = |name, block| ground.place_of(&ground.open(name, Access::Read), block);
        for name in ["a-template", "b-clone", "c-changed"] {
            assert_eq!(place(name, 310), place("d-later", 10), "{name}");
        }
        assert!(ground.content("b-clone") == content);
    });
}

/// Each log tells the same as one of a file that was read.
#[test]
fn logs_are_the_same_whether_places_are_read_once_or_not() {
    on_each(|ground| {
        template_and_clones(ground);
        let logs = || {
            let folder = ground.root.join(FOLDER).join("logs");
            let mut logs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            logs.sort();
            logs.iter().map(|path| std::fs::metadata(path).unwrap().len()).collect::<Vec<_>>()
        };
        let once = scanned(ground, 1 << 20);
        let lengths = logs();
        let changes_nothing = run(ground);
        std::fs::remove_dir_all(ground.root.join(FOLDER)).unwrap();
        ground.settled_room();
        let each = scanned(ground, 0);
        assert_eq!((each.once_bytes, each.logged_blocks), (0, once.logged_blocks));
        assert_eq!(logs(), lengths);
        assert!(each.read_bytes > 2 * once.read_bytes, "{each:?} {once:?}");
        // The index has each content, and nobody has one that is not there.
        let from_each = run(ground);
        let entries = [changes_nothing, from_each].map(|found| found.passed.index.map(|(counts, _)| counts));
        assert_eq!(entries[0], entries[1]);
    });
}
