//! The finder of guest files: hands sorted runs to the engine, and counts what came of them.
//!
//! The first batch are the runs with the best sources. The second one, where it is needed, are those with second
//! sources into what did not share then.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::Substrate;

use super::join::SourceRuns;
use super::report::{TierCounts, of_outcome};
use super::second::{FailedTargets, Failure, SecondRuns};
use super::tier::{Label, Tier};
use super::trust::{GivenUp, Trust};
use crate::pass::{Engine, FilePlace, Finder, Outcome, PassError, Run, RunBatch, RunSorter, SortedRuns, Source};

/// Runs into one block that are tried. A block belongs to one file; a hostile guest says that it belongs to a million.
const RUNS_INTO_BLOCK_MAX: u32 = 8;

/// The runs of a join.
pub(super) struct FoundRuns {
    batch: Batch,
    /// The block that the last run leads into, the last run, and how many runs led there so far.
    last: Option<(FilePlace, Run, u32)>,
    trust: Trust,
    /// What was given up in the first batch, once that is over.
    given_up: Vec<(Tier, GivenUp)>,
    /// What came of all runs, by tier.
    pub(super) tiers: [TierCounts; Tier::ALL.len()],
    /// Bytes of runs that were handed out, and bytes that share since now, by package.
    pub(super) packages: BTreeMap<u32, PackageBytes>,
}

/// The batch that is on.
enum Batch {
    /// None was handed out yet.
    Waiting(SourceRuns, FailedTargets),
    First {
        runs: SortedRuns,
        /// The runs with second sources, and what needs them.
        second: RunSorter,
        failed: FailedTargets,
        /// Why something of it could not be noted.
        error: Option<io::Error>,
    },
    Second(SecondRuns),
    Over,
}

/// What came of the files of a package, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackageBytes {
    /// Believed equal to others.
    pub believed: u64,
    /// Shared by this run.
    pub shared: u64,
}

impl FoundRuns {
    pub(super) fn new(runs: SourceRuns, failed: FailedTargets, trust: Trust) -> FoundRuns {
        FoundRuns {
            batch: Batch::Waiting(runs, failed),
            last: None,
            trust,
            given_up: Vec::new(),
            tiers: Default::default(),
            packages: BTreeMap::new(),
        }
    }

    /// Returns whose claims were given up, in which tier.
    pub(super) fn given_up(&self) -> BTreeSet<(Tier, GivenUp)> {
        self.given_up.iter().copied().chain(self.trust.given_up()).collect()
    }

    /// Makes the next batch ready. Returns false where there is none.
    fn begin_batch(&mut self) -> io::Result<bool> {
        match std::mem::replace(&mut self.batch, Batch::Over) {
            Batch::Waiting(runs, failed) => {
                let SourceRuns { first, second } = runs;
                self.batch = Batch::First { runs: first.finish()?, second, failed, error: None };
            }
            Batch::First { error: Some(error), .. } => return Err(error),
            Batch::First { second, failed, .. } if !failed.is_empty() => {
                // Of two liars that were its sources, an honest image has two pairs that were given up.
                self.given_up.extend(std::mem::take(&mut self.trust).given_up());
                self.last = None;
                self.batch = Batch::Second(SecondRuns::new(second, failed)?);
            }
            Batch::First { .. } | Batch::Second(_) | Batch::Over => return Ok(false),
        }
        Ok(true)
    }

    /// Notes that a run with a first source did not share.
    fn note_failed(&mut self, run: &Run, failure: Failure) {
        if let Batch::First { failed, error, .. } = &mut self.batch
            && error.is_none()
        {
            *error = failed.push(run, failure).err();
        }
    }

    /// Returns the next run of the batch that is on, and why it failed with its first source.
    fn next_of_batch(&mut self) -> io::Result<Option<(Run, Option<Failure>)>> {
        Ok(match &mut self.batch {
            Batch::First { error: error @ Some(_), .. } => {
                return Err(error.take().unwrap_or_else(io::Error::last_os_error));
            }
            Batch::First { runs, .. } => runs.next_run()?.map(|run| (run, None)),
            Batch::Second(runs) => runs.next_run()?.map(|run| (run, runs.last_failure())),
            Batch::Waiting(..) | Batch::Over => None,
        })
    }

