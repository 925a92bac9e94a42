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
                // The same files again, by another name.
                if *last == *run {
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
