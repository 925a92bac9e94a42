//! Later tries: ranges that did not share in a batch are tried once more.
//!
//! The join names a second source for each group of equal files that has one in another image. Runs with second sources
//! wait, unsorted, until the runs with first sources are done. Then only those that lead into failed ranges are handed
//! out. So a source that lies costs each of its targets one more comparison, and no savings.
//!
//! A run that was not compared, since its images mostly differed until then, is tried again with the same source if
//! these images have proved to be right.
//!
//! Neither kind leads into blocks that share by now, with whatever source: another run into the same targets may have
//! been right. Two sources would take the blocks from each other in every pass, and they would count twice.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use super::failed::{FailedRange, FailedRanges, FailedTargets, Failure};
use crate::format::{FileBlock, FileNo};
use crate::pass::{FilePlace, FinderRun, RunBatch, RunSorter, SortedRuns, Source};

/// Runs that were not compared, since their images mostly differed until then.
#[derive(Debug)]
struct DeclinedRuns {
    runs: RunSorter,
    targets: FailedTargets,
}

impl DeclinedRuns {
    fn new(folder: &Path, memory_bytes: usize) -> DeclinedRuns {
        let half = memory_bytes / 2;
        DeclinedRuns { runs: RunSorter::new(folder, half), targets: FailedTargets::new(folder, half) }
    }

    fn push(&mut self, run: &FinderRun) -> io::Result<()> {
        self.targets.push(run, Failure::GivenUp)?;
        self.runs.push(run)
    }

    /// Returns the parts of the runs that share with no other source, in order, if there are any runs.
    fn finish(self) -> io::Result<Option<LaterRuns>> {
        if self.targets.is_empty() { Ok(None) } else { LaterRuns::new(self.runs, self.targets).map(Some) }
    }
}

/// Ranges that did not share in a batch, and are to be tried once more.
#[derive(Debug)]
pub(super) struct Failures {
    /// `None` once these runs were taken: further ones are then kept as targets that need another source.
    declined: Option<DeclinedRuns>,
    /// The list that takes the place of `declined` in the batch of second sources.
    declined_second: Option<DeclinedRuns>,
    /// `None` in the batch of second sources: there are no further sources.
    targets: Option<FailedTargets>,
    /// The block behind the last one that has failed in this batch. Blocks from there on have not failed in it.
    reach: Option<(FileNo, u64)>,
    /// The first error of keeping a failure.
    error: Option<io::Error>,
}

impl Failures {
    /// Returns empty lists. Each keeps at most `memory_bytes` in memory, and the rest in files in `folder`.
    pub(super) fn new(folder: &Path, memory_bytes: usize) -> Failures {
        Failures {
            declined: Some(DeclinedRuns::new(folder, memory_bytes)),
            declined_second: Some(DeclinedRuns::new(folder, memory_bytes)),
            targets: Some(FailedTargets::new(folder, memory_bytes)),
            reach: None,
            error: None,
        }
    }

    /// Notes that a run did not share. An error comes with the next call that returns one.
    pub(super) fn note(&mut self, run: &FinderRun, failure: Failure) {
        let FilePlace { file, block } = run.target();
        self.reach = self.reach.max(Some((file, block.0.saturating_add(run.count()))));
        let noted = match (&mut self.declined, &mut self.targets) {
            (Some(declined), _) if failure == Failure::GivenUp => declined.push(run),
            (_, Some(targets)) => targets.push(run, failure),
            (_, None) => Ok(()),
        };
        self.keep_error(noted);
    }

