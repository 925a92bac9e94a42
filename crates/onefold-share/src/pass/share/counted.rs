//! Outcomes of runs: they are counted, reported to the finder, and read again by the next scan if that may help.

use onefold_substrate::ShareError;
use onefold_substrate::Substrate;

use super::Sharer;
use crate::format::Slot;
use crate::pass::again::RereadCause;
use crate::pass::runs::{FinderRun, Outcome, Source};

impl<S: Substrate> Sharer<'_, '_, '_, S> {
    /// Counts the outcome of a part of the current run, and reports it to the finder.
    pub(super) fn count(&mut self, part: &FinderRun, outcome: Outcome) {
        let bytes = part.bytes();
        let sum = match outcome {
            Outcome::Shared => Some(&mut self.shared.now),
            Outcome::Before => Some(&mut self.shared.before),
            Outcome::Done => Some(&mut self.shared.repeated),
            Outcome::Differed => Some(&mut self.shared.differed),
            Outcome::TooShort => Some(&mut self.shared.too_short),
            Outcome::Refused => Some(&mut self.shared.refused),
            Outcome::Barred => Some(&mut self.shared.barred),
            Outcome::Empty | Outcome::SourceEmpty | Outcome::Declined => None,
        };
        if let Some(sum) = sum {
            // A finder decides how many runs between files there are, and each may be as long as any file.
            *sum = sum.saturating_add(bytes);
        }
        self.tell(part, outcome);
    }

    /// Counts a part whose blocks an earlier run has counted, and reports it to the finder.
    pub(super) fn count_again(&mut self, part: &FinderRun, outcome: Outcome) {
        self.shared.repeated = self.shared.repeated.saturating_add(part.bytes());
        self.tell(part, outcome);
    }

    /// Reports the outcome of a part to the finder.
    fn tell(&mut self, part: &FinderRun, outcome: Outcome) {
        // If shares are declared, the outcome of a run is known later; there are no runs from file to file then.
        if matches!(part.source, Source::File(_)) {
            for part in self.joined.by_content(part) {
                self.batch.note(&part, outcome);
            }
        }
    }

    /// Notes that runs of one file are not shared, for one reason.
    pub(super) fn leave_out<'r>(&mut self, runs: impl Iterator<Item = &'r FinderRun>, why: ShareError) {
        let mut blamed = None;
        for run in runs {
            self.count(run, Outcome::Refused);
            blamed = Some(if matches!(why, ShareError::Refused(_)) { self.blamed(run) } else { run.file });
            if !matches!(why, ShareError::Refused(_)) {
                self.read_again(run, RereadCause::Failed);
            }
        }
        if let Some(file) = blamed {
            self.trouble.note(self.images.path(file), why);
        }
    }

    /// Notes blocks that differ from their source.
    pub(super) fn note_differing(&mut self, part: &FinderRun) {
        self.count(part, Outcome::Differed);
        self.read_again(part, RereadCause::Changed);
        if let Source::Slot(first) = part.source {
            let slots = (first.number()..first.number() + part.count).filter_map(Slot::from_number);
            slots.for_each(|slot| self.noted.suspects.insert(slot));
        }
    }

    /// Makes the next scan read blocks that a log has reported. A belief of another finder is found again.
    pub(super) fn read_again(&mut self, run: &FinderRun, because: RereadCause) {
        if !matches!(run.source, Source::File(_)) {
            self.trouble.again.add(run.file, run.first_block(), run.count, because);
        }
    }
}
