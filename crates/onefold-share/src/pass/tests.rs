//! Passes that are disturbed: nothing that was known is lost for good.

mod batches;
mod declared;
mod selection;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use onefold_block::clock::ManualClock;
use onefold_block::random::{Random, SeededRandom};
use onefold_block::{BLOCK_BYTES_U64, Timestamp};
use onefold_substrate::{Access, Files, ListedKind, Names, Sharing};

use super::*;
use crate::format::entry::Place;
use crate::format::log::LogKind;
use crate::format::mark::Mark;
use crate::format::prefix::Prefix;
use crate::format::{FileBlock, FileNo};
use crate::opt_out;
use crate::pace::{Limits, Wish};
use crate::scan::{Rereading, ScanOptions, Scanned, scan};
use crate::state::locks::Subject;
use crate::state::trust::Distrust;
use crate::state::{Notice, StateError};
use onefold_linux::ProcessCpu;
use onefold_testing::simulated::{Faults, Host, HostNo, SimulatedFileSystem, SimulatedSubstrate, SimulationOptions};

const K: u64 = BLOCK_BYTES_U64;

/// The state folder of root, for whom the hosts work.
const FOLDER: &str = ".onefold";

type Sim = SimulatedSubstrate<'static>;

/// A file system without images, and a host that no fault hits.
struct Ground {
    file_system: SimulatedFileSystem,
    host: Host<'static>,
}

impl Ground {
    fn new() -> Ground {
        Ground::with(&SimulationOptions::default())
    }

    fn with(options: &SimulationOptions) -> Ground {
        let options = SimulationOptions { images: 0, total_blocks: 1 << 16, image_blocks_max: 64, ..options.clone() };
        let file_system = SimulatedFileSystem::new(&options);
        let host = file_system.observe();
        Ground { file_system, host }
    }

    fn state(&self) -> State<'_, Sim> {
        State::open(&self.host.substrate, &*self.host.clock, &*self.host.random, &|_| {}).unwrap()
    }

    /// Writes blocks that are equal for equal seeds, and has so much time pass that later changes are seen to be later.
    fn write(&self, path: &str, seed: u64, blocks: u64) {
        let path = Path::new(path);
        let substrate = &self.host.substrate;
        let file = substrate.open(path, Access::Write).or_else(|_| substrate.create(path)).unwrap();
        let mut bytes = vec![0; usize::try_from(blocks * K).unwrap()];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        substrate.write_at(&file, 0, &bytes).unwrap();
        self.file_system.pass(Duration::from_secs(1));
    }

    fn names(&self, folder: &str) -> Vec<PathBuf> {
        let folder = Path::new(FOLDER).join(folder);
        let listed = self.host.substrate.list(&folder).unwrap();
        listed.into_iter().map(|listed| folder.join(listed.name)).collect()
    }

    fn create(&self, path: &str) -> <Sim as Files>::File {
        self.host.substrate.create(&Path::new(FOLDER).join(path)).unwrap()
    }

    /// Scans and passes.
    fn run(&self) -> Passed {
        let state = self.state();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        USUAL.pass(&state, &mut files).unwrap()
    }
}

fn scan_all(state: &State<'_, Sim>, files: &mut Marks) -> Scanned {
    scan_those(state, files, &|_, _| true)
}

fn scan_those(state: &State<'_, Sim>, files: &mut Marks, wants: &dyn Fn(&Path, ListedKind) -> bool) -> Scanned {
    let roots = [PathBuf::new()];
    let options = ScanOptions {
        selection: Selection::new(&roots, wants),
        threads: 0,
        pace: &Pace::unlimited(),
        rereading: Rereading::default(),
        stable_for: Duration::ZERO,
        progress: &|_| ControlFlow::Continue(()),
    };
    scan(state, files, &options).unwrap()
}

/// What a test may change of a pass.
#[derive(Clone, Copy)]
struct How<'a> {
    selection: Selection<'a>,
    batch: BatchOptions,
    call_bytes: u64,
    is_dry_run: bool,
    clock: Option<&'a ManualClock>,
    wish: &'a dyn Fn() -> Wish,
    progress: &'a dyn Fn(PassProgress) -> ControlFlow<()>,
}

const USUAL: How<'static> = How {
    selection: Selection::all(),
    batch: BatchOptions { slots: Slot::IN_FILE },
    call_bytes: 1 << 20,
    is_dry_run: false,
    clock: None,
    wish: &|| Wish::GoOn,
    progress: &|_| ControlFlow::Continue(()),
};

impl How<'_> {
    fn pass(&self, state: &State<'_, Sim>, files: &mut Marks) -> Result<Passed, PassError> {
        let own_clock = ManualClock::default();
        let clock = self.clock.unwrap_or(&own_clock);
        let options = PassOptions {
            selection: self.selection,
            temporary_folder: Path::new("/var/tmp"),
            memory_bytes: 1 << 20,
            call_bytes: self.call_bytes,
            min_run_bytes: K,
            batch: self.batch,
            space: SpaceOptions::default(),
            threads: 0,
            is_dry_run: self.is_dry_run,
            shard_entries_max: 12,
            clock,
            pace: &Pace::new(Limits::default(), clock, &ProcessCpu, self.wish),
            progress: self.progress,
        };
        pass(state, files, &options)
    }
}

/// Returns which files have to be read again, by their paths.
fn unread(state: &State<'_, Sim>) -> BTreeMap<PathBuf, bool> {
    let files = Marks::load(state).unwrap();
    files.iter().map(|mark| (mark.path.clone(), mark.scanned.is_none() || !mark.reading.again.is_empty())).collect()
}

