//! What a run over guest files found and did.

use std::path::PathBuf;
use std::time::Duration;

use super::finder::PackageBytes;
use super::tier::Tier;
use crate::format::FileNo;
use crate::format::guest::COUNTS;
use crate::pass::{Outcome, Passed};

/// What a run over guest files found and did.
#[derive(Debug)]
pub struct FilesReport {
    /// What was examined.
    pub examined: Examined,
    /// What came of the claims of each tier.
    pub tiers: Vec<(Tier, TierCounts)>,
    /// Packages with files that are believed equal to others, by name, version and architecture. Texts of guests.
    pub packages: Vec<(String, PackageBytes)>,
    /// Whose claims of a tier were wrong mostly, and are not followed any more.
    pub given_up: Vec<(Tier, GivenUpImages)>,
    /// Images that could not be examined, or not to the end, and why.
    pub failed: Vec<(PathBuf, String)>,
    /// Images that were not made from the template, by the names of their packages.
    pub strangers: Vec<PathBuf>,
    /// Images that were left out because their content has changed too lately.
    pub unstable: Vec<FileNo>,
    /// What was shared.
    pub passed: Passed,
    /// How long it took until the list of runs was complete.
    pub find_time: Duration,
    /// How long sharing took.
    pub share_time: Duration,
}

/// Images whose claims were wrong mostly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenUpImages {
    /// One image, which is known to be wrong.
    One(PathBuf),
    /// Two images, as far as they were compared with each other. Either may be wrong.
    Pair {
        /// The image that sharing knows longer.
        one: PathBuf,
        /// The other one.
        other: PathBuf,
    },
}

/// What was examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Files of the host that were looked into.
    pub images: u64,
    /// Those of them that have not changed since an earlier run: nothing of them was read.
    pub unchanged_images: u64,
    /// Those of them that have changed, but whose package databases have not: what these say is known.
    pub unchanged_databases: u64,
    /// Those of them in which a package database was found.
    pub images_with_packages: u64,
    /// Packages of all images.
    pub packages: u64,
    /// Of these, packages that came earlier than what is wanted.
    pub older_packages: u64,
    /// Files of guests.
    pub files: u64,
    /// Of these, files of no package that came earlier than what is wanted.
    pub older_files: u64,
    /// Of these, files that are empty.
    pub empty_files: u64,
    /// Files that were left out, at least: their image claims more files or bytes than it has room for.
    pub surplus_files: u64,
    /// Bytes that lie in metadata of the guest: too small for a block.
    pub resident_bytes: u64,
    /// Bytes in no whole block of the host, or at another offset within a block than their equals.
    pub misaligned_bytes: u64,
    /// Bytes that are set aside and read as zeros.
    pub unwritten_bytes: u64,
    /// Bytes of files that were read as a whole, and digested, before they were compared.
    pub digested_bytes: u64,
    /// Bytes that the image's own format has compressed, or has no place for.
    pub unmapped_bytes: u64,
    /// Bytes that the guest has encrypted or compressed.
    pub encoded_bytes: u64,
}

impl Examined {
    /// Returns the sums that are kept of an image, as they have risen since `before`.
    pub(super) fn counts_since(mut self, before: &Examined) -> [u64; COUNTS] {
        let mut before = *before;
        let (before, now) = (before.counts(), self.counts());
        std::array::from_fn(|at| now[at].saturating_sub(*before[at]))
    }

    /// Returns the sums that are kept of an image.
    pub(super) fn of_counts(kept: &[u64; COUNTS]) -> Examined {
        let mut examined = Examined::default();
        examined.add_counts(kept);
        examined
    }

    /// Adds the sums that are kept of an image.
    pub(super) fn add_counts(&mut self, kept: &[u64; COUNTS]) {
        for (sum, more) in self.counts().into_iter().zip(kept) {
            *sum = sum.saturating_add(*more);
        }
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

/// What came of the claims of a tier, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Believed equal to others.
    pub believed: u64,
    /// Shared by this run.
    pub shared: u64,
    /// Shared before.
    pub before: u64,
    /// Of blocks that share by a claim that was tried earlier in the run, with another source mostly.
    pub repeated: u64,
    /// Compared, and different.
    pub differed: u64,
    /// One side is a hole or only set aside.
    pub empty: u64,
    /// Compared with a first source, different, and then tried with a second one: what came of that is counted, too.
    pub second: u64,
    /// In runs shorter than is wanted.
    pub too_short: u64,
    /// Refused by the file system.
    pub refused: u64,
    /// Of a file that may not be read or changed.
    pub barred: u64,
    /// Of a file that another host had at the moment.
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
        self.shared.saturating_add(self.differed).saturating_add(self.second)
    }
}

/// Returns the sum that an outcome is counted in.
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
