//! Ranges at one place are read once, and only if nothing can have changed meanwhile.

use onefold_substrate::{At, Sharing};

use super::*;

/// Makes `to` a clone of `from`, and lets enough time pass for the next scan to be later.
fn clone(ground: &Ground, from: &str, to: &str, blocks: u64) {
    let substrate = &ground.host.substrate;
    let source = substrate.open(Path::new(from), Access::Read).unwrap();
    let target = substrate.create(Path::new(to)).unwrap();
    substrate.set_len(&target, blocks * K).unwrap();
    // A call clones a few blocks.
    for first in (0..blocks).step_by(20) {
        let at = |file| At { file, offset: first * K };
        substrate.clone_range(at(&source), at(&target), (blocks - first).min(20) * K).unwrap();
    }
    ground.file_system.pass(Duration::from_secs(1));
}

#[test]
fn clones_are_not_read_and_are_known_all_the_same() {
    let ground = Ground::new();
    ground.write("a", 1, 40);
    clone(&ground, "a", "b", 40);
    clone(&ground, "a", "c", 40);
    // The first blocks of the last one are no longer shared.
    ground.write("c", 2, 20);
    let scanned = {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap())
    };
    assert_eq!((scanned.read_bytes, scanned.once_bytes, scanned.logged_blocks), (60 * K, 60 * K, 120), "{scanned:?}");
    assert_eq!(ground.run().shared.differed, 0);
    for (path, seed) in [("like-b", 1), ("like-c", 2)] {
        ground.write(path, seed, 20);
    }
    let passed = ground.run();
    assert_eq!((passed.shared.now, passed.shared.differed), (40 * K, 0), "{passed:?}");
}

/// Digests of one domain say nothing in another one.
#[test]
fn what_another_domain_has_read_is_read_again() {
    let ground = Ground::new();
    ground.write("a", 1, 10);
    clone(&ground, "a", "b", 10);
    ground.file_system.give_image(ground.host.no, "b", 7).unwrap();
    let state = ground.state();
    let scanned = scan_all(&state, &mut Marks::load(&state).unwrap());
    assert_eq!((scanned.read_bytes, scanned.once_bytes, scanned.domains.len()), (20 * K, 0, 2), "{scanned:?}");
}

#[test]
fn a_clone_of_a_moment_ago_is_read() {
    let ground = Ground::new();
    ground.write("a", 1, 10);
    clone(&ground, "a", "b", 10);
    let file = ground.host.substrate.open(Path::new("b"), Access::Write).unwrap();
    ground.host.substrate.write_at(&file, 0, &[7; 4096]).unwrap();
    let state = ground.state();
    let scanned = scan_all(&state, &mut Marks::load(&state).unwrap());
    assert_eq!((scanned.read_bytes, scanned.once_bytes), (20 * K, 0), "{scanned:?}");
}

/// Regression: while the first part of `a` is read, its guest overwrites the second part, which moves there. The scan
/// filed the digests of the new content under the old place, where `b` and `c` still have the old content.
#[test]
fn digests_of_a_file_that_is_written_meanwhile_are_not_those_of_its_clones() {
    const BLOCKS: u64 = 600;
    let ground = Ground::new();
    ground.write("a", 1, BLOCKS);
    clone(&ground, "a", "b", BLOCKS);
    clone(&ground, "a", "c", BLOCKS);
    let asked = Cell::new(0);
    // Asked when the turn of `a` begins, and again while its first 256 blocks are noted, which are read by then.
    let wish = || {
        asked.set(asked.get() + 1);
        if asked.get() == 3 {
            let file = ground.host.substrate.open(Path::new("a"), Access::Write).unwrap();
            let mut other = vec![0; usize::try_from((BLOCKS - 300) * K).unwrap()];
            SeededRandom::new(2).fill(&mut other).unwrap();
            ground.host.substrate.write_at(&file, 300 * K, &other).unwrap();
        }
        Wish::GoOn
    };
    let scanned = {
        let (state, clock) = (ground.state(), ManualClock::default());
        let pace = Pace::new(Limits::default(), &clock, &ProcessCpu, &wish);
        scan(&state, &mut Marks::load(&state).unwrap(), &ScanOptions::new(&pace)).unwrap()
    };
    // The digests that were read before `a` changed are known for `b`, too; for `c`, all digests of either.
    assert_eq!(scanned.once_bytes, (256 + BLOCKS) * K, "{scanned:?}");
    ground.write("like-b", 1, BLOCKS);
    let passed = ground.run();
    assert_eq!((passed.shared.now, passed.shared.differed), (BLOCKS * K, 0), "{passed:?}");
}
