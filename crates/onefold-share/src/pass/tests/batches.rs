//! A pass works in batches. If it is cut off, it keeps the batches that were begun, and leaves no surplus slots.

use std::collections::BTreeSet;

use onefold_sort::SpoolWriter;
use onefold_substrate::{Files, UserNo};

use super::*;
use crate::format::FileBlock;
use crate::format::entry::ContentEntry;

/// Small batches.
pub(super) const SMALL: BatchOptions = BatchOptions { slots: 8 };

/// Returns how many slots hold a block.
pub(super) fn filled(ground: &Ground) -> u64 {
    let state = ground.state();
    arenas::Arenas::look(&state, &Pace::unlimited()).unwrap().filled.count()
}

/// Returns how many entries of the index name a slot.
pub(super) fn named(ground: &Ground) -> u64 {
    ground.state().count_entries().unwrap().shared
}

/// Runs a pass that is told to stop once it has shared this many bytes.
fn cut_after(ground: &Ground, batch: BatchOptions, shared: u64) -> Result<PassReport, PassError> {
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let progress = |at| match at {
        PassProgress::Sharing { bytes } if bytes >= shared => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    PassSettings { batch, call_bytes: K, progress: &progress, ..USUAL }.pass(&state, &mut files)
}

/// Regression, for two equal images: three passes that were cut off shared nothing, and filled slots anew each time.
#[test]
fn a_pass_that_is_cut_off_keeps_the_batches_that_it_has_begun() {
    let ground = Ground::new();
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, 64));
    let mut known = 0;
    for round in 1..=3 {
        // The first batch of the rest is shared, and the second one begun. Each known content is at two places.
        let passed = cut_after(&ground, SMALL, (2 * known + 8 + 2) * K);
        assert!(matches!(passed, Err(PassError::State(StateError::Interrupted))), "{round}: {passed:?}");
        known += 16;
        assert_eq!(
            (named(&ground), filled(&ground)),
            (known, known),
            "round {round}: the batch that was cut off is kept"
        );
    }
    let passed = ground.run();
    assert_eq!((passed.shared.before, passed.shared.now), (2 * known * K, (64 - known) * K), "{passed:?}");
    assert_eq!(passed.planned.promoted, 64 - known);
    assert_eq!((named(&ground), filled(&ground)), (64, 64));
    assert_eq!(ground.names("logs").len(), 0);
    assert!(ground.names("batches").len() <= 1, "they are merged");
}

/// A pass that is killed empties nothing: the next one does, before it fills any.
#[test]
fn what_a_killed_pass_has_filled_is_emptied_before_more_is() {
    let options = SimulationOptions { hosts: 1, ..SimulationOptions::default() };
    let ground = Ground::with(&options);
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, 64));
    for round in 0..3 {
        let host = ground.file_system.mount(HostNo(0));
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        // All of it is one batch. The host dies at its first share.
        let progress = |at| match at {
            PassProgress::Sharing { .. } => {
                ground.file_system.crash(HostNo(0));
                ControlFlow::Break(())
            }
            PassProgress::Planned { .. } => ControlFlow::Continue(()),
        };
        assert!(PassSettings { progress: &progress, ..USUAL }.pass(&state, &mut files).is_err());
        drop(state);
        drop(host);
        ground.file_system.pass(Duration::from_secs(120));
        assert!(filled(&ground) <= 64, "round {round}: {} slots", filled(&ground));
    }
    let passed = ground.run();
    assert_eq!((passed.shared.now + passed.shared.before, filled(&ground), named(&ground)), (64 * K, 64, 64));
}

/// A pass is stopped after each of its calls in turn, and then completed.
#[test]
fn a_pass_may_be_stopped_anywhere_and_leaves_no_slot_that_nobody_names() {
    let mut stopped = 0;
    for calls in 0.. {
        let ground = Ground::new();
        for (path, seed) in [("one", 1), ("two", 1), ("three", 2), ("four", 2), ("five", 1)] {
            ground.write(path, seed, 12);
        }
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        let wish = stop_after(calls);
        let passed = PassSettings { batch: SMALL, call_bytes: K, wish: &wish, ..USUAL }.pass(&state, &mut files);
        drop(state);
        assert_eq!(filled(&ground), named(&ground), "stopped at {calls}: {passed:?}");
        if passed.is_ok() {
            break;
        }
        stopped += 1;
        // The place that went into the slot is one more.
        let known = named(&ground);
        let passed = ground.run();
        assert_eq!(passed.shared.before + passed.shared.now, (36 + known) * K, "stopped at {calls}");
        assert_eq!((filled(&ground), named(&ground)), (24, 24), "stopped at {calls}");
    }
    assert!(stopped > 40, "{stopped}");
}

