//! How a finder's runs are shared and counted.

use super::*;

/// Consecutive runs become one call, and the outcome is still reported for each content.
#[test]
fn equal_files_share_without_slots_or_an_index() {
    let ground = Ground::new();
    ground.write("one", 1, 20);
    ground.write("two", 1, 20);
    let before = ground.freed();
    let calls = ground.file_system.counters().shares;
    let (passed, finder) = ground.share_runs(&[
        (("one", 0), ("two", 0), 8, 1),
        (("one", 8), ("two", 8), 2, 2),
        (("one", 10), ("two", 10), 10, 3),
    ]);
    assert_eq!((passed.shared.now, passed.shared.freed, passed.index), (20 * K, 20 * K, None), "{passed:?}");
    let came = [1, 2, 3].map(|key| finder.came(key, Outcome::Shared));
    assert_eq!((came, finder.told(), finder.ended), ([8, 2, 10], 20, 1));
    assert_eq!(ground.file_system.counters().shares - calls, 1);
    assert_eq!((ground.freed() - before, ground.names("arena").len(), ground.names("shards").len()), (20, 0, 0));
}

/// Runs of two files are joined to one of 20 blocks. Regression: a finder had seen enough differences of the second
/// file, and the rest of the joined run was compared all the same.
#[test]
fn a_finder_is_asked_before_each_call_of_a_joined_run() {
    let ground = Ground::new();
    ground.write("one", 1, 30);
    ground.write("two", 1, 30);
    let file = ground.host.substrate.open(Path::new("two"), Access::Write).unwrap();
    let other = vec![9; usize::try_from(16 * K).unwrap()];
    ground.host.substrate.write_at(&file, 6 * K, &other).unwrap();
    let runs = [(("one", 0), ("two", 0), 6, 1), (("one", 6), ("two", 6), 16, 2), (("one", 22), ("two", 22), 8, 3)];
    let how = PassSettings { call_bytes: 2 * K, ..USUAL };
    let (passed, finder) = ground.share_bounded(how, &runs, BTreeMap::from([(2, 4)]));
    assert_eq!((passed.shared.now, passed.shared.differed), (14 * K, 4 * K), "{passed:?}");
    let of = |key| [Outcome::Shared, Outcome::Differed, Outcome::Declined].map(|outcome| finder.came(key, outcome));
    assert_eq!([of(1), of(2), of(3)], [[6, 0, 0], [0, 4, 12], [8, 0, 0]]);
    // Blocks that share by now are seen without a comparison.
    let (passed, finder) = ground.share_bounded(how, &runs, BTreeMap::from([(1, 0), (2, 0), (3, 0)]));
    assert_eq!((passed.shared.before, passed.shared.differed), (14 * K, 0), "{passed:?}");
    assert_eq!(finder.came(2, Outcome::Declined), 16);
}

#[test]
fn blocks_that_differ_are_left_alone_and_not_read_again() {
    let ground = Ground::new();
    for path in ["one", "two"] {
        ground.write(path, 1, 20);
    }
    {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap());
    }
    let file = ground.host.substrate.open(Path::new("two"), Access::Write).unwrap();
    ground.host.substrate.write_at(&file, 7 * K, b"changed").unwrap();
    ground.file_system.pass(Duration::from_secs(1));
    let unread_before = unread(&ground.state());
    let (passed, finder) = ground.share_runs(&[(("one", 0), ("two", 0), 20, 5)]);
    assert_eq!((passed.shared.now, passed.shared.differed), (19 * K, K), "{passed:?}");
    assert_eq!((finder.came(5, Outcome::Shared), finder.came(5, Outcome::Differed)), (19, 1));
    assert_eq!(unread(&ground.state()), unread_before);
    // The scan's finder has no work with shared blocks, and shares nothing twice.
    assert_eq!(ground.run().shared.now, 0);
}

