//! Equal files of guests: what is kept of images, and when a watch shares them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_linux::{LinuxMachine, ProcessCpu};
use onefold_share::files::{FilesOptions, FilesReport, ReadScope, Tier, share_files};
use onefold_share::pace::{Limits, Pace, Wish};
use onefold_share::pass::{PassOptions, SpaceOptions};
use onefold_share::run::Seams;
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_share::watch::{Surroundings, WatchEvent, WatchOptions, Windows, watch};
use onefold_substrate::{Machine, MinuteOfDay, OpenImages};
use parking_lot::Mutex;

use crate::ground::{FOLDER, Ground, K, STARTING, XFS, no_child, on, random_blocks, skip};

/// After this time a change of an image has another time than the last one.
const SETTLED: Duration = Duration::from_millis(50);
/// A test gives up after this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes an image with an empty file system.
fn guest(ground: &Ground, name: &str) -> Option<()> {
    guest_with(ground, name, None)
}

/// Makes an image with the files of a folder.
fn guest_with(ground: &Ground, name: &str, files: Option<&Path>) -> Option<()> {
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096"]);
    if let Some(files) = files {
        command.arg("-d").arg(files);
    }
    command.arg(ground.root.join(name)).arg("8M").stdout(Stdio::null());
    let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    match command.status() {
        Ok(status) => assert!(status.success(), "{command:?}"),
        Err(error) => return skip(&format!("cannot run mke2fs: {error}")),
    }
    Some(())
}

/// A machine that tells the test of each round.
struct Rounds<'a> {
    machine: LinuxMachine<'a>,
    began: &'a dyn Fn(),
    /// What the clock on the wall shows; that of the machine without it.
    time_of_day: Option<&'a dyn Fn() -> MinuteOfDay>,
}

impl Machine for Rounds<'_> {
    fn load(&self) -> Option<f64> {
        self.machine.load()
    }

    fn time_of_day(&self) -> MinuteOfDay {
        self.time_of_day.map_or_else(|| self.machine.time_of_day(), |time| time())
    }

    fn name(&self) -> String {
        self.machine.name()
    }

    fn open_for_writing(&self, images: &[&Path]) -> io::Result<OpenImages> {
        (self.began)();
        self.machine.open_for_writing(images)
    }
}

/// What a watch told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WatchReport {
    /// When, of how many images, and how long it took.
    Files(Instant, u64, Duration),
    Passed,
    LeftOff,
    Failed(String),
}

/// Watches until the test has heard enough.
fn heard(
    ground: &Ground,
    stable_for: Duration,
    began: &dyn Fn(),
    is_enough: &(dyn Fn(&[WatchReport]) -> bool + Sync),
) -> Vec<WatchReport> {
    heard_in(ground, stable_for, began, None, is_enough)
}

/// Watches from ten in the evening to six in the morning by a clock on the wall, or always without one, until the test
/// has heard enough.
fn heard_in(
    ground: &Ground,
    stable_for: Duration,
    began: &dyn Fn(),
    time_of_day: Option<&dyn Fn() -> MinuteOfDay>,
    is_enough: &(dyn Fn(&[WatchReport]) -> bool + Sync),
) -> Vec<WatchReport> {
    let roots = [PathBuf::new()];
    let machine = Rounds { machine: LinuxMachine::new(&ground.substrate), began, time_of_day };
    let windows = time_of_day.map_or_else(Windows::default, |_| Windows(vec!["22:00-06:00".parse().unwrap()]));
    let (heard, start) = (Mutex::new(Vec::new()), Instant::now());
    let surroundings = Surroundings {
        seams: Seams { substrate: &ground.substrate, clock: &SystemClock, random: &SystemRandom, notices: &|_| {} },
        cpu: &ProcessCpu,
        machine: &machine,
        stop: &|| is_enough(&heard.lock()) || start.elapsed() > PATIENCE,
    };
    let options = WatchOptions {
        selection: Selection::new(&roots, &|_, _| true),
        shares_files: true,
        threads: 0,
        temporary_folder: Path::new("/var/tmp"),
        memory_bytes: 1 << 20,
        min_run_bytes: K,
        space: SpaceOptions::default(),
        limits: Limits::default(),
        interval: Duration::from_millis(10),
        windows,
        load_max: None,
        stable_for,
        batch_percent: 0,
        wait_max: Duration::ZERO,
        map_bytes_min: 0,
        log_bytes_max: None,
    };
    let watched = watch(&surroundings, &options, &mut |event| {
        let event = match event {
            WatchEvent::FilesShared { changed, elapsed, .. } => WatchReport::Files(Instant::now(), changed, elapsed),
            WatchEvent::Passed { .. } => WatchReport::Passed,
            WatchEvent::LeftOff => WatchReport::LeftOff,
            WatchEvent::Failed(why) => WatchReport::Failed(why.to_string()),
            _ => return,
        };
        heard.lock().push(event);
    });
    watched.unwrap();
    heard.into_inner()
}

