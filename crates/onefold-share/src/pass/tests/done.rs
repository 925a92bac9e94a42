//! Places that a pass has shared before it was told to end: the next one leaves them out, unless something has changed
//! that makes them worth another look.

use super::batches::{SMALL, cut_after, filled, named, places};
use super::*;

const BLOCKS: u64 = 64;
/// Contents of a batch.
const BATCH: u64 = 8;

/// Two equal images, and a pass over them that was told to end in its second batch.
fn interrupted() -> Ground {
    let ground = Ground::new();
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, BLOCKS));
    cut(&ground, 0);
    assert_eq!((named(&ground), filled(&ground)), (2 * BATCH, 2 * BATCH));
    assert_eq!((ground.names("progress").len(), ground.names("logs").len()), (1, 2));
    ground
}

/// Interrupts a pass in the second batch behind the places that it finds planned for known contents.
fn cut(ground: &Ground, known: u64) {
    let passed = cut_after(ground, SMALL, (known + BATCH + 2) * K);
    assert!(matches!(passed, Err(PassError::State(StateError::Interrupted))), "{passed:?}");
}

fn run_on(ground: &Ground, wants: &dyn Fn(&Path, ListedKind) -> bool) -> PassReport {
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_those(&state, &mut files, wants);
    let roots = [PathBuf::new()];
    PassSettings { selection: Selection::new(&roots, wants), ..USUAL }.pass(&state, &mut files).unwrap()
}

/// Returns the blocks that a pass had to put in order.
fn planned(passed: &PassReport) -> u64 {
    passed.planned.targets + passed.planned.promoted
}

#[test]
fn a_resumed_pass_plans_only_what_is_left() {
    let ground = interrupted();
    let passed = ground.run();
    // Both places of each content of the complete batch are left out.
    assert_eq!(planned(&passed), 2 * (BLOCKS - BATCH), "{passed:?}");
    assert_eq!(passed.shared.before, 2 * BATCH * K, "those of the batch that was cut off");
    assert_eq!((places(&ground, &["one", "two"]), named(&ground), filled(&ground)), (64, BLOCKS, BLOCKS));
    assert_eq!((ground.names("progress").len(), ground.names("logs").len()), (0, 0));
}

/// Each pass hands on what earlier ones have done, in one file.
#[test]
fn the_plan_shrinks_with_each_interruption() {
    let ground = interrupted();
    for _ in 0..2 {
        cut(&ground, 2 * BATCH);
        assert_eq!(ground.names("progress").len(), 1);
    }
    let passed = ground.run();
    // Of each later pass two batches are complete: the one before it that was cut off, and one of its own.
    assert_eq!(planned(&passed), 2 * (BLOCKS - 5 * BATCH), "{passed:?}");
    assert_eq!((places(&ground, &["one", "two"]), named(&ground), filled(&ground)), (64, BLOCKS, BLOCKS));
}

#[test]
fn an_image_that_was_overwritten_is_planned_anew() {
    let ground = interrupted();
    ground.write("two", 3, BLOCKS);
    ground.write("three", 3, BLOCKS);
    ground.write("four", 1, BLOCKS);
    ground.run();
    assert_eq!(places(&ground, &["one", "four"]), 64, "its old content is known");
    assert_eq!(places(&ground, &["two", "three"]), 64, "and its new one");
    ground.run();
    assert_eq!((named(&ground), filled(&ground)), (2 * BLOCKS, 2 * BLOCKS));
    assert_eq!(ground.names("progress").len(), 0);
}

/// No file has the contents of the complete batch any more: their entries are dropped, and found again in new files.
#[test]
fn contents_of_which_all_places_were_overwritten_are_forgotten() {
    let ground = interrupted();
    ["one", "two"].iter().for_each(|path| ground.write(path, 3, BLOCKS));
    ground.run();
    assert_eq!((places(&ground, &["one", "two"]), named(&ground), filled(&ground)), (64, BLOCKS, BLOCKS));
    ["three", "four"].iter().for_each(|path| ground.write(path, 1, BLOCKS));
    ground.run();
    assert_eq!(places(&ground, &["three", "four"]), 64);
}

