//! Options of the search in the guests of a run.

use super::Baseline;
use crate::files::ReadScope;
use crate::files::tier::Tier;
use crate::pace::ReadPace;
use crate::state::StateError;

/// Asked from time to time by long work, which ends with the returned error.
pub(super) type StopCheck<'a> = &'a dyn Fn() -> Result<(), StateError>;

/// Options of the search in the guests of a run.
#[derive(Clone, Copy)]
pub(in crate::files) struct Search<'a> {
    /// The tiers by which files are believed equal.
    pub(in crate::files) tiers: &'a [Tier],
    /// Parts of candidates that are read.
    pub(in crate::files) reading: ReadScope,
    /// Packages and files that came earlier are left out.
    pub(in crate::files) since: Option<&'a Baseline>,
    /// For the cache of a disk.
    pub(in crate::files) cache_bytes: usize,
    /// Asked at each read of an image.
    pub(in crate::files) read_pace: ReadPace<'a>,
}

impl Search<'_> {
    /// Returns whether files of packages are believed equal by more than their paths.
    pub(super) fn wants_packaged(&self) -> bool {
        self.tiers.iter().any(|tier| matches!(tier, Tier::Digest | Tier::Copied))
    }

    /// Returns whether files of no package are left out.
    pub(super) fn wants_packaged_alone(&self) -> bool {
        self.tiers.iter().all(|tier| *tier == Tier::Digest)
    }
}