/// The first run into a block that is right counts. A wrong one before it does no harm.
#[test]
fn of_runs_into_the_same_blocks_the_first_right_one_counts() {
    let ground = Ground::new();
    for (path, seed) in [("a-wrong", 9), ("b-right", 1), ("c-right", 1), ("target", 1)] {
        ground.write(path, seed, 16);
    }
    let runs = [
        (("a-wrong", 0), ("target", 0), 16, 1),
        (("b-right", 0), ("target", 0), 10, 2),
        (("c-right", 4), ("target", 4), 12, 3),
        (("c-right", 4), ("target", 4), 12, 4),
    ];
    let (passed, finder) = ground.share_runs(&runs);
    assert_eq!(
        (passed.shared.now, passed.shared.differed, passed.shared.before, passed.shared.repeated),
        (16 * K, 16 * K, 0, 18 * K),
        "{passed:?}"
    );
    let of = |key| [Outcome::Shared, Outcome::Done, Outcome::Differed].map(|outcome| finder.came(key, outcome));
    assert_eq!([of(1), of(2), of(3), of(4)], [[0, 0, 16], [10, 0, 0], [6, 6, 0], [0, 12, 0]]);
    assert_eq!(passed.shared.freed, 16 * K);
    // The next pass counts each block once, too: as shared before.
    let (passed, finder) = ground.share_runs(&runs);
    assert_eq!(
        (passed.shared.now, passed.shared.differed, passed.shared.before, passed.shared.repeated),
        (0, 16 * K, 16 * K, 18 * K),
        "{passed:?}"
    );
    let of = |key| [Outcome::Before, Outcome::Done, Outcome::Differed].map(|outcome| finder.came(key, outcome));
    assert_eq!([of(1), of(2), of(3), of(4)], [[0, 0, 16], [10, 0, 0], [6, 6, 0], [6, 6, 0]]);
}

/// Two sources hold the same content at different places, since no run leads from one to the other. Regression: the
/// second one took the target away from the first in the second pass, and the first took it back in the third.
#[test]
fn what_shares_with_one_source_stays_there_whatever_others_hold() {
    let ground = Ground::new();
    for path in ["one", "other", "target"] {
        ground.write(path, 1, 10);
    }
    let runs = [(("one", 0), ("target", 0), 10, 1), (("other", 0), ("target", 0), 10, 2)];
    let (passed, _) = ground.share_runs(&runs);
    assert_eq!((passed.shared.now, passed.shared.before, passed.shared.repeated), (10 * K, 0, 10 * K), "{passed:?}");
    let calls = ground.file_system.counters().shares;
    for _ in 0..2 {
        let (passed, finder) = ground.share_runs(&runs);
        assert_eq!(
            (passed.shared.now, passed.shared.before, passed.shared.repeated),
            (0, 10 * K, 10 * K),
            "{passed:?}"
        );
        assert_eq!((finder.came(1, Outcome::Before), finder.came(2, Outcome::Done)), (10, 10));
    }
    assert_eq!(ground.file_system.counters().shares, calls);
}

/// A source moves to other blocks after its target was left with it. Only the next run brings the target there, and a
/// run that repeats this one would never do it.
#[test]
fn a_run_that_shares_may_leave_something_for_the_next_one() {
    let ground = Ground::new();
    for path in ["a-target", "b-source", "c-good", "d-held"] {
        ground.write(path, 1, 10);
    }
    ground.share_runs(&[(("b-source", 0), ("a-target", 0), 10, 1), (("c-good", 0), ("d-held", 0), 10, 1)]);
    let runs = [
        (("b-source", 0), ("a-target", 0), 10, 1),
        (("c-good", 0), ("a-target", 0), 10, 1),
        (("c-good", 0), ("b-source", 0), 10, 1),
    ];
    let came: Vec<_> = (0..3).map(|_| ground.share_runs(&runs).0).collect();
    let shared = came.iter().map(|passed| passed.shared.now).collect::<Vec<_>>();
    assert_eq!(shared, [10 * K, 10 * K, 0]);
    assert_eq!(came.iter().map(PassReport::is_complete).collect::<Vec<_>>(), [false, false, true]);
}