fn has_shared_files(heard: &[WatchReport]) -> bool {
    heard.iter().any(|heard| matches!(heard, WatchReport::Files(..)))
}

/// Shares equal files once, as `share files` does.
fn share_once(ground: &Ground, memory_bytes: usize) {
    let report = share_with(ground, &|pass| PassOptions { memory_bytes, ..pass });
    assert_eq!(report.failed, []);
}

/// Shares equal files once with options of the test.
fn share_with(ground: &Ground, with: &dyn for<'p> Fn(PassOptions<'p>) -> PassOptions<'p>) -> FilesReport {
    let _no_child = no_child();
    let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &|_| {}).unwrap();
    let pace = Pace::new(Limits::default(), &SystemClock, &ProcessCpu, &|| Wish::GoOn);
    let options = FilesOptions {
        pass: with(PassOptions::new(Path::new("/var/tmp"), &pace, &SystemClock)),
        tiers: &Tier::ALL,
        reading: ReadScope::default(),
        random: &SystemRandom,
        since: None,
        common: None,
        stable_for: Duration::ZERO,
        is_full: false,
        examining: &|_, _| ControlFlow::Continue(()),
    };
    share_files(&state, &options).unwrap()
}

/// Returns the records of images. What a run has concluded lies beside them.
fn records(ground: &Ground) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(ground.root.join(FOLDER).join("guests")).unwrap();
    entries.map(|entry| entry.unwrap().path()).filter(|path| !path.ends_with("run")).collect()
}

/// A run with little memory counts packages together. The next run may have the memory to tell them apart.
#[test]
fn nothing_is_kept_of_an_image_whose_packages_are_not_told_apart() {
    on(XFS, |ground| {
        let tree = ground.place.path().join("tree");
        let info = tree.join("var/lib/dpkg/info");
        std::fs::create_dir_all(&info).unwrap();
        std::fs::create_dir_all(tree.join("usr/bin")).unwrap();
        let content = random_blocks(1, 2);
        std::fs::write(tree.join("usr/bin/tool"), &content).unwrap();
        let version = "1".repeat(200);
        let status = format!("Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: {version}\n\n");
        std::fs::write(tree.join("var/lib/dpkg/status"), status).unwrap();
        std::fs::write(info.join("a.list"), "/usr/bin/tool\n").unwrap();
        std::fs::write(info.join("a.md5sums"), "0123456789abcdef0123456789abcdef  usr/bin/tool\n").unwrap();
        if guest_with(ground, "image", Some(&tree)).is_none() {
            return;
        }
        std::thread::sleep(SETTLED);
        share_once(ground, 4 << 10);
        assert_eq!(records(ground).len(), 0);
        share_once(ground, 1 << 20);
        assert_eq!(records(ground).len(), 1);
    });
}