    /// Counts the bytes of a run anew, which failed with its first source.
    fn count_again(&mut self, label: Label, bytes: u64, failure: Failure) {
        let Some(counts) = self.tiers.get_mut(label.tier.index()) else { return };
        let sum = match failure {
            Failure::Differed => {
                counts.second = counts.second.saturating_add(bytes);
                &mut counts.differed
            }
            Failure::SourceEmpty => &mut counts.empty,
            Failure::GivenUp => &mut counts.given_up,
        };
        *sum = sum.saturating_sub(bytes);
    }

    /// Tells whether a run is worth a try.
    fn is_tried(&mut self, run: &Run, label: Label) -> bool {
        let Source::File(source) = run.source() else { return false };
        let target = run.target();
        let bytes = run.count().saturating_mul(BLOCK_BYTES_U64);
        let counts = self.tiers.get_mut(label.tier.index());
        let tries = match &mut self.last {
            Some((block, last, tries)) if *block == target => {
                // The same files again, by another name or of a lower tier. The better tier comes first.
                if last.source() == run.source() && last.count() == run.count() {
                    return false;
                }
                *last = *run;
                *tries += 1;
                *tries
            }
            _ => {
                self.last = Some((target, *run, 1));
                1
            }
        };
        let is_believed = self.trust.believes(label.tier, source.file, target.file);
        if let Some(counts) = counts {
            // What a second source would have to be tried for is counted there.
            if tries > RUNS_INTO_BLOCK_MAX {
                counts.crowded = counts.crowded.saturating_add(bytes);
            } else if !is_believed {
                counts.given_up = counts.given_up.saturating_add(bytes);
            }
        }
        if tries <= RUNS_INTO_BLOCK_MAX && !is_believed {
            self.note_failed(run, Failure::GivenUp);
        }
        tries <= RUNS_INTO_BLOCK_MAX && is_believed
    }
}

impl RunBatch for FoundRuns {
    fn next_run(&mut self) -> io::Result<Option<Run>> {
        loop {
            let Some((run, failure)) = self.next_of_batch()? else { return Ok(None) };
            let Some(label) = Label::of_key(run.key()) else { continue };
            let bytes = run.count().saturating_mul(BLOCK_BYTES_U64);
            if let Some(failure) = failure {
                self.count_again(label, bytes, failure);
            }
            if self.is_tried(&run, label) {
                if failure.is_none() {
                    let package = self.packages.entry(label.package).or_default();
                    package.believed = package.believed.saturating_add(bytes);
                }
                return Ok(Some(run));
            }
        }
    }

    fn leave(&mut self, part: &Run) -> Result<(), PassError> {
        if let Some(counts) = Label::of_key(part.key()).and_then(|label| self.tiers.get_mut(label.tier.index())) {
            counts.elsewhere = counts.elsewhere.saturating_add(part.count().saturating_mul(BLOCK_BYTES_U64));
        }
        Ok(())
    }

    fn note(&mut self, part: &Run, outcome: Outcome) {
        let (Some(label), Source::File(source)) = (Label::of_key(part.key()), part.source()) else { return };
        let bytes = part.count().saturating_mul(BLOCK_BYTES_U64);
        if let Some(counts) = self.tiers.get_mut(label.tier.index()) {
            let sum = of_outcome(counts, outcome);
            *sum = sum.saturating_add(bytes);
        }
        let failure = match outcome {
            Outcome::Differed => Some(Failure::Differed),
            Outcome::SourceEmpty => Some(Failure::SourceEmpty),
            _ => None,
        };
        if failure.is_some() || outcome == Outcome::Shared {
            self.trust.note(label.tier, source.file, part.target().file, bytes, failure.is_none());
        }
        if let Some(failure) = failure {
            self.note_failed(part, failure);
        }
        if outcome == Outcome::Shared {
            let package = self.packages.entry(label.package).or_default();
            package.shared = package.shared.saturating_add(bytes);
        }
    }
}

