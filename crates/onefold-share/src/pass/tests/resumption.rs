//! A pass after an interrupted one leaves out the places that share already, and only these.

use std::collections::BTreeMap;

use onefold_substrate::{At, Files, Sharing};

use super::batches::{SMALL, named, places};
use super::*;
use crate::extents::Extents;
use crate::format::log::{Note, WrittenBlock};
use crate::format::prefix::Prefix;
use crate::format::{FileBlock, FingerprintPrefix};
use crate::kept_map::KeptMap;
use crate::pass::resumption::{BatchSlots, ResumedFile};

/// Interrupts a pass over all files once it has shared this many blocks.
fn cut(state: &State<'_, Sim>, shared: u64) -> Marks {
    let mut files = Marks::load(state).unwrap();
    let pace = Pace::unlimited();
    let rereading = RereadPolicy { map_bytes_min: 0, ..RereadPolicy::whole() };
    scan(state, &mut files, &ScanOptions { rereading, ..ScanOptions::new(&pace) }).unwrap();
    let progress = |at| match at {
        PassProgress::Sharing { bytes } if bytes >= shared * K => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let passed = PassSettings { batch: SMALL, call_bytes: K, progress: &progress, ..USUAL }.pass(state, &mut files);
    assert!(matches!(passed, Err(PassError::State(StateError::Interrupted))), "{passed:?}");
    files
}

/// Calls `each` with the slots of the batches, with this memory.
fn with_slots<R>(state: &State<'_, Sim>, memory_bytes: usize, each: impl FnOnce(Option<&BatchSlots>) -> R) -> R {
    let (pace, clock) = (Pace::unlimited(), ManualClock::default());
    let options = PassOptions { memory_bytes, ..PassOptions::new(Path::new("/var/tmp"), &pace, &clock) };
    each(BatchSlots::load(state, &options).unwrap().as_ref())
}

/// Returns the contents of the slots that batches name, by the places of the slots.
fn contents_by_place(state: &State<'_, Sim>) -> BTreeMap<u64, FingerprintPrefix> {
    let (mut contents, mut batches) = (BTreeMap::new(), state.open_batches().unwrap());
    while let Some(entry) = batches.peek(Prefix::WHOLE).unwrap() {
        batches.take();
        let ContentPlace::Shared(slot) = entry.place else { continue };
        let arena = state.open_arena(slot.arena(), Access::Read).unwrap().unwrap();
        let place = Extents::load(state.substrate(), &arena).unwrap().look(slot.index() * K).place.unwrap();
        contents.insert(place, entry.digest);
    }
    contents
}

#[test]
fn places_are_left_out_if_they_share_with_the_slot_of_their_content() {
    let (mut done, mut undone) = (0, 0);
    for shared in [3, 10, 20, 33] {
        let ground = Ground::new();
        ["one", "two"].iter().for_each(|path| ground.write(path, 1, 40));
        let state = ground.state();
        let files = cut(&state, shared);
        let (substrate, contents) = (state.substrate(), contents_by_place(&state));
        with_slots(&state, 1 << 20, |slots| {
            for log in state.logs().unwrap() {
                let path = &files.get(log.file).unwrap().path;
                let map = Extents::load(substrate, &substrate.open(path, Access::Read).unwrap()).unwrap();
                let mut resumed = ResumedFile::load(&state, slots.unwrap(), log.file).unwrap().unwrap();
                state
                    .read_log(&log, |note| -> Result<(), PassError> {
                        let Note::Written(written) = note else { return Ok(()) };
                        let place = map.look(written.block.0 * K).place.unwrap();
                        let is_done = contents.get(&place) == Some(&written.digest.unwrap());
                        assert_eq!(resumed.is_done(written), is_done, "{path:?} {written:?}");
                        (done, undone) = (done + u64::from(is_done), undone + u64::from(!is_done));
                        let other = WrittenBlock { digest: Some(FingerprintPrefix([7; 12])), ..written };
                        assert!(!resumed.is_done(other), "another content was read there");
                        Ok(())
                    })
                    .unwrap_or_else(|_| panic!("{path:?}"));
            }
        });
    }
    assert!(done > 100 && undone > 100, "{done} places are done, {undone} are not");
}

#[test]
fn zeros_are_left_out_if_they_are_a_hole() {
    let ground = Ground::new();
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, 40));
    let file = ground.host.substrate.open(Path::new("one"), Access::Write).unwrap();
    ground.host.substrate.punch(&file, 39 * K, K).unwrap();
    drop(file);
    let state = ground.state();
    let files = cut(&state, 10);
    with_slots(&state, 1 << 20, |slots| {
        let number = files.iter().find(|mark| mark.path == Path::new("one")).unwrap().number;
        let mut resumed = ResumedFile::load(&state, slots.unwrap(), number).unwrap().unwrap();
        for (block, is_done) in [(37, false), (38, false), (39, true), (40, true)] {
            let zeros = WrittenBlock { block: FileBlock(block), digest: None };
            assert_eq!(resumed.is_done(zeros), is_done, "{block}");
        }
    });
}