    /// Notes that the target of a run shares, so that it is not tried again if another run into it has failed. An error
    /// comes with the next call that returns one.
    pub(super) fn note_shared(&mut self, run: &FinderRun) {
        let FilePlace { file, block } = run.target();
        // No run fails in blocks that share, so each failure there was noted before. Such failures are rare, so this
        // check saves nearly all rows. Failures of the previous batch lie anywhere.
        let has_failed = self.reach.is_some_and(|reach| (file, block.0) < reach);
        if self.declined.is_some() && !has_failed {
            return;
        }
        let declined = self.declined.as_mut().map(|declined| &mut declined.targets);
        let noted = declined.into_iter().chain(&mut self.targets).try_for_each(|targets| targets.push_shared(run));
        self.keep_error(noted);
    }

    fn keep_error(&mut self, noted: io::Result<()>) {
        if let Err(error) = noted {
            self.error.get_or_insert(error);
        }
    }

    /// Returns the first error of noting.
    ///
    /// # Errors
    /// Errors of writing temporary files.
    pub(super) fn check(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Returns the runs that were not compared, without the parts that share by now, if there are any. From now on,
    /// runs that are not compared are noted as targets that need another source.
    ///
    /// # Errors
    /// Errors of temporary files.
    pub(super) fn take_declined(&mut self) -> io::Result<Option<LaterRuns>> {
        self.check()?;
        self.declined.take().map_or(Ok(None), DeclinedRuns::finish)
    }

    /// Returns the runs with second sources into failed ranges, if there are any. From now on, runs that are not
    /// compared are kept for [`Failures::take_declined`], and other failures are not kept.
    ///
    /// # Errors
    /// Errors of temporary files.
    pub(super) fn take_second(&mut self, second: RunSorter) -> io::Result<Option<LaterRuns>> {
        self.check()?;
        self.declined = self.declined_second.take();
        self.reach = None;
        let failed = self.targets.take().filter(|targets| !targets.is_empty());
        failed.map(|failed| LaterRuns::new(second, failed)).transpose()
    }
}

/// The parts of runs that are tried later: those whose targets have failed, and do not share.
#[derive(Debug)]
pub(super) struct LaterRuns {
    runs: SortedRuns,
    failed: FailedRanges,
    /// The next range of `failed`.
    next: Option<FailedRange>,
    /// Failed ranges that may meet later runs. They are disjoint, and in order.
    window: VecDeque<FailedRange>,
    /// Parts that are ready to be handed out.
    parts: VecDeque<(FinderRun, Failure)>,
    /// Why the part that was handed out last had failed before.
    last: Option<Failure>,
}

impl LaterRuns {
    /// Sorts runs and failed ranges.
    ///
    /// # Errors
    /// Errors of temporary files.
    fn new(runs: RunSorter, failed: FailedTargets) -> io::Result<LaterRuns> {
        let (runs, mut failed) = (runs.finish()?, failed.finish()?);
        let next = failed.next_range()?;
        Ok(LaterRuns { runs, failed, next, window: VecDeque::new(), parts: VecDeque::new(), last: None })
    }

    /// Returns why the part that was handed out last had failed before.
    pub(super) fn last_failure(&self) -> Option<Failure> {
        self.last
    }

