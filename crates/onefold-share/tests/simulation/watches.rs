//! Watches: one alone, round by round, on a machine that a test makes up; and many, on hosts that crash and are
//! suspended.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onefold_block::random::SeededRandom;
use onefold_block::{BLOCK_BYTES_U64, Clock, Random};
use onefold_share::format::watch::{WatchPhase, WatchStatus};
use onefold_share::pace::{Limits, Pace};
use onefold_share::pass::SpaceOptions;
use onefold_share::run::Seams;
use onefold_share::scan::{ScanOptions, scan};
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_share::state::locks::Subject;
use onefold_share::watch::{Surroundings, WatchEvent, WatchOptions, Windows, watch};
use onefold_substrate::{Access, CpuTime, FileHandle, Files, ListedKind, Machine, MinuteOfDay, Names, OpenImages};
use onefold_testing::simulated::{Host, HostNo, SimulatedFileSystem, SimulationOptions, seeds};

use super::{simulate_all_with, total};

const INTERVAL: Duration = Duration::from_secs(60);
const WATCHER: HostNo = HostNo(0);
const OTHER: HostNo = HostNo(1);

/// A process that takes no processor time.
struct IdleCpu;

impl CpuTime for IdleCpu {
    fn used(&self) -> Duration {
        Duration::ZERO
    }
}

/// What happens at the beginning of a round.
type Script<'a> = &'a dyn Fn(u32, &ScriptedMachine<'_>);

/// A machine whose every property the test sets; at the beginning of each round it lets the test do something.
struct ScriptedMachine<'a> {
    host: &'a Host<'static>,
    script: Script<'a>,
    round: Cell<u32>,
    began: Cell<Option<Duration>>,
    load: Cell<f64>,
    hour: &'a Cell<u16>,
    open: RefCell<Vec<&'static str>>,
    is_stopped: AtomicBool,
}

impl Machine for ScriptedMachine<'_> {
    fn load(&self) -> Option<f64> {
        Some(self.load.get())
    }

    fn time_of_day(&self) -> MinuteOfDay {
        MinuteOfDay::new(self.hour.get(), 30).unwrap()
    }

    fn name(&self) -> String {
        "here".to_owned()
    }

    fn open_for_writing(&self, images: &[&Path]) -> io::Result<OpenImages> {
        // A round may ask twice.
        let now = self.host.clock.monotonic();
        if self.began.get().is_none_or(|began| now >= began + INTERVAL / 2) {
            self.began.set(Some(now));
            self.round.set(self.round.get() + 1);
            (self.script)(self.round.get(), self);
            if self.round.get() > 100 {
                self.is_stopped.store(true, Ordering::Relaxed);
            }
        }
        let is_open = |path: &&&Path| self.open.borrow().iter().any(|open| Path::new(open) == **path);
        let handles = images.iter().filter(is_open).map(|path| handle(self.host, path)).collect();
        Ok(OpenImages { handles, writers: Vec::new(), unseen_processes: 3 })
    }
}

fn handle(host: &Host<'_>, path: &Path) -> FileHandle {
    let file = host.substrate.open(path, Access::Read).unwrap();
    host.substrate.stat(&file).unwrap().handle
}

/// What a watch told, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WatchReport {
    Began,
    /// In which round, and how many blocks were shared.
    Shared(u32, u64),
    LeftOff(u32),
    Unseen(u64),
    Failed(u32),
}

/// What a test may change of a watch.
struct WatchSettings<'a> {
    windows: &'a [&'a str],
    load_max: Option<f64>,
    stable_for: Duration,
    batch_percent: u32,
    wait_max: Duration,
    log_bytes_max: Option<u64>,
    wants: &'a dyn Fn(&Path, ListedKind) -> bool,
}

const USUAL: WatchSettings<'static> = WatchSettings {
    windows: &[],
    load_max: None,
    stable_for: Duration::ZERO,
    batch_percent: 0,
    wait_max: Duration::from_secs(3600),
    log_bytes_max: None,
    wants: &|_, _| true,
};

