//! Runs from file to file on real file systems: what a finder believes is shared where it is right, and every file
//! reads as it was written.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onefold_block::BLOCK_BYTES;
use onefold_block::clock::SystemClock;
use onefold_block::random::{SeededRandom, SystemRandom};
use onefold_linux::LinuxSubstrate;
use onefold_share::format::{FileBlock, FileNo};
use onefold_share::opt_out;
use onefold_share::pace::Pace;
use onefold_share::pass::{
    ContentKey, Engine, FilePlace, Finder, FinderRun, Outcome, PassError, PassOptions, PassReport, RunBatch,
    share_found,
};
use onefold_share::scan::list;
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_share::state::locks::Subject;
use onefold_substrate::{Access, Files, ListedKind, Refusal, Substrate};

use crate::ground::{BTRFS, FOLDER, Ground, K, XFS, no_child, on, on_each, random_blocks, run as run_program};
use crate::pass;
use crate::races::{BLOCKS, fill, guest};

/// A run: source, target, count in blocks, key.
type GivenRun<'a> = ((&'a str, u64), (&'a str, u64), u64, u32);

/// Yields runs that the test gives, as one batch, and keeps what came of them: blocks by key and outcome.
#[derive(Default)]
struct ListFinder {
    ahead: VecDeque<FinderRun>,
    is_over: bool,
    came: BTreeMap<(u32, Outcome), u64>,
    left: u64,
}

impl ListFinder {
    fn came(&self, key: u32, outcome: Outcome) -> u64 {
        self.came.get(&(key, outcome)).copied().unwrap_or(0)
    }
}

impl RunBatch for ListFinder {
    fn next_run(&mut self) -> io::Result<Option<FinderRun>> {
        Ok(self.ahead.pop_front())
    }

    fn leave(&mut self, part: &FinderRun) -> Result<(), PassError> {
        self.left += part.count();
        Ok(())
    }

    fn note(&mut self, part: &FinderRun, outcome: Outcome) {
        *self.came.entry((part.key().number(), outcome)).or_default() += part.count();
    }
}

impl<'b, S: Substrate> Finder<'b, S> for ListFinder {
    fn next_batch(&mut self, _: &mut Engine<'_, 'b, S>) -> Result<Option<&mut dyn RunBatch>, PassError> {
        Ok(if std::mem::replace(&mut self.is_over, true) { None } else { Some(self) })
    }
}

/// A file by this name is excluded after it was listed.
const OPTED_OUT: &str = "opted";

/// Shares runs as `share run` shares what is equal, of the files that are wanted.
fn share_those(
    ground: &Ground,
    wants: &dyn Fn(&Path, ListedKind) -> bool,
    runs: &[GivenRun<'_>],
) -> (PassReport, ListFinder) {
    let _no_child = no_child();
    let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &|_| {}).unwrap();
    let mut files = Marks::load(&state).unwrap();
    let listed = list(&state, &mut files, &Selection::all()).unwrap();
    let numbers: BTreeMap<PathBuf, FileNo> = listed.into_iter().map(|file| (file.path, file.number)).collect();
    let number = |path: &str| numbers[Path::new(path)];
    let place = |(path, block): (&str, u64)| FilePlace { file: number(path), block: FileBlock(block) };
    let run = |(source, target, count, key): &GivenRun<'_>| {
        FinderRun::between(place(*source), place(*target), *count, ContentKey::new(*key).unwrap()).unwrap()
    };
    let mut finder = ListFinder { ahead: runs.iter().map(run).collect(), ..ListFinder::default() };
    // Its user excludes a file once the finder knows it.
    if numbers.contains_key(Path::new(OPTED_OUT)) {
        opt_out::exclude(&ground.substrate, Path::new(OPTED_OUT)).unwrap();
    }
    let (roots, pace) = ([PathBuf::new()], Pace::unlimited());
    let options = PassOptions {
        selection: Selection::new(&roots, wants),
        space: pass::USUAL.space,
        ..PassOptions::new(Path::new("/var/tmp"), &pace, &SystemClock)
    };
    let passed = share_found(&state, &mut files, &mut finder, &options).unwrap();
    (passed, finder)
}

