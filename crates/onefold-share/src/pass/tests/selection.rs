//! Files outside the selection of a run are neither read nor changed, and not forgotten.

use onefold_substrate::{Files, Names, Sharing};

use super::*;

/// Returns how many bytes of a file share a block with another place.
fn shared_bytes(ground: &Ground, path: &str) -> u64 {
    let file = ground.host.substrate.open(Path::new(path), Access::Read).unwrap();
    let (mut at, mut bytes) = (0, 0);
    loop {
        let extents = ground.host.substrate.extents(&file, at).unwrap();
        bytes += extents.iter().filter(|extent| extent.is_shared).map(|extent| extent.length).sum::<u64>();
        match extents.last() {
            Some(last) if last.end() > at => at = last.end(),
            _ => return bytes,
        }
    }
}

/// Scans and passes, both over the wanted files only.
fn run_on(ground: &Ground, wants: &dyn Fn(&Path, ListedKind) -> bool, is_dry_run: bool) -> PassReport {
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_those(&state, &mut files, wants);
    let roots = [PathBuf::new()];
    PassSettings { selection: Selection::new(&roots, wants), is_dry_run, ..USUAL }.pass(&state, &mut files).unwrap()
}

fn without(name: &'static str) -> impl Fn(&Path, ListedKind) -> bool {
    move |path, _| path != Path::new(name)
}

fn only(name: &'static str) -> impl Fn(&Path, ListedKind) -> bool {
    move |path, kind| kind == ListedKind::Folder || path == Path::new(name)
}

/// A run reads all files, and is interrupted before it shares. The next one leaves one of them alone.
#[test]
fn a_file_outside_is_neither_source_nor_target_and_its_log_stays() {
    let ground = Ground::new();
    for (path, seed) in [("one", 1), ("two", 1), ("db", 1), ("like-db", 2)] {
        ground.write(path, seed, 6);
    }
    {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap());
    }
    let passed = run_on(&ground, &without("db"), false);
    assert_eq!((passed.logs, passed.logs_outside, passed.shared.now), (3, 1, 6 * K), "{passed:?}");
    assert_eq!((shared_bytes(&ground, "db"), shared_bytes(&ground, "two")), (0, 6 * K));
    assert_eq!(ground.names("logs").len(), 1);
    let passed = run_on(&ground, &|_, _| true, false);
    assert_eq!((passed.logs, passed.shared.now, shared_bytes(&ground, "db")), (1, 6 * K, 6 * K), "{passed:?}");
}

#[test]
fn what_a_dry_run_has_read_is_not_shared_by_a_run_on_others() {
    let ground = Ground::new();
    for path in ["a", "b-one", "b-two"] {
        ground.write(path, 1, 6);
    }
    let planned = run_on(&ground, &without("a"), true).planned;
    assert_eq!((planned.promoted, planned.targets), (6, 6));
    let passed = run_on(&ground, &only("a"), false);
    assert_eq!((passed.shared.now, passed.planned.targets), (0, 0), "{passed:?}");
    assert!(["a", "b-one", "b-two"].iter().all(|path| shared_bytes(&ground, path) == 0));
    // A dry run plans no more than the run after it shares.
    assert_eq!(run_on(&ground, &only("a"), true).planned.targets, 0);
    assert_eq!(run_on(&ground, &|_, _| true, false).shared.now, 12 * K);
}

/// The index knows a content only in a file outside: it is not shared there, and not forgotten either.
#[test]
fn what_is_known_of_a_file_outside_waits_for_a_run_that_includes_it() {
    let ground = Ground::new();
    ground.write("outside", 1, 6);
    ground.write("other", 5, 2);
    ground.run();
    ground.write("inside", 1, 6);
    for round in 0..3 {
        let passed = run_on(&ground, &without("outside"), false);
        assert_eq!((passed.planned.targets, passed.planned.stale, passed.shared.now), (0, 0, 0), "{round}: {passed:?}");
        assert_eq!(passed.planned.outside, if round == 0 { 6 } else { 0 });
    }
    assert_eq!(shared_bytes(&ground, "outside") + shared_bytes(&ground, "inside"), 0);
    // The other way round, too.
    assert_eq!(run_on(&ground, &only("outside"), false).shared.now, 0);
    assert_eq!(ground.state().count_entries().unwrap().unique, 8);
    assert_eq!(run_on(&ground, &|_, _| true, false).shared.now, 6 * K);
    assert_eq!((shared_bytes(&ground, "outside"), shared_bytes(&ground, "inside")), (6 * K, 6 * K));
}

/// Two files inside hold it as well. These share with each other, and the one outside follows when a run includes it.
#[test]
fn files_inside_share_what_is_known_of_a_file_outside() {
    let ground = Ground::new();
    ground.write("outside", 1, 6);
    ground.run();
    ["one", "two"].iter().for_each(|path| ground.write(path, 1, 6));
    let passed = run_on(&ground, &without("outside"), false);
    assert_eq!((passed.shared.now, passed.planned.outside, shared_bytes(&ground, "outside")), (6 * K, 6, 0));
    // Blocks in the arena may be sources, whatever file they came from. Waiting places are no work for others.
    ground.write("three", 1, 6);
    assert_eq!(run_on(&ground, &without("outside"), false).shared.now, 6 * K);
    assert!(!run_on(&ground, &without("outside"), false).has_found_work());
    assert_eq!(run_on(&ground, &only("outside"), false).shared.now, 6 * K);
}

/// A file outside is not looked at: the run does not even check whether it exists.
#[test]
fn a_file_outside_that_is_gone_is_known_until_a_run_includes_it() {
    let ground = Ground::new();
    ground.write("outside", 1, 6);
    ground.write("inside", 2, 6);
    ground.run();
    ground.host.substrate.remove(Path::new("outside")).unwrap();
    ground.write("inside", 3, 6);
    let passed = run_on(&ground, &without("outside"), false);
    assert_eq!(passed.planned.stale, 6, "those of `inside`");
    assert_eq!(ground.state().count_entries().unwrap().unique, 12);
    assert_eq!(ground.run().planned.stale, 6);
}