/// Makes a folder with a system: a package that all systems have, one of its own, and files of no package.
fn system(ground: &Ground, number: u64) -> PathBuf {
    let tree = ground.place.path().join(format!("tree-{number}"));
    let info = tree.join("var/lib/dpkg/info");
    std::fs::create_dir_all(&info).unwrap();
    std::fs::create_dir_all(tree.join("usr/bin")).unwrap();
    let mut status = String::new();
    // The own one comes first, so that packages get their numbers in the order of the images.
    for (package, seed) in [(format!("a-own-{number}"), 100 + number), ("common".to_owned(), 1)] {
        status += &format!("Package: {package}\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\n");
        let (mut list, mut digests) = (String::new(), String::new());
        for file in 0..20 {
            let path = format!("usr/bin/{package}-{file}");
            std::fs::write(tree.join(&path), random_blocks(1000 * seed + file, 1 + usize::try_from(file % 3).unwrap()))
                .unwrap();
            list += &format!("/{path}\n");
            digests += &format!("{:032x}  {path}\n", 1000 * seed + file);
        }
        std::fs::write(info.join(format!("{package}.list")), list).unwrap();
        std::fs::write(info.join(format!("{package}.md5sums")), digests).unwrap();
    }
    std::fs::write(tree.join("var/lib/dpkg/status"), status).unwrap();
    std::fs::create_dir(tree.join("data")).unwrap();
    for (name, seed) in [("of-all", 7), ("of-one", 1_000_000 + number)] {
        std::fs::write(tree.join("data").join(name), random_blocks(seed, 5)).unwrap();
    }
    tree
}