/// The file system fills up after each call of a pass in turn. The pass reports it, and empties the slots of its
/// current batch.
#[test]
fn a_pass_that_runs_out_of_room_anywhere_leaves_no_slot_that_nobody_names() {
    let options = SimulationOptions { hosts: 1, ..SimulationOptions::default() };
    let mut stopped = 0;
    for calls in 0.. {
        let ground = Ground::with(&options);
        for (path, seed) in [("one", 1), ("two", 1), ("three", 2), ("four", 2), ("five", 1)] {
            ground.write(path, seed, 12);
        }
        let host = ground.file_system.mount(HostNo(0));
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        let is_over = Cell::new(false);
        let wish = after(calls, || {
            is_over.set(true);
            ground.file_system.set_full(true);
            Wish::GoOn
        });
        let passed = PassSettings { batch: SMALL, call_bytes: K, wish: &wish, ..USUAL }.pass(&state, &mut files);
        ground.file_system.set_full(false);
        match &passed {
            Ok(passed) => assert!(passed.trouble.is_full || passed.index.is_some(), "{calls}: {passed:?}"),
            Err(PassError::State(StateError::Io { source, .. })) => {
                assert_eq!(source.kind(), std::io::ErrorKind::StorageFull, "{calls}");
            }
            Err(other) => panic!("{calls}: {other}"),
        }
        drop(state);
        let (filled_then, named_then) = (filled(&ground), named(&ground));
        assert_eq!(filled_then, named_then, "full at {calls}: {passed:?}");
        ground.run();
        ground.run();
        assert_eq!((filled(&ground), named(&ground), places(&ground, &FIVE)), (24, 24, 24), "full at {calls}");
        if !is_over.get() {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 40, "{stopped}");
}

const FIVE: [&str; 5] = ["one", "two", "three", "four", "five"];

/// Returns how many blocks of the device the blocks of some files take.
pub(super) fn places(ground: &Ground, paths: &[&str]) -> usize {
    let substrate = &ground.host.substrate;
    let mut places = BTreeSet::new();
    for path in paths {
        let file = substrate.open(Path::new(path), Access::Read).unwrap();
        let map = crate::extents::Extents::load(substrate, &file).unwrap();
        let blocks = substrate.stat(&file).unwrap().length / K;
        places.extend((0..blocks).filter_map(|block| map.look(block * K).place));
    }
    places.len()
}

/// How a pass is cut off.
#[derive(Clone, Copy, Debug)]
enum Interruption {
    Signal(Wish),
    Kill,
    Full,
}

/// Passes that are all cut off share everything in the end, however little time they have after the plan. They end as
/// one complete pass does: they share as much, and leave no surplus slots.
#[test]
fn a_pass_that_is_cut_off_a_thousand_times_comes_to_its_end() {
    const BLOCKS: u64 = 24;
    let options = SimulationOptions { hosts: 1, ..SimulationOptions::default() };
    let (ground, random) = (Ground::with(&options), SeededRandom::new(7));
    let images = [Cell::new(("one", 1)), Cell::new(("two", 1)), Cell::new(("three", 2)), Cell::new(("four", 2))];
    let write =
        |ground: &Ground| images.iter().map(Cell::get).for_each(|(path, seed)| ground.write(path, seed, BLOCKS));
    write(&ground);
    let (mut cuts, mut ends, mut most_slots) = (0, 0, 0);
    while cuts < 1000 {
        let host = ground.file_system.mount(HostNo(0));
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        let most = random.below(70);
        let cut = [
            Interruption::Signal(Wish::StopSoon),
            Interruption::Signal(Wish::StopNow),
            Interruption::Kill,
            Interruption::Full,
        ][usize::try_from(random.below(4)).unwrap()];
        let wish = after(most, || {
            match cut {
                Interruption::Signal(wish) => return wish,
                Interruption::Kill => ground.file_system.crash(HostNo(0)),
                Interruption::Full => ground.file_system.set_full(true),
            }
            Wish::GoOn
        });
        let passed = PassSettings { batch: SMALL, call_bytes: K, wish: &wish, ..USUAL }.pass(&state, &mut files);
        ground.file_system.set_full(false);
        drop(state);
        drop(host);
        ground.file_system.pass(Duration::from_secs(120));
        let is_done = passed.is_ok_and(|passed| !passed.trouble.is_full);
        cuts += u32::from(!is_done);
        most_slots = most_slots.max(filled(&ground));
        // So that a pass can be cut off.
        if is_done {
            ends += 1;
            images[2].set(("three", 3 + ends));
            images[3].set(("four", 3 + ends));
            write(&ground);
        }
    }
    assert!(ends > 10, "{ends}");
    // Those of the last contents, of the contents before, and of the batch that a killed pass has left.
    assert!(most_slots <= 3 * BLOCKS + SMALL.slots, "{most_slots}");
    ground.run();
    ground.run();
    let uncut = Ground::with(&options);
    write(&uncut);
    uncut.run();
    let paths = ["one", "two", "three", "four"];
    let of = |ground: &Ground| (places(ground, &paths), named(ground), filled(ground));
    assert_eq!(of(&ground), of(&uncut));
    assert_eq!(of(&uncut), (48, 48, 48));
}

/// Batches make no more calls that share or clone than one whole pass, beyond a twentieth, and no more extents.
#[test]
fn batches_cost_hardly_more_calls_and_extents_than_one_whole_pass() {
    let options = SimulationOptions { total_blocks: 1 << 16, ..SimulationOptions::default() };
    let run = |slots: u64| {
        let ground = Ground::with(&options);
        for (path, seed) in [("one", 1), ("two", 1), ("three", 2), ("four", 2), ("five", 1)] {
            ground.write(path, seed, 4096);
        }
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        let before = ground.file_system.counters();
        let batch = BatchOptions { slots };
        let passed = PassSettings { batch, ..USUAL }.pass(&state, &mut files).unwrap();
        let after = ground.file_system.counters();
        assert_eq!(passed.shared.now, 3 * 4096 * K);
        let mut extents = 0;
        for path in ["one", "two", "three", "four", "five"] {
            let file = ground.host.substrate.open(Path::new(path), Access::Read).unwrap();
            extents += crate::extents::Extents::load(&ground.host.substrate, &file).unwrap().iter().count() as u64;
        }
        [after.shares - before.shares, after.clones - before.clones, extents]
    };
    let (whole, parts) = (run(Slot::IN_FILE), run(1024));
    for ((name, one), other) in ["shares", "clones", "extents"].into_iter().zip(whole).zip(parts) {
        assert!(one > 0 && other * 100 <= one * 105, "{name}: {whole:?} as a whole, {parts:?} in batches");
    }
}

/// An image has an open file only while it is worked on. Regression: half a million small images ended a pass because
/// it ran out of descriptors.
#[test]
fn many_small_files_take_few_descriptors() {
    let ground = Ground::new();
    for number in 0..300 {
        ground.write(&format!("small-{number}"), 1 + number % 100, 1);
    }
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let most = Cell::new(0);
    let look = || most.set(most.get().max(ground.file_system.open_files(ground.host.no)));
    let wish = || {
        look();
        Wish::GoOn
    };
    let progress = |_| {
        look();
        ControlFlow::Continue(())
    };
    let passed =
        PassSettings { batch: SMALL, wish: &wish, progress: &progress, ..USUAL }.pass(&state, &mut files).unwrap();
    assert_eq!(passed.shared.now, 200 * K);
    assert!(most.get() > 0 && most.get() < 40, "{} files were open", most.get());
}

/// Another host has put a content into the arena, and died before it saw a place of it that was published meanwhile,
/// and that its batch hides. Regression: the host that merged the batch lost that place.
#[test]
fn a_place_that_a_batch_of_another_host_hides_is_shared_after_the_batch_is_merged() {
    let ground = Ground::new();
    ground.write("one", 1, 4);
    ground.run();
    let state = ground.state();
    let mut hidden = None;
    let each = |entry| {
        hidden = Some(entry);
        ControlFlow::Break(())
    };
    state.each_entry(each).unwrap();
    let ContentEntry { digest, .. } = hidden.unwrap();
    state
        .publish_batch(0, &[ContentEntry { digest, place: ContentPlace::Shared(Slot::new(7, 0).unwrap()) }])
        .unwrap()
        .unwrap();
    drop(state);
    for (path, seed) in [("three", 3), ("four", 4)] {
        ground.write(path, seed, 2);
        ground.run();
    }
    ground.write("two", 1, 4);
    ground.run();
    ground.run();
    assert_eq!(places(&ground, &["one", "two"]), 4);
}

/// A reader of the index reads batches beside the shards; they replace the entries of the shards.
#[test]
fn batches_are_read_beside_shards_and_merged_by_the_next_pass_that_ends() {
    let ground = Ground::new();
    ground.write("one", 1, 64);
    ground.run();
    assert_eq!(ground.state().count_entries().unwrap().unique, 64);
    ground.write("two", 1, 64);
    assert!(cut_after(&ground, SMALL, 20 * K).is_err());
    let counts = ground.state().count_entries().unwrap();
    assert_eq!((counts.all(), counts.shared > 8), (64, true), "{counts:?}");
    assert!(ground.names("batches").len() > 1);
    let state = ground.state();
    state
        .each_entry(|entry| {
            assert_eq!(state.find(entry.digest).unwrap(), Some(entry.place));
            ControlFlow::Continue(())
        })
        .unwrap();
    let slots = named(&ground);
    drop(state);
    ground.run();
    assert_eq!(named(&ground), 64);
    assert!(slots < 64 && ground.names("batches").len() == 1);
    // A pass whose batches are empty leaves the last one, which is empty, and the shards alone.
    ground.write("three", 5, 2);
    ground.run();
    assert_eq!(ground.names("batches").len(), 1);
}

/// A damaged batch is removed, and its contents are found again.
#[test]
fn what_a_damaged_batch_held_is_found_again() {
    let ground = Ground::new();
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, 64));
    assert!(cut_after(&ground, SMALL, 20 * K).is_err());
    for at in [0, 70, 90] {
        let batch = &ground.names("batches")[0];
        let file = ground.host.substrate.open(batch, Access::Write).unwrap();
        ground.host.substrate.write_at(&file, at, b"nonsense").unwrap();
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        // If the header is intact, the damage is found in the middle, and the next pass goes on.
        let first = PassSettings { batch: SMALL, ..USUAL }.pass(&state, &mut files);
        assert!(matches!(first, Ok(_) | Err(PassError::Index { .. })), "{at}: {first:?}");
        drop(state);
        ground.run();
        ground.run();
        assert_eq!((named(&ground), filled(&ground)), (64, 64), "{at}");
        ground.write("two", 2 + at, 64);
        ground.write("one", 2 + at, 64);
        assert!(cut_after(&ground, SMALL, 20 * K).is_err());
    }
}

