//! A finder that shares from file to file: what it says may be wrong, late or twofold.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use onefold_substrate::{FileHandle, Names};

use super::*;
use crate::format::FileBlock;
use crate::opt_out;
use crate::scan::list;
use crate::state::locks::Subject;

/// Yields runs that the test gives, and keeps what came of them: blocks by key and outcome.
#[derive(Default)]
struct Listed {
    batches: VecDeque<Vec<Run>>,
    current: VecDeque<Run>,
    came: BTreeMap<(u32, Outcome), u64>,
    left: u64,
    ended: u32,
}

impl Listed {
    fn of(batches: Vec<Vec<Run>>) -> Listed {
        Listed { batches: batches.into(), ..Listed::default() }
    }

    fn came(&self, key: u32, outcome: Outcome) -> u64 {
        self.came.get(&(key, outcome)).copied().unwrap_or(0)
    }

    /// Returns how many blocks something came of, however often.
    fn told(&self) -> u64 {
        self.came.values().sum::<u64>() + self.left
    }
}

impl RunBatch for Listed {
    fn next_run(&mut self) -> io::Result<Option<Run>> {
        Ok(self.current.pop_front())
    }

    fn leave(&mut self, part: &Run) -> Result<(), PassError> {
        self.left += part.count();
        Ok(())
    }

    fn note(&mut self, part: &Run, outcome: Outcome) {
        *self.came.entry((part.key().number(), outcome)).or_default() += part.count();
    }
}

impl<'b> Finder<'b, Sim> for Listed {
    fn next_batch(&mut self, _: &mut Engine<'_, 'b, Sim>) -> Result<Option<&mut dyn RunBatch>, PassError> {
        let Some(batch) = self.batches.pop_front() else { return Ok(None) };
        self.current = batch.into();
        Ok(Some(self))
    }

    fn end_batch(&mut self, _: &mut Engine<'_, 'b, Sim>) -> Result<(), PassError> {
        assert!(self.current.is_empty(), "a batch ended before its runs did");
        self.ended += 1;
        Ok(())
    }
}

/// The numbers of files by their paths.
struct Numbers(BTreeMap<PathBuf, FileNo>);

impl Numbers {
    fn of(state: &State<'_, Sim>, files: &mut Marks) -> Numbers {
        let listed = list(state, files, &Selection::all()).unwrap();
        Numbers(listed.into_iter().map(|file| (file.path, file.number)).collect())
    }

    fn place(&self, (path, block): (&str, u64)) -> FilePlace {
        FilePlace { file: self.0[Path::new(path)], block: FileBlock(block) }
    }

    fn run(&self, source: (&str, u64), target: (&str, u64), count: u64, key: u32) -> Run {
        let key = ContentKey::new(key).unwrap();
        Run::between(self.place(source), self.place(target), count, key).unwrap()
    }
}

type GivenRun<'a> = ((&'a str, u64), (&'a str, u64), u64, u32);

impl Ground {
    /// Shares runs (source, target, count, key) as one batch.
    fn share_runs(&self, runs: &[GivenRun<'_>]) -> (Passed, Listed) {
        self.share_runs_as(USUAL, runs)
    }

    fn share_runs_as(&self, how: How<'_>, runs: &[GivenRun<'_>]) -> (Passed, Listed) {
        let state = self.state();
        let mut files = Marks::load(&state).unwrap();
        let numbers = Numbers::of(&state, &mut files);
        let runs = runs.iter().map(|(source, target, count, key)| numbers.run(*source, *target, *count, *key));
        let mut finder = Listed::of(vec![runs.collect()]);
        let passed = how.share_found(&state, &mut files, &mut finder).unwrap();
        self.file_system.check().unwrap();
        (passed, finder)
    }

    /// Returns how many blocks have come free by shares so far.
    fn freed(&self) -> u64 {
        self.file_system.counters().blocks_freed_by_sharing
    }

    fn handle(&self, path: &str) -> FileHandle {
        let file = self.host.substrate.open(Path::new(path), Access::Read).unwrap();
        self.host.substrate.stat(&file).unwrap().handle
    }
}

impl How<'_> {
    fn share_found<'b>(
        &self,
        state: &State<'b, Sim>,
        files: &mut Marks,
        finder: &mut dyn Finder<'b, Sim>,
    ) -> Result<Passed, PassError> {
        let clock = ManualClock::default();
        let pace = Pace::new(Limits::default(), &clock, &ProcessCpu, self.wish);
        let options = PassOptions {
            selection: self.selection,
            memory_bytes: 1 << 20,
            call_bytes: self.call_bytes,
            is_dry_run: self.is_dry_run,
            progress: self.progress,
            ..PassOptions::new(Path::new("/var/tmp"), &pace, &clock)
        };
        share_found(state, files, finder, &options)
    }
}

