//! The files in which a finder's runs are shared, and the fate of runs that name other files.

use super::*;
use crate::format::mark::Mark;

/// Files are shorter than the finder knew, gone, or replaced by others of the same names.
#[test]
fn runs_of_files_as_they_were_cost_nothing_but_savings() {
    let ground = Ground::new();
    for (path, blocks) in [("one", 20), ("short", 6), ("gone", 20), ("replaced", 20)] {
        ground.write(path, 1, blocks);
    }
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let numbers = Numbers::of(&state, &mut files);
    ground.remove(&["gone", "replaced"]);
    ground.write("replaced", 1, 20);
    let unknown = FilePlace { file: FileNo(4_000_000_000), block: FileBlock(0) };
    let key = |number| ContentKey::new(number).unwrap();
    let far = FileBlock::LIMIT - 1;
    let runs = vec![
        numbers.run(("one", 0), ("short", 0), 20, 1),
        numbers.run(("one", 3), ("short", 100), 9, 2),
        numbers.run(("short", far), ("one", 9), 1, 3),
        numbers.run(("gone", 0), ("one", 0), 5, 4),
        numbers.run(("one", 0), ("gone", 0), 5, 5),
        numbers.run(("replaced", 0), ("one", 0), 5, 6),
        numbers.run(("one", 0), ("replaced", 0), 5, 7),
        FinderRun::between(unknown, numbers.place(("one", 0)), 5, key(8)).unwrap(),
        FinderRun::between(numbers.place(("one", 0)), unknown, 5, key(9)).unwrap(),
        numbers.run(("short", 0), ("one", 0), FileBlock::LIMIT, 10),
    ];
    let mut finder = ListFinder::of(vec![runs, Vec::new()]);
    let passed = USUAL.share_found(&state, &mut files, &mut finder).unwrap();
    assert_eq!((passed.shared.now, finder.came(1, Outcome::Shared)), (6 * K, 6), "{passed:?}");
    assert_eq!([1, 2, 3].map(|key| finder.came(key, Outcome::Differed)), [14, 9, 1]);
    assert_eq!((4..10).map(|key| finder.came(key, Outcome::Barred)).collect::<Vec<_>>(), [5; 6]);
    assert_eq!((finder.came(10, Outcome::Before), finder.ended), (6, 2));
    assert!(passed.trouble.failed.is_empty() && passed.trouble.busy.is_empty(), "{passed:?}");
    ground.file_system.check().unwrap();
}

/// Counts do not overflow, whatever lengths a finder reports.
#[test]
fn very_many_runs_of_any_length_are_counted() {
    let ground = Ground::new();
    ground.write("one", 1, 8);
    ground.write("two", 1, 8);
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let numbers = Numbers::of(&state, &mut files);
    let longest = numbers.run(("one", 0), ("two", 0), FileBlock::LIMIT, 1);
    let barred = FinderRun::between(
        numbers.place(("one", 0)),
        FilePlace { file: FileNo(9999), block: FileBlock(0) },
        FileBlock::LIMIT,
        longest.key(),
    )
    .unwrap();
    let runs = || [longest, barred].into_iter().flat_map(|run| std::iter::repeat_n(run, 9000)).collect();
    for is_dry_run in [true, false] {
        let mut finder = ListFinder::of(vec![runs()]);
        let passed = PassSettings { is_dry_run, ..USUAL }.share_found(&state, &mut files, &mut finder).unwrap();
        let expected = if is_dry_run { (0, 0, 0) } else { (8 * K, u64::MAX, u64::MAX) };
        let shared = passed.shared;
        assert_eq!((shared.now, shared.differed, shared.barred), expected, "{passed:?}");
    }
}

/// An image of another host is a source, and no target.
#[test]
fn files_of_other_hosts_are_sources_only() {
    let ground = Ground::new();
    ground.write("ours", 1, 10);
    ground.write("theirs", 1, 10);
    let other = ground.file_system.mount(HostNo(1));
    let state = State::open(&other.substrate, &*other.clock, &*other.random, &|_| {}).unwrap();
    let held = state.try_lock(&Subject::File(ground.handle("theirs"))).unwrap().unwrap();
    let (passed, finder) = ground.share_runs(&[(("ours", 0), ("theirs", 0), 10, 1)]);
    assert_eq!((passed.shared.now, passed.shared.elsewhere, finder.left), (0, 10 * K, 10), "{passed:?}");
    let (passed, finder) = ground.share_runs(&[(("theirs", 0), ("ours", 0), 10, 1)]);
    assert_eq!((passed.shared.now, finder.came(1, Outcome::Shared)), (10 * K, 10), "{passed:?}");
    drop(held);
}