/// Claims of another user keep no host from anything, and are not believed.
#[test]
fn a_claim_that_belongs_to_another_user_is_refused() {
    let ground = Ground::new();
    let (one, two) = (ground.state(), ground.state());
    let wanted: BTreeSet<FileNo> = [FileNo(1), FileNo(2)].into();
    one.be_present().unwrap();
    assert_eq!(one.claim(&wanted).unwrap(), Some(wanted.clone()));
    assert_eq!(two.claim(&wanted).unwrap(), Some(BTreeSet::new()));
    let claim = &ground.names("claims")[0];
    ground.file_system.protect(claim, UserNo(7), 0o600).unwrap();
    let refused = two.claim(&wanted);
    assert!(matches!(&refused, Err(StateError::Untrusted { path, .. }) if path == claim), "{refused:?}");
}

/// A host publishes a place of a content, and another host a batch that has it in a slot. Regression: that host read
/// the shard beside its own batch, which hid the place, and no pass shared it any more.
#[test]
fn a_place_that_the_own_batch_hides_is_seen() {
    let ground = Ground::new();
    ground.write("one", 1, 4);
    ground.run();
    let state = ground.state();
    let mut entries = Vec::new();
    let each = |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    };
    state.each_entry(each).unwrap();
    let place = entries[1].place;
    assert!(matches!(place, ContentPlace::Unique(FileNo(_), _)), "{place:?}");
    let digest = entries[1].digest;
    let slot = Slot::new(0, 0).unwrap();
    let batch = [ContentEntry { digest, place: ContentPlace::Shared(slot) }];
    let number = state.publish_batch(0, &batch).unwrap().unwrap();
    let mut seen = SpoolWriter::new(Path::new("/var/tmp"), 0);
    seen.push(rows::SeenContent { digest, file: FileNo(99), block: FileBlock(0) }.row()).unwrap();
    let seen = seen.finish().unwrap();
    let mut index = since::SeenIndex { batches: [number].into(), ..since::SeenIndex::default() };
    index.named.insert(slot);
    index.read_news(&state, Some(&seen)).unwrap();
    assert_eq!(index.met, [(digest, [place].into())].into());
}