/// A shard of which the first bytes are gone is dropped by whoever opens it. What it held is found again, also where that
/// pass has published other entries before.
#[test]
fn what_a_dropped_shard_held_is_found_again() {
    for is_publishing in [false, true] {
        let ground = Ground::new();
        ground.write("one", 1, 10);
        ground.run();
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        ground.write("other", 2, 3);
        scan_all(&state, &mut files);
        let spoil = || {
            let [shard] = &ground.names("shards")[..] else { panic!("one shard") };
            let file = ground.host.substrate.open(shard, Access::Write).unwrap();
            ground.host.substrate.write_at(&file, 0, b"nonsense").unwrap();
        };
        if is_publishing {
            // The plan is made by then, and nothing is published.
            let progress = |at| {
                if matches!(at, PassProgress::Planned { .. }) {
                    spoil();
                }
                ControlFlow::Continue(())
            };
            let passed = How { progress: &progress, ..USUAL }.pass(&state, &mut files);
            assert!(matches!(passed, Err(PassError::Index { .. })), "{passed:?}");
        } else {
            spoil();
            USUAL.pass(&state, &mut files).unwrap();
        }
        drop(state);
        ground.write("two", 1, 10);
        let shared = ground.run().shared.now + ground.run().shared.now;
        assert_eq!(shared, 10 * K, "publishing: {is_publishing}");
    }
}

/// An index of another state folder may have any number of shards.
#[test]
fn many_shards_of_no_use_are_dropped_at_once() {
    let ground = Ground::new();
    ground.write("one", 1, 64);
    ground.run();
    for number in 0..40_u32 {
        ground.create(&format!("shards/{number:012b}.1"));
    }
    let state = ground.state();
    let shards = state.open_shards(Prefix::WHOLE).unwrap();
    assert!(state.take_loss() && !state.take_loss());
    assert!(!shards.is_empty() && ground.names("shards").len() < 40);
}

#[test]
fn names_that_nobody_writes_are_passed_over() {
    let ground = Ground::new();
    ground.write("one", 1, 5);
    ground.run();
    for name in ["shards/whole.007", "shards/whole.+9", "shards/0.01", "scratch/1.host", "scratch/+2.host"] {
        ground.create(name);
    }
    let state = ground.state();
    assert_eq!(state.dead_hosts().unwrap(), []);
    assert_eq!(state.open_shards(Prefix::WHOLE).unwrap().len(), 1);
    assert_eq!(state.count_entries().unwrap().unique, 5);
}

/// Who is killed, or fails, once the logs are gone has noted before what has to be read again.
#[test]
fn what_was_left_undone_is_noted_before_the_logs_go() {
    let ground = Ground::new();
    ground.write("a", 1, 4);
    ground.write("b", 1, 4);
    let state = ground.state();
    // The arena file that is filled, whose lock is none in the end: what no entry names cannot be emptied.
    ground.create("arena/6");
    let lock = Path::new(FOLDER).join("locks/arena.6");
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let progress = |at| {
        if matches!(at, PassProgress::Planned { .. }) {
            ground.write("b", 2, 1);
        } else if ground.host.substrate.remove(&lock).is_ok() {
            ground.host.substrate.create_dir(&lock).unwrap();
        }
        ControlFlow::Continue(())
    };
    let passed = How { progress: &progress, ..USUAL }.pass(&state, &mut files);
    assert!(matches!(passed, Err(PassError::State(StateError::Untrusted { why: Distrust::Kind, .. }))), "{passed:?}");
    assert_eq!(ground.names("logs").len(), 0);
    assert_eq!(unread(&state), [("a".into(), false), ("b".into(), true)].into());
}

/// A log of a file that is not there for a while goes; the file is read once it is back, though none of its times tell.
#[test]
fn a_file_that_comes_back_as_it_was_is_read() {
    let ground = Ground::new();
    // Where there is no index, all that is in no log is read anyway.
    ground.write("zero", 9, 1);
    ground.run();
    ground.host.substrate.create_dir(Path::new("folder")).unwrap();
    ground.write("folder/one", 1, 5);
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    opt_out::exclude(&ground.host.substrate, Path::new("folder")).unwrap();
    How { is_dry_run: true, ..USUAL }.pass(&state, &mut files).unwrap();
    opt_out::include(&ground.host.substrate, Path::new("folder")).unwrap();
    drop(state);
    ground.write("two", 1, 5);
    assert_eq!(ground.run().shared.now, 5 * K);
}

/// Another host has a file until its log is taken in, and lets go of it before this one looks.
#[test]
fn a_log_that_others_have_taken_in_is_no_trouble() {
    let ground = Ground::new();
    ground.write("one", 1, 5);
    let notices = Cell::new(0);
    let notice = |_: Notice| notices.set(notices.get() + 1);
    let state = State::open(&ground.host.substrate, &*ground.host.clock, &*ground.host.random, &notice).unwrap();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let wish = || {
        ground.names("logs").iter().for_each(|log| ground.host.substrate.remove(log).unwrap());
        Wish::GoOn
    };
    let passed = How { wish: &wish, ..USUAL }.pass(&state, &mut files).unwrap();
    assert_eq!((passed.logs, notices.get()), (0, 0));
    assert_eq!(unread(&state), [("one".into(), false)].into());
}

/// One call that fails says nothing of the next range.
#[test]
fn what_is_busy_does_not_keep_the_rest_of_a_run_from_being_shared() {
    let faults = Faults { busy: 200_000, ..Faults::none() };
    let mut with_busy_ranges = 0;
    for seed in 0..16 {
        let options = SimulationOptions { hosts: 1, seed, faults, ..SimulationOptions::default() };
        let ground = Ground::with(&options);
        ground.write("a", 1, 64);
        ground.write("b", 1, 64);
        let host = ground.file_system.mount(HostNo(0));
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        let passed = How { call_bytes: K, ..USUAL }.pass(&state, &mut files).unwrap();
        if passed.planned.targets > 0 && passed.index.is_some_and(|(counts, _)| counts.unique > 0) {
            // The one call that puts all of it into the arena was.
            continue;
        }
        let (shared, refused) = (passed.shared.now / K, passed.shared.refused / K);
        assert!(shared > 32 && shared + refused == 64, "{shared} shared, {refused} not: {passed:?}");
        // What was left is read again.
        let again = unread(&state);
        assert_eq!(again.values().any(|is_unread| *is_unread), refused > 0, "{again:?}");
        with_busy_ranges += u32::from(refused > 0);
    }
    assert!(with_busy_ranges > 8, "{with_busy_ranges}");
}

