//! Passes that are disturbed: no known content is lost for good.

mod batches;
mod collect;
mod cut;
mod declared;
mod disturbed;
mod finders;
mod intents;
mod logs;
mod maps;
mod names;
mod once;
mod rests;
mod resumption;
mod selection;
mod times;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::clock::ManualClock;
use onefold_block::random::{Random, SeededRandom};
use onefold_substrate::{Access, Files, ListedKind, Names};

use super::*;
use crate::format::FileNo;
use crate::format::entry::ContentPlace;
use crate::pace::{Limits, Wish};
use crate::scan::{RereadPolicy, RetryTime, ScanOptions, ScanReport, scan};
use crate::state::StateError;
use onefold_linux::ProcessCpu;
use onefold_testing::simulated::{Host, HostNo, SimulatedFileSystem, SimulatedSubstrate, SimulationOptions};

const K: u64 = BLOCK_BYTES_U64;

/// The state folder of root, for whom the hosts work.
const FOLDER: &str = ".onefold";

type Sim = SimulatedSubstrate<'static>;

/// A file system without images, and a host without faults.
struct Ground {
    file_system: SimulatedFileSystem,
    host: Host<'static>,
}

impl Ground {
    fn new() -> Ground {
        Ground::with(&SimulationOptions::default())
    }

    fn with(options: &SimulationOptions) -> Ground {
        let options = SimulationOptions { images: 0, total_blocks: 1 << 16, image_blocks_max: 64, ..options.clone() };
        let file_system = SimulatedFileSystem::new(&options);
        let host = file_system.observe();
        Ground { file_system, host }
    }

    fn state(&self) -> State<'_, Sim> {
        State::open(&self.host.substrate, &*self.host.clock, &*self.host.random, &|_| {}).unwrap()
    }

    /// Writes blocks that are equal for equal seeds, and lets enough time pass for later changes to be recognised.
    fn write(&self, path: &str, seed: u64, blocks: u64) {
        let path = Path::new(path);
        let substrate = &self.host.substrate;
        let file = substrate.open(path, Access::Write).or_else(|_| substrate.create(path)).unwrap();
        let mut bytes = vec![0; usize::try_from(blocks * K).unwrap()];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        substrate.write_at(&file, 0, &bytes).unwrap();
        self.file_system.pass(Duration::from_secs(1));
    }

    fn names(&self, folder: &str) -> Vec<PathBuf> {
        let folder = Path::new(FOLDER).join(folder);
        let listed = self.host.substrate.list(&folder).unwrap();
        listed.into_iter().map(|listed| folder.join(listed.name)).collect()
    }

    fn create(&self, path: &str) -> <Sim as Files>::File {
        self.host.substrate.create(&Path::new(FOLDER).join(path)).unwrap()
    }

    /// Scans and passes.
    fn run(&self) -> PassReport {
        let state = self.state();
        let mut files = Marks::load(&state).unwrap();
        scan_all(&state, &mut files);
        USUAL.pass(&state, &mut files).unwrap()
    }
}

fn scan_all(state: &State<'_, Sim>, files: &mut Marks) -> ScanReport {
    scan_those(state, files, &|_, _| true)
}

/// Scans as a watch does: failed ranges are read after their pause.
fn scan_as_watch(state: &State<'_, Sim>, files: &mut Marks) -> ScanReport {
    let pace = Pace::unlimited();
    let rereading = RereadPolicy { failed: RetryTime::AfterPause, ..RereadPolicy::whole() };
    scan(state, files, &ScanOptions { rereading, ..ScanOptions::new(&pace) }).unwrap()
}

fn scan_those(state: &State<'_, Sim>, files: &mut Marks, wants: &dyn Fn(&Path, ListedKind) -> bool) -> ScanReport {
    let roots = [PathBuf::new()];
    let pace = Pace::unlimited();
    let options = ScanOptions { selection: Selection::new(&roots, wants), ..ScanOptions::new(&pace) };
    scan(state, files, &options).unwrap()
}

/// Settings of a pass that a test may change.
#[derive(Clone, Copy)]
struct PassSettings<'a> {
    selection: Selection<'a>,
    batch: BatchOptions,
    call_bytes: u64,
    memory_bytes: usize,
    shard_entries_max: u64,
    is_dry_run: bool,
    clock: Option<&'a ManualClock>,
    wish: &'a dyn Fn() -> Wish,
    progress: &'a dyn Fn(PassProgress) -> ControlFlow<()>,
}

const USUAL: PassSettings<'static> = PassSettings {
    selection: Selection::all(),
    batch: BatchOptions { slots: Slot::IN_FILE },
    call_bytes: 1 << 20,
    memory_bytes: 1 << 20,
    shard_entries_max: 12,
    is_dry_run: false,
    clock: None,
    wish: &|| Wish::GoOn,
    progress: &|_| ControlFlow::Continue(()),
};

impl PassSettings<'_> {
    fn pass(&self, state: &State<'_, Sim>, files: &mut Marks) -> Result<PassReport, PassError> {
        let own_clock = ManualClock::default();
        let clock = self.clock.unwrap_or(&own_clock);
        let pace = Pace::new(Limits::default(), clock, &ProcessCpu, self.wish);
        let options = PassOptions {
            selection: self.selection,
            memory_bytes: self.memory_bytes,
            call_bytes: self.call_bytes,
            batch: self.batch,
            is_dry_run: self.is_dry_run,
            shard_entries_max: self.shard_entries_max,
            progress: self.progress,
            ..PassOptions::new(Path::new("/var/tmp"), &pace, clock)
        };
        pass(state, files, &options)
    }
}

/// Returns a wish that lets a pass go on at first. Once the pass has asked this many times, `then` answers.
fn after(calls: u64, then: impl Fn() -> Wish) -> impl Fn() -> Wish {
    let asked = Cell::new(0);
    move || {
        asked.set(asked.get() + 1);
        if asked.get() > calls { then() } else { Wish::GoOn }
    }
}

/// Returns a wish that stops a pass once it has asked this many times.
fn stop_after(calls: u64) -> impl Fn() -> Wish {
    after(calls, || Wish::StopNow)
}

/// Returns which files have to be read again, by their paths.
fn unread(state: &State<'_, Sim>) -> BTreeMap<PathBuf, bool> {
    let files = Marks::load(state).unwrap();
    files.iter().map(|mark| (mark.path.clone(), mark.scanned.is_none() || !mark.reading.again.is_empty())).collect()
}

/// A ground whose maps do not show whether other files still refer to a block, with two pairs of equal files.
fn on_two_steps(first: u64, second: u64) -> Ground {
    let ground = Ground::with(&SimulationOptions::default().in_two_steps(declared::decode_declared));
    for (path, seed, blocks) in [("one", 1, first), ("two", 1, first), ("three", 2, second), ("four", 2, second)] {
        ground.write(path, seed, blocks);
    }
    assert_eq!(ground.run().shared.now, (first + second) * K);
    ground
}

impl Ground {
    fn remove(&self, paths: &[&str]) {
        paths.iter().for_each(|path| self.host.substrate.remove(Path::new(path)).unwrap());
        self.file_system.pass(Duration::from_secs(1));
    }

    /// Returns how many slots hold a block.
    fn slots(&self) -> u64 {
        crate::status::status(&self.state()).unwrap().arena.slots
    }
}