/// A source that shares with the target is evidence for its finder, whichever run came first.
#[test]
fn sources_at_one_place_are_all_told() {
    let ground = Ground::new();
    for path in ["one", "other", "target"] {
        ground.write(path, 1, 10);
    }
    ground.share_runs(&[(("one", 0), ("other", 0), 10, 1), (("one", 0), ("target", 0), 10, 1)]);
    let (passed, finder) =
        ground.share_runs(&[(("one", 0), ("target", 0), 10, 1), (("other", 0), ("target", 0), 10, 2)]);
    assert_eq!((passed.shared.now, passed.shared.before, passed.shared.repeated), (0, 10 * K, 10 * K), "{passed:?}");
    assert_eq!((finder.came(1, Outcome::Before), finder.came(2, Outcome::Before)), (10, 10));
}

#[test]
fn what_shares_already_is_seen_in_the_maps() {
    let ground = Ground::new();
    ground.write("one", 1, 12);
    ground.write("two", 1, 12);
    let runs = [(("one", 0), ("two", 0), 12, 1)];
    ground.share_runs(&runs);
    let calls = ground.file_system.counters().shares;
    let (passed, finder) = ground.share_runs(&runs);
    assert_eq!(
        (passed.shared.now, passed.shared.before, finder.came(1, Outcome::Before)),
        (0, 12 * K, 12),
        "{passed:?}"
    );
    assert_eq!(ground.file_system.counters().shares, calls);
    // The same holds for blocks that the scan's finder has shared, and the other way round.
    ground.write("three", 1, 12);
    assert_eq!(ground.run().shared.now, 12 * K);
    let (passed, _) = ground.share_runs(&[(("one", 0), ("three", 0), 12, 1)]);
    assert_eq!((passed.shared.now, passed.shared.before), (0, 12 * K), "{passed:?}");
}

/// Both sides of a run may be in one file, and even overlap: a block that occurs again and again.
#[test]
fn a_file_shares_with_itself() {
    let ground = Ground::new();
    ground.write("one", 1, 1);
    let block = {
        let file = ground.host.substrate.open(Path::new("one"), Access::Read).unwrap();
        let mut block = vec![0; usize::try_from(K).unwrap()];
        ground.host.substrate.read_at(&file, 0, &mut block).unwrap();
        block
    };
    let file = ground.host.substrate.open(Path::new("one"), Access::Write).unwrap();
    ground.host.substrate.write_at(&file, 0, &block.repeat(40)).unwrap();
    ground.file_system.pass(Duration::from_secs(1));
    let before = ground.freed();
    let (passed, finder) = ground.share_runs(&[(("one", 0), ("one", 1), 39, 1)]);
    assert_eq!((passed.shared.now, passed.shared.freed, ground.freed() - before), (39 * K, 39 * K, 39), "{passed:?}");
    // Blocks that share already are left alone in the other direction, too.
    let (passed, _) = ground.share_runs(&[(("one", 8), ("one", 0), 20, 1)]);
    assert_eq!((passed.shared.now, passed.shared.before), (0, 20 * K), "{passed:?}");
    assert_eq!(finder.told(), 39);
}

/// A target that is a source of an earlier target counts as freed only if nothing else refers to it.
#[test]
fn what_comes_free_adds_up_where_runs_form_chains() {
    for paths in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
        let ground = Ground::new();
        for path in paths {
            ground.write(path, 1, 10);
        }
        let before = ground.freed();
        let [one, two, three] = paths;
        let mut runs = vec![((two, 0), (one, 0), 10, 1), ((three, 0), (two, 0), 10, 2), ((one, 0), (three, 0), 10, 3)];
        runs.sort_by_key(|(_, target, ..)| *target);
        let (passed, finder) = ground.share_runs(&runs);
        assert_eq!((passed.shared.freed / K, finder.told()), (ground.freed() - before, 30), "{paths:?}: {passed:?}");
    }
}