#[test]
fn selection_and_opt_outs_bind_both_sides() {
    let ground = Ground::new();
    for path in ["in", "in-too", "out", "opted"] {
        ground.write(path, 1, 10);
    }
    let (wants, roots) = (|path: &Path, _: ListedKind| path != Path::new("out"), [PathBuf::new()]);
    let how = PassSettings { selection: Selection::new(&roots, &wants), ..USUAL };
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let numbers = Numbers::of(&state, &mut files);
    opt_out::exclude(&ground.host.substrate, Path::new("opted")).unwrap();
    let runs = |is_dry_run| {
        let runs = [("in", "out"), ("out", "in"), ("in", "opted"), ("opted", "in"), ("in", "in-too")];
        let runs = runs.iter().zip(1..).map(|((source, target), key)| numbers.run((source, 0), (target, 0), 10, key));
        let mut finder = ListFinder::of(vec![runs.collect()]);
        let passed =
            PassSettings { is_dry_run, ..how }.share_found(&state, &mut Marks::load(&state).unwrap(), &mut finder);
        (passed.unwrap(), finder)
    };
    let (passed, finder) = runs(true);
    assert_eq!((passed.planned.targets, passed.planned.outside, finder.told()), (10, 40, 0), "{passed:?}");
    assert_eq!(passed.to_free, Some(10 * K), "only of files that share");
    let bound = |path: &Path| path != Path::new("out") && path != Path::new("opted");
    ground.host.substrate.bind(Some(std::rc::Rc::new(bound)));
    let (passed, finder) = runs(false);
    ground.host.substrate.bind(None);
    assert_eq!((passed.shared.now, passed.shared.barred), (10 * K, 40 * K), "{passed:?}");
    assert_eq!([1, 2, 3, 4].map(|key| finder.came(key, Outcome::Barred)), [10; 4]);
    ground.file_system.check().unwrap();
}

/// A source stays open from run to run, but not from target to target.
#[test]
fn a_source_that_is_opted_out_meanwhile_is_none_for_the_next_target() {
    for opted in ["folder/source", "folder"] {
        let ground = Ground::new();
        ground.host.substrate.create_dir(Path::new("folder")).unwrap();
        for path in ["folder/source", "first", "second"] {
            ground.write(path, 1, 10);
        }
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        let numbers = Numbers::of(&state, &mut files);
        let runs = ["first", "second"].iter().zip(1..);
        let runs = runs.map(|(target, key)| numbers.run(("folder/source", 0), (target, 0), 10, key)).collect();
        let wish = || {
            if ground.file_system.counters().shares > 0 {
                opt_out::exclude(&ground.host.substrate, Path::new(opted)).unwrap();
            }
            Wish::GoOn
        };
        let mut finder = ListFinder::of(vec![runs]);
        let passed =
            PassSettings { wish: &wish, call_bytes: K, ..USUAL }.share_found(&state, &mut files, &mut finder).unwrap();
        assert_eq!((passed.shared.now, passed.shared.barred), (10 * K, 10 * K), "{opted}: {passed:?}");
        assert_eq!((finder.came(1, Outcome::Shared), finder.came(2, Outcome::Barred)), (10, 10), "{opted}");
    }
}

/// Regression: another host had noted that an image was renamed to a place outside this pass's selection. The pass
/// looked for it, found it there, and read it.
#[test]
fn a_file_that_another_host_has_found_outside_is_left_alone() {
    let ground = Ground::new();
    for folder in ["in", "out"] {
        ground.host.substrate.create_dir(Path::new(folder)).unwrap();
    }
    for path in ["in/moved", "in/one"] {
        ground.write(path, 1, 10);
    }
    for is_source in [true, false] {
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        let numbers = Numbers::of(&state, &mut files);
        ground.host.substrate.rename(Path::new("in/moved"), Path::new("out/moved")).unwrap();
        let other = ground.file_system.mount(HostNo(1));
        let their_state = State::open(&other.substrate, &*other.clock, &*other.random, &|_| {}).unwrap();
        list(&their_state, &mut Marks::load(&their_state).unwrap(), &Selection::all()).unwrap();
        let (roots, wants) = ([PathBuf::from("in")], |_: &Path, _: ListedKind| true);
        let how = PassSettings { selection: Selection::new(&roots, &wants), ..USUAL };
        let pair = if is_source { ("in/moved", "in/one") } else { ("in/one", "in/moved") };
        let mut finder = ListFinder::of(vec![vec![numbers.run((pair.0, 0), (pair.1, 0), 10, 1)]]);
        ground.host.substrate.bind(Some(std::rc::Rc::new(|path: &Path| path.starts_with("in"))));
        let passed = how.share_found(&state, &mut files, &mut finder).unwrap();
        ground.host.substrate.bind(None);
        ground.file_system.check().unwrap();
        assert_eq!((passed.shared.now, finder.came(1, Outcome::Barred)), (0, 10), "source: {is_source}: {passed:?}");
        ground.host.substrate.rename(Path::new("out/moved"), Path::new("in/moved")).unwrap();
        list(&their_state, &mut Marks::load(&their_state).unwrap(), &Selection::all()).unwrap();
    }
}