/// Makes a file system for two hosts, without images.
fn ground() -> SimulatedFileSystem {
    SimulatedFileSystem::new(&SimulationOptions { hosts: 2, images: 0, ..SimulationOptions::default() })
}

/// Any time that can be asked for may be waited for.
#[test]
fn an_interval_without_end_is_waited_for() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    let hour = Cell::new(12);
    let machine = ScriptedMachine {
        host: &host,
        script: &|_, machine| machine.is_stopped.store(true, Ordering::Relaxed),
        round: Cell::new(0),
        began: Cell::new(None),
        load: Cell::new(0.0),
        hour: &hour,
        open: RefCell::new(Vec::new()),
        is_stopped: AtomicBool::new(false),
    };
    let surroundings = Surroundings {
        seams: Seams { substrate: &host.substrate, clock: &*host.clock, random: &*host.random, notices: &|_| {} },
        cpu: &IdleCpu,
        machine: &machine,
        stop: &|| machine.is_stopped.load(Ordering::Relaxed),
    };
    let (interval, wait_max, stable_for) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let options = WatchOptions { interval, wait_max, stable_for, ..options(&USUAL) };
    write(&ground, "images/one", 0, 1, 4);
    watch(&surroundings, &options, &mut |_| {}).unwrap();
    assert_eq!(machine.round.get(), 1);
}

/// Watches until the script says that it is enough. Returns all that was told.
fn run(host: &Host<'static>, how: &WatchSettings<'_>, script: Script<'_>) -> Vec<WatchReport> {
    run_at(host, how, &Cell::new(12), script)
}

/// The same, at an hour of the day that others set, too.
fn run_at(host: &Host<'static>, how: &WatchSettings<'_>, hour: &Cell<u16>, script: Script<'_>) -> Vec<WatchReport> {
    let machine = ScriptedMachine {
        host,
        script,
        round: Cell::new(0),
        began: Cell::new(None),
        load: Cell::new(0.0),
        hour,
        open: RefCell::new(Vec::new()),
        is_stopped: AtomicBool::new(false),
    };
    let surroundings = Surroundings {
        seams: Seams { substrate: &host.substrate, clock: &*host.clock, random: &*host.random, notices: &|_| {} },
        cpu: &IdleCpu,
        machine: &machine,
        stop: &|| machine.is_stopped.load(Ordering::Relaxed),
    };
    let options = options(how);
    let mut heard = Vec::new();
    watch(&surroundings, &options, &mut |event| {
        let round = machine.round.get();
        heard.push(match event {
            WatchEvent::Began => WatchReport::Began,
            WatchEvent::Passed { passed, .. } => WatchReport::Shared(round, passed.shared.now / BLOCK_BYTES_U64),
            WatchEvent::FilesShared { .. } => unreachable!("it was not asked for"),
            WatchEvent::LeftOff => WatchReport::LeftOff(round),
            WatchEvent::Unseen(count) => WatchReport::Unseen(count),
            WatchEvent::Mended(_) => unreachable!("this file system shares in one step"),
            WatchEvent::Failed(_) => WatchReport::Failed(round),
        });
    })
    .unwrap();
    assert!(machine.round.get() <= 100, "the script did not end: {heard:?}");
    heard
}

fn options<'a>(how: &'a WatchSettings<'a>) -> WatchOptions<'a> {
    static ROOTS: [PathBuf; 1] = [PathBuf::new()];
    WatchOptions {
        selection: Selection::new(&ROOTS, how.wants),
        shares_files: false,
        threads: 0,
        temporary_folder: Path::new("/var/tmp"),
        memory_bytes: 1 << 20,
        min_run_bytes: BLOCK_BYTES_U64,
        space: SpaceOptions::default(),
        limits: Limits { stall_max: Some(Duration::from_millis(20)), ..Limits::default() },
        interval: INTERVAL,
        windows: Windows(how.windows.iter().map(|window| window.parse().unwrap()).collect()),
        load_max: how.load_max,
        stable_for: how.stable_for,
        batch_percent: how.batch_percent,
        wait_max: how.wait_max,
        log_bytes_max: how.log_bytes_max,
        map_bytes_min: 0,
    }
}

