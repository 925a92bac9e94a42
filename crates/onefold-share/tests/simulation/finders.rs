//! A finder that is wrong, late and lying, on several hosts: no image changes, whatever it says. One that tells the
//! truth has everything shared without an arena.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_linux::ProcessCpu;
use onefold_share::format::FileBlock;
use onefold_share::pace::{Limits, Pace, Wish};
use onefold_share::pass::{
    ContentKey, Engine, FilePlace, Finder, FinderRun, PassError, PassOptions, PassReport, RunBatch, RunSorter,
    SortedRuns, share_found,
};
use onefold_share::scan::{ListedFile, list};
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_substrate::{Access, Files, Substrate};
use onefold_testing::simulated::{Host, Simulation, SimulationOptions, seeds};

use super::engine::{benign, hosts, scan_and_pass};
use super::{simulate_all_with, total};

/// Yields batches that were made before.
pub(super) struct Batches {
    ahead: VecDeque<RunSorter>,
    current: Option<SortedRuns>,
}

impl Batches {
    /// Returns runs as one batch.
    pub(super) fn of(runs: &[FinderRun]) -> io::Result<Batches> {
        let mut sorter = RunSorter::new(Path::new("/var/tmp"), 1 << 16);
        runs.iter().try_for_each(|run| sorter.push(run))?;
        Ok(Batches { ahead: VecDeque::from([sorter]), current: None })
    }
}

impl<'b, S: Substrate> Finder<'b, S> for Batches {
    fn next_batch(&mut self, _: &mut Engine<'_, 'b, S>) -> Result<Option<&mut dyn RunBatch>, PassError> {
        let Some(next) = self.ahead.pop_front() else { return Ok(None) };
        let current = self.current.insert(next.finish()?);
        Ok(Some(current))
    }
}

/// Draws runs that mostly are of nothing: between any two files, beyond their ends, one over the other.
fn lies(host: &Host<'_>, files: &[ListedFile]) -> Batches {
    let draw = |below: u64| host.random.below(below.max(1));
    let file = || &files[usize::try_from(draw(files.len() as u64)).expect("below a usize")];
    let place = || {
        let file = file();
        let block = if draw(20) == 0 { draw(FileBlock::LIMIT) } else { draw(file.stat.length / BLOCK_BYTES_U64 + 2) };
        FilePlace { file: file.number, block: FileBlock(block) }
    };
    let batches = (0..1 + draw(3)).map(|_| {
        let mut sorter = RunSorter::new(Path::new("/var/tmp"), 1 << 12);
        for _ in 0..draw(40) {
            let (source, mut target) = (place(), place());
            if draw(2) == 0 {
                // Clones are alike at equal offsets.
                target.block = source.block;
            }
            let count = if draw(30) == 0 { 1 << 20 } else { 1 + draw(20) };
            if let Some(run) = FinderRun::between(source, target, count, ContentKey::default()) {
                sorter.push(&run).expect("it is small");
            }
        }
        sorter
    });
    Batches { ahead: batches.collect(), current: None }
}

/// Reads all files, and returns which of their blocks hold the same as an earlier one.
pub(super) fn truths(host: &Host<'_>, files: &[ListedFile]) -> io::Result<Batches> {
    let mut first: BTreeMap<(u32, Vec<u8>), FilePlace> = BTreeMap::new();
    let mut sorter = RunSorter::new(Path::new("/var/tmp"), 1 << 20);
    for listed in files {
        let file = host.substrate.open(&listed.path, Access::Read)?;
        let mut content = vec![0; usize::try_from(listed.stat.length).map_err(io::Error::other)?];
        let count = host.substrate.read_at(&file, 0, &mut content)?;
        for (block, bytes) in (0..).zip(content[..count].chunks_exact(BLOCK_BYTES)) {
            let place = FilePlace { file: listed.number, block: FileBlock(block) };
            let source = *first.entry((listed.stat.owner, bytes.to_vec())).or_insert(place);
            if let Some(run) = FinderRun::between(source, place, 1, ContentKey::default()) {
                sorter.push(&run)?;
            }
        }
    }
    Ok(Batches { ahead: VecDeque::from([sorter]), current: None })
}

