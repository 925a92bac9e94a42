//! The finder of guest files: hands sorted runs to the engine, and counts what came of them.

use std::collections::BTreeMap;
use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::Substrate;

use super::report::{TierCounts, of_outcome};
use super::tier::{Label, Tier};
use super::trust::Trust;
use crate::format::FileNo;
use crate::pass::{Engine, FilePlace, Finder, Outcome, PassError, Run, RunBatch, SortedRuns, Source};

/// Runs into one block that are tried. A block belongs to one file; a hostile guest says that it belongs to a million.
const RUNS_INTO_BLOCK_MAX: u32 = 8;

/// The runs of a join, as one batch.
pub(super) struct FoundRuns {
    /// None once the batch was handed out.
    waiting: Option<SortedRuns>,
    runs: Option<SortedRuns>,
    /// The block that the last run leads into, the last run, and how many runs led there so far.
    last: Option<(FilePlace, Run, u32)>,
    trust: Trust,
    /// What came of all runs, by tier.
    pub(super) tiers: [TierCounts; Tier::ALL.len()],
    /// Bytes of runs that were handed out, and bytes that share since now, by package.
    pub(super) packages: BTreeMap<u32, PackageBytes>,
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
    pub(super) fn new(runs: SortedRuns) -> FoundRuns {
        FoundRuns {
            waiting: Some(runs),
            runs: None,
            last: None,
            trust: Trust::default(),
            tiers: Default::default(),
            packages: BTreeMap::new(),
        }
    }

    /// Returns the tiers and images whose claims were given up.
    pub(super) fn given_up(&self) -> impl Iterator<Item = (Tier, FileNo)> {
        self.trust.given_up().into_iter()
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
            if tries > RUNS_INTO_BLOCK_MAX {
                counts.crowded = counts.crowded.saturating_add(bytes);
            } else if !is_believed {
                counts.given_up = counts.given_up.saturating_add(bytes);
            }
        }
        tries <= RUNS_INTO_BLOCK_MAX && is_believed
    }
}

impl RunBatch for FoundRuns {
    fn next_run(&mut self) -> io::Result<Option<Run>> {
        loop {
            let Some(run) = self.runs.as_mut().map(RunBatch::next_run).transpose()?.flatten() else { return Ok(None) };
            let Some(label) = Label::of_key(run.key()) else { continue };
            if self.is_tried(&run, label) {
                let package = self.packages.entry(label.package).or_default();
                package.believed = package.believed.saturating_add(run.count().saturating_mul(BLOCK_BYTES_U64));
                return Ok(Some(run));
            }
        }
    }

    fn note(&mut self, part: &Run, outcome: Outcome) {
        let (Some(label), Source::File(source)) = (Label::of_key(part.key()), part.source()) else { return };
        let bytes = part.count().saturating_mul(BLOCK_BYTES_U64);
        if let Some(counts) = self.tiers.get_mut(label.tier.index()) {
            let sum = of_outcome(counts, outcome);
            *sum = sum.saturating_add(bytes);
        }
        if matches!(outcome, Outcome::Shared | Outcome::Differed) {
            let is_equal = outcome == Outcome::Shared;
            self.trust.note(label.tier, source.file, part.target().file, bytes, is_equal);
        }
        if outcome == Outcome::Shared {
            let package = self.packages.entry(label.package).or_default();
            package.shared = package.shared.saturating_add(bytes);
        }
    }
}

impl<'b, S: Substrate> Finder<'b, S> for FoundRuns {
    fn next_batch(&mut self, _: &mut Engine<'_, 'b, S>) -> Result<Option<&mut dyn RunBatch>, PassError> {
        self.runs = self.waiting.take();
        Ok(if self.runs.is_some() { Some(self) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::format::FileBlock;
    use crate::pass::RunSorter;

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
        let mut sorter = RunSorter::new(Path::new("/var/tmp"), 1 << 16);
        runs.iter().for_each(|run| sorter.push(run).unwrap());
        let mut found = FoundRuns::new(sorter.finish().unwrap());
        found.runs = found.waiting.take();
        found
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
        assert_eq!(found.given_up().collect::<Vec<_>>(), [(Tier::Digest, FileNo(2))]);
        assert_eq!(found.tiers[0].given_up, 84 * RUN_BLOCKS * BLOCK_BYTES_U64);
    }
}