/// Somebody has the index: who is told to stop meanwhile does not wait for it.
#[test]
fn waiting_for_a_shard_ends_when_the_user_wants_it() {
    let ground = Ground::new();
    ground.write("one", 1, 5);
    let (state, other) = (ground.state(), ground.state());
    let _held = other.try_lock(&Subject::Shard(Prefix::WHOLE)).unwrap().unwrap();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let clock = ManualClock::default();
    let wish = || if clock.monotonic() >= Duration::from_secs(1) { Wish::StopNow } else { Wish::GoOn };
    let passed = How { clock: Some(&clock), wish: &wish, ..USUAL }.pass(&state, &mut files);
    assert!(matches!(passed, Err(PassError::State(StateError::Interrupted))), "{passed:?}");
    assert!(clock.monotonic() <= Duration::from_millis(1100), "{:?}", clock.monotonic());
}

/// What a file system drops in the background is not to be seen at once: passes look again for a while, then no more.
#[test]
fn deleted_files_are_looked_after_for_a_while() {
    let ground = Ground::new();
    for path in ["one", "two"] {
        ground.write(path, 1, 5);
    }
    ground.run();
    ["one", "two"].iter().for_each(|path| ground.host.substrate.remove(Path::new(path)).unwrap());
    let has_looked = || ground.run().index.is_some();
    assert!(has_looked() && has_looked());
    ground.file_system.pass(Duration::from_secs(61));
    assert!(has_looked() && !has_looked());
    // Numbers are given out once.
    let state = ground.state();
    assert_eq!(unread(&state), [("".into(), true)].into());
    let files = Marks::load(&state).unwrap();
    let counted = crate::references::count(&state, &files).unwrap().unwrap();
    assert_eq!(counted.unmapped, 0);
}

/// A slot that holds something else than its entry says, as a host that had lost its lock may leave one: its entry goes, and
/// the content gets another slot.
#[test]
fn an_entry_whose_slot_holds_something_else_goes() {
    let ground = Ground::new();
    for path in ["one", "two"] {
        ground.write(path, 1, 1);
    }
    ground.run();
    let [arena] = &ground.names("arena")[..] else { panic!("one arena file") };
    let file = ground.host.substrate.open(arena, Access::Write).unwrap();
    ground.host.substrate.write_at(&file, 0, &[7; 4096]).unwrap();
    // Somebody shares with what is there now.
    let other = ground.host.substrate.create(Path::new("other")).unwrap();
    ground.host.substrate.set_len(&other, K).unwrap();
    let at = |file| onefold_substrate::At { file, offset: 0 };
    ground.host.substrate.clone_range(at(&file), at(&other), K).unwrap();
    drop((file, other));
    for path in ["three", "four"] {
        ground.write(path, 1, 1);
    }
    let first = ground.run().shared;
    assert_eq!((first.now, first.differed), (0, 2 * K));
    let second = ground.run().shared;
    assert_eq!((second.now, second.differed), (K, 0));
    ground.file_system.check().unwrap();
}

/// A file of the highest number that is full, as a damaged state folder may have: the next one got no number, and no pass
/// shared anything new any more.
#[test]
fn a_full_arena_file_of_the_highest_number_is_not_the_end() {
    let ground = Ground::new();
    ground.write("other", 9, 1);
    ground.run();
    let substrate = &ground.host.substrate;
    let highest = (1 << 21) - 1;
    assert!(Slot::new(highest, 0).is_some() && Slot::new(highest + 1, 0).is_none());
    let path: PathBuf = [FOLDER, "arena", &highest.to_string()].iter().collect();
    let file = substrate.create(&path).unwrap();
    substrate.write_at(&file, (Slot::IN_FILE - 1) * K, &[7; 4096]).unwrap();
    drop(file);
    for path in ["one", "two"] {
        ground.write(path, 1, 5);
    }
    assert_eq!(ground.run().shared.now, 5 * K);
}

/// A file with two names, of which only the second has been seen.
fn with_two_names() -> Ground {
    let ground = Ground::new();
    ground.write("b", 1, 3);
    ground.host.substrate.link(Path::new("b"), Path::new("a")).unwrap();
    ground.file_system.pass(Duration::from_secs(1));
    let state = ground.state();
    scan_those(&state, &mut Marks::load(&state).unwrap(), &|path, _| path != Path::new("a"));
    assert_eq!(unread(&state), [("b".into(), false)].into());
    drop(state);
    ground
}

/// A host that found a file by another name noted that name, and with it the times of the last reading: that another host had
/// asked for the file to be read again was lost.
#[test]
fn what_another_host_has_noted_outlives_a_new_name() {
    let ground = with_two_names();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let number = files.iter().next().unwrap().number;
    // Another host's pass has found a block of it overwritten.
    Marks::load(&state).unwrap().forget_scan(&state, number).unwrap();
    assert_eq!(scan_all(&state, &mut files).unchanged, 1);
    assert_eq!(unread(&state), [("a".into(), true)].into());
    // So has one that only saw that its times were set.
    let file = ground.host.substrate.open(Path::new("a"), Access::Read).unwrap();
    let stamp = crate::format::mark::Stamp::of(&ground.host.substrate.stat(&file).unwrap());
    files.note(&state, number, Path::new("a"), Some(stamp)).unwrap();
    Marks::load(&state).unwrap().forget_scan(&state, number).unwrap();
    files.restamp(&state, number, stamp, stamp).unwrap();
    assert_eq!(unread(&state), [("a".into(), true)].into());
}

/// Who has a file is about to write its mark; meanwhile another name is known to who saw it, and noted later.
#[test]
fn a_new_name_of_a_file_that_another_host_has_is_noted_later() {
    let ground = with_two_names();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let mark = files.iter().next().unwrap().clone();
    {
        let other = ground.state();
        let _lock = other.try_lock(&Subject::File(mark.handle.clone())).unwrap().unwrap();
        scan_all(&state, &mut files);
        assert_eq!(files.get(mark.number).unwrap().path, Path::new("a"));
        assert_eq!(unread(&state), [("b".into(), false)].into());
    }
    scan_all(&state, &mut Marks::load(&state).unwrap());
    assert_eq!(unread(&state), [("a".into(), false)].into());
}