#[test]
fn holes_stay_holes_and_are_no_sources() {
    let ground = Ground::new();
    ground.write("one", 1, 4);
    let file = ground.host.substrate.create(Path::new("sparse")).unwrap();
    ground.host.substrate.write_at(&file, 11 * K, &[1; 4096]).unwrap();
    let (passed, finder) = ground.share_runs(&[(("sparse", 0), ("one", 0), 4, 1), (("one", 0), ("sparse", 3), 4, 2)]);
    assert_eq!((passed.shared.now, passed.shared.differed), (0, 0), "{passed:?}");
    assert_eq!((finder.came(1, Outcome::SourceEmpty), finder.came(2, Outcome::Empty)), (4, 4));
}

#[test]
fn short_runs_are_left_alone_after_they_are_joined() {
    let ground = Ground::new();
    ground.write("one", 1, 20);
    ground.write("two", 1, 20);
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let numbers = Numbers::of(&state, &mut files);
    let run = |at, count, key| numbers.run(("one", at), ("two", at), count, key);
    let mut finder = ListFinder::of(vec![vec![run(0, 2, 1), run(2, 2, 2), run(9, 3, 3)]]);
    let (clock, pace) = (ManualClock::default(), Pace::unlimited());
    let options = PassOptions { min_run_bytes: 4 * K, ..PassOptions::new(Path::new("/var/tmp"), &pace, &clock) };
    let passed = share_found(&state, &mut files, &mut finder, &options).unwrap();
    assert_eq!((passed.shared.now, passed.shared.too_short), (4 * K, 3 * K), "{passed:?}");
    assert_eq!(finder.came(3, Outcome::TooShort), 3);
}

/// Regression: a guest that differs in every other block had its target cut into single blocks.
#[test]
fn short_equal_parts_between_blocks_that_differ_are_left_alone() {
    let ground = Ground::new();
    ground.write("one", 1, 40);
    ground.write("two", 1, 40);
    let two = ground.host.substrate.open(Path::new("two"), Access::Write).unwrap();
    for block in [3, 5, 7, 9, 30] {
        ground.host.substrate.write_at(&two, block * K, &[1; 4096]).unwrap();
    }
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let numbers = Numbers::of(&state, &mut files);
    let mut finder = ListFinder::of(vec![vec![numbers.run(("one", 0), ("two", 0), 40, 1)]]);
    let (clock, pace) = (ManualClock::default(), Pace::unlimited());
    let usual = PassOptions::new(Path::new("/var/tmp"), &pace, &clock);
    let options = PassOptions { min_run_bytes: 4 * K, call_bytes: 16 * K, ..usual };
    let passed = share_found(&state, &mut files, &mut finder, &options).unwrap();
    ground.file_system.check().unwrap();
    // Blocks 4, 6 and 8 lie between others that differ, and 0 to 2 before them; 31 ends a call that goes on.
    assert_eq!((passed.shared.too_short, passed.shared.differed), (6 * K, 5 * K), "{passed:?}");
    assert_eq!((passed.shared.now, finder.came(1, Outcome::TooShort)), (29 * K, 6), "{passed:?}");
}

