//! Runs that begin with other roots and exclusions each time: none reads or changes a file outside, and nothing is lost
//! by that.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use onefold_share::mend::{DoubtfulImagePolicy, MendOutcome, declared, mend};
use onefold_share::pace::Pace;
use onefold_share::pass::PassOptions;
use onefold_share::run::{RunOptions, RunReport, RunStep, Seams};
use onefold_share::scan::ScanOptions;
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_testing::simulated::{Host, Simulation, SimulationOptions, seeds};

use super::engine::{PassSettings, USUAL, benign, comes_to_share_everything_by, hosts, scan_and_pass};
use super::{cut, holes, simulate_all_with, total};
use crate::declared::decode_declared;

/// Folders of images, one below the other in part.
const FOLDERS: [&str; 4] = ["images", "images/a", "images/b", "images/b/c"];

/// What a run is told to work on.
#[derive(Clone)]
struct RunRequest {
    roots: Vec<PathBuf>,
    excluded: Option<&'static str>,
    /// Of images with names that end in one of two digits only those are wanted.
    digits: Option<[u8; 2]>,
    is_dry_run: bool,
}

impl RunRequest {
    /// Draws other ones at each start. One run in three works on everything.
    fn draw(host: &Host<'_>) -> RunRequest {
        let draw = |most: usize| usize::try_from(host.random.below(most as u64)).expect("below a usize");
        let folder = || FOLDERS[draw(FOLDERS.len())];
        let everything = draw(3) == 0;
        let roots =
            if everything || draw(2) == 0 { vec![PathBuf::new()] } else { vec![folder().into(), folder().into()] };
        let digit = || b'0' + u8::try_from(draw(10)).expect("below ten");
        RunRequest {
            roots,
            excluded: (!everything && draw(2) == 0).then(folder),
            digits: (!everything && draw(3) == 0).then(|| [digit(), digit()]),
            is_dry_run: draw(8) == 0,
        }
    }

    fn wants(&self, path: &Path) -> bool {
        let has_digit = |digits: [u8; 2]| {
            let last = path.as_os_str().as_encoded_bytes().last();
            last.is_none_or(|last| !last.is_ascii_digit() || digits.contains(last))
        };
        self.excluded.is_none_or(|excluded| path != Path::new(excluded)) && self.digits.is_none_or(has_digit)
    }

    /// Scans and passes. From here on, the file system holds this host to what is wanted.
    fn run(&self, host: &Host<'_>) {
        let wants = |path: &Path, _| self.wants(path);
        let (selection, is_dry_run) = (Selection::new(&self.roots, &wants), self.is_dry_run);
        let bound = self.clone();
        host.substrate
            .bind(Some(Rc::new(move |path| Selection::new(&bound.roots, &|path, _| bound.wants(path)).contains(path))));
        drop(PassSettings { selection, is_dry_run, ..USUAL }.scan_and_pass(host));
        host.substrate.bind(None);
    }
}

fn work(host: &Host<'_>) {
    RunRequest::draw(host).run(host);
}

/// Holes are filled wherever they are.
fn mend_and_work(host: &Host<'_>) {
    if let Ok(state) = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}) {
        drop(mend(&state, DoubtfulImagePolicy::Keep));
    }
    work(host);
}

#[test]
fn no_run_works_on_an_image_outside_of_its_selection() {
    let outcomes = simulate_all_with(seeds(9300, 40), |seed| SimulationOptions::drawn(seed, hosts(seed), 20_000), work);
    let shares = total(&outcomes, |counters| counters.shares);
    assert!(outcomes.len() < 40 || shares > 300, "{shares} shares: hardly any");
}

#[test]
fn no_run_works_on_an_image_outside_of_its_selection_where_sharing_takes_two_steps() {
    let outcomes = simulate_all_with(seeds(9350, 40), |seed| holes::options(seed, 12_000), mend_and_work);
    let shares = total(&outcomes, |counters| counters.shares);
    assert!(outcomes.len() < 40 || shares > 100, "{shares} shares: hardly any");
}