/// Of a file with several names it is always the same one, so that no mark is written for nothing.
#[test]
fn of_several_names_the_first_one_counts() {
    let ground = Ground::new();
    ground.write("m", 1, 3);
    for name in ["a/b", "z", "b", "c/a"] {
        let folder = Path::new(name).parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.into_iter().for_each(|folder| ground.host.substrate.create_dir(folder).unwrap());
        ground.host.substrate.link(Path::new("m"), Path::new(name)).unwrap();
    }
    ground.file_system.pass(Duration::from_secs(1));
    ground.run();
    assert_eq!(unread(&ground.state()), [("a/b".into(), false)].into());
}

/// Whoever cuts an image short while others are read makes no pass fail.
#[test]
fn images_that_are_cut_short_meanwhile_are_no_failure() {
    let ground = Ground::new();
    for path in ["one", "two"] {
        ground.write(path, 1, 8);
    }
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    for path in ["one", "two"] {
        let file = ground.host.substrate.open(Path::new(path), Access::Write).unwrap();
        ground.host.substrate.set_len(&file, 2 * K).unwrap();
    }
    let passed = USUAL.pass(&state, &mut files).unwrap();
    assert!(passed.trouble.failed.is_empty(), "{passed:?}");
    assert!(passed.trouble.changed > 0, "{passed:?}");
    drop(state);
    // What is left is read again, and shared.
    assert_eq!(ground.run().shared.now, 2 * K);
}

/// A file was gone for another host, which has forgotten it, and found it again under another name: with another number. Who
/// still knew the first one took in its log under that, found nothing there, and dropped what it told.
#[test]
fn a_file_that_another_host_has_given_a_new_number_is_shared() {
    let ground = Ground::new();
    for (path, seed) in [("one", 1), ("two", 2)] {
        ground.write(path, seed, 3);
    }
    ground.run();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let number = files.iter().find(|mark| mark.path == Path::new("one")).unwrap().number;
    let mut others = Marks::load(&state).unwrap();
    others.forget(&state, number).unwrap();
    ground.host.substrate.rename(Path::new("one"), Path::new("renamed")).unwrap();
    ground.write("three", 1, 3);
    scan_all(&state, &mut others);
    for number in others.iter().map(|mark| mark.number).collect::<Vec<_>>() {
        files.reload(&state, number).unwrap();
    }
    assert_eq!(files.first_number(FileNo(3)), number, "the two numbers of the file");
    assert_eq!(USUAL.pass(&state, &mut files).unwrap().shared.now, 3 * K);
    assert_eq!(files.first_number(FileNo(3)), FileNo(3));
}

/// A ground whose maps do not tell that nobody else refers to a block any more, with two pairs of equal files.
fn on_two_steps(first: u64, second: u64) -> Ground {
    let ground = Ground::with(&SimulationOptions::default().in_two_steps(declared::decode_declared));
    for (path, seed, blocks) in [("one", 1, first), ("two", 1, first), ("three", 2, second), ("four", 2, second)] {
        ground.write(path, seed, blocks);
    }
    assert_eq!(ground.run().shared.now, (first + second) * K);
    ground
}

/// The times of images are set to what they were, so that they last. That is a change which has a time, and no reason to read them
/// again, unless they changed besides.
#[test]
fn times_that_were_set_are_no_reason_to_read_an_image_again() {
    let ground = Ground::with(&SimulationOptions::default().in_two_steps(declared::decode_declared));
    for path in ["a", "b"] {
        ground.write(path, 1, 5);
    }
    let stat = |name: &str| {
        let file = ground.host.substrate.open(Path::new(name), Access::Read).unwrap();
        ground.host.substrate.stat(&file).unwrap()
    };
    let before: Vec<_> = ["a", "b"].map(stat).into();
    let passed = ground.run();
    assert!(passed.shared.now > 0, "{passed:?}");
    let after: Vec<_> = ["a", "b"].map(stat).into();
    assert!(before.iter().zip(&after).all(|(before, after)| before.modified == after.modified));
    assert!(before.iter().zip(&after).any(|(before, after)| before.changed < after.changed), "one was set");
    ground.file_system.pass(Duration::from_secs(1));
    let scanned = || {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap())
    };
    let again = scanned();
    assert_eq!((again.files, again.unchanged, again.read_bytes), (2, 2, 0), "{again:?}");
    ground.write("b", 9, 1);
    let again = scanned();
    assert!(again.unchanged == 1 && again.read_bytes > 0, "{again:?}");
}

impl Ground {
    fn remove(&self, paths: &[&str]) {
        paths.iter().for_each(|path| self.host.substrate.remove(Path::new(path)).unwrap());
        self.file_system.pass(Duration::from_secs(1));
    }

    /// Returns how many slots hold something.
    fn slots(&self) -> u64 {
        crate::status::status(&self.state()).unwrap().arena.slots
    }
}

#[test]
fn what_only_the_arena_has_left_comes_free_where_maps_do_not_tell() {
    let ground = on_two_steps(10, 10);
    ground.remove(&["one", "two"]);
    let passed = ground.run();
    assert_eq!((passed.planned.collected, passed.index.unwrap().0.shared, ground.slots()), (10, 10, 10), "{passed:?}");
    // Once is enough, though the files are looked after for a minute.
    let lock = Path::new(FOLDER).join("locks/maps");
    let done_at = || {
        let file = ground.host.substrate.open(&lock, Access::Read).unwrap();
        ground.host.substrate.stat(&file).unwrap().modified
    };
    let before = done_at();
    assert!(ground.run().index.is_some() && done_at() == before);
    // Overwritten is as good as removed.
    ["three", "four"].iter().for_each(|path| ground.write(path, 3, 10));
    let passed = ground.run();
    assert_eq!((passed.planned.collected, passed.shared.now, ground.slots()), (10, 10 * K, 10), "{passed:?}");
    assert!(done_at() > before);
    ground.file_system.check().unwrap();
}