/// What threads find is taken in the order of the images: nobody can tell that there were any.
#[test]
fn threads_find_and_keep_what_one_thread_does() {
    on(XFS, |ground| {
        for number in 0..6 {
            let tree = system(ground, number);
            if guest_with(ground, &format!("image-{number}"), Some(&tree)).is_none() {
                return;
            }
        }
        // One that no guest is in, between others.
        ground.file("image-2-not", &random_blocks(9, 300));
        std::thread::sleep(SETTLED);
        let found = |threads| {
            let report = share_with(ground, &|pass| PassOptions { threads, is_dry_run: true, ..pass });
            let FilesReport { examined, tiers, packages, given_up, failed, strangers, passed, .. } = report;
            assert!(examined.images == 7 && packages.iter().any(|(name, _)| name.contains("common")), "{examined:?}");
            format!("{examined:?} {tiers:?} {packages:?} {given_up:?} {failed:?} {strangers:?} {:?}", passed.shared)
        };
        let kept = |threads| {
            // What is shared would have another time.
            let report = share_with(ground, &|pass| PassOptions { threads, min_run_bytes: u64::MAX, ..pass });
            assert_eq!(report.passed.shared.now, 0);
            assert!(!report.is_unchanged && report.examined.unchanged_images == 0, "{report:?}");
            let kept: BTreeMap<PathBuf, Vec<u8>> =
                records(ground).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
            assert!(kept.len() >= 6, "{}", kept.len());
            // The next run is to examine all images again.
            std::fs::remove_dir_all(ground.root.join(FOLDER).join("guests")).unwrap();
            kept
        };
        // A dry run keeps nothing, and leaves all to share.
        assert_eq!(found(0), found(2));
        let (without, with) = (kept(0), kept(2));
        let differing = without.iter().filter(|(path, record)| with.get(*path) != Some(*record));
        assert_eq!(differing.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
        assert_eq!(without.len(), with.len());
    });
}

/// A record says that an image was examined. It does not say that the image was shared with all that a watch has.
#[test]
fn a_watch_shares_images_at_its_start_though_they_have_records() {
    on(XFS, |ground| {
        let made = ["one", "two"].map(|name| guest(ground, name));
        if made.contains(&None) {
            return;
        }
        std::thread::sleep(SETTLED);
        share_once(ground, 1 << 20);
        assert_eq!(records(ground).len(), 2);
        let rounds = AtomicU32::new(0);
        let began = || _ = rounds.fetch_add(1, Ordering::Relaxed);
        let is_enough = |heard: &[WatchReport]| has_shared_files(heard) || rounds.load(Ordering::Relaxed) > 5;
        let heard = heard(ground, Duration::ZERO, &began, &is_enough);
        assert!(matches!(heard[..], [WatchReport::Files(_, 2, _), ..]), "{heard:?}");
    });
}

/// One guest may change its database, or be replaced, in each round.
#[test]
fn a_watch_shares_files_for_a_small_part_of_its_time() {
    on(XFS, |ground| {
        if guest(ground, "original").is_none() {
            return;
        }
        let began = || {
            std::fs::copy(ground.root.join("original"), ground.root.join("draft")).unwrap();
            std::fs::rename(ground.root.join("draft"), ground.root.join("image")).unwrap();
        };
        let is_files = |heard: &&WatchReport| matches!(heard, WatchReport::Files(..));
        let heard = heard(ground, Duration::ZERO, &began, &|heard| heard.iter().filter(is_files).count() == 3);
        let times = heard.iter().filter_map(|heard| match heard {
            WatchReport::Files(at, _, elapsed) => Some((*at, *elapsed)),
            _ => None,
        });
        let times: Vec<(Instant, Duration)> = times.collect();
        assert_eq!(times.len(), 3, "{heard:?}");
        for pair in times.windows(2) {
            let [(before, took), (next, _)] = pair else { unreachable!("two") };
            assert!(next.duration_since(*before) >= 10 * *took, "{heard:?}");
        }
    });
}

#[test]
fn a_failure_to_share_files_does_not_keep_a_watch_from_its_scan() {
    on(XFS, |ground| {
        if guest(ground, "guest").is_none() {
            return;
        }
        std::thread::sleep(SETTLED);
        share_once(ground, 1 << 20);
        let record = records(ground).remove(0);
        std::os::unix::fs::chown(&record, Some(65534), None).unwrap();
        let content = random_blocks(1, 4);
        ["one", "two"].iter().for_each(|name| drop(ground.file(name, &content)));
        let rounds = Cell::new(0);
        let began = || {
            rounds.set(rounds.get() + 1);
            if rounds.get() == 10 {
                std::os::unix::fs::chown(&record, Some(0), None).unwrap();
            }
        };
        let heard = heard(ground, Duration::ZERO, &began, &has_shared_files);
        let at = |wanted: fn(&WatchReport) -> bool| heard.iter().position(wanted);
        let failed = at(|heard| matches!(heard, WatchReport::Failed(why) if why.contains("belongs to")));
        let passed = at(|heard| *heard == WatchReport::Passed);
        let shared = at(|heard| matches!(heard, WatchReport::Files(..)));
        assert!(failed == Some(0) && passed.is_some() && passed < shared, "{heard:?}");
        // The same failure is not told again in each round.
        let failures = heard.iter().filter(|heard| matches!(heard, WatchReport::Failed(_))).count();
        assert_eq!(failures, 1, "{heard:?}");
    });
}

/// A hostile guest can have a search last longer than each window.
#[test]
fn a_window_that_ends_in_the_search_for_files_does_not_keep_the_next_one_from_its_scan() {
    on(XFS, |ground| {
        if guest(ground, "guest").is_none() {
            return;
        }
        let content = random_blocks(1, 4);
        ["one", "two"].iter().for_each(|name| drop(ground.file(name, &content)));
        std::thread::sleep(SETTLED);
        let (rounds, asked) = (Cell::new(0), Cell::new(0));
        let began = || {
            rounds.set(rounds.get() + 1);
            asked.set(0);
            // So long the watch believes in what the clock showed last.
            std::thread::sleep(Duration::from_millis(1100));
        };
        // The first window is open when the round begins, and over once the search asks.
        let time_of_day = || {
            asked.set(asked.get() + 1);
            MinuteOfDay::new(if rounds.get() == 1 && asked.get() > 2 { 7 } else { 23 }, 0).unwrap()
        };
        let heard = heard_in(ground, Duration::ZERO, &began, Some(&time_of_day), &has_shared_files);
        let at = |wanted: fn(&WatchReport) -> bool| heard.iter().position(wanted);
        let (left, passed) = (at(|heard| *heard == WatchReport::LeftOff), at(|heard| *heard == WatchReport::Passed));
        let shared = at(|heard| matches!(heard, WatchReport::Files(..)));
        assert!(left == Some(0) && passed.is_some() && passed < shared, "{heard:?}");
    });
}

#[test]
fn a_watch_leaves_files_of_images_that_are_not_stable_to_a_later_round() {
    const STABLE_FOR: Duration = Duration::from_secs(2);
    on(XFS, |ground| {
        if guest(ground, "guest").is_none() {
            return;
        }
        let made = Instant::now();
        let heard = heard(ground, STABLE_FOR, &|| {}, &has_shared_files);
        let Some(WatchReport::Files(at, 1, _)) = heard.iter().find(|heard| matches!(heard, WatchReport::Files(..)))
        else {
            panic!("{heard:?}");
        };
        assert!(at.duration_since(made) + SETTLED >= STABLE_FOR, "{heard:?}");
    });
}