/// Writes blocks that are equal for equal seeds, as the watching host's guests do.
fn write(ground: &SimulatedFileSystem, path: &str, at: u64, seed: u64, blocks: u64) {
    let mut bytes = vec![0; usize::try_from(blocks * BLOCK_BYTES_U64).unwrap()];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    ground.write_image(WATCHER, path, at * BLOCK_BYTES_U64, &bytes).unwrap();
}

/// Returns what the other host sees of all watches, and whether they run.
fn seen(ground: &SimulatedFileSystem) -> Vec<(WatchStatus, bool)> {
    let host = ground.mount(OTHER);
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
    state.watches().unwrap().into_iter().map(|seen| (seen.status, seen.is_running)).collect()
}

/// Tells whether the other host can take the lock of an image.
fn is_free(ground: &SimulatedFileSystem, path: &str) -> bool {
    let host = ground.mount(OTHER);
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
    state.try_lock(&Subject::File(handle(&host, Path::new(path)))).unwrap().is_some()
}

#[test]
fn what_appears_is_shared_once_enough_of_it_waits_or_for_long_enough() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    let how = WatchSettings { batch_percent: 50, wait_max: 5 * INTERVAL, ..USUAL };
    let heard = run(&host, &how, &|round, machine| match round {
        1 => write(&ground, "images/one", 0, 1, 40),
        2 => write(&ground, "images/two", 0, 1, 40),
        // A block beside forty entries is not worth a pass: it waits from the next round on.
        4 => write(&ground, "images/zoo", 0, 1, 1),
        13 => machine.is_stopped.store(true, Ordering::Relaxed),
        _ => {}
    });
    let passes: Vec<_> = heard.iter().filter(|heard| matches!(heard, WatchReport::Shared(..))).collect();
    assert_eq!(heard[..2], [WatchReport::Began, WatchReport::Unseen(3)], "{heard:?}");
    assert_eq!(passes[..2], [&WatchReport::Shared(1, 0), &WatchReport::Shared(2, 40)], "{heard:?}");
    // A file that changed a moment before it was read is read once more.
    assert!(matches!(passes[2..], [WatchReport::Shared(3, 0), WatchReport::Shared(9, 1)]), "{heard:?}");
    ground.check().unwrap();
}

/// Files that are deleted leave no logs. What only the arena has left of them goes nevertheless, and nobody is told of
/// passes that found nothing to do.
#[test]
fn what_deleted_files_shared_comes_free_though_nothing_else_happens() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    let how = WatchSettings { wait_max: 5 * INTERVAL, ..USUAL };
    let paths = ["one", "two"].map(Path::new);
    let slots = || host.substrate.list(Path::new(".onefold/arena")).unwrap().len();
    let heard = run(&host, &how, &|round, machine| match round {
        1 => paths.iter().for_each(|path| {
            let file = host.substrate.create(path).unwrap();
            host.substrate.write_at(&file, 0, &[1; 4096]).unwrap();
        }),
        4 => {
            assert_eq!(slots(), 1);
            paths.iter().for_each(|path| host.substrate.remove(path).unwrap());
        }
        30 => machine.is_stopped.store(true, Ordering::Relaxed),
        _ => {}
    });
    assert_eq!(slots(), 0, "{heard:?}");
    let passes = heard.iter().filter(|heard| matches!(heard, WatchReport::Shared(..))).count();
    // Once more for what a file system drops in the background.
    assert!(passes <= 4, "{heard:?}");
    ground.check().unwrap();
}