/// What runs with other selections have left, a run on everything takes up.
#[test]
fn once_all_is_calm_runs_on_everything_share_what_runs_on_parts_have_left() {
    for seed in seeds(9400, 16) {
        let is_calm = Rc::new(Cell::new(false));
        let seen = Rc::clone(&is_calm);
        let work = move |host: &Host<'_>| if seen.get() { drop(scan_and_pass(host)) } else { work(host) };
        comes_to_share_everything_by(&benign(seed, hosts(seed)), work, || is_calm.set(true));
    }
}

/// Does a run on all images but one.
fn run_without(host: &Host<'_>, path: &Path) -> RunReport {
    let roots = [PathBuf::new()];
    let wants = |other: &Path, _| other != path;
    let (selection, pace) = (Selection::new(&roots, &wants), Pace::unlimited());
    let left_alone = path.to_owned();
    let options = RunOptions {
        files: None,
        scan: ScanOptions { selection, ..ScanOptions::new(&pace) },
        pass: PassOptions { selection, ..PassOptions::new(Path::new("/var/tmp"), &pace, &*host.clock) },
        mend_wait: Duration::ZERO,
        step: &|step| {
            if step == RunStep::Scan {
                let left_alone = left_alone.clone();
                host.substrate.bind(Some(Rc::new(move |path| path != left_alone)));
            }
        },
    };
    let seams = Seams { substrate: &host.substrate, clock: &*host.clock, random: &*host.random, notices: &|_| {} };
    onefold_share::run(&seams, &options).expect("no fault hits an observer")
}

/// Returns the image in which a dead host was about to share.
fn declared_image(host: &Host<'_>) -> PathBuf {
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).expect("no fault hits an observer");
    let declared = declared(&state).expect("as above");
    let [image] = &declared[..] else { panic!("{declared:?}") };
    image.path.clone()
}

/// Mending asks no selection: an image with holes reads zeros, whatever runs are told to work on.
#[test]
fn a_run_fills_holes_outside_of_its_selection_and_names_their_image() {
    let options = |seed| SimulationOptions {
        seed,
        hosts: 1,
        images: 4,
        image_blocks_max: 12,
        contents: 6,
        writer_percent: 0,
        ..SimulationOptions::default().in_two_steps(decode_declared)
    };
    let mut runs = 0;
    for (seed, calls) in seeds(9480, 2).flat_map(|seed| (360..520).map(move |calls| (seed, calls))) {
        let what = format!("seed {seed}, crash after {calls} calls");
        let mut simulation = Simulation::new(&options(seed), |host| drop(scan_and_pass(host)));
        cut(&mut simulation, calls, 0, &what);
        let ground = simulation.file_system();
        if ground.holes_left() == 0 {
            continue;
        }
        // The locks of the dead host expire.
        ground.pass(Duration::from_secs(600));
        let observer = ground.observe();
        let path = declared_image(&observer);
        let report = run_without(&observer, &path);
        let [image] = &report.mended.images[..] else { panic!("{what}: {:?}", report.mended) };
        assert!(
            image.path == path && matches!(image.became, MendOutcome::Whole) && image.filled > 0,
            "{what}: {image:?}"
        );
        let others = ground.images() as u64 - 1;
        assert_eq!((ground.holes_left(), report.scanned.files), (0, others), "{what}: {report:?}");
        drop(observer);
        simulation.finish().unwrap_or_else(|failure| panic!("{what}: {failure}"));
        runs += 1;
    }
    assert!(runs > 5, "{runs} runs on holes: hardly any");
}

/// An engine that takes everything for selected is found out.
#[test]
fn work_outside_of_a_selection_is_found() {
    let found = (9450..9458).filter(|seed| {
        let options = SimulationOptions { seed: *seed, hosts: 2, ..SimulationOptions::default() };
        let work = |host: &Host<'_>| {
            host.substrate.bind(Some(Rc::new(|path| path.starts_with("images/a"))));
            drop(scan_and_pass(host));
        };
        let failure = Simulation::new(&options, work).run(20_000).err();
        failure.is_some_and(|failure| failure.problem.contains("which is outside of its selection"))
    });
    assert_eq!(found.count(), 8);
}
