//! Collection of blocks that only the arena refers to, if maps do not show this.

use onefold_substrate::Sharing as _;

use super::*;
use crate::format::FileBlock;
use crate::state::locks::Subject;

#[test]
fn what_only_the_arena_has_left_comes_free_where_maps_do_not_tell() {
    let ground = on_two_steps(10, 10);
    ground.remove(&["one", "two"]);
    let passed = ground.run();
    assert_eq!((passed.planned.collected, passed.index.unwrap().0.shared, ground.slots()), (10, 10, 10), "{passed:?}");
    // Once is enough, though gone files are looked for during a minute.
    let lock = Path::new(FOLDER).join("locks/maps");
    let done_at = || {
        let file = ground.host.substrate.open(&lock, Access::Read).unwrap();
        ground.host.substrate.stat(&file).unwrap().modified
    };
    let before = done_at();
    assert!(ground.run().index.is_some() && done_at() == before);
    // An overwritten file counts like a removed one.
    ["three", "four"].iter().for_each(|path| ground.write(path, 3, 10));
    let passed = ground.run();
    assert_eq!((passed.planned.collected, passed.shared.now, ground.slots()), (10, 10 * K, 10), "{passed:?}");
    assert!(done_at() > before);
    ground.file_system.check().unwrap();
}

/// Small files are not worth reading all maps; once a day they are.
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

/// Slots named by an intent may have the only copy of a hole's content, though no map shows them.
#[test]
fn slots_that_somebody_has_declared_are_not_collected() {
    let ground = on_two_steps(10, 10);
    let other = ground.state();
    let mut intents = other.begin_intents().unwrap();
    let slots = |state: &State<'_, Sim>| {
        let mut slots = Vec::new();
        state
            .each_entry(|entry| {
                slots.extend(if let ContentPlace::Shared(slot) = entry.place { Some(slot) } else { None });
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

/// Another host shares with slots of the arena file, or empties some. The next pass handles the rest.
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

/// A file that no run has ever looked at refers to blocks of the arena. It keeps them, and its content.
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

/// Returns how many files this process has open in a folder, including those without names.
fn open_files_in(folder: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter(|file| std::fs::read_link(file.as_ref().unwrap().path()).is_ok_and(|path| path.starts_with(folder)))
        .count()
}

/// Collection sorts its lists in the memory that the lists of the work had.
#[test]
fn the_lists_of_the_work_are_gone_when_a_pass_collects() {
    let ground = on_two_steps(10, 10);
    ["five", "six"].iter().for_each(|path| ground.write(path, 3, 500));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let (during_work, while_collecting) = (Cell::new(0), Cell::new(usize::MAX));
    let wish = || {
        let open = open_files_in(&folder);
        if ground.names("logs").is_empty() {
            while_collecting.set(open.min(while_collecting.get()));
        } else {
            during_work.set(open.max(during_work.get()));
        }
        Wish::GoOn
    };
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let clock = ManualClock::default();
    let pace = Pace::new(Limits::default(), &clock, &ProcessCpu, &wish);
    // Lists of more than a few rows are written to files.
    let options = PassOptions { memory_bytes: 1 << 12, ..PassOptions::new(&folder, &pace, &clock) };
    let passed = pass(&state, &mut files, &options).unwrap();
    assert_eq!(passed.shared.now, 500 * K, "{passed:?}");
    assert!(during_work.get() > 3, "{} files: the lists fit into memory", during_work.get());
    // The lists of the collection are gone by the time when it looks at the entries.
    assert_eq!(while_collecting.get(), 0);
}