/// Runs that follow on each other become one call, and what came of it is told by content all the same.
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
    // The scan's finder meets no work in what is shared, and shares nothing twice.
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
        (passed.shared.now, passed.shared.differed, passed.shared.before),
        (16 * K, 16 * K, 18 * K),
        "{passed:?}"
    );
    let of = |key| [Outcome::Shared, Outcome::Before, Outcome::Differed].map(|outcome| finder.came(key, outcome));
    assert_eq!([of(1), of(2), of(3), of(4)], [[0, 0, 16], [10, 0, 0], [6, 6, 0], [0, 12, 0]]);
    assert_eq!(passed.shared.freed, 16 * K);
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
    // So it is with what the scan's finder has shared, and the other way round.
    ground.write("three", 1, 12);
    assert_eq!(ground.run().shared.now, 12 * K);
    let (passed, _) = ground.share_runs(&[(("one", 0), ("three", 0), 12, 1)]);
    assert_eq!((passed.shared.now, passed.shared.before), (0, 12 * K), "{passed:?}");
}

/// Files are shorter than the finder knew, gone, or others have their names.
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
        Run::between(unknown, numbers.place(("one", 0)), 5, key(8)).unwrap(),
        Run::between(numbers.place(("one", 0)), unknown, 5, key(9)).unwrap(),
        numbers.run(("short", 0), ("one", 0), FileBlock::LIMIT, 10),
    ];
    let mut finder = Listed::of(vec![runs, Vec::new()]);
    let passed = USUAL.share_found(&state, &mut files, &mut finder).unwrap();
    assert_eq!((passed.shared.now, finder.came(1, Outcome::Shared)), (6 * K, 6), "{passed:?}");
    assert_eq!([1, 2, 3].map(|key| finder.came(key, Outcome::Differed)), [14, 9, 1]);
    assert_eq!((4..10).map(|key| finder.came(key, Outcome::Barred)).collect::<Vec<_>>(), [5; 6]);
    assert_eq!((finder.came(10, Outcome::Before), finder.ended), (6, 2));
    assert!(passed.trouble.failed.is_empty() && passed.trouble.busy.is_empty(), "{passed:?}");
    ground.file_system.check().unwrap();
}

/// Figures do not overflow, whatever a finder says of lengths.
#[test]
fn very_many_runs_of_any_length_are_counted() {
    let ground = Ground::new();
    ground.write("one", 1, 8);
    ground.write("two", 1, 8);
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let numbers = Numbers::of(&state, &mut files);
    let longest = numbers.run(("one", 0), ("two", 0), FileBlock::LIMIT, 1);
    let barred = Run::between(
        numbers.place(("one", 0)),
        FilePlace { file: FileNo(9999), block: FileBlock(0) },
        FileBlock::LIMIT,
        longest.key(),
    )
    .unwrap();
    let runs = || [longest, barred].into_iter().flat_map(|run| std::iter::repeat_n(run, 9000)).collect();
    for is_dry_run in [true, false] {
        let mut finder = Listed::of(vec![runs()]);
        let passed = How { is_dry_run, ..USUAL }.share_found(&state, &mut files, &mut finder).unwrap();
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
    let how = How { selection: Selection::new(&roots, &wants), ..USUAL };
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let numbers = Numbers::of(&state, &mut files);
    opt_out::exclude(&ground.host.substrate, Path::new("opted")).unwrap();
    let runs = |is_dry_run| {
        let runs = [("in", "out"), ("out", "in"), ("in", "opted"), ("opted", "in"), ("in", "in-too")];
        let runs = runs.iter().zip(1..).map(|((source, target), key)| numbers.run((source, 0), (target, 0), 10, key));
        let mut finder = Listed::of(vec![runs.collect()]);
        let passed = How { is_dry_run, ..how }.share_found(&state, &mut Marks::load(&state).unwrap(), &mut finder);
        (passed.unwrap(), finder)
    };
    let (passed, finder) = runs(true);
    assert_eq!((passed.planned.targets, passed.planned.outside, finder.told()), (10, 40, 0), "{passed:?}");
    let bound = |path: &Path| path != Path::new("out") && path != Path::new("opted");
    ground.host.substrate.bind(Some(std::rc::Rc::new(bound)));
    let (passed, finder) = runs(false);
    ground.host.substrate.bind(None);
    assert_eq!((passed.shared.now, passed.shared.barred), (10 * K, 40 * K), "{passed:?}");
    assert_eq!([1, 2, 3, 4].map(|key| finder.came(key, Outcome::Barred)), [10; 4]);
    ground.file_system.check().unwrap();
}

/// Seen: another host had noted that an image was renamed to where this pass must not go. The pass looked for it, found it there, and
/// read it.
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
        let how = How { selection: Selection::new(&roots, &wants), ..USUAL };
        let pair = if is_source { ("in/moved", "in/one") } else { ("in/one", "in/moved") };
        let mut finder = Listed::of(vec![vec![numbers.run((pair.0, 0), (pair.1, 0), 10, 1)]]);
        ground.host.substrate.bind(Some(std::rc::Rc::new(|path: &Path| path.starts_with("in"))));
        let passed = how.share_found(&state, &mut files, &mut finder).unwrap();
        ground.host.substrate.bind(None);
        ground.file_system.check().unwrap();
        assert_eq!((passed.shared.now, finder.came(1, Outcome::Barred)), (0, 10), "source: {is_source}: {passed:?}");
        ground.host.substrate.rename(Path::new("out/moved"), Path::new("in/moved")).unwrap();
        list(&their_state, &mut Marks::load(&their_state).unwrap(), &Selection::all()).unwrap();
    }
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
    let (passed, _) = ground.share_runs_as(How { is_dry_run: true, ..USUAL }, &runs);
    assert_eq!((passed.planned.targets, passed.planned.outside, passed.shared.now), (10, 20, 0), "{passed:?}");
    let (passed, finder) = ground.share_runs(&runs);
    assert_eq!((passed.shared.now, passed.shared.barred), (10 * K, 20 * K), "{passed:?}");
    assert_eq!((finder.came(2, Outcome::Barred), finder.came(3, Outcome::Barred)), (10, 10));
}

