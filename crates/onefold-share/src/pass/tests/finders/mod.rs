//! A finder that shares from file to file: its runs may be wrong, late or repeated.

mod admitted;
mod shares;

use std::collections::{BTreeMap, VecDeque};
use std::io;

use onefold_substrate::{FileHandle, Names};

use super::*;
use crate::format::FileBlock;
use crate::opt_out;
use crate::scan::list;
use crate::state::locks::Subject;

/// Yields the runs of a test, and keeps their outcomes: blocks by key and outcome.
#[derive(Default)]
struct ListFinder {
    batches: VecDeque<Vec<FinderRun>>,
    current: VecDeque<FinderRun>,
    came: BTreeMap<(u32, Outcome), u64>,
    left: u64,
    ended: u32,
    /// Maximum number of blocks that are compared for a key, if the key has a bound.
    compared_max: BTreeMap<u32, u64>,
}

impl ListFinder {
    fn of(batches: Vec<Vec<FinderRun>>) -> ListFinder {
        ListFinder { batches: batches.into(), ..ListFinder::default() }
    }

    fn came(&self, key: u32, outcome: Outcome) -> u64 {
        self.came.get(&(key, outcome)).copied().unwrap_or(0)
    }

    /// Returns how many blocks had an outcome; a block counts each time.
    fn told(&self) -> u64 {
        self.came.values().sum::<u64>() + self.left
    }
}

impl RunBatch for ListFinder {
    fn next_run(&mut self) -> io::Result<Option<FinderRun>> {
        Ok(self.current.pop_front())
    }

    fn leave(&mut self, part: &FinderRun) -> Result<(), PassError> {
        self.left += part.count();
        Ok(())
    }

    fn compares(&mut self, part: &FinderRun) -> bool {
        let key = part.key().number();
        let compared = self.came(key, Outcome::Shared) + self.came(key, Outcome::Differed);
        self.compared_max.get(&key).is_none_or(|most| compared < *most)
    }

    fn note(&mut self, part: &FinderRun, outcome: Outcome) {
        *self.came.entry((part.key().number(), outcome)).or_default() += part.count();
    }
}

impl<'b> Finder<'b, Sim> for ListFinder {
    fn next_batch(&mut self, _: &mut Engine<'_, 'b, Sim>) -> Result<Option<&mut dyn RunBatch>, PassError> {
        let Some(batch) = self.batches.pop_front() else { return Ok(None) };
        self.current = batch.into();
        Ok(Some(self))
    }

    fn end_batch(&mut self, _: &mut Engine<'_, 'b, Sim>) -> Result<(), PassError> {
        assert!(self.current.is_empty(), "a batch ended before its runs did");
        self.ended += 1;
        Ok(())
    }
}

/// The numbers of files by their paths.
struct Numbers(BTreeMap<PathBuf, FileNo>);

impl Numbers {
    fn of(state: &State<'_, Sim>, files: &mut Marks) -> Numbers {
        let listed = list(state, files, &Selection::all()).unwrap();
        Numbers(listed.into_iter().map(|file| (file.path, file.number)).collect())
    }

    fn place(&self, (path, block): (&str, u64)) -> FilePlace {
        FilePlace { file: self.0[Path::new(path)], block: FileBlock(block) }
    }

    fn run(&self, source: (&str, u64), target: (&str, u64), count: u64, key: u32) -> FinderRun {
        let key = ContentKey::new(key).unwrap();
        FinderRun::between(self.place(source), self.place(target), count, key).unwrap()
    }
}

type GivenRun<'a> = ((&'a str, u64), (&'a str, u64), u64, u32);

impl Ground {
    /// Shares runs (source, target, count, key) as one batch.
    fn share_runs(&self, runs: &[GivenRun<'_>]) -> (PassReport, ListFinder) {
        self.share_runs_as(USUAL, runs)
    }

    fn share_runs_as(&self, how: PassSettings<'_>, runs: &[GivenRun<'_>]) -> (PassReport, ListFinder) {
        self.share_bounded(how, runs, BTreeMap::new())
    }

    /// Shares runs, with bounds on the number of blocks that are compared for some keys.
    fn share_bounded(
        &self,
        how: PassSettings<'_>,
        runs: &[GivenRun<'_>],
        compared_max: BTreeMap<u32, u64>,
    ) -> (PassReport, ListFinder) {
        let state = self.state();
        let mut files = Marks::load(&state).unwrap();
        let numbers = Numbers::of(&state, &mut files);
        let runs = runs.iter().map(|(source, target, count, key)| numbers.run(*source, *target, *count, *key));
        let mut finder = ListFinder { compared_max, ..ListFinder::of(vec![runs.collect()]) };
        let passed = how.share_found(&state, &mut files, &mut finder).unwrap();
        self.file_system.check().unwrap();
        (passed, finder)
    }

    /// Returns how many blocks shares have freed so far.
    fn freed(&self) -> u64 {
        self.file_system.counters().blocks_freed_by_sharing
    }

    fn handle(&self, path: &str) -> FileHandle {
        let file = self.host.substrate.open(Path::new(path), Access::Read).unwrap();
        self.host.substrate.stat(&file).unwrap().handle
    }
}

impl PassSettings<'_> {
    fn share_found<'b>(
        &self,
        state: &State<'b, Sim>,
        files: &mut Marks,
        finder: &mut dyn Finder<'b, Sim>,
    ) -> Result<PassReport, PassError> {
        let clock = ManualClock::default();
        let pace = Pace::new(Limits::default(), &clock, &ProcessCpu, self.wish);
        let options = PassOptions {
            selection: self.selection,
            memory_bytes: 1 << 20,
            call_bytes: self.call_bytes,
            is_dry_run: self.is_dry_run,
            progress: self.progress,
            ..PassOptions::new(Path::new("/var/tmp"), &pace, &clock)
        };
        share_found(state, files, finder, &options)
    }
}