impl<'b, S: Substrate> Finder<'b, S> for FoundRuns {
    fn next_batch(&mut self, _: &mut Engine<'_, 'b, S>) -> Result<Option<&mut dyn RunBatch>, PassError> {
        Ok(if self.begin_batch()? { Some(self) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::format::{FileBlock, FileNo};

    fn place(file: u32, block: u64) -> FilePlace {
        FilePlace { file: FileNo(file), block: FileBlock(block) }
    }

    fn run(source: (u32, u64), target: (u32, u64), count: u64, package: u32) -> Run {
        run_of(Tier::Digest, source, target, count, package)
    }

    fn run_of(tier: Tier, source: (u32, u64), target: (u32, u64), count: u64, package: u32) -> Run {
        let key = Label { tier, package }.key().unwrap();
        Run::between(place(source.0, source.1), place(target.0, target.1), count, key).unwrap()
    }

    /// Returns the finder of some runs, with its batch handed out.
    fn found(runs: &[Run]) -> FoundRuns {
        found_twice(runs, &[])
    }

    /// Returns the finder of some runs with first sources, and of some with second ones; its first batch is on.
    fn found_twice(first: &[Run], second: &[Run]) -> FoundRuns {
        let folder = Path::new("/var/tmp");
        let [first, second] = [first, second].map(|runs| {
            let mut sorter = RunSorter::new(folder, 1 << 16);
            runs.iter().for_each(|run| sorter.push(run).unwrap());
            sorter
        });
        let failed = FailedTargets::new(folder, 1 << 16);
        let mut found = FoundRuns::new(SourceRuns { first, second }, failed, Trust::default());
        assert!(found.begin_batch().unwrap());
        found
    }

    /// An image claims all that the others have. It used to take away their savings, since a group had one source.
    #[test]
    fn what_a_lying_source_does_not_hold_shares_with_a_second_one() {
        const RUN_BLOCKS: u64 = 1 << 10;
        let runs = |source| -> Vec<Run> {
            let of_target = |target| {
                (0..40).map(move |at| at * RUN_BLOCKS).map(move |at| run((source, at), (target, at), RUN_BLOCKS, 1))
            };
            (source + 1..5).flat_map(of_target).collect()
        };
        for lie in [Outcome::Differed, Outcome::SourceEmpty] {
            let mut found = found_twice(&runs(1), &runs(2));
            let mut shared = BTreeMap::<u32, u64>::new();
            loop {
                while let Some(run) = found.next_run().unwrap() {
                    let is_wrong = run.source() == Source::File(place(1, run.target().block.0));
                    found.note(&run, if is_wrong { lie } else { Outcome::Shared });
                    *shared.entry(run.target().file.0).or_default() += if is_wrong { 0 } else { run.count() };
                }
                if !found.begin_batch().unwrap() {
                    break;
                }
            }
            let all = 40 * RUN_BLOCKS;
            assert_eq!(shared, BTreeMap::from([(2, 0), (3, all), (4, all)]));
            let TierCounts { shared, differed, empty, given_up, second, .. } = found.tiers[0];
            // Of the two pairs that were compared, one is tried again; of image 2 there is no second source.
            assert_eq!(shared, 2 * all * BLOCK_BYTES_U64);
            assert_eq!(differed + empty + given_up, all * BLOCK_BYTES_U64, "{lie:?}");
            assert_eq!(second, if lie == Outcome::Differed { 16 * RUN_BLOCKS * BLOCK_BYTES_U64 } else { 0 });
            assert_eq!(found.packages[&1].believed, 2 * 16 * RUN_BLOCKS * BLOCK_BYTES_U64);
            assert!(found.given_up().contains(&(Tier::Digest, GivenUp::Image(FileNo(1)))), "{:?}", found.given_up());
        }
    }

    /// A guest says of one block that a hundred files begin there.
    #[test]
    fn a_block_that_many_files_claim_is_tried_a_few_times() {
        let mut runs: Vec<Run> = (0..100).map(|at| run((1, 10 * at), (2, 7), 1, 1)).collect();
        runs.push(run((1, 5), (2, 8), 1, 2));
        let mut found = found(&runs);
        let mut tried = Vec::new();
        while let Some(run) = found.next_run().unwrap() {
            tried.push(run.target().block.0);
        }
        assert_eq!(tried, [7, 7, 7, 7, 7, 7, 7, 7, 8]);
        assert_eq!(found.tiers[0].crowded, (100 - u64::from(RUNS_INTO_BLOCK_MAX)) * BLOCK_BYTES_U64);
    }

    #[test]
    fn a_run_that_is_named_twice_is_tried_once() {
        let mut found = found(&[run((1, 0), (2, 7), 3, 1); 20]);
        assert_eq!(found.next_run().unwrap(), Some(run((1, 0), (2, 7), 3, 1)));
        assert_eq!(found.next_run().unwrap(), None);
        assert_eq!((found.tiers[0].crowded, found.packages[&1].believed), (0, 3 * BLOCK_BYTES_U64));
    }

    /// A file of no package with an equal date is believed equal by two tiers. Its run by the second one would come
    /// between those that the engine joins.
    #[test]
    fn a_file_of_two_tiers_is_tried_once_in_the_better_one() {
        let both = |at: u64| [Tier::Named, Tier::Dated].map(|tier| run_of(tier, (1, at), (2, 50 + at), 16, 0));
        let mut found = found(&(0..20).flat_map(|at| both(16 * at)).collect::<Vec<_>>());
        let expected: Vec<_> = (0..20).map(|at| run_of(Tier::Dated, (1, 16 * at), (2, 50 + 16 * at), 16, 0)).collect();
        let mut tried = Vec::new();
        while let Some(run) = found.next_run().unwrap() {
            found.note(&run, Outcome::Shared);
            tried.push(run);
        }
        assert_eq!(tried, expected);
        assert_eq!(found.packages[&0], PackageBytes { believed: 320 * BLOCK_BYTES_U64, shared: 320 * BLOCK_BYTES_U64 });
    }

    #[test]
    fn outcomes_are_counted_by_tier_and_package() {
        let mut found = found(&[]);
        let outcomes = [
            Outcome::Shared,
            Outcome::Before,
            Outcome::Differed,
            Outcome::Empty,
            Outcome::TooShort,
            Outcome::Refused,
            Outcome::Barred,
        ];
        for (count, outcome) in (1..).zip(outcomes) {
            found.note(&run((1, 0), (2, 0), count, 4), outcome);
        }
        found.leave(&run((1, 0), (2, 0), 9, 4)).unwrap();
        assert_eq!(found.tiers[0].elsewhere, 9 * BLOCK_BYTES_U64);
        let TierCounts { shared, before, differed, empty, too_short, refused, barred, .. } = found.tiers[0];
        let blocks = [shared, before, differed, empty, too_short, refused, barred].map(|sum| sum / BLOCK_BYTES_U64);
        assert_eq!(blocks, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(found.tiers[0].compared(), 4 * BLOCK_BYTES_U64);
        assert_eq!(found.packages[&4], PackageBytes { believed: 0, shared: BLOCK_BYTES_U64 });
    }

    /// Each claim about image 2 is wrong; those about image 3 are right, with the same source.
    #[test]
    fn runs_of_claims_that_are_mostly_wrong_are_not_handed_out_any_more() {
        const RUN_BLOCKS: u64 = 1 << 10;
        let runs: Vec<Run> = [2, 3]
            .into_iter()
            .flat_map(|target| {
                (0..100).map(move |at| run((1, at * RUN_BLOCKS), (target, at * RUN_BLOCKS), RUN_BLOCKS, target))
            })
            .collect();
        let mut found = found(&runs);
        let mut tried = BTreeMap::<u32, u64>::new();
        while let Some(run) = found.next_run().unwrap() {
            let target = run.target().file.0;
            *tried.entry(target).or_default() += 1;
            found.note(&run, if target == 3 { Outcome::Shared } else { Outcome::Differed });
        }
        // 64 MiB are 16 runs.
        assert_eq!(tried, BTreeMap::from([(2, 16), (3, 100)]));
        let pair = GivenUp::Pair { source: FileNo(1), target: FileNo(2) };
        assert_eq!(found.given_up().into_iter().collect::<Vec<_>>(), [(Tier::Digest, pair)]);
        assert_eq!(found.tiers[0].given_up, 84 * RUN_BLOCKS * BLOCK_BYTES_U64);
    }
}
