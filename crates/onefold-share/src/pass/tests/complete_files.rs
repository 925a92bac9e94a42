//! Files that an interrupted pass has completed: the next pass does not plan them again, and nothing of them is lost.

use super::batches::{SMALL, filled, named, places};
use super::*;
use crate::state::locks::Subject;

/// The images in the order of their numbers. The contents of `c`, and of a part of `h`, have slots already, and `b` is
/// overwritten afterwards: the index names some of its old blocks.
const PATHS: [&str; 9] = ["b", "c", "e", "f", "g", "h", "i", "j", "k"];

impl Ground {
    /// Writes blocks at the end of a file.
    fn append(&self, path: &str, seed: u64, blocks: u64) {
        let (path, substrate) = (Path::new(path), &self.host.substrate);
        let file = substrate.open(path, Access::Write).or_else(|_| substrate.create(path)).unwrap();
        let mut bytes = vec![0; usize::try_from(blocks * K).unwrap()];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        substrate.write_at(&file, substrate.stat(&file).unwrap().length, &bytes).unwrap();
        self.file_system.pass(Duration::from_secs(1));
    }

    /// Returns the numbers of entries, of slots and of places, and of entries once more after all files were copied.
    fn outcome(&self, paths: &[&str]) -> [u64; 6] {
        let of_index = || {
            let counts = self.state().count_entries().unwrap();
            [counts.unique, counts.shared]
        };
        let ([unique, shared], count) = (of_index(), places(self, paths) as u64);
        for path in paths {
            let substrate = &self.host.substrate;
            let file = substrate.open(Path::new(path), Access::Read).unwrap();
            let mut bytes = vec![0; usize::try_from(substrate.stat(&file).unwrap().length).unwrap()];
            substrate.read_at(&file, 0, &mut bytes).unwrap();
            let copy = substrate.create(Path::new(&format!("copy-{path}"))).unwrap();
            substrate.write_at(&copy, 0, &bytes).unwrap();
        }
        self.file_system.pass(Duration::from_secs(1));
        self.run();
        let copies: Vec<String> = paths.iter().map(|path| format!("copy-{path}")).collect();
        let all: Vec<&str> = paths.iter().copied().chain(copies.iter().map(String::as_str)).collect();
        let [left, slots] = of_index();
        [unique, shared, count, left, slots, places(self, &all) as u64]
    }
}

/// Two known images; then some that have contents once, twice in one image, and in two images.
fn with_all_kinds() -> Ground {
    let ground = Ground::new();
    ground.append("b", 1, 6);
    ground.append("c", 2, 6);
    ground.append("e", 2, 6);
    ground.run();
    ground.write("b", 3, 4);
    ground.append("f", 4, 12);
    ground.append("f", 5, 3);
    ground.append("g", 4, 12);
    ground.append("g", 6, 2);
    ground.append("g", 6, 2);
    ground.append("h", 7, 12);
    ground.append("h", 2, 6);
    ground.append("i", 7, 12);
    ground.append("i", 8, 5);
    ground.append("j", 9, 9);
    ground.append("k", 9, 9);
    ground
}

/// How a pass is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Soon,
    Now,
    /// At once, with a file system that has just become full.
    Full,
}

/// Scans, and does a pass that is told to end once it was asked so often.
fn cut_at(ground: &Ground, calls: u32, cut: Cut) -> Result<PassReport, PassError> {
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let asked = Cell::new(0);
    let wish = || {
        asked.set(asked.get() + 1);
        if asked.get() <= calls {
            return Wish::GoOn;
        }
        ground.file_system.set_full(cut == Cut::Full);
        if cut == Cut::Soon { Wish::StopSoon } else { Wish::StopNow }
    };
    let passed = PassSettings { batch: SMALL, call_bytes: K, wish: &wish, ..USUAL }.pass(&state, &mut files);
    ground.file_system.set_full(false);
    passed
}

#[test]
fn a_pass_that_is_interrupted_anywhere_removes_logs_of_complete_files_and_loses_nothing() {
    let uncut = with_all_kinds();
    uncut.run();
    let wanted = uncut.outcome(&PATHS);
    for cut in [Cut::Soon, Cut::Now, Cut::Full] {
        // How often so many logs were left.
        let mut left = [0; 8];
        for calls in 0.. {
            let ground = with_all_kinds();
            let what = format!("{cut:?} at {calls}");
            let passed = cut_at(&ground, calls, cut);
            assert!(calls < 500, "{what}: {passed:?}");
            if passed.is_ok_and(|passed| !passed.trouble.is_full) {
                break;
            }
            assert!(cut == Cut::Full || filled(&ground) == named(&ground), "{what}");
            left[ground.names("logs").len()] += 1;
            ground.run();
            assert_eq!((ground.names("logs").len(), filled(&ground)), (0, named(&ground)), "{what}");
            ground.run();
            assert_eq!(ground.outcome(&PATHS), wanted, "{what}");
        }
        // Those of `f` and `g` go before those of `h` and `i`. Entries that name `b` are dropped at the end of a pass.
        let [0, 0, 0, four, 0, two, 0, none] = left else { panic!("{cut:?}: {left:?}") };
        assert!(none > 10 && (cut == Cut::Full || four > 1 && two > 5), "{cut:?}: {left:?}");
    }
}

