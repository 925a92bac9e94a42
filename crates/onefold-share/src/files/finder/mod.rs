//! The finder of guest files: hands sorted runs to the engine, and counts the results.
//!
//! There are at most four batches:
//!
//! 1. The runs with the best sources. A pair of images that mostly differs is not compared any further. Blocks that it
//!    shares already are still seen, and count for the pair.
//! 2. The runs that were not compared then, of pairs that have proved to be right. So the order of places on a disk
//!    does not affect the trust in a pair: an old clone may have its swap file first.
//! 3. The runs with second sources into ranges that did not share until then.
//! 4. The runs of the third batch that were not compared, as in the second one.
//!
//! Later batches leave out the ranges that share by then, with whatever source.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::Substrate;

use super::failed::Failure;
use super::join::SourceRuns;
use super::package_bytes::PackageBytes;
use super::report::{TierCounts, of_outcome};
use super::second::{Failures, LaterRuns};
use super::tier::{Label, Tier};
use super::trust::{GivenUpClaims, Trust};
use crate::format::{FileBlock, FileNo};
use crate::pass::{Engine, FilePlace, Finder, FinderRun, Outcome, PassError, RunBatch, RunSorter, SortedRuns, Source};

/// Maximum number of runs into one block that are tried. A block belongs to one file; a hostile guest may claim that it
/// belongs to a million.
const RUNS_INTO_BLOCK_MAX: u32 = 8;

/// The runs of a join.
pub(super) struct FoundRuns {
    batch: Batch,
    /// Runs and ranges that a later batch tries again.
    failures: Failures,
    /// The target block of the last run, the last run, and the number of runs into that block so far.
    last: Option<(FilePlace, FinderRun, u32)>,
    /// For each tier and source, the block behind the last one that was counted as shared before, in the current batch.
    counted: BTreeMap<(Tier, FileNo), FilePlace>,
    trust: Trust,
    /// Results of all runs, by tier.
    pub(super) tiers: [TierCounts; Tier::ALL.len()],
    /// Bytes of runs that were handed out, and bytes that this run has shared, by package.
    pub(super) packages: BTreeMap<u32, PackageBytes>,
}

/// The current batch.
enum Batch {
    /// No batch was handed out yet.
    Waiting(SourceRuns),
    /// First sources; second ones wait.
    First(SortedRuns, RunSorter),
    /// First sources once more; second ones wait.
    FirstAgain(LaterRuns, RunSorter),
    Second(LaterRuns),
    SecondAgain(LaterRuns),
    Over,
}

impl FoundRuns {
    pub(super) fn new(runs: SourceRuns, failures: Failures, trust: Trust) -> FoundRuns {
        FoundRuns {
            batch: Batch::Waiting(runs),
            failures,
            last: None,
            counted: BTreeMap::new(),
            trust,
            tiers: Default::default(),
            packages: BTreeMap::new(),
        }
    }

    /// Returns the images and pairs of images whose claims of a tier were given up.
    pub(super) fn given_up(&self) -> BTreeSet<(Tier, GivenUpClaims)> {
        self.trust.given_up()
    }

    /// Makes the next batch ready. Returns false if there is none.
    fn begin_batch(&mut self) -> io::Result<bool> {
        self.last = None;
        self.counted.clear();
        self.batch = match std::mem::replace(&mut self.batch, Batch::Over) {
            Batch::Waiting(SourceRuns { first, second }) => Batch::First(first.finish()?, second),
            Batch::First(_, second) => match self.failures.take_declined()? {
                Some(runs) => Batch::FirstAgain(runs, second),
                None => self.failures.take_second(second)?.map_or(Batch::Over, Batch::Second),
            },
            Batch::FirstAgain(_, second) => self.failures.take_second(second)?.map_or(Batch::Over, Batch::Second),
            Batch::Second(_) => self.failures.take_declined()?.map_or(Batch::Over, Batch::SecondAgain),
            Batch::SecondAgain(_) | Batch::Over => Batch::Over,
        };
        Ok(!matches!(self.batch, Batch::Over))
    }

