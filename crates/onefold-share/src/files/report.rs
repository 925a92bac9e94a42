//! Report of a run over guest files.

use std::path::PathBuf;
use std::time::Duration;

use super::package_bytes::PackageBytes;
use super::tier::Tier;
use crate::format::FileNo;
use crate::format::guest::COUNTS;
use crate::pass::{Outcome, PassReport, ShareReport};

/// Number of sums of an examination.
const EXAMINED_SUMS: usize = 16;
/// Number of sums of a tier.
const TIER_SUMS: usize = 14;
/// Number of sums of sharing that outlast a run.
const SHARED_SUMS: usize = 4;
/// Number of sums of a report that a later run repeats if no image has changed.
pub(super) const SUMS: usize = EXAMINED_SUMS + SHARED_SUMS + TIER_SUMS * Tier::ALL.len();

/// Report of a run over guest files.
#[derive(Debug)]
pub struct FilesReport {
    /// Whether no image has changed since an earlier run that looked at everything. The report then repeats the
    /// findings of that run; this run looked only at the times of images.
    pub is_unchanged: bool,
    /// Sums of the examination.
    pub examined: ExaminationReport,
    /// Results of the claims of each tier.
    pub tiers: Vec<(Tier, TierCounts)>,
    /// Packages with files that are believed equal to others, by name, version and architecture. The texts come from
    /// guests.
    pub packages: Vec<(String, PackageBytes)>,
    /// Images whose claims of a tier were mostly wrong, and are not followed any more.
    pub given_up: Vec<(Tier, GivenUpImages)>,
    /// Images that could not be examined, or not completely, and why.
    pub failed: Vec<(PathBuf, String)>,
    /// Images that were not made from the template, as the names of their packages show.
    pub strangers: Vec<PathBuf>,
    /// Images that were left out because their content changed too recently.
    pub unstable: Vec<FileNo>,
    /// Results of sharing.
    pub passed: PassReport,
    /// Time until the list of runs was complete.
    pub find_time: Duration,
    /// Time that sharing took.
    pub share_time: Duration,
}

impl FilesReport {
    /// Returns the sums that a later run repeats if no image has changed.
    pub(super) fn sums(&self) -> [u64; SUMS] {
        let mut examined = self.examined;
        let ShareReport { now, before, repeated, differed, too_short, .. } = self.passed.shared;
        let mut sums: Vec<u64> = examined.all().into_iter().map(|sum| *sum).collect();
        sums.extend([now.saturating_add(before), repeated, differed, too_short]);
        for tier in Tier::ALL {
            let mut counts = self.tiers.iter().find(|(other, _)| *other == tier).map(|(_, counts)| *counts);
            sums.extend(counts.get_or_insert_default().all().into_iter().map(|sum| *sum));
        }
        sums.try_into().expect("so many sums")
    }

    /// Returns the report of a run that would repeat the findings of a run with these sums. It counts `unchanged`
    /// images as examined, and names neither packages nor images that were left out.
    pub(super) fn of_sums(sums: &[u64; SUMS], unchanged: u64) -> FilesReport {
        let mut next = sums.iter().copied();
        let mut take = |into: &mut u64| *into = next.next().unwrap_or_default();
        let mut examined = ExaminationReport::default();
        examined.all().into_iter().for_each(&mut take);
        (examined.unchanged_images, examined.unchanged_databases) = (unchanged, 0);
        let mut shared = ShareReport::default();
        let ShareReport { before, repeated, differed, too_short, .. } = &mut shared;
        [before, repeated, differed, too_short].into_iter().for_each(&mut take);
        let tiers = Tier::ALL.into_iter().map(|tier| {
            let mut counts = TierCounts::default();
            counts.all().into_iter().for_each(&mut take);
            (tier, counts.of_earlier_run())
        });
        FilesReport {
            is_unchanged: true,
            examined,
            tiers: tiers.collect(),
            packages: Vec::new(),
            given_up: Vec::new(),
            failed: Vec::new(),
            strangers: Vec::new(),
            unstable: Vec::new(),
            passed: PassReport { shared, ..PassReport::default() },
            find_time: Duration::ZERO,
            share_time: Duration::ZERO,
        }
    }
}