/// Two pairs of equal images, the first of which has four blocks of its own.
fn with_pairs() -> Ground {
    let ground = Ground::new();
    ground.append("a", 1, 8);
    ground.append("a", 5, 4);
    ground.append("b", 1, 8);
    ["c", "d"].iter().for_each(|path| ground.append(path, 2, 24));
    ground
}

/// Scans, and does a pass that ends once it has shared so much. Calls back when it is planned.
fn cut_after(ground: &Ground, bytes_max: u64, planned: &dyn Fn(&State<'_, Sim>)) {
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    let progress = |at| match at {
        PassProgress::Planned { .. } => {
            planned(&ground.state());
            ControlFlow::Continue(())
        }
        PassProgress::Sharing { bytes } if bytes >= bytes_max => ControlFlow::Break(()),
        PassProgress::Sharing { .. } => ControlFlow::Continue(()),
    };
    let passed = PassSettings { batch: SMALL, call_bytes: K, progress: &progress, ..USUAL }.pass(&state, &mut files);
    assert!(matches!(passed, Err(PassError::State(StateError::Interrupted))), "{passed:?}");
}

#[test]
fn the_pass_after_an_interrupted_one_plans_only_the_rest() {
    let ground = with_pairs();
    // In the second batch of the second pair.
    cut_after(&ground, (8 + 8 + 2) * K, &|_| {});
    assert_eq!((ground.names("logs").len(), ground.names("requests").len()), (2, 1));
    let passed = ground.run();
    // The logs of the second pair, and a request for the blocks that only the first image has.
    let PlanCounts { new, promoted, targets, .. } = passed.planned;
    assert_eq!((passed.logs, new, promoted, targets), (3, 8 + 4, 8, 2 * 16 + 8), "{passed:?}");
    assert_eq!((ground.names("logs").len(), ground.names("requests").len()), (0, 0));
    // Files that were complete before are not written anew.
    assert_eq!(ground.outcome(&["a", "b", "c", "d"]), [4, 32, 36, 0, 36, 36]);
}

#[test]
fn requests_for_contents_of_complete_files_stay_at_the_next_interruption() {
    let ground = with_pairs();
    cut_after(&ground, (8 + 8 + 2) * K, &|_| {});
    let requests = ground.names("requests");
    cut_after(&ground, (2 * 16 + 2) * K, &|_| {});
    assert_eq!(ground.names("requests"), requests);
    ground.run();
    assert_eq!(ground.outcome(&["a", "b", "c", "d"]), [4, 32, 36, 0, 36, 36]);
}

/// Another host publishes what it has found, while a pass is about to begin its work.
#[test]
fn all_logs_stay_if_the_index_has_changed_since_the_plan() {
    let ground = with_pairs();
    cut_after(&ground, (8 + 8 + 2) * K, &|other| {
        ground.append("e", 5, 4);
        let mut files = Marks::load(other).unwrap();
        scan_all(other, &mut files);
        assert_eq!(USUAL.pass(other, &mut files).unwrap().planned.new, 4);
    });
    assert_eq!(ground.names("logs").len(), 4);
    ground.run();
    ground.run();
    assert_eq!(ground.outcome(&["a", "b", "c", "d", "e"]), [0, 36, 36, 0, 36, 36]);
}

/// Two files whose contents have slots: one that another process has locked, and one whose turn does not come.
#[test]
fn files_that_have_not_come_to_share_with_known_slots_keep_their_logs() {
    for (is_locked, bytes_max) in [(true, 14 * K), (false, 2 * K)] {
        let ground = Ground::new();
        ["x", "y"].iter().for_each(|path| ground.append(path, 3, 8));
        ground.run();
        ground.append("a", 3, 8);
        ["b", "c"].iter().for_each(|path| ground.append(path, 4, 24));
        let (other, lock) = (ground.state(), std::cell::RefCell::new(None));
        cut_after(&ground, bytes_max, &|state| {
            let files = Marks::load(state).unwrap();
            let handle = files.iter().find(|mark| mark.path == Path::new("a")).unwrap().handle.clone();
            lock.replace(other.try_lock(&Subject::File(handle)).unwrap().filter(|_| is_locked));
        });
        drop(lock);
        assert_eq!(ground.names("logs").len(), 3, "locked: {is_locked}");
        ground.run();
        ground.run();
        assert_eq!(ground.outcome(&["x", "y", "a", "b", "c"]), [0, 32, 32, 0, 32, 32], "locked: {is_locked}");
    }
}