    /// Returns the next run of the current batch, and why it failed before, if it did.
    fn next_of_batch(&mut self) -> io::Result<Option<(FinderRun, Option<Failure>)>> {
        self.failures.check()?;
        Ok(match &mut self.batch {
            Batch::First(runs, _) => runs.next_run()?.map(|run| (run, None)),
            Batch::FirstAgain(runs, _) | Batch::SecondAgain(runs) => {
                next_believed(runs, &self.trust, &mut self.failures)?.map(|run| (run, Some(Failure::GivenUp)))
            }
            Batch::Second(runs) => runs.next_run()?.map(|run| (run, runs.last_failure())),
            Batch::Waiting(_) | Batch::Over => None,
        })
    }

    /// Counts the bytes of a run that failed before anew.
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

    /// Counts the bytes of a part that shares already, and returns how many of them were not counted before. A hostile
    /// guest claims a block that it shares in many files.
    fn uncounted_bytes(&mut self, tier: Tier, source: FileNo, part: &FinderRun) -> u64 {
        let FilePlace { file, block: FileBlock(first) } = part.target();
        let end = first.saturating_add(part.count());
        let counted = self.counted.entry((tier, source)).or_insert(part.target());
        // Runs come in order of their targets.
        let from = if counted.file == file { first.max(counted.block.0) } else { first };
        *counted = FilePlace { file, block: FileBlock(end.max(from)) };
        end.saturating_sub(from).saturating_mul(BLOCK_BYTES_U64)
    }

    /// Returns whether a run is worth a try.
    fn is_tried(&mut self, run: &FinderRun, label: Label) -> bool {
        let target = run.target();
        let bytes = run.count().saturating_mul(BLOCK_BYTES_U64);
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
        if tries > RUNS_INTO_BLOCK_MAX
            && let Some(counts) = self.tiers.get_mut(label.tier.index())
        {
            counts.crowded = counts.crowded.saturating_add(bytes);
        }
        tries <= RUNS_INTO_BLOCK_MAX
    }
}

/// Returns the next run whose images are believed by now. Runs of other images are noted as in need of another source.
fn next_believed(runs: &mut LaterRuns, trust: &Trust, failures: &mut Failures) -> io::Result<Option<FinderRun>> {
    while let Some(run) = runs.next_run()? {
        if believes(trust, &run) {
            return Ok(Some(run));
        }
        failures.note(&run, Failure::GivenUp);
    }
    Ok(None)
}

/// Returns whether the claims that have led to a run are still worth a comparison.
fn believes(trust: &Trust, run: &FinderRun) -> bool {
    let (Some(label), Source::File(source)) = (Label::of_key(run.key()), run.source()) else { return false };
    trust.believes(label.tier, source.file, run.target().file)
}

impl RunBatch for FoundRuns {
    fn next_run(&mut self) -> io::Result<Option<FinderRun>> {
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

    fn leave(&mut self, part: &FinderRun) -> Result<(), PassError> {
        if let Some(counts) = Label::of_key(part.key()).and_then(|label| self.tiers.get_mut(label.tier.index())) {
            counts.elsewhere = counts.elsewhere.saturating_add(part.count().saturating_mul(BLOCK_BYTES_U64));
        }
        Ok(())
    }

    fn compares(&mut self, part: &FinderRun) -> bool {
        believes(&self.trust, part)
    }

    fn note(&mut self, part: &FinderRun, outcome: Outcome) {
        let (Some(label), Source::File(source)) = (Label::of_key(part.key()), part.source()) else { return };
        let bytes = part.count().saturating_mul(BLOCK_BYTES_U64);
        if let Some(counts) = self.tiers.get_mut(label.tier.index()) {
            let sum = of_outcome(counts, outcome);
            *sum = sum.saturating_add(bytes);
        }
        let evidence = match outcome {
            Outcome::Shared => Some((bytes, true)),
            Outcome::Before => Some((self.uncounted_bytes(label.tier, source.file, part), true)),
            Outcome::Differed => Some((bytes, false)),
            _ => None,
        };
        if let Some((bytes, is_equal)) = evidence {
            self.trust.note(label.tier, source.file, part.target().file, bytes, is_equal);
        }
        let failure = match outcome {
            Outcome::Differed => Some(Failure::Differed),
            Outcome::SourceEmpty => Some(Failure::SourceEmpty),
            Outcome::Declined => Some(Failure::GivenUp),
            _ => None,
        };
        if let Some(failure) = failure {
            self.failures.note(part, failure);
        }
        if matches!(outcome, Outcome::Shared | Outcome::Before) {
            self.failures.note_shared(part);
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
mod tests;