/// Images whose claims were mostly wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenUpImages {
    /// One image that is known to be at fault.
    One(PathBuf),
    /// Two images, as far as they were compared with each other. Either may be at fault.
    Pair {
        /// The image that sharing has known for longer.
        one: PathBuf,
        /// The other one.
        other: PathBuf,
    },
}

/// Sums of an examination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExaminationReport {
    /// Files of the host that were examined.
    pub images: u64,
    /// Images that have not changed since an earlier run; nothing of them was read.
    pub unchanged_images: u64,
    /// Images that have changed, but whose package databases have not; the claims of these are known.
    pub unchanged_databases: u64,
    /// Images in which a package database was found.
    pub images_with_packages: u64,
    /// Packages of all images.
    pub packages: u64,
    /// Packages that came earlier than the wanted ones.
    pub older_packages: u64,
    /// Files of guests.
    pub files: u64,
    /// Files of no package that came earlier than the wanted ones.
    pub older_files: u64,
    /// Empty files.
    pub empty_files: u64,
    /// Lower bound of the files that were left out because their image claims more files or bytes than it has room for.
    pub surplus_files: u64,
    /// Bytes in metadata of the guest, in files too small for a block.
    pub resident_bytes: u64,
    /// Bytes in no whole block of the host, or at another offset within a block than the equal bytes.
    pub misaligned_bytes: u64,
    /// Bytes that are set aside and read as zeros.
    pub unwritten_bytes: u64,
    /// Bytes of files that were read as a whole and digested before the comparison.
    pub digested_bytes: u64,
    /// Bytes that the image's own format has compressed, or does not map.
    pub unmapped_bytes: u64,
    /// Bytes that the guest has encrypted or compressed.
    pub encoded_bytes: u64,
}

impl ExaminationReport {
    /// Returns the amounts by which the sums kept of an image have risen since `before`.
    pub(super) fn counts_since(mut self, before: &ExaminationReport) -> [u64; COUNTS] {
        let mut before = *before;
        let (before, now) = (before.counts(), self.counts());
        std::array::from_fn(|at| now[at].saturating_sub(*before[at]))
    }

    /// Returns the sums that are kept of an image.
    pub(super) fn of_counts(kept: &[u64; COUNTS]) -> ExaminationReport {
        let mut examined = ExaminationReport::default();
        examined.add_counts(kept);
        examined
    }

    /// Adds the sums that are kept of an image.
    pub(super) fn add_counts(&mut self, kept: &[u64; COUNTS]) {
        for (sum, more) in self.counts().into_iter().zip(kept) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Adds other sums to these.
    pub(super) fn add(&mut self, more: &ExaminationReport) {
        let mut more = *more;
        for (sum, more) in self.all().into_iter().zip(more.all()) {
            *sum = sum.saturating_add(*more);
        }
    }

    fn all(&mut self) -> [&mut u64; EXAMINED_SUMS] {
        [
            &mut self.images,
            &mut self.unchanged_images,
            &mut self.unchanged_databases,
            &mut self.images_with_packages,
            &mut self.packages,
            &mut self.older_packages,
            &mut self.files,
            &mut self.older_files,
            &mut self.empty_files,
            &mut self.surplus_files,
            &mut self.resident_bytes,
            &mut self.misaligned_bytes,
            &mut self.unwritten_bytes,
            &mut self.digested_bytes,
            &mut self.unmapped_bytes,
            &mut self.encoded_bytes,
        ]
    }

    fn counts(&mut self) -> [&mut u64; COUNTS] {
        [
            &mut self.packages,
            &mut self.files,
            &mut self.empty_files,
            &mut self.surplus_files,
            &mut self.resident_bytes,
            &mut self.misaligned_bytes,
            &mut self.unwritten_bytes,
            &mut self.unmapped_bytes,
            &mut self.encoded_bytes,
        ]
    }
}

/// Results of the claims of a tier, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Believed equal to others.
    pub believed: u64,
    /// Shared by this run.
    pub shared: u64,
    /// Shared before this run.
    pub before: u64,
    /// In blocks that share by a claim of any tier that was tried earlier in the run, mostly with another source.
    /// Blocks that shared with this source, too, before this run count as `before` instead.
    pub repeated: u64,
    /// Different.
    pub differed: u64,
    /// Different, as an earlier run has found; this run has not compared them. Part of `differed`.
    pub differed_before: u64,
    /// One side is a hole or only set aside.
    pub empty: u64,
    /// Different from a first source, and then tried with a second one; the result of the second try is counted, too.
    pub second: u64,
    /// In runs shorter than the wanted minimum.
    pub too_short: u64,
    /// Refused by the file system.
    pub refused: u64,
    /// In a file that may not be read or changed.
    pub barred: u64,
    /// In a file that another host had locked at the moment.
    pub elsewhere: u64,
    /// Not tried: too many files claim the same block.
    pub crowded: u64,
    /// Not compared: the claims of an image, or of two images about each other, were given up.
    pub given_up: u64,
}

