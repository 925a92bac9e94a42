//! A batch that is cut off: its slots with the right content are published, and all places share with them in the end.

use super::batches::{SMALL, filled, named, places};
use super::*;

/// Each content of the batch is known at a place that no log reports any more. Its batch hides that place, shared or
/// not.
#[test]
fn places_that_only_the_index_names_are_shared_once_their_batch_was_cut_off() {
    let (mut stopped, mut unshared) = (0, 0);
    for calls in 0.. {
        let ground = Ground::new();
        ground.write("one", 1, 24);
        ground.run();
        assert_eq!((named(&ground), ground.names("logs").len()), (0, 0));
        ground.write("two", 1, 24);
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        let wish = stop_after(calls);
        let passed = PassSettings { batch: SMALL, call_bytes: K, wish: &wish, ..USUAL }.pass(&state, &mut files);
        drop(state);
        assert_eq!(filled(&ground), named(&ground), "stopped at {calls}: {passed:?}");
        unshared += u64::from(usize::try_from(named(&ground)).unwrap() > 48 - places(&ground, &["one", "two"]));
        if passed.is_ok() {
            break;
        }
        stopped += 1;
        ground.run();
        assert_eq!(places(&ground, &["one", "two"]), 24, "stopped at {calls}");
        assert_eq!((filled(&ground), named(&ground)), (24, 24), "stopped at {calls}");
        // Places that were requested twice are found done.
        ground.run();
        assert_eq!(ground.names("requests").len(), 0, "stopped at {calls}");
    }
    assert!(stopped > 20 && unshared > 2, "{stopped} stopped, {unshared} of them with slots that only one file had");
}

/// Before any place shares with the slots of a batch, these are read in parts.
#[test]
fn slots_that_were_read_are_kept_when_their_batch_is_cut_off_before_it_is_shared() {
    const BLOCKS: u64 = 10_000;
    let ground = Ground::new();
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, BLOCKS));
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    // More slots than are left unread.
    let wish = || if filled(&ground) > 9000 { Wish::StopNow } else { Wish::GoOn };
    let passed = PassSettings { wish: &wish, ..ALL_AT_ONCE }.pass(&state, &mut files);
    assert!(matches!(passed, Err(PassError::State(StateError::Interrupted))), "{passed:?}");
    assert_eq!(ground.file_system.counters().shares, 0);
    let known = named(&ground);
    assert!((1..9000).contains(&known), "{known} slots are named");
    assert_eq!(filled(&ground), known);
    let passed = ALL_AT_ONCE.pass(&state, &mut files).unwrap();
    // The places that went into slots are shared with them already.
    assert_eq!((passed.planned.promoted, passed.shared.before), (BLOCKS - known, known * K), "{passed:?}");
    assert_eq!(passed.shared.now, BLOCKS * K);
    drop(state);
    assert_eq!((filled(&ground), named(&ground)), (BLOCKS, BLOCKS));
}

/// One batch may use all of the memory and of the index.
const ALL_AT_ONCE: PassSettings<'static> = PassSettings { shard_entries_max: 1 << 20, memory_bytes: 16 << 20, ..USUAL };
