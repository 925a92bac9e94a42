//! Runs over guest files that repeat what an earlier one has concluded: only while nothing has changed that decides it.
//!
//! The simulated file system lends no image to the readers of guests, so a run cannot examine any. Which runs repeat
//! another one depends on the images, and not on what is in them.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::BLOCK_BYTES;
use onefold_linux::ProcessCpu;
use onefold_share::domain::label::{self, Label};
use onefold_share::domain::settings::Settings;
use onefold_share::files::{FilesOptions, FilesReport, ReadScope, Tier, share_files};
use onefold_share::opt_out;
use onefold_share::pace::{Limits, Pace, Wish};
use onefold_share::pass::{PassError, PassOptions};
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_substrate::{Files, Names};
use onefold_testing::simulated::{Host, HostNo, SimulatedFileSystem, SimulationOptions, seeds};

const HOST: HostNo = HostNo(0);
const IMAGES: [&str; 3] = ["vm/one", "vm/two", "vm/three"];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What a run is told.
#[derive(Clone)]
struct RunSettings {
    roots: Vec<PathBuf>,
    tiers: Vec<Tier>,
    min_run_bytes: u64,
    is_full: bool,
    is_dry_run: bool,
    wish: Wish,
}

fn usual() -> RunSettings {
    RunSettings {
        roots: vec![PathBuf::from("vm")],
        tiers: Tier::ALL.to_vec(),
        min_run_bytes: 4096,
        is_full: false,
        is_dry_run: false,
        wish: Wish::GoOn,
    }
}

fn share(host: &Host<'_>, how: &RunSettings) -> Result<FilesReport, PassError> {
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {})?;
    let wish = || how.wish;
    let pace = Pace::new(Limits::default(), &*host.clock, &ProcessCpu, &wish);
    let options = FilesOptions {
        pass: PassOptions {
            selection: Selection::new(&how.roots, &|_, _| true),
            min_run_bytes: how.min_run_bytes,
            is_dry_run: how.is_dry_run,
            ..PassOptions::new(Path::new("/var/tmp"), &pace, &*host.clock)
        },
        tiers: &how.tiers,
        reading: ReadScope::default(),
        random: &*host.random,
        since: None,
        common: None,
        stable_for: Duration::ZERO,
        is_full: how.is_full,
        examining: &|_, _| ControlFlow::Continue(()),
    };
    share_files(&state, &options)
}

fn ground() -> SimulatedFileSystem {
    let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
    let host = file_system.mount(HOST);
    host.substrate.create_dir(Path::new("vm")).expect("no fault was asked for");
    for image in IMAGES {
        file_system.write_image(HOST, image, 0, &[7; 4 * BLOCK_BYTES]).expect("no fault was asked for");
    }
    file_system.sync_all();
    file_system
}

/// Tells whether a run repeats an earlier one. Images have settled by then.
fn repeats(file_system: &SimulatedFileSystem, host: &Host<'_>, how: &RunSettings) -> bool {
    file_system.pass(Duration::from_secs(1));
    let report = share(host, how).expect("no fault was asked for");
    assert_eq!(report.failed.len() as u64, report.examined.images, "{report:?}");
    report.is_unchanged
}

/// Something that a run has to look for, and what does it.
type Change = (&'static str, fn(&SimulatedFileSystem, &Host<'_>));

const CHANGES: [Change; 8] = [
    ("a write", |file_system, _| {
        file_system.write_image(HOST, IMAGES[1], 0, &[8; BLOCK_BYTES]).expect("no fault was asked for")
    }),
    ("a new image", |file_system, _| {
        file_system.write_image(HOST, "vm/four", 0, &[7; BLOCK_BYTES]).expect("no fault was asked for")
    }),
    ("an image less", |file_system, _| file_system.remove_image(HOST, IMAGES[0]).expect("no fault was asked for")),
    ("another owner", |file_system, _| file_system.give_image(HOST, IMAGES[2], 7).expect("no fault was asked for")),
    ("another domain of a folder", |_, host| {
        let label = Label::Domain("tenant".parse().expect("no fault was asked for"));
        label::set(&host.substrate, Path::new("vm"), Some(&label)).expect("no fault was asked for");
    }),
    ("other settings", |_, host| {
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).expect("no fault was asked for");
        let file = host.substrate.create(&Settings::path(&state)).expect("no fault was asked for");
        host.substrate.write_at(&file, 0, b"join 0 1 = staff\n").expect("no fault was asked for");
    }),
    ("an image that is opted out", |_, host| {
        opt_out::exclude(&host.substrate, Path::new(IMAGES[0])).expect("no fault was asked for")
    }),
    ("a lost record", |_, host| {
        host.substrate.remove(Path::new(".onefold/guests/run")).expect("no fault was asked for")
    }),
];