#[test]
fn images_that_are_gone_are_worth_a_pass_and_their_slots_come_free() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    let slots = RefCell::new(Vec::new());
    let heard = run(&host, &USUAL, &|round, machine| {
        if round > 2 {
            let host = ground.mount(OTHER);
            let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
            slots.borrow_mut().push(onefold_share::status::status(&state).unwrap().arena.slots);
        }
        match round {
            1 => ["images/one", "images/two", "images/zoo"].iter().for_each(|image| write(&ground, image, 0, 1, 40)),
            6 => ["images/one", "images/two"].iter().for_each(|image| ground.remove_image(WATCHER, image).unwrap()),
            9 => ground.remove_image(WATCHER, "images/zoo").unwrap(),
            14 => machine.is_stopped.store(true, Ordering::Relaxed),
            _ => {}
        }
    });
    let slots = slots.into_inner();
    assert!(slots[1..4].iter().all(|slots| *slots == 40), "{slots:?}");
    assert_eq!(slots.last(), Some(&0), "{slots:?} {heard:?}");
    let late: Vec<_> =
        heard.iter().filter(|heard| matches!(heard, WatchReport::Shared(round, _) if *round > 6)).collect();
    assert!((1..=2).contains(&late.len()), "once for each time, and not again: {heard:?}");
    ground.check().unwrap();
}

#[test]
fn outside_its_windows_and_under_load_it_reads_nothing_and_says_why() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    let how = WatchSettings { windows: &["22:00-06:00"], load_max: Some(2.0), ..USUAL };
    let said = RefCell::new(Vec::new());
    let heard = run(&host, &how, &|round, machine| {
        if round > 1 {
            let seen = seen(&ground);
            assert!(seen.len() == 1 && seen[0].1, "{seen:?}");
            assert_eq!((seen[0].0.host.as_str(), seen[0].0.interval_seconds), ("here", 60));
            said.borrow_mut().push((seen[0].0.phase, seen[0].0.passes));
        }
        match round {
            1 => (0..2).for_each(|image| write(&ground, ["images/one", "images/two"][image], 0, 1, 10)),
            3 => (machine.hour.set(23), machine.load.set(2.5)).0,
            4 => machine.load.set(2.0),
            5 => machine.is_stopped.store(true, Ordering::Relaxed),
            _ => {}
        }
    });
    assert_eq!(heard, [WatchReport::Began, WatchReport::Unseen(3), WatchReport::Shared(4, 10)]);
    let (outside, load) = ((WatchPhase::OutsideWindows, 0), (WatchPhase::LoadTooHigh, 0));
    assert_eq!(said.into_inner(), [outside, outside, load, (WatchPhase::Waiting, 1)]);
    assert_eq!(seen(&ground), [], "it has ended, and says nothing any more");
}

#[test]
fn the_end_of_a_window_ends_the_work_and_the_next_window_takes_it_up() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    for image in ["images/one", "images/two", "images/zoo"] {
        write(&ground, image, 0, 1, 10);
    }
    // The folder is listed while the window ends: no file is read any more.
    let hour = Cell::new(23);
    let wants = |path: &Path, _: ListedKind| {
        if path == Path::new("images/two") && hour.get() == 23 {
            hour.set(6);
            host.clock.sleep(Duration::from_secs(2));
        }
        true
    };
    let how = WatchSettings { windows: &["22:00-06:00"], wants: &wants, ..USUAL };
    let heard = run_at(&host, &how, &hour, &|round, machine| match round {
        3 => hour.set(22),
        4 => machine.is_stopped.store(true, Ordering::Relaxed),
        _ => {}
    });
    assert_eq!(
        heard,
        [WatchReport::Began, WatchReport::Unseen(3), WatchReport::LeftOff(1), WatchReport::Shared(3, 20)]
    );
    ground.check().unwrap();
}

/// Logs grew until the disk was full, where no scan came to its end.
#[test]
fn a_pass_takes_logs_in_before_they_grow_beyond_their_bound() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    for image in ["images/one", "images/two", "images/zoo"] {
        write(&ground, image, 0, 1, 40);
    }
    let how = WatchSettings { log_bytes_max: Some(1), batch_percent: 100, ..USUAL };
    let heard = run(&host, &how, &|round, machine| machine.is_stopped.store(round == 2, Ordering::Relaxed));
    assert_eq!(
        heard[2..],
        [WatchReport::Shared(1, 0), WatchReport::Shared(1, 40), WatchReport::Shared(1, 40)],
        "{heard:?}"
    );
    ground.check().unwrap();
}