/// Regression: two hosts had given a file a number each. The pass judged the file by the first number, whose name was
/// an old one inside the selection, and opened it by the name of the second, which was outside.
#[test]
fn a_file_with_two_numbers_is_left_alone_where_one_of_them_has_a_name_outside() {
    let ground = Ground::new();
    for folder in ["in", "out"] {
        ground.host.substrate.create_dir(Path::new(folder)).unwrap();
    }
    for path in ["in/moved", "in/one"] {
        ground.write(path, 1, 10);
    }
    let state = ground.state();
    let numbers = Numbers::of(&state, &mut Marks::load(&state).unwrap());
    ground.host.substrate.rename(Path::new("in/moved"), Path::new("out/moved")).unwrap();
    let first = Marks::load(&state).unwrap().get(numbers.0[Path::new("in/moved")]).unwrap().clone();
    let second = Mark { number: FileNo(first.number.0 + 10), path: PathBuf::from("out/moved"), ..first };
    let name = format!("files/{}", second.number);
    second.write(&ground.host.substrate, ground.create(&name), state.identity().uuid).unwrap();
    let (moved, one) = (FilePlace { file: second.number, block: FileBlock(0) }, numbers.place(("in/one", 0)));
    for (source, target) in [(moved, one), (one, moved)] {
        let (roots, wants) = ([PathBuf::from("in")], |_: &Path, _: ListedKind| true);
        let how = PassSettings { selection: Selection::new(&roots, &wants), ..USUAL };
        let run = FinderRun::between(source, target, 10, ContentKey::new(1).unwrap()).unwrap();
        let mut finder = ListFinder::of(vec![vec![run]]);
        ground.host.substrate.bind(Some(std::rc::Rc::new(|path: &Path| path.starts_with("in"))));
        let passed = how.share_found(&state, &mut Marks::load(&state).unwrap(), &mut finder).unwrap();
        ground.host.substrate.bind(None);
        ground.file_system.check().unwrap();
        assert_eq!((passed.shared.now, finder.came(1, Outcome::Barred)), (0, 10), "{target:?}: {passed:?}");
        assert!(passed.trouble.failed.is_empty(), "{passed:?}");
    }
}

/// The source and every second copy are counted once, and blocks that share already are not.
#[test]
fn a_dry_run_says_what_would_come_free() {
    let ground = Ground::new();
    for path in ["one", "two", "three"] {
        ground.write(path, 1, 10);
    }
    let dry = PassSettings { is_dry_run: true, ..USUAL };
    let twice = [(("one", 0), ("two", 0), 10, 1), (("one", 0), ("two", 4), 6, 2), (("one", 0), ("three", 5), 5, 3)];
    let (passed, _) = ground.share_runs_as(dry, &twice);
    assert_eq!((passed.to_free, ground.freed()), (Some(15 * K), 0), "{passed:?}");
    ground.share_runs(&twice[..1]);
    assert_eq!(ground.freed(), 10);
    let (passed, _) = ground.share_runs_as(dry, &twice);
    assert_eq!(passed.to_free, Some(5 * K), "{passed:?}");
    let (passed, _) = ground.share_runs(&[(("one", 5), ("three", 5), 5, 3)]);
    assert_eq!((passed.to_free, ground.freed()), (None, 15), "{passed:?}");
}

#[test]
fn files_of_two_domains_do_not_share() {
    let ground = Ground::new();
    for (path, owner) in [("alice", 1000), ("alice-too", 1000), ("bob", 1001)] {
        ground.write(path, 1, 10);
        ground.file_system.give_image(HostNo(0), path, owner).unwrap();
    }
    let runs =
        [(("alice", 0), ("alice-too", 0), 10, 1), (("alice", 0), ("bob", 0), 10, 2), (("bob", 0), ("alice", 0), 10, 3)];
    let (passed, _) = ground.share_runs_as(PassSettings { is_dry_run: true, ..USUAL }, &runs);
    assert_eq!((passed.planned.targets, passed.planned.outside, passed.shared.now), (10, 20, 0), "{passed:?}");
    let (passed, finder) = ground.share_runs(&runs);
    assert_eq!((passed.shared.now, passed.shared.barred), (10 * K, 20 * K), "{passed:?}");
    assert_eq!((finder.came(2, Outcome::Barred), finder.came(3, Outcome::Barred)), (10, 10));
}

#[test]
fn a_file_that_moved_is_shared_where_it_is_now() {
    let ground = Ground::new();
    for path in ["one", "two"] {
        ground.write(path, 1, 10);
    }
    ground.run();
    ground.host.substrate.rename(Path::new("two"), Path::new("other")).unwrap();
    ground.write("other", 3, 10);
    ground.write("one", 3, 10);
    let (passed, _) = ground.share_runs(&[(("one", 0), ("other", 0), 10, 1)]);
    assert_eq!(passed.shared.now, 10 * K, "{passed:?}");
}

#[test]
fn where_shares_are_declared_runs_from_file_to_file_are_refused() {
    let ground = on_two_steps(4, 4);
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let numbers = Numbers::of(&state, &mut files);
    let mut finder = ListFinder::of(vec![vec![numbers.run(("one", 0), ("three", 0), 4, 1)]]);
    let refused = USUAL.share_found(&state, &mut files, &mut finder);
    assert!(matches!(refused, Err(PassError::Undeclared)) && finder.told() == 0, "{refused:?}");
}