/// Small files are not worth the maps of all of them; once a day they are.
#[test]
fn little_waits_for_a_day_until_it_is_collected() {
    let ground = on_two_steps(1, 60);
    ground.write("one", 3, 1);
    ground.write("two", 4, 1);
    let passed = ground.run();
    assert_eq!((passed.planned.collected, ground.slots()), (0, 61), "{passed:?}");
    ground.file_system.pass(Duration::from_secs(24 * 60 * 60));
    assert!(ground.run().index.is_none(), "nothing has changed, so nothing is looked at");
    ground.write("one", 5, 1);
    assert_eq!((ground.run().planned.collected, ground.slots()), (1, 60));
}

/// Slots that an intent names may be all that is left of what was in a hole, though no map has them.
#[test]
fn slots_that_somebody_has_declared_are_not_collected() {
    let ground = on_two_steps(10, 10);
    let other = ground.state();
    let mut intents = other.begin_intents().unwrap();
    let slots = |state: &State<'_, Sim>| {
        let mut slots = Vec::new();
        state
            .each_entry(|entry| {
                slots.extend(if let Place::Shared(slot) = entry.place { Some(slot) } else { None });
                ControlFlow::Continue(())
            })
            .unwrap();
        slots
    };
    let slot = slots(&other)[7];
    let mark = Marks::load(&other).unwrap().iter().next().unwrap().clone();
    let run = crate::format::intent::IntentRun { first: FileBlock(0), slot, count: 1, checksum: 0 };
    let (number, handle, modified) = (mark.number, mark.handle, Default::default());
    let intent = crate::format::intent::Intent { number, handle, path: mark.path, modified, runs: vec![run] };
    intents.declare(&intent).unwrap();
    ground.remove(&["one", "two", "three", "four"]);
    assert_eq!(ground.run().planned.collected, 19);
    assert_eq!(slots(&other), [slot]);
    intents.retire().unwrap();
    ground.write("five", 1, 10);
    assert_eq!((ground.run().planned.collected, slots(&other), ground.slots()), (1, vec![], 0));
}

/// Who asks whether images are whole is not told so while another host is still about to fill a hole.
#[test]
fn an_image_that_another_host_mends_is_not_taken_for_one_that_its_own_host_shares_in() {
    use crate::mend::{Became, Doubtful, Patience, mend, mend_patiently};
    use crate::state::intents::TakenIntent;
    let ground = on_two_steps(10, 10);
    let sharer = ground.state();
    sharer.be_present().unwrap();
    let mut intents = sharer.begin_intents().unwrap();
    let mark = Marks::load(&sharer).unwrap().iter().next().unwrap().clone();
    let slot = Slot::new(0, 0).unwrap();
    let run = crate::format::intent::IntentRun { first: FileBlock(0), slot, count: 1, checksum: 0 };
    let (number, handle, modified) = (mark.number, mark.handle, Default::default());
    let intent = crate::format::intent::Intent { number, handle, path: mark.path, modified, runs: vec![run] };
    intents.declare(&intent).unwrap();
    let asker = ground.state();
    assert!(mend(&asker, Doubtful::Keep).unwrap().images.is_empty(), "its host is at work on it");
    // It dies, and another one comes to mend.
    drop(intents);
    sharer.leave();
    let mender = ground.state();
    let path = asker.intent_paths().unwrap().pop().unwrap();
    let TakenIntent::Taken(left) = mender.take_intent(&path).unwrap() else { panic!("its host is dead") };
    let waiting =
        |images: &[crate::mend::MendedImage]| matches!(images, [image] if matches!(image.became, Became::Elsewhere));
    assert!(waiting(&mend(&asker, Doubtful::Keep).unwrap().images));
    let clock = ManualClock::default();
    let patience = Patience { clock: &clock, most: Duration::from_secs(1), is_stopped: &|| false };
    let before = clock.monotonic();
    assert!(waiting(&mend_patiently(&asker, Doubtful::Keep, &patience).unwrap().images));
    assert!(clock.monotonic() - before >= Duration::from_secs(1), "he was waited for");
    mender.retire_intent(left).unwrap();
    assert!(mend(&asker, Doubtful::Keep).unwrap().images.is_empty());
}

/// A host has declared, sees that the slots are being emptied, and dies before it says that it is done: it has shared nothing.
#[test]
fn an_image_without_holes_is_whole_though_its_slots_are_gone() {
    use crate::mend::{Became, Doubtful, mend};
    let ground = on_two_steps(10, 10);
    let sharer = ground.state();
    let mut intents = sharer.begin_intents().unwrap();
    let file = ground.host.substrate.open(Path::new("one"), Access::Read).unwrap();
    let stat = ground.host.substrate.stat(&file).unwrap();
    drop(file);
    let mark = Marks::load(&sharer).unwrap().iter().find(|mark| mark.handle == stat.handle).unwrap().clone();
    // Of an arena file that is there, with other contents, and of one that is not.
    let runs = [0, 9].map(|arena| crate::format::intent::IntentRun {
        first: FileBlock(2),
        slot: Slot::new(arena, 3).unwrap(),
        count: 2,
        checksum: 1,
    });
    let (number, handle, modified) = (mark.number, mark.handle, stat.modified);
    let intent = crate::format::intent::Intent { number, handle, path: mark.path, modified, runs: runs.to_vec() };
    intents.declare(&intent).unwrap();
    drop((intents, sharer));
    let other = ground.state();
    let images = mend(&other, Doubtful::Keep).unwrap().images;
    assert!(matches!(&images[..], [image] if matches!(image.became, Became::Whole) && image.filled == 0), "{images:?}");
    assert!(mend(&other, Doubtful::Keep).unwrap().images.is_empty());
}