fn share_runs(ground: &Ground, runs: &[GivenRun<'_>]) -> (PassReport, ListFinder) {
    share_those(ground, &|_, _| true, runs)
}

fn slots(ground: &Ground) -> u64 {
    let files = fs::read_dir(ground.root.join(FOLDER).join("arena")).map_or(0, Iterator::count);
    files as u64
}

/// A file of 16 MiB equals another one but for a few blocks: all of it comes free on XFS; on Btrfs, too, where these
/// few blocks keep the old extents until they are moved away.
#[test]
fn files_that_are_nearly_equal_share_and_their_room_comes_free() {
    on_each(|ground| {
        let blocks: u64 = 4096;
        let content = random_blocks(1, blocks as usize);
        let mut other = content.clone();
        for block in [100, 101, 3000] {
            other[block * BLOCK_BYTES] ^= 1;
        }
        ground.file("one", &content);
        ground.file("other", &other);
        let before = ground.settled_room();
        let half = blocks / 2;
        let runs = [(("one", 0), ("other", 0), half, 1), (("one", half), ("other", half), half, 2)];
        let (passed, finder) = share_runs(ground, &runs);
        assert_eq!((passed.shared.now, passed.shared.differed), ((blocks - 3) * K, 3 * K), "{passed:?}");
        let came = [1, 2].map(|key| [Outcome::Shared, Outcome::Differed].map(|outcome| finder.came(key, outcome)));
        assert_eq!(came, [[half - 2, 2], [half - 1, 1]]);
        assert!(passed.shared.freed >= (blocks - 3) * K * 95 / 100, "{passed:?}");
        assert_eq!((slots(ground), passed.shared.untold), (0, 0), "{passed:?}");
        assert!(ground.content("one") == content && ground.content("other") == other);
        let gained = ground.settled_room().saturating_sub(before);
        assert!(gained > blocks * K * 8 / 10, "{} KiB of {} came free", gained / 1024, blocks * 4);

        // What shares is seen in the maps, by either finder.
        let (again, finder) = share_runs(ground, &runs);
        assert_eq!((again.shared.now, again.shared.before), (0, (blocks - 3) * K), "{again:?}");
        assert_eq!(finder.came(1, Outcome::Before), half - 2);
        let found = pass::run(ground);
        assert_eq!(found.passed.shared.now, 0, "{found:?}");
    });
}

/// Wrong, beyond the ends, one over the other, within one file: files stay as they are.
#[test]
fn whatever_a_finder_says_no_file_changes() {
    on_each(|ground| {
        let random = SeededRandom::new(5);
        // Few contents, so that much is equal by chance, or in one half.
        let content: BTreeMap<&str, Vec<u8>> = ["a", "b", "c"]
            .into_iter()
            .map(|name| {
                let mut bytes = vec![0; 300 * BLOCK_BYTES];
                bytes.chunks_mut(BLOCK_BYTES).for_each(|block| fill(block, random.below(2) as u8));
                (name, bytes)
            })
            .collect();
        content.iter().for_each(|(name, bytes)| drop(ground.file(name, bytes)));
        let place = || (["a", "b", "c"][random.below(3) as usize], random.below(320));
        let mut total = PassReport::default().shared;
        for _ in 0..6 {
            let mut runs: Vec<GivenRun<'_>> = (0..60)
                .map(|key| {
                    let (source, mut target) = (place(), place());
                    target.1 += u64::from(source == target);
                    (source, target, 1 + random.below(200), key)
                })
                .collect();
            runs.sort_by_key(|(_, target, ..)| *target);
            let (passed, finder) = share_runs(ground, &runs);
            let told: u64 = finder.came.values().sum();
            assert_eq!(told, runs.iter().map(|(_, _, count, _)| count).sum::<u64>(), "{passed:?}");
            assert!(passed.trouble.failed.is_empty() && passed.trouble.refused.is_empty(), "{passed:?}");
            total.now += passed.shared.now;
            total.differed += passed.shared.differed;
            content.iter().for_each(|(name, bytes)| assert!(ground.content(name) == *bytes, "{name}"));
        }
        assert!(total.now > 100 * K && total.differed > 100 * K, "{total:?}");
    });
}

#[test]
fn guests_read_what_they_wrote_while_a_finder_shares_their_files() {
    on_each(|ground| {
        let mut content = vec![0; (BLOCKS * K) as usize];
        content.chunks_mut(BLOCK_BYTES).for_each(|block| fill(block, 0));
        drop((ground.file("one", &content), ground.file("other", &content)));
        let is_over = AtomicBool::new(false);
        let (writes, shared) = std::thread::scope(|scope| {
            let is_over = &is_over;
            let guests =
                [("one", 1), ("other", 2)].map(|(name, seed)| scope.spawn(move || guest(ground, name, seed, is_over)));
            let shared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let (start, mut shared) = (Instant::now(), 0);
                while start.elapsed() < Duration::from_millis(1500) {
                    let runs = [(("other", 0), ("one", 0), BLOCKS, 1), (("one", 1), ("other", 0), BLOCKS - 1, 2)];
                    shared += share_runs(ground, &runs).0.shared.now / K;
                }
                shared
            }));
            is_over.store(true, Ordering::Relaxed);
            (guests.map(|guest| guest.join().unwrap()), shared.unwrap())
        });
        assert!(writes.iter().all(|writes| *writes > 10) && shared > 10, "{writes:?} writes, {shared} shared");
    });
}