impl TierCounts {
    /// Returns how many bytes the file system compared.
    #[must_use]
    pub fn compared(&self) -> u64 {
        let differed = self.differed.saturating_sub(self.differed_before);
        self.shared.saturating_add(differed).saturating_add(self.second)
    }

    /// Returns these counts as a later run has to report them that compares and shares nothing.
    fn of_earlier_run(self) -> TierCounts {
        TierCounts {
            shared: 0,
            before: self.before.saturating_add(self.shared),
            differed_before: self.differed,
            second: 0,
            ..self
        }
    }

    fn all(&mut self) -> [&mut u64; TIER_SUMS] {
        [
            &mut self.believed,
            &mut self.shared,
            &mut self.before,
            &mut self.repeated,
            &mut self.differed,
            &mut self.differed_before,
            &mut self.empty,
            &mut self.second,
            &mut self.too_short,
            &mut self.refused,
            &mut self.barred,
            &mut self.elsewhere,
            &mut self.crowded,
            &mut self.given_up,
        ]
    }
}

/// Returns the sum to which an outcome adds.
pub(super) fn of_outcome(counts: &mut TierCounts, outcome: Outcome) -> &mut u64 {
    match outcome {
        Outcome::Shared => &mut counts.shared,
        Outcome::Before => &mut counts.before,
        Outcome::Done => &mut counts.repeated,
        Outcome::Differed => &mut counts.differed,
        Outcome::Empty | Outcome::SourceEmpty => &mut counts.empty,
        Outcome::TooShort => &mut counts.too_short,
        Outcome::Declined => &mut counts.given_up,
        Outcome::Refused => &mut counts.refused,
        Outcome::Barred => &mut counts.barred,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_repeats_another_one_has_its_counts_and_has_compared_and_shared_nothing() {
        let zeros = || FilesReport::of_sums(&[0; SUMS], 0);
        assert_eq!(zeros().sums(), [0; SUMS]);
        let mut next = 0;
        let mut number = |into: &mut u64| {
            next += 1;
            *into = next;
        };
        let mut first = zeros();
        first.examined.all().into_iter().for_each(&mut number);
        first.tiers.iter_mut().flat_map(|(_, counts)| counts.all()).for_each(&mut number);
        first.passed.shared =
            ShareReport { now: 1000, before: 200, repeated: 5, differed: 30, too_short: 4, ..ShareReport::default() };
        let again = FilesReport::of_sums(&first.sums(), 5);
        assert!(again.is_unchanged);
        let expected = ExaminationReport { unchanged_images: 5, unchanged_databases: 0, ..first.examined };
        assert_eq!(again.examined, expected);
        let expected = ShareReport { before: 1200, repeated: 5, differed: 30, too_short: 4, ..ShareReport::default() };
        assert_eq!(again.passed.shared, expected);
        for ((tier, before), (same, counts)) in first.tiers.iter().zip(&again.tiers) {
            assert_eq!((tier, counts.compared(), counts.shared), (same, 0, 0));
            assert_eq!(counts.before, before.before + before.shared);
            let others = |counts: &TierCounts| {
                let TierCounts { believed, differed, empty, too_short, crowded, given_up, .. } = *counts;
                [believed, differed, empty, too_short, crowded, given_up]
            };
            assert_eq!(others(counts), others(before));
        }
        // A third run repeats the same.
        let mut third = FilesReport::of_sums(&again.sums(), 5);
        third.find_time = again.find_time;
        assert_eq!(third.sums(), again.sums());
    }
}