/// Where a window was shorter than a scan, no pass ever ran.
#[test]
fn what_was_read_is_shared_before_the_window_ends_and_the_rest_comes_in_the_next_looks() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    for image in ["images/one", "images/two", "images/zoo"] {
        write(&ground, image, 0, 1, 40);
    }
    // Half an hour before its end.
    let how = WatchSettings { windows: &["22:00-06:00"], batch_percent: 100, ..USUAL };
    let heard =
        run_at(&host, &how, &Cell::new(5), &|round, machine| machine.is_stopped.store(round == 4, Ordering::Relaxed));
    assert_eq!(
        heard[2..5],
        [WatchReport::Shared(1, 0), WatchReport::Shared(2, 40), WatchReport::Shared(3, 40)],
        "{heard:?}"
    );
    ground.check().unwrap();
}

#[test]
fn images_that_are_open_here_are_kept_from_others_and_shared_all_the_same() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    let how = WatchSettings { wants: &|path, _| path != Path::new("images/unwanted"), ..USUAL };
    let heard = run(&host, &how, &|round, machine| match round {
        1 => {
            for image in ["images/one", "images/two", "images/unwanted"] {
                write(&ground, image, 0, 1, 10);
            }
            *machine.open.borrow_mut() = vec!["images/one", "images/unwanted"];
        }
        2 => {
            assert!(!is_free(&ground, "images/one") && is_free(&ground, "images/two"));
            assert!(is_free(&ground, "images/unwanted"));
            assert_eq!(seen(&ground)[0].0.owned, 1);
            // Another host's scan passes over it, and leaves this host's lock alone.
            let other = ground.mount(OTHER);
            let state = State::open(&other.substrate, &*other.clock, &*other.random, &|_| {}).unwrap();
            let pace = Pace::unlimited();
            write(&ground, "images/one", 3, 2, 1);
            write(&ground, "images/two", 7, 2, 1);
            let scanned = scan(&state, &mut Marks::load(&state).unwrap(), &ScanOptions::new(&pace)).unwrap();
            assert_eq!(scanned.passed_over, 1, "{scanned:?}");
            *machine.open.borrow_mut() = vec!["images/one", "images/two"];
        }
        3 => {
            assert!(!is_free(&ground, "images/one") && !is_free(&ground, "images/two"));
            *machine.open.borrow_mut() = vec!["images/two"];
        }
        4 => {
            assert!(is_free(&ground, "images/one") && !is_free(&ground, "images/two"));
            machine.is_stopped.store(true, Ordering::Relaxed);
        }
        _ => {}
    });
    // The first pass found both equal, the second one the block that was written to both. What the other host has read
    // of the image that this watch does not include waits for a run that does.
    assert_eq!(heard[2..4], [WatchReport::Shared(1, 10), WatchReport::Shared(2, 1)], "{heard:?}");
    assert!(is_free(&ground, "images/two"), "with the watch, its locks go");
    ground.check().unwrap();
}

#[test]
fn a_state_folder_that_is_deleted_is_made_anew_with_its_locks() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    let heard = run(&host, &USUAL, &|round, machine| match round {
        1 => {
            write(&ground, "images/one", 0, 1, 10);
            write(&ground, "images/two", 0, 1, 10);
            *machine.open.borrow_mut() = vec!["images/one"];
        }
        3 => {
            let substrate = &ground.mount(OTHER).substrate;
            for folder in substrate.list(Path::new(".onefold")).unwrap() {
                let folder = Path::new(".onefold").join(folder.name);
                for file in substrate.list(&folder).unwrap_or_default() {
                    substrate.remove(&folder.join(file.name)).unwrap();
                }
                let _ = substrate.remove(&folder);
            }
        }
        6 => {
            assert!(!is_free(&ground, "images/one"), "the lock is that of the new folder");
            machine.is_stopped.store(true, Ordering::Relaxed);
        }
        _ => {}
    });
    // In the new one nothing is known: all is read again, and found shared.
    assert!(heard.iter().any(|heard| matches!(heard, WatchReport::Shared(3..=5, 0))), "{heard:?}");
    ground.check().unwrap();
}