#[test]
fn a_run_repeats_another_one_until_something_changes() {
    for (what, change) in CHANGES {
        let file_system = ground();
        let host = file_system.mount(HOST);
        let repeats = || repeats(&file_system, &host, &usual());
        assert_eq!([(); 3].map(|()| repeats()), [false, true, true], "before {what}");
        change(&file_system, &host);
        assert_eq!([(); 2].map(|()| repeats()), [false, true], "{what}");
    }
}

#[test]
fn a_run_of_another_search_repeats_nothing() {
    let file_system = ground();
    let host = file_system.mount(HOST);
    for other in [
        RunSettings { roots: vec![PathBuf::from(IMAGES[0])], ..usual() },
        RunSettings { roots: vec![PathBuf::new()], ..usual() },
        RunSettings { tiers: vec![Tier::Digest], ..usual() },
        RunSettings { min_run_bytes: 8192, ..usual() },
        RunSettings { is_full: true, ..usual() },
        RunSettings { is_dry_run: true, ..usual() },
    ] {
        assert!(!repeats(&file_system, &host, &RunSettings { is_full: true, ..usual() }));
        assert!(repeats(&file_system, &host, &usual()));
        // The root has the same images.
        let is_same = other.roots == [PathBuf::new()];
        assert_eq!(repeats(&file_system, &host, &other), is_same, "{:?} {:?}", other.roots, other.tiers);
        if other.is_dry_run {
            assert!(repeats(&file_system, &host, &usual()), "a dry run drops nothing");
        }
    }
}

#[test]
fn a_run_looks_at_everything_now_and_then_and_where_the_clock_was_set_back() {
    let file_system = ground();
    let host = file_system.mount(HOST);
    let repeats = || repeats(&file_system, &host, &usual());
    assert!(!repeats());
    file_system.pass(6 * DAY);
    assert!(repeats());
    file_system.pass(DAY);
    assert_eq!([repeats(), repeats()], [false, true]);
}

#[test]
fn a_change_that_may_have_the_time_of_the_one_before_counts_as_one() {
    let file_system = ground();
    let host = file_system.mount(HOST);
    file_system.pass(Duration::from_secs(1));
    file_system.write_image(HOST, IMAGES[1], 0, &[8; BLOCK_BYTES]).expect("no fault was asked for");
    assert!(!share(&host, &usual()).expect("no fault was asked for").is_unchanged);
    assert_eq!([(); 2].map(|()| repeats(&file_system, &host, &usual())), [false, true]);
}

#[test]
fn an_interrupted_run_leaves_nothing_to_repeat() {
    let file_system = ground();
    let host = file_system.mount(HOST);
    let stopped = RunSettings { wish: Wish::StopNow, ..usual() };
    assert!(share(&host, &stopped).is_err());
    assert_eq!([(); 2].map(|()| repeats(&file_system, &host, &usual())), [false, true]);
    assert!(share(&host, &RunSettings { is_full: true, ..stopped }).is_err());
    assert_eq!([(); 2].map(|()| repeats(&file_system, &host, &usual())), [false, true]);
}

/// Runs, changes, crashes and interruptions in any order, against what is known to have changed.
#[test]
fn a_run_repeats_another_one_only_where_nothing_has_changed() {
    let repeated = Cell::new(0);
    for seed in seeds(9800, 40) {
        let file_system = SimulatedFileSystem::new(&SimulationOptions {
            images: 0,
            seed,
            total_blocks: 1 << 12,
            ..SimulationOptions::default()
        });
        let mut host = file_system.mount(HOST);
        host.substrate.create_dir(Path::new("vm")).expect("no fault was asked for");
        // Nobody knows right after a crash: what was changed last may be lost, and so may what was kept.
        let (mut has_changed, mut next) = (Some(true), 0_u8);
        for step in 0..60 {
            file_system.pass(Duration::from_secs(1));
            match host.random.below(8) {
                0 => {
                    let image = IMAGES[usize::try_from(host.random.below(3)).expect("no fault was asked for")];
                    next = next.wrapping_add(1);
                    file_system.write_image(HOST, image, 0, &[next; 2 * BLOCK_BYTES]).expect("no fault was asked for");
                    has_changed = Some(true);
                }
                1 => {
                    file_system.crash(HOST);
                    host = file_system.mount(HOST);
                    has_changed = None;
                    let _ = host.substrate.create_dir(Path::new("vm"));
                }
                2 => {
                    let _ = share(&host, &RunSettings { wish: Wish::StopNow, is_full: true, ..usual() });
                    has_changed = Some(true);
                }
                _ => {
                    let is_unchanged = share(&host, &usual()).expect("no fault was asked for").is_unchanged;
                    if let Some(has_changed) = has_changed {
                        assert_eq!(is_unchanged, !has_changed, "seed {seed}, step {step}");
                    }
                    repeated.set(repeated.get() + u32::from(is_unchanged));
                    has_changed = Some(false);
                }
            }
        }
    }
    assert!(repeated.get() > 100, "{}", repeated.get());
}