/// What is declared by a newer version, or of another state folder, may be holes: nobody is told that all images are whole.
#[test]
fn an_intent_that_cannot_be_read_is_told_of_until_it_is_gone() {
    use crate::format::record::{RecordHeader, RecordKind};
    use crate::mend::{Became, Doubtful, mend};
    let ground = on_two_steps(10, 10);
    let state = ground.state();
    let empty = state.begin_intents().unwrap();
    assert_eq!(state.intents().unwrap(), [], "nothing was declared in a new file");
    drop(empty);
    let identity = state.identity().uuid;
    let told = |change: &dyn Fn(&mut [u8; 64]), subject: u64| {
        let mut header = RecordHeader { kind: RecordKind::Intent, identity, subject }.encode();
        change(&mut header);
        let checksum = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&checksum.to_le_bytes());
        let path = state.path("intents", format!("0000000000000001.{subject}"));
        let file = ground.host.substrate.create(&path).unwrap();
        ground.host.substrate.write_at(&file, 0, &header).unwrap();
        drop(file);
        let images = mend(&state, Doubtful::Keep).unwrap().images;
        assert!(matches!(&images[..], [image] if matches!(image.became, Became::Failed(_)) && image.path == path));
        assert_eq!(mend(&state, Doubtful::Keep).unwrap().left().count(), 1, "it is still there");
        ground.host.substrate.remove(&path).unwrap();
    };
    told(&|header| header[10] = 200, 1);
    told(&|header| header[16] ^= 1, 2);
    assert!(mend(&state, Doubtful::Keep).unwrap().images.is_empty());
}

/// Declares a share of the second block of `one` with the first slot, punches the block as a host does that dies then, and
/// returns what was in it and how the intent is called.
fn leave_a_hole(ground: &Ground) -> (Vec<u8>, PathBuf) {
    let sharer = ground.state();
    let substrate = &ground.host.substrate;
    let image = substrate.open(Path::new("one"), Access::Write).unwrap();
    let stat = substrate.stat(&image).unwrap();
    let mut bytes = vec![0; 4096];
    substrate.read_at(&image, K, &mut bytes).unwrap();
    let arena = sharer.open_arena(0, Access::Read).unwrap().unwrap();
    let is_it = |index: &u64| {
        let mut slot = vec![0; 4096];
        substrate.read_at(&arena, index * K, &mut slot).unwrap();
        slot == bytes
    };
    let slot = Slot::new(0, (0..20).find(is_it).unwrap()).unwrap();
    let checksum = crc32c::crc32c(&bytes);
    let run = crate::format::intent::IntentRun { first: FileBlock(1), slot, count: 1, checksum };
    let mark = Marks::load(&sharer).unwrap().of(&stat.handle).unwrap().clone();
    let (number, handle, modified) = (mark.number, mark.handle, stat.modified);
    let intent = crate::format::intent::Intent { number, handle, path: mark.path, modified, runs: vec![run] };
    let mut intents = sharer.begin_intents().unwrap();
    intents.declare(&intent).unwrap();
    let path = sharer.intent_paths().unwrap().pop().unwrap();
    substrate.punch(&image, K, K).unwrap();
    substrate.set_modified(&image, modified).unwrap();
    (bytes, path)
}

fn second_block(ground: &Ground) -> Vec<u8> {
    let image = ground.host.substrate.open(Path::new("one"), Access::Read).unwrap();
    let mut bytes = vec![0; 4096];
    ground.host.substrate.read_at(&image, K, &mut bytes).unwrap();
    bytes
}

/// Has another identity in the place of the state folder's, as a version of the program made it that did not look for intents.
fn replace_identity(ground: &Ground, is_replaced: bool) {
    let path = Path::new(FOLDER).join(crate::state::IDENTITY);
    ground.host.substrate.remove(&path).unwrap();
    if is_replaced {
        let identity = crate::format::identity::Identity { uuid: [7; 16], key: [8; 32] };
        let file = ground.host.substrate.create(&path).unwrap();
        identity.write(&ground.host.substrate, file).unwrap();
    }
    ground.file_system.pass(Duration::from_secs(1));
}

/// The hole of a host that died is declared under an identity that was replaced since. Nothing but its slot has the block.
#[test]
fn slots_declared_under_another_identity_stay_until_a_person_decides() {
    use crate::mend::{Became, Doubtful, Foreign, MendRules, mend};
    for foreign in [Foreign::Mend, Foreign::GiveUp] {
        let ground = on_two_steps(10, 10);
        let (bytes, path) = leave_a_hole(&ground);
        ground.remove(&["two", "three", "four"]);
        replace_identity(&ground, true);
        // All images are new to the state with its new identity, and what it does not know of is swept.
        ground.file_system.pass(Duration::from_secs(2 * 24 * 60 * 60));
        ground.run();
        ground.run();
        assert!(ground.slots() >= 1, "the last copy stays");
        let state = ground.state();
        let images = mend(&state, Doubtful::Fill).unwrap().images;
        assert!(matches!(&images[..], [image] if matches!(image.became, Became::Foreign)), "{images:?}");
        assert!(second_block(&ground) != bytes && state.intent_paths().unwrap() == [path], "nothing was done");
        assert_eq!(crate::mend::declared(&state).unwrap().len(), 1, "status shows it");
        let images = mend(&state, MendRules { doubtful: Doubtful::Keep, foreign }).unwrap().images;
        if foreign == Foreign::Mend {
            assert!(matches!(&images[..], [image] if matches!(image.became, Became::Whole)), "{images:?}");
            assert!(second_block(&ground) == bytes);
        } else {
            assert!(matches!(&images[..], [image] if matches!(image.became, Became::GivenUp)), "{images:?}");
        }
        assert!(state.intent_paths().unwrap().is_empty());
    }
}