/// The file system fills up after each call of a pass in turn, or the pass is stopped there.
#[test]
fn a_pass_that_is_cut_off_anywhere_keeps_what_it_has_shared() {
    for is_stopped in [false, true] {
        let mut cut = 0;
        for calls in 0.. {
            let ground = Ground::with(&SimulationOptions { hosts: 1, ..SimulationOptions::default() });
            for path in ["one", "three", "two"] {
                ground.write(path, 1, 6);
            }
            let host = ground.file_system.mount(HostNo(0));
            let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
            let mut files = Marks::load(&state).unwrap();
            let numbers = Numbers::of(&state, &mut files);
            let runs = |target| (0..6).map(|at| numbers.run(("one", at), (target, at), 1, 1)).collect();
            let mut finder = ListFinder::of(vec![runs("three"), runs("two")]);
            let asked = Cell::new(0);
            let wish = || {
                asked.set(asked.get() + 1);
                let is_over = asked.get() > calls;
                ground.file_system.set_full(is_over && !is_stopped);
                if is_over && is_stopped { Wish::StopNow } else { Wish::GoOn }
            };
            let how = PassSettings { call_bytes: K, wish: &wish, ..USUAL };
            let passed = how.share_found(&state, &mut files, &mut finder);
            ground.file_system.set_full(false);
            ground.file_system.check().unwrap();
            let shared = finder.came(1, Outcome::Shared);
            match &passed {
                Ok(passed) => assert!(passed.trouble.is_full || shared == 12, "{calls}: {passed:?}"),
                Err(PassError::State(StateError::Interrupted)) => assert!(is_stopped, "{calls}"),
                Err(PassError::State(StateError::Io { source, .. })) => {
                    assert!(source.kind() == io::ErrorKind::StorageFull && !is_stopped, "{calls}: {source}");
                }
                Err(why) => panic!("{calls}: {why}"),
            }
            drop(state);
            let (passed, _) = ground.share_runs(&[(("one", 0), ("three", 0), 6, 1), (("one", 0), ("two", 0), 6, 1)]);
            assert_eq!(passed.shared.now + passed.shared.before, 12 * K, "{calls}: {passed:?}");
            assert_eq!(passed.shared.before, shared * K, "{calls}: {passed:?}");
            if shared == 12 {
                break;
            }
            cut += 1;
        }
        assert!(cut > 10, "{cut}");
    }
}

/// A source that cannot be read costs its own runs.
#[test]
fn a_block_that_cannot_be_read_is_told_of() {
    let ground = Ground::new();
    for path in ["one", "two"] {
        ground.write(path, 1, 10);
    }
    ground.file_system.set_readable("one", 4, false).unwrap();
    let how = PassSettings { call_bytes: K, ..USUAL };
    let (passed, finder) = ground.share_runs_as(how, &[(("one", 0), ("two", 0), 10, 1)]);
    assert_eq!((passed.shared.now, passed.shared.refused), (9 * K, K), "{passed:?}");
    assert_eq!((finder.came(1, Outcome::Refused), passed.trouble.failed.len()), (1, 1));
    assert!(passed.trouble.again.is_empty(), "{passed:?}");
}

/// Regression: it was counted as done, as if the source had been looked at.
#[test]
fn a_map_that_cannot_be_read_is_told_of_where_another_source_shares_already() {
    let ground = Ground::new();
    for path in ["one", "other", "target"] {
        ground.write(path, 1, 10);
    }
    let runs = [(("one", 0), ("target", 0), 10, 1), (("other", 0), ("target", 0), 10, 2)];
    ground.share_runs(&runs);
    ground.file_system.set_mappable("other", false).unwrap();
    let (passed, finder) = ground.share_runs(&runs);
    assert_eq!(
        (passed.shared.before, passed.shared.repeated, passed.shared.refused),
        (10 * K, 0, 10 * K),
        "{passed:?}"
    );
    assert_eq!((finder.came(2, Outcome::Refused), passed.trouble.failed.len()), (10, 1));
    assert!(!passed.is_complete());
}

/// A part of the target is shared with another file, and is then the source of a run within the target. It used to
/// count as shared with that run's target, which lies where the source lay before.
#[test]
fn a_target_that_has_moved_is_a_source_where_it_lies_now() {
    let ground = Ground::new();
    for (path, blocks) in [("one", 8), ("target", 24)] {
        ground.write(path, 1, blocks);
        let file = ground.host.substrate.open(Path::new(path), Access::Write).unwrap();
        ground.host.substrate.write_at(&file, 0, &vec![9; usize::try_from(blocks * K).unwrap()]).unwrap();
    }
    let within = [(("target", 8), ("target", 0), 8, 1), (("target", 8), ("target", 16), 8, 3)];
    let (passed, _) = ground.share_runs(&within);
    assert_eq!(passed.shared.now, 16 * K, "{passed:?}");
    let (passed, finder) = ground.share_runs(&[within[0], (("one", 0), ("target", 8), 8, 2), within[1]]);
    let of = |key| [Outcome::Shared, Outcome::Before].map(|outcome| finder.came(key, outcome));
    assert_eq!([of(1), of(2), of(3)], [[0, 8], [8, 0], [8, 0]], "{passed:?}");
}