#[test]
fn without_memory_for_slots_all_places_are_looked_at_as_before() {
    let ground = Ground::new();
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, 40));
    let state = ground.state();
    let mut files = cut(&state, 20);
    assert!(with_slots(&state, 1 << 10, |slots| slots.is_none()));
    assert!(with_slots(&state, 1 << 20, |slots| slots.is_some()));
    let known = named(&ground);
    let passed = PassSettings { memory_bytes: 1 << 10, ..USUAL }.pass(&state, &mut files).unwrap();
    let done = passed.shared.before / K;
    assert!((known..=2 * known).contains(&done), "{passed:?}");
    assert_eq!(passed.shared.now + passed.shared.before, (40 + known) * K, "{passed:?}");
    assert_eq!(places(&ground, &["one", "two"]), 40);
}

/// Two pairs of equal files, and a host whose changes are lost if it crashes before they are durable.
fn with_power_failures(seed: u64) -> Ground {
    let mut options = SimulationOptions { hosts: 1, seed, ..SimulationOptions::default() };
    options.habits.loses_shares = true;
    let ground = Ground::with(&options);
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, 6));
    ["three", "four"].iter().for_each(|path| ground.write(path, 2, 2));
    ground
}

/// What the kept maps tell survives a power failure, so that all is shared in the end.
#[test]
fn a_pass_after_a_power_failure_leaves_out_no_place_that_has_lost_its_share() {
    for seed in 0..40 {
        let ground = with_power_failures(seed);
        let host = ground.file_system.mount(HostNo(0));
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        // Within a file, and between two files.
        cut(&state, 5 + seed % 3);
        drop(state);
        drop(host);
        ground.file_system.crash(HostNo(0));
        ground.file_system.pass(Duration::from_secs(120));
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        let passed = USUAL.pass(&state, &mut files).unwrap();
        drop(state);
        assert_eq!(places(&ground, &["one", "two", "three", "four"]), 8, "seed {seed}: {passed:?}");
    }
}

/// A scan may keep a map with a share that a killed pass had not made durable. The pass that leaves the place out
/// removes the log, so it does that before.
#[test]
fn shares_that_are_left_out_are_durable_before_the_logs_go() {
    let mut left_out = 0;
    for seed in 0..20 {
        let ground = with_power_failures(seed);
        let host = ground.file_system.mount(HostNo(0));
        let substrate = &host.substrate;
        let state = State::open(substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let mut files = cut(&state, 6);
        let mut batches = state.open_batches().unwrap();
        while let Some(entry) = batches.peek(Prefix::WHOLE).unwrap() {
            batches.take();
            let ContentPlace::Shared(slot) = entry.place else { continue };
            let arena = state.open_arena(slot.arena(), Access::Read).unwrap().unwrap();
            let four = substrate.open(Path::new("four"), Access::Write).unwrap();
            for block in 0..2 {
                let (source, into) =
                    (At { file: &arena, offset: slot.index() * K }, At { file: &four, offset: block * K });
                let _ = substrate.share(source, into, K).unwrap();
            }
        }
        let four = substrate.open(Path::new("four"), Access::Read).unwrap();
        let map = KeptMap::load(substrate, &four, &Pace::unlimited()).unwrap();
        let number = files.iter().find(|mark| mark.path == Path::new("four")).unwrap().number;
        state.keep_map(number, map.as_ref()).unwrap();
        let passed = USUAL.pass(&state, &mut files).unwrap();
        left_out += u64::from((passed.shared.before, passed.planned.targets) == (16 * K, 16));
        drop((four, batches, state));
        drop(host);
        ground.file_system.crash(HostNo(0));
        assert_eq!(places(&ground, &["one", "two", "three", "four"]), 8, "seed {seed}: {passed:?}");
    }
    assert_eq!(left_out, 20);
}