/// A new identity would have the next pass take all slots for unnamed.
#[test]
fn no_identity_is_made_while_something_is_declared() {
    use crate::mend::{Became, Doubtful, Foreign, MendRules, mend};
    for is_damaged in [false, true] {
        let ground = on_two_steps(10, 10);
        let (bytes, path) = leave_a_hole(&ground);
        replace_identity(&ground, false);
        let identity = Path::new(FOLDER).join(crate::state::IDENTITY);
        if is_damaged {
            let file = ground.host.substrate.create(&identity).unwrap();
            ground.host.substrate.write_at(&file, 0, b"nonsense").unwrap();
        }
        let open = || State::open(&ground.host.substrate, &*ground.host.clock, &*ground.host.random, &|_| {});
        let refused = open().err().expect("it is refused");
        assert!(matches!(&refused, StateError::IdentityLost { intents, .. } if intents[0].path == path), "{refused}");
        let message = refused.to_string();
        let parts = [".onefold/identity", if is_damaged { "damaged" } else { "missing" }, "(image `one`)"];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(ground.host.substrate.open(&identity, Access::Read).is_ok(), is_damaged, "it is as it was");
        let noticed = Cell::new(false);
        let notice = |notice: Notice| noticed.set(matches!(notice, Notice::IdentityLost(_)) || noticed.get());
        assert!(State::look(&ground.host.substrate, &*ground.host.clock, &notice).unwrap().is_none() && noticed.get());
        let (substrate, clock) = (&ground.host.substrate, &*ground.host.clock);
        let to_mend = || State::open_to_mend(substrate, clock, &*ground.host.random, &|_| {}).unwrap();
        let state = to_mend().unwrap();
        let images = mend(&state, Doubtful::Fill).unwrap().images;
        assert!(matches!(&images[..], [image] if matches!(image.became, Became::Foreign)), "{images:?}");
        assert!(open().is_err(), "nothing was decided");
        let images = mend(&state, MendRules { doubtful: Doubtful::Keep, foreign: Foreign::Mend }).unwrap().images;
        assert!(matches!(&images[..], [image] if matches!(image.became, Became::Whole)), "{images:?}");
        assert!(second_block(&ground) == bytes);
        if !is_damaged {
            assert!(to_mend().is_none(), "there is nothing left to be mended, and no identity");
        }
        drop(open().unwrap());
        assert!(to_mend().is_some());
    }
}

/// Of a damaged intent of another identity nobody knows what it names.
#[test]
fn a_damaged_intent_of_another_identity_keeps_all_slots_until_it_is_given_up() {
    use crate::mend::{Doubtful, Foreign, MendRules, mend};
    let ground = on_two_steps(10, 10);
    let (_, path) = leave_a_hole(&ground);
    let file = ground.host.substrate.open(&path, Access::Write).unwrap();
    ground.host.substrate.write_at(&file, 100, b"damage").unwrap();
    drop(file);
    replace_identity(&ground, true);
    ground.remove(&["two", "three", "four"]);
    ground.file_system.pass(Duration::from_secs(2 * 24 * 60 * 60));
    ground.run();
    assert_eq!(ground.slots(), 20);
    let state = ground.state();
    assert_eq!(mend(&state, Doubtful::Fill).unwrap().left().count(), 1, "it is still there");
    mend(&state, MendRules { doubtful: Doubtful::Keep, foreign: Foreign::GiveUp }).unwrap();
    assert!(state.intent_paths().unwrap().is_empty());
}

/// Another host's clock is an hour ahead, and so are the times of what it writes: two changes in one tick of that clock have the
/// same time.
#[test]
fn a_change_in_the_tick_of_a_clock_that_is_ahead_is_seen() {
    let ground = Ground::new();
    let other = HostNo(1);
    ground.file_system.set_clock_ahead(other, Duration::from_secs(3600));
    let mut bytes = vec![0; 4 * 4096];
    SeededRandom::new(5).fill(&mut bytes).unwrap();
    ground.file_system.write_image(other, "one", 0, &bytes).unwrap();
    let scanned = || {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap()).read_bytes
    };
    assert_eq!(scanned(), 4 * K);
    ground.file_system.write_image(other, "one", 0, &bytes[4096..8192]).unwrap();
    assert_eq!(scanned(), 4 * K, "it was written to after it was read");
    // Nobody writes to it any more, and it is not read again and again.
    for _ in 0..3 {
        ground.file_system.pass(Duration::from_secs(60));
        assert_eq!(scanned(), 0);
    }
    // A change while this clock comes by that time would have had that time.
    ground.file_system.pass(Duration::from_secs(3600));
    assert_eq!((scanned(), scanned()), (4 * K, 0));
}

/// A time of the content may be ahead for ever: that of the last change tells of writes.
#[test]
fn a_file_whose_time_was_set_ahead_is_read_once() {
    let ground = Ground::new();
    ground.write("one", 5, 4);
    let ahead = Timestamp { seconds: 1 << 40, nanoseconds: 0 };
    let set = || {
        let file = ground.host.substrate.open(Path::new("one"), Access::Write).unwrap();
        ground.host.substrate.set_modified(&file, ahead).unwrap();
    };
    let scanned = || {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap()).read_bytes
    };
    set();
    ground.file_system.pass(Duration::from_secs(1));
    assert_eq!((scanned(), scanned()), (4 * K, 0));
    ground.write("one", 6, 4);
    set();
    ground.file_system.pass(Duration::from_secs(1));
    assert_eq!((scanned(), scanned()), (4 * K, 0));
    // A moment ago, it may be written to in the same tick.
    ground.write("one", 7, 4);
    set();
    assert_eq!(
        (
            scanned(),
            {
                ground.file_system.pass(Duration::from_secs(1));
                scanned()
            },
            scanned()
        ),
        (4 * K, 4 * K, 0)
    );
}

/// An image that an administrator has made with all its room: its zeros stay blocks, and so do unwritten ones.
#[test]
fn the_zeros_of_a_file_without_holes_stay() {
    let ground = Ground::new();
    let data = |seed| {
        let mut bytes = vec![0; 4 * 4096];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        bytes
    };
    let write = |path: &str, offset: u64, bytes: &[u8]| {
        let substrate = &ground.host.substrate;
        let file =
            substrate.open(Path::new(path), Access::Write).or_else(|_| substrate.create(Path::new(path))).unwrap();
        substrate.write_at(&file, offset, bytes).unwrap();
        ground.file_system.pass(Duration::from_secs(1));
    };
    // Both hold four blocks of data, four of zeros, and the same data again; one of them has a hole behind.
    for path in ["full", "sparse"] {
        write(path, 0, &data(1));
        write(path, 4 * K, &[0; 4 * 4096]);
        write(path, 8 * K, &data(2));
    }
    write("sparse", 20 * K, &data(3)[..4096]);
    let zeros = |path: &str| {
        let file = ground.host.substrate.open(Path::new(path), Access::Read).unwrap();
        let mut map = crate::extents::Extents::new();
        (4..8).filter(|block| !map.at(&ground.host.substrate, &file, block * K).unwrap().is_hole).count()
    };
    let passed = ground.run();
    assert_eq!((passed.shared.zeros, zeros("full"), zeros("sparse")), (4 * K, 4, 0), "{passed:?}");
    // What the guest writes as zeros later stays, too, and so it does when all is read anew.
    write("full", K, &[0; 4096]);
    let passed = ground.run();
    assert_eq!((passed.shared.zeros, zeros("full")), (0, 4), "{passed:?}");
    let state = ground.state();
    Marks::load(&state).unwrap().forget_scans(&state).unwrap();
    drop(state);
    assert_eq!((ground.run().shared.zeros, zeros("full")), (0, 4));
}