/// Shares what a finder says of the files of a selection.
pub(super) fn share_what(
    host: &Host<'_>,
    selection: Selection<'_>,
    find: &dyn Fn(&[ListedFile]) -> io::Result<Batches>,
) -> Result<PassReport, PassError> {
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {})?;
    let mut files = Marks::load(&state)?;
    let listed = list(&state, &mut files, &Selection::all())?;
    if listed.is_empty() {
        return Ok(PassReport::default());
    }
    let mut finder = find(&listed)?;
    let pace = Pace::new(Limits::default(), &*host.clock, &ProcessCpu, &|| Wish::GoOn);
    let options = PassOptions {
        selection,
        memory_bytes: 1 << 16,
        ..PassOptions::new(Path::new("/var/tmp"), &pace, &*host.clock)
    };
    share_found(&state, &mut files, &mut finder, &options)
}

/// Lies, sometimes of a part of the images only: the finder does not know of that, and the file system holds the host
/// to it.
pub(super) fn lie(host: &Host<'_>) {
    let folder = ["", "images/a", "images/b"][usize::try_from(host.random.below(3)).expect("below three")];
    let roots = [PathBuf::from(folder)];
    let wants = |_: &Path, _| true;
    host.substrate.bind(Some(Rc::new(move |path| path.starts_with(folder))));
    drop(share_what(host, Selection::new(&roots, &wants), &|files| Ok(lies(host, files))));
    host.substrate.bind(None);
}

/// Lies, tells the truth, and does passes by content, in turn.
fn work(host: &Host<'_>) {
    match (host.no.0 + host.incarnation) % 3 {
        0 => lie(host),
        1 => drop(share_what(host, Selection::all(), &|files| truths(host, files))),
        _ => drop(scan_and_pass(host)),
    }
}

#[test]
fn images_read_as_written_whatever_finders_say() {
    let outcomes = simulate_all_with(seeds(9600, 30), |seed| SimulationOptions::drawn(seed, hosts(seed), 12_000), work);
    let shares = total(&outcomes, |counters| counters.shares);
    let differs = total(&outcomes, |counters| counters.differs);
    assert!(outcomes.len() < 30 || (shares > 500 && differs > 500), "{shares} shares, {differs} differences");
}

#[test]
fn no_block_is_shared_between_two_users_whatever_finders_say() {
    let options = |seed| SimulationOptions::drawn(seed, hosts(seed), 12_000).with_owners(3);
    let outcomes = simulate_all_with(seeds(9700, 15), options, work);
    let shares = total(&outcomes, |counters| counters.shares);
    assert!(outcomes.len() < 15 || shares > 150, "{shares} shares: hardly any");
}

/// Hosts tell the truth about images that nobody writes to any more: all equal blocks are one, and no arena keeps any.
#[test]
fn once_all_is_calm_a_finder_that_tells_the_truth_has_everything_shared() {
    for seed in seeds(9800, 6) {
        let is_calm = Rc::new(Cell::new(false));
        let seen = Rc::clone(&is_calm);
        let work = move |host: &Host<'_>| {
            if seen.get() {
                drop(share_what(host, Selection::all(), &|files| truths(host, files)));
            } else {
                lie(host);
            }
        };
        let options = benign(seed, hosts(seed));
        let mut simulation = Simulation::new(&options, work);
        simulation.run(options.steps).unwrap_or_else(|failure| panic!("{failure}"));
        simulation.calm();
        is_calm.set(true);
        simulation.run(200_000).unwrap_or_else(|failure| panic!("{failure}"));
        let census = simulation.file_system().census();
        let outcome = simulation.finish().unwrap_or_else(|failure| panic!("{failure}"));
        assert!(census.physical == census.distinct && outcome.counters.shares > 0, "{outcome}");
    }
}