#[test]
fn locks_selection_opt_outs_and_domains_hold_for_runs() {
    on_each(|ground| {
        let content = random_blocks(3, 64);
        for name in ["a", "held", OPTED_OUT, "outside", "user", "z"] {
            ground.file(name, &content);
        }
        chown(ground.root.join("user"), Some(1000), None).unwrap();
        let door = LinuxSubstrate::open(&ground.root, Path::new("")).unwrap();
        let state = State::open(&door, &SystemClock, &SystemRandom, &|_| {}).unwrap();
        let handle = door.stat(&door.open(Path::new("held"), Access::Read).unwrap()).unwrap().handle;
        let held = state.try_lock(&Subject::File(handle)).unwrap().unwrap();
        let names = ["held", "opted", "outside", "user"];
        let into = names.iter().zip(1..).map(|(name, key)| (("a", 0), (*name, 0), 64, key));
        let out_of = ["opted", "outside", "user"].iter().zip(5..).map(|(name, key)| ((*name, 0), ("z", 0), 64, key));
        let runs: Vec<GivenRun<'_>> = into.chain(out_of).collect();
        let wants = |path: &Path, _| path != Path::new("outside");
        let (passed, finder) = share_those(ground, &wants, &runs);
        assert_eq!((passed.shared.now, finder.left), (0, 64), "{passed:?}");
        assert_eq!((passed.shared.elsewhere, passed.shared.barred), (64 * K, 6 * 64 * K), "{passed:?}");
        assert_eq!((2..8).map(|key| finder.came(key, Outcome::Barred)).collect::<Vec<_>>(), [64; 6]);
        // What another host has is a source all the same.
        let (passed, _) = share_those(ground, &wants, &[(("held", 0), ("z", 0), 64, 1)]);
        assert_eq!(passed.shared.now, 64 * K, "{passed:?}");
        drop(held);
        let shared = |name: &str| ground.map(&ground.open(name, Access::Read)).0.iter().any(|extent| extent.is_shared);
        assert_eq!(
            ["a", "held", "opted", "outside", "user", "z"].map(shared),
            [false, true, false, false, false, true]
        );
    });
}

/// A file that the kernel does not share costs its own runs, on whichever side it is.
#[test]
fn a_file_that_is_refused_costs_its_own_runs() {
    let path = |ground: &Ground, name: &str| ground.root.join(name).to_str().unwrap().to_owned();
    on(BTRFS, |ground| {
        let content = random_blocks(3, 64);
        // The flag is taken by an empty file only.
        drop(ground.file("nocow", &[]));
        run_program("chattr", ["+C", &path(ground, "nocow")]).unwrap();
        fs::write(path(ground, "nocow"), &content).unwrap();
        for name in ["one", "other"] {
            ground.file(name, &content);
        }
        let runs =
            [(("nocow", 0), ("one", 0), 32, 1), (("nocow", 40), ("one", 40), 8, 2), (("other", 0), ("one", 0), 64, 3)];
        let (passed, finder) = share_runs(ground, &runs);
        assert_eq!((passed.shared.now, passed.shared.refused), (64 * K, 40 * K), "{passed:?}");
        assert_eq!((finder.came(1, Outcome::Refused), finder.came(3, Outcome::Shared)), (32, 64));
        let refused: Vec<_> = passed.trouble.refused.iter().collect();
        assert_eq!(refused, [(&PathBuf::from("nocow"), &Refusal::NoCopyOnWrite)], "{passed:?}");
    });
    on(XFS, |ground| {
        let content = random_blocks(3, 64);
        for name in ["fixed", "one", "other"] {
            ground.file(name, &content);
        }
        run_program("chattr", ["+i", &path(ground, "fixed")]).unwrap();
        let runs = [(("one", 0), ("fixed", 0), 64, 1), (("fixed", 0), ("other", 0), 64, 2)];
        let (passed, finder) = share_runs(ground, &runs);
        run_program("chattr", ["-i", &path(ground, "fixed")]).unwrap();
        assert_eq!((passed.shared.now, passed.shared.refused), (64 * K, 64 * K), "{passed:?}");
        assert_eq!((finder.came(1, Outcome::Refused), finder.came(2, Outcome::Shared)), (64, 64));
        assert_eq!(passed.trouble.refused.get(Path::new("fixed")), Some(&Refusal::Immutable), "{passed:?}");
    });
}

/// Both files of a run share from then on: writes into either are copies, which are kept small.
#[test]
fn later_writes_into_both_files_take_little_room() {
    on(XFS, |ground| {
        let content = random_blocks(3, 64);
        for name in ["one", "other", "alone"] {
            ground.file(name, &content);
        }
        share_runs(ground, &[(("one", 0), ("other", 0), 64, 1)]);
        let is_new = |name: &str| {
            let file = ground.open(name, Access::Write);
            onefold_substrate::CopyHints::keep_copies_small(&ground.substrate, &file).unwrap()
        };
        assert_eq!(["one", "other", "alone"].map(is_new), [false, false, true]);
    });
}