/// Both sides of a run may be in one file, and even overlap: a block that is there again and again.
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
    // Downwards, and in calls of several blocks.
    let (passed, _) = ground.share_runs(&[(("one", 8), ("one", 0), 20, 1)]);
    assert_eq!((passed.shared.now, passed.shared.before), (0, 20 * K), "{passed:?}");
    assert_eq!(finder.told(), 39);
}

/// A target that is a source of an earlier target counts as coming free only if nobody else refers to it.
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
    assert_eq!((finder.came(1, Outcome::Empty), finder.came(2, Outcome::Empty)), (4, 4));
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
    let mut finder = Listed::of(vec![vec![run(0, 2, 1), run(2, 2, 2), run(9, 3, 3)]]);
    let (clock, pace) = (ManualClock::default(), Pace::unlimited());
    let options = PassOptions { min_run_bytes: 4 * K, ..PassOptions::new(Path::new("/var/tmp"), &pace, &clock) };
    let passed = share_found(&state, &mut files, &mut finder, &options).unwrap();
    assert_eq!((passed.shared.now, passed.shared.too_short), (4 * K, 3 * K), "{passed:?}");
    assert_eq!(finder.came(3, Outcome::TooShort), 3);
}

/// The file system fills up after each call of a pass in turn, or somebody stops it there.
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
            let mut finder = Listed::of(vec![runs("three"), runs("two")]);
            let asked = Cell::new(0);
            let wish = || {
                asked.set(asked.get() + 1);
                let is_over = asked.get() > calls;
                ground.file_system.set_full(is_over && !is_stopped);
                if is_over && is_stopped { Wish::StopNow } else { Wish::GoOn }
            };
            let how = How { call_bytes: K, wish: &wish, ..USUAL };
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
    let how = How { call_bytes: K, ..USUAL };
    let (passed, finder) = ground.share_runs_as(how, &[(("one", 0), ("two", 0), 10, 1)]);
    assert_eq!((passed.shared.now, passed.shared.refused), (9 * K, K), "{passed:?}");
    assert_eq!((finder.came(1, Outcome::Refused), passed.trouble.failed.len()), (1, 1));
    assert!(passed.trouble.again.is_empty(), "{passed:?}");
}

/// What a finder has shared lies elsewhere, and is not what a guest wrote: the next scan reads nothing for it.
#[test]
fn a_scan_does_not_read_what_a_finder_has_shared() {
    let ground = Ground::new();
    ground.write("one", 1, 12);
    ground.write("two", 2, 12);
    ground.run();
    let before = unread(&ground.state());
    ground.write("two", 1, 12);
    ground.share_runs(&[(("one", 0), ("two", 0), 12, 1)]);
    let passed = ground.run();
    assert_eq!((passed.shared.now, passed.shared.differed), (0, 0), "{passed:?}");
    assert_eq!(unread(&ground.state()), before);
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
    let mut finder = Listed::of(vec![vec![numbers.run(("one", 0), ("three", 0), 4, 1)]]);
    let refused = USUAL.share_found(&state, &mut files, &mut finder);
    assert!(matches!(refused, Err(PassError::Undeclared)) && finder.told() == 0, "{refused:?}");
}