#[test]
fn a_run_on_other_files_leaves_the_record_for_the_next_one() {
    let ground = interrupted();
    ground.write("three", 1, BLOCKS);
    let without_two = |path: &Path, _: ListedKind| path != Path::new("two");
    let passed = run_on(&ground, &without_two);
    assert_eq!((passed.logs, passed.logs_outside, places(&ground, &["one", "three"])), (2, 1, 64), "{passed:?}");
    assert_eq!((ground.names("progress").len(), ground.names("logs").len()), (1, 1));
    let passed = ground.run();
    assert_eq!(planned(&passed), BLOCKS - BATCH, "{passed:?}");
    assert_eq!((places(&ground, &["one", "two", "three"]), ground.names("progress").len()), (64, 0));
}

/// In the new domain, the image is a new file, whose blocks nothing is known of.
#[test]
fn an_image_in_another_domain_is_planned_anew() {
    let ground = interrupted();
    ground.write("four", 1, BLOCKS);
    ["two", "four"].iter().for_each(|path| ground.file_system.give_image(ground.host.no, path, 7).unwrap());
    ground.file_system.pass(Duration::from_secs(1));
    (0..2).for_each(|_| drop(ground.run()));
    assert_eq!(places(&ground, &["two", "four"]), 64);
    assert_eq!(ground.names("progress").len(), 0);
}

/// A place that differs from its slot when they are to share is not done, though its batch is complete otherwise.
#[test]
fn a_place_that_could_not_be_shared_is_planned_again() {
    let ground = Ground::new();
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, BLOCKS));
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let progress = |at| match at {
        PassProgress::Planned { .. } => {
            ground.write("two", 5, 3);
            ControlFlow::Continue(())
        }
        PassProgress::Sharing { bytes } if bytes >= (BATCH + 2) * K => ControlFlow::Break(()),
        PassProgress::Sharing { .. } => ControlFlow::Continue(()),
    };
    let passed = PassSettings { batch: SMALL, call_bytes: K, progress: &progress, ..USUAL }.pass(&state, &mut files);
    assert!(matches!(passed, Err(PassError::State(StateError::Interrupted))), "{passed:?}");
    let stored = state.progress().unwrap();
    let done: u64 = stored.logs.values().flatten().map(|run| run.count).sum();
    assert_eq!(done, 2 * BATCH - 3, "{stored:?}");
    drop(state);
    ground.write("two", 1, 3);
    (0..2).for_each(|_| drop(ground.run()));
    assert_eq!(places(&ground, &["one", "two"]), 64);
}

/// Entries of the complete batch have gone without a trace, so that their slots are emptied. Its places were left out,
/// and are read again.
#[test]
fn places_whose_slots_no_entry_names_any_more_are_read_again() {
    let ground = interrupted();
    ground.names("batches").iter().for_each(|batch| ground.host.substrate.remove(batch).unwrap());
    let passed = ground.run();
    assert_eq!(planned(&passed), 2 * (BLOCKS - BATCH), "{passed:?}");
    assert!(unread(&ground.state()).values().all(|is_unread| *is_unread));
    ground.run();
    ground.write("three", 1, BLOCKS);
    ground.run();
    assert_eq!((places(&ground, &["one", "two", "three"]), named(&ground)), (64, BLOCKS));
}

#[test]
fn all_is_planned_where_the_record_is_damaged_or_gone() {
    for is_damaged in [true, false] {
        let ground = interrupted();
        let [path] = &ground.names("progress")[..] else { panic!("one file") };
        if is_damaged {
            let file = ground.host.substrate.open(path, Access::Write).unwrap();
            ground.host.substrate.write_at(&file, 80, &[0xff; 8]).unwrap();
        } else {
            ground.host.substrate.remove(path).unwrap();
        }
        let passed = ground.run();
        assert_eq!(planned(&passed), 2 * BLOCKS, "{passed:?}");
        assert_eq!((places(&ground, &["one", "two"]), ground.names("progress").len()), (64, 0));
    }
}

/// A dry run says what all logs are worth, as it does without an interruption.
#[test]
fn a_dry_run_plans_everything() {
    let ground = interrupted();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let passed = PassSettings { is_dry_run: true, ..USUAL }.pass(&state, &mut files).unwrap();
    assert_eq!(planned(&passed), 2 * BLOCKS, "{passed:?}");
}