/// Who has an arena file open may share with its slots as long as they can be found by its number.
#[test]
fn slots_of_an_arena_file_that_was_removed_are_not_shared_with() {
    let ground = on_two_steps(10, 10);
    let (sharer, other) = (ground.state(), ground.state());
    let arena = || sharer.open_arena(0, Access::Read).unwrap();
    let opened = arena().unwrap();
    assert!(sharer.keeps_slots(0, &opened).unwrap());
    let held = other.try_lock(&Subject::Sweep(0)).unwrap();
    assert!(!sharer.keeps_slots(0, &opened).unwrap(), "another host empties some");
    drop(held);
    ground.remove(&["one", "two", "three", "four"]);
    assert_eq!(ground.run().planned.collected, 20);
    assert!(arena().is_none());
    assert!(!sharer.keeps_slots(0, &opened).unwrap(), "it has no name");
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, 10));
    ground.run();
    let renewed = arena().unwrap();
    assert!(!sharer.keeps_slots(0, &opened).unwrap(), "another file has its name");
    assert!(sharer.keeps_slots(0, &renewed).unwrap());
}

/// Somebody shares with slots of the arena file, or empties some: what is left then is looked after by the next pass.
#[test]
fn what_others_keep_a_pass_from_collecting_is_left_to_the_next_one() {
    let ground = on_two_steps(10, 10);
    for subject in [Subject::Maps, Subject::Sweep(0), Subject::Arena(0)] {
        let other = ground.state();
        let held = other.try_lock(&subject).unwrap().unwrap();
        ["one", "two", "three", "four"].iter().for_each(|path| drop(ground.host.substrate.remove(Path::new(path))));
        assert_eq!((ground.run().planned.collected, ground.slots()), (0, 20), "{subject:?}");
        ground.file_system.pass(Duration::from_secs(100));
        drop(held);
    }
    assert_eq!((ground.run().planned.collected, ground.slots()), (20, 0));
}

/// A file that no run has ever looked at refers to blocks of the arena: it keeps them, and what is in it.
#[test]
fn files_that_nobody_knows_of_keep_their_blocks() {
    let ground = on_two_steps(10, 10);
    let content = |path: &str| {
        let file = ground.host.substrate.open(Path::new(path), Access::Read).unwrap();
        let mut bytes = vec![0; 10 * 4096];
        assert_eq!(ground.host.substrate.read_at(&file, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    };
    let expected = content("one");
    let source = ground.host.substrate.open(Path::new("one"), Access::Read).unwrap();
    drop((ground.host.substrate.create_clone(&source, Path::new("unknown")).unwrap(), source));
    ground.remove(&["one", "two"]);
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_those(&state, &mut files, &|path, _| path != Path::new("unknown"));
    assert_eq!(USUAL.pass(&state, &mut files).unwrap().planned.collected, 10);
    assert!(content("unknown") == expected);
    ground.file_system.check().unwrap();
}

/// Two hosts that saw a file at the same moment gave it two numbers. The log under the higher one was believed, though it was
/// older, and what the file holds was not known until it was written to.
#[test]
fn of_logs_under_two_numbers_of_a_file_the_newer_one_is_right() {
    let ground = Ground::new();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    ground.write("one", 1, 4);
    scan_all(&state, &mut files);
    let [log] = &state.logs().unwrap()[..] else { panic!("one log") };
    let mut old = Vec::new();
    let read = state.read_log(log, |note| -> Result<(), PassError> {
        old.push(note);
        Ok(())
    });
    read.unwrap();
    let first = files.iter().next().unwrap().clone();
    let second = Mark { number: FileNo(first.number.0 + 1), ..first };
    let name = format!("files/{}", second.number);
    second.write(&ground.host.substrate, ground.create(&name), state.identity().uuid).unwrap();
    let mut old = old.into_iter();
    state.write_log(LogKind::Log, second.number, log.order(), &mut || Ok(old.next())).unwrap();
    ground.write("one", 2, 4);
    ground.write("two", 2, 4);
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    assert_eq!(state.logs().unwrap().len(), 3);
    assert_eq!(USUAL.pass(&state, &mut files).unwrap().shared.now, 4 * K);
}

/// A host that does not know the higher numbers gives out one that was forgotten. Another host that still took it for the
/// number of the file before forgot the mark of the new one.
#[test]
fn a_number_that_has_become_another_files_is_not_forgotten() {
    let ground = Ground::new();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    ground.write("one", 1, 4);
    ground.write("two", 2, 4);
    scan_all(&state, &mut files);
    let mut late = Marks::load(&state).unwrap();
    let mark = files.get(FileNo(1)).unwrap().clone();
    files.forget(&state, FileNo(1)).unwrap();
    ground.write("three", 3, 4);
    let stat = ground.host.substrate.open(Path::new("three"), Access::Read);
    let stat = ground.host.substrate.stat(&stat.unwrap()).unwrap();
    let given = Marks::default().number(&state, &stat.handle, Path::new("three"), &mark.membership).unwrap();
    assert_eq!(given, FileNo(1));
    late.forget(&state, FileNo(1)).unwrap();
    assert!(late.of(&mark.handle).is_none());
    for files in [late, Marks::load(&state).unwrap()] {
        assert_eq!(files.of(&stat.handle).map(|mark| mark.number), Some(FileNo(1)));
    }
}
