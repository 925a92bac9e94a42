//! A state folder, and images, that are damaged and changed by others during a pass.

use onefold_substrate::Sharing;
use onefold_testing::simulated::Faults;

use super::*;
use crate::format::prefix::Prefix;
use crate::format::reading::PAUSE_MIN;
use crate::opt_out;
use crate::state::Notice;
use crate::state::locks::Subject;
use crate::state::trust::Distrust;

/// A pass that opens a shard without its first bytes drops it. Its contents are found again, even if that pass has
/// published other entries before.
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
            let passed = PassSettings { progress: &progress, ..USUAL }.pass(&state, &mut files);
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

/// A pass that is killed, or fails, after its logs are removed has already noted what has to be read again.
#[test]
fn what_was_left_undone_is_noted_before_the_logs_go() {
    let ground = Ground::new();
    ground.write("a", 1, 4);
    ground.write("b", 1, 4);
    let state = ground.state();
    // The arena file that is filled, whose lock is gone in the end, so its unnamed slots cannot be emptied.
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
    let passed = PassSettings { progress: &progress, ..USUAL }.pass(&state, &mut files);
    assert!(matches!(passed, Err(PassError::State(StateError::Untrusted { why: Distrust::Kind, .. }))), "{passed:?}");
    assert_eq!(ground.names("logs").len(), 0);
    assert_eq!(unread(&state), [("a".into(), false), ("b".into(), true)].into());
}

/// A log of a file that is missing for a while is removed. The file is read once it is back, though its times do not
/// show a change.
#[test]
fn a_file_that_comes_back_as_it_was_is_read() {
    let ground = Ground::new();
    // Without an index, every range that is in no log is read anyway.
    ground.write("zero", 9, 1);
    ground.run();
    ground.host.substrate.create_dir(Path::new("folder")).unwrap();
    ground.write("folder/one", 1, 5);
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    opt_out::exclude(&ground.host.substrate, Path::new("folder")).unwrap();
    PassSettings { is_dry_run: true, ..USUAL }.pass(&state, &mut files).unwrap();
    opt_out::include(&ground.host.substrate, Path::new("folder")).unwrap();
    drop(state);
    ground.write("two", 1, 5);
    assert_eq!(ground.run().shared.now, 5 * K);
}

/// Another host holds a file until its log is taken in, and releases it before this host looks.
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
    let passed = PassSettings { wish: &wish, ..USUAL }.pass(&state, &mut files).unwrap();
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
        let passed = PassSettings { call_bytes: K, ..USUAL }.pass(&state, &mut files).unwrap();
        if passed.planned.targets > 0 && passed.index.is_some_and(|(counts, _)| counts.unique > 0) {
            // The failed call was the only one that puts blocks into the arena.
            continue;
        }
        let (shared, refused) = (passed.shared.now / K, passed.shared.refused / K);
        assert!(shared > 32 && shared + refused == 64, "{shared} shared, {refused} not: {passed:?}");
        // The skipped blocks are read again.
        let again = unread(&state);
        assert_eq!(again.values().any(|is_unread| *is_unread), refused > 0, "{again:?}");
        with_busy_ranges += u32::from(refused > 0);
    }
    assert!(with_busy_ranges > 8, "{with_busy_ranges}");
}

/// A watch reads what was busy again, and nothing else of the file: after a pause, which is twice as long each time.
#[test]
fn only_what_was_busy_is_read_again_after_pauses_that_grow() {
    let faults = Faults { busy: 300_000, ..Faults::none() };
    let mut longest = 0;
    for seed in 0..16 {
        let ground = Ground::with(&SimulationOptions { hosts: 1, seed, faults, ..SimulationOptions::default() });
        // A content that is in the arena, so that a refused block is one that is not shared.
        for path in ["a", "b"] {
            ground.write(path, 1, 64);
        }
        ground.run();
        ground.write("c", 1, 64);
        let host = ground.file_system.mount(HostNo(0));
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let scanned = || scan_as_watch(&state, &mut Marks::load(&state).unwrap()).read_bytes;
        let now = || state.now().unwrap().seconds;
        // Calls take time, too.
        let wait_until = |time: i64| ground.file_system.pass(Duration::from_secs((time - now()).try_into().unwrap()));
        assert_eq!(scanned(), 64 * K);
        let mut expected = 64 * K;
        for pause in (0..).map(|round| PAUSE_MIN << round) {
            let (settings, began) = (PassSettings { call_bytes: K, ..USUAL }, now());
            let shared = settings.pass(&state, &mut Marks::load(&state).unwrap()).unwrap().shared;
            assert_eq!(shared.now + shared.refused, expected, "seed {seed}, pause {pause}: {shared:?}");
            let files = Marks::load(&state).unwrap();
            let failed: Vec<_> = files.iter().flat_map(|mark| mark.reading.failed().copied()).collect();
            assert_eq!(failed.iter().map(|range| range.length).sum::<u64>(), shared.refused, "{failed:?}");
            assert!(failed.iter().all(|range| range.pause == pause), "seed {seed}, pause {pause}: {failed:?}");
            if shared.refused == 0 {
                break;
            }
            let due = failed[0].due;
            assert!((began + i64::from(pause)..=now() + i64::from(pause)).contains(&due), "seed {seed}: {failed:?}");
            longest = longest.max(pause);
            expected = shared.refused;
            assert_eq!(scanned(), 0, "seed {seed}, pause {pause}: {failed:?}");
            wait_until(due - 5);
            assert_eq!(scanned(), 0, "seed {seed}, pause {pause}: {failed:?} at {}", now());
            wait_until(due);
            assert_eq!(scanned(), expected, "seed {seed}, pause {pause}: {failed:?}");
            assert_eq!(scanned(), 0, "a block is read once");
        }
        assert_eq!(batches::places(&ground, &["a", "b", "c"]), 64);
        ground.file_system.check().unwrap();
    }
    assert!(longest >= 4 * PAUSE_MIN, "{longest}");
}

/// Another process holds the lock of the index. A pass that is told to stop meanwhile does not wait for it.
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
    let passed = PassSettings { clock: Some(&clock), wish: &wish, ..USUAL }.pass(&state, &mut files);
    assert!(matches!(passed, Err(PassError::State(StateError::Interrupted))), "{passed:?}");
    assert!(clock.monotonic() <= Duration::from_millis(1100), "{:?}", clock.monotonic());
}

/// Space that a file system frees in the background does not show at once: passes look again for a while, then no more.
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

/// A slot may hold another content than its entry says, as a host that had lost its lock may leave one: the entry is
/// dropped, and the content gets another slot.
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
    // Another file shares with the current content of the slot.
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

/// Regression: a damaged state folder may have an arena file of the highest number that is full. The next one got no
/// number, and no pass shared anything new any more.
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

/// A process that truncates an image while others are read makes no pass fail.
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
    // The rest is read again, and shared.
    assert_eq!(ground.run().shared.now, 2 * K);
}