#[test]
fn files_that_change_are_left_until_they_are_stable() {
    let ground = ground();
    let host = ground.mount(WATCHER);
    let how = WatchSettings { stable_for: 3 * INTERVAL, ..USUAL };
    let heard = run(&host, &how, &|round, machine| {
        if round == 1 {
            write(&ground, "images/one", 0, 1, 10);
        }
        if round <= 4 {
            write(&ground, "images/two", 0, u64::from(round / 4), 10);
        }
        machine.is_stopped.store(round == 12, Ordering::Relaxed);
    });
    let passes: Vec<_> = heard.iter().filter(|heard| matches!(heard, WatchReport::Shared(..))).collect();
    assert!(matches!(passes[..], [WatchReport::Shared(4 | 5, 0), WatchReport::Shared(7 | 8, 10)]), "{heard:?}");
}

/// A machine that has some images open, others each time.
struct FickleMachine<'a, 'run> {
    host: &'a Host<'run>,
}

impl Machine for FickleMachine<'_, '_> {
    fn load(&self) -> Option<f64> {
        Some(self.host.random.below(3) as f64)
    }

    fn time_of_day(&self) -> MinuteOfDay {
        let seconds = self.host.clock.now().seconds.unsigned_abs();
        let part = |unit: u64, count: u64| u16::try_from(seconds / unit % count).unwrap();
        MinuteOfDay::new(part(3600, 24), part(60, 60)).unwrap()
    }

    fn name(&self) -> String {
        self.host.no.to_string()
    }

    fn open_for_writing(&self, images: &[&Path]) -> io::Result<OpenImages> {
        let mut handles = BTreeSet::new();
        for path in images.iter().filter(|_| self.host.random.below(3) == 0) {
            let opened = self.host.substrate.open(path, Access::Read);
            if let Ok(stat) = opened.and_then(|file| self.host.substrate.stat(&file)) {
                handles.insert(stat.handle);
            }
        }
        Ok(OpenImages { handles, writers: Vec::new(), unseen_processes: 0 })
    }
}

/// Watches for up to an hour, sometimes in windows of a minute each.
fn watch_for_a_while(host: &Host<'_>) {
    let clock: &dyn Clock = &*host.clock;
    let ends = clock.monotonic() + Duration::from_secs(host.random.below(3600));
    let surroundings = Surroundings {
        seams: Seams { substrate: &host.substrate, clock: &*host.clock, random: &*host.random, notices: &|_| {} },
        cpu: &IdleCpu,
        machine: &FickleMachine { host },
        stop: &|| clock.monotonic() >= ends,
    };
    let minutes: Vec<String> =
        (0..720).map(|at| format!("{:02}:{:02}-{:02}:{:02}", at / 30, at % 30 * 2, at / 30, at % 30 * 2 + 1)).collect();
    let minutes: Vec<&str> = minutes.iter().map(String::as_str).collect();
    let how = WatchSettings {
        windows: if host.random.below(2) == 0 { &minutes } else { &[] },
        load_max: Some(1.0),
        batch_percent: u32::try_from(host.random.below(10)).expect("below ten"),
        ..USUAL
    };
    let options = WatchOptions { interval: Duration::from_secs(5), ..options(&how) };
    drop(watch(&surroundings, &options, &mut |_| {}));
}

#[test]
fn images_read_as_written_while_hosts_watch() {
    let hosts = |seed: u64| 1 + u32::try_from(seed % 5).expect("below 5");
    let outcomes = simulate_all_with(
        seeds(5200, 20),
        |seed| {
            // Passes of a watch are far between: with as many crashes and writes as usual hardly any came to its end.
            let options = SimulationOptions::drawn(seed, hosts(seed), 20_000);
            SimulationOptions {
                crashes_per_million: options.crashes_per_million / 8,
                writer_percent: 1 + options.writer_percent / 6,
                total_blocks: options.total_blocks.max(1 << 12),
                ..options
            }
        },
        watch_for_a_while,
    );
    if outcomes.len() >= 20 {
        let shares = total(&outcomes, |counters| counters.shares);
        println!("{shares} shares");
        assert!(shares > 1000, "hardly any shares: {shares}");
    }
}