    /// Cuts a run into the parts that failed.
    fn cut(&mut self, run: &FinderRun) -> io::Result<()> {
        let FilePlace { file, block } = run.target();
        let (from, to) = (block.0, block.0.saturating_add(run.count()));
        while self.window.front().is_some_and(|failed| (failed.file, failed.end) <= (file, from)) {
            self.window.pop_front();
        }
        while let Some(next) = self.next.filter(|next| (next.file, next.first) < (file, to)) {
            self.next = self.failed.next_range()?;
            if (next.file, next.end) > (file, from) {
                self.window.push_back(next);
            }
        }
        let Source::File(source) = run.source() else { return Ok(()) };
        for failed in self.window.iter().take_while(|failed| (failed.file, failed.first) < (file, to)) {
            let (first, end) = (failed.first.max(from), failed.end.min(to));
            let behind = |place: FilePlace| FilePlace { block: FileBlock(place.block.0 + (first - from)), ..place };
            let part = FinderRun::between(behind(source), behind(run.target()), end.saturating_sub(first), run.key());
            self.parts.extend(part.map(|part| (part, failed.failure)));
        }
        Ok(())
    }
}

impl RunBatch for LaterRuns {
    fn next_run(&mut self) -> io::Result<Option<FinderRun>> {
        loop {
            if let Some((part, failure)) = self.parts.pop_front() {
                self.last = Some(failure);
                return Ok(Some(part));
            }
            if self.next.is_none() && self.window.is_empty() {
                return Ok(None);
            }
            let Some(run) = self.runs.next_run()? else { return Ok(None) };
            self.cut(&run)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::pass::ContentKey;

    fn run(source: u64, file: u32, block: u64, count: u64) -> FinderRun {
        let place = |file, block| FilePlace { file: FileNo(file), block: FileBlock(block) };
        FinderRun::between(place(9, source), place(file, block), count, ContentKey::default()).unwrap()
    }

    fn parts(runs: &[FinderRun], failed: &[(FinderRun, Failure)], shared: &[FinderRun]) -> Vec<(FinderRun, Failure)> {
        let folder = Path::new("/var/tmp");
        let (mut sorter, mut targets) = (RunSorter::new(folder, 1 << 10), FailedTargets::new(folder, 1 << 10));
        runs.iter().for_each(|run| sorter.push(run).unwrap());
        failed.iter().for_each(|(run, failure)| targets.push(run, *failure).unwrap());
        shared.iter().for_each(|run| targets.push_shared(run).unwrap());
        let (mut second, mut parts) = (LaterRuns::new(sorter, targets).unwrap(), Vec::new());
        while let Some(part) = second.next_run().unwrap() {
            parts.push((part, second.last_failure().unwrap()));
        }
        parts
    }

    #[test]
    fn only_what_failed_is_tried_again() {
        let failed = [
            (run(0, 2, 103, 2), Failure::Differed),
            (run(0, 2, 104, 4), Failure::GivenUp),
            (run(0, 3, 100, 1), Failure::SourceEmpty),
        ];
        let found = parts(&[run(50, 2, 100, 6), run(80, 2, 200, 6), run(90, 3, 100, 6)], &failed, &[]);
        let expected = [
            (run(53, 2, 103, 2), Failure::Differed),
            (run(55, 2, 105, 1), Failure::GivenUp),
            (run(90, 3, 100, 1), Failure::SourceEmpty),
        ];
        assert_eq!(found, expected);
        assert_eq!(parts(&[run(50, 2, 100, 6)], &[], &[]), []);
    }

    #[test]
    fn parts_are_those_that_a_naive_search_finds() {
        for seed in 0..100 {
            let random = SeededRandom::new(seed);
            let some = |count| -> Vec<FinderRun> {
                let one = || {
                    let file = 1 + u32::try_from(random.below(2)).unwrap();
                    run(1000 + random.below(500), file, random.below(60), 1 + random.below(8))
                };
                (0..count).map(|_| one()).collect()
            };
            let (runs, failed, shared) = (some(12), some(10), some(seed % 8));
            let blocks = |run: &FinderRun| {
                let FilePlace { file, block } = run.target();
                (0..run.count()).map(move |at| (file, block.0 + at)).collect::<Vec<_>>()
            };
            let right: BTreeSet<_> = shared.iter().flat_map(blocks).collect();
            let wrong: BTreeSet<_> = failed.iter().flat_map(blocks).filter(|block| !right.contains(block)).collect();
            let mut expected: Vec<_> = runs.iter().flat_map(blocks).filter(|block| wrong.contains(block)).collect();
            let with_failure: Vec<_> = failed.iter().map(|run| (*run, Failure::Differed)).collect();
            let parts = parts(&runs, &with_failure, &shared);
            let mut found: Vec<_> = parts.iter().flat_map(|(part, _)| blocks(part)).collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert!(found == expected, "{seed}: {found:?} {expected:?}");
        }
    }
}
