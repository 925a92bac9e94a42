//! Runs: pairs of ranges of equal length that are believed to hold the same. Finders yield them, `share` shares them.

mod joined;
mod run;
mod sorted;

use std::io;

pub(super) use self::joined::Joined;
pub use self::run::{ContentKey, FilePlace, Run, Source};
pub use self::sorted::{RunSorter, SortedRuns};
use super::PassError;

/// The runs of one batch of places, as a finder yields them.
pub trait RunBatch {
    /// Returns the next run; none at the end of the batch, however often it is asked. Runs come in order of their
    /// targets. Out of order they are shared all the same, only slower.
    ///
    /// # Errors
    /// Errors of temporary files. They end the pass.
    fn next_run(&mut self) -> io::Result<Option<Run>>;

    /// Takes back a part of a run whose target another host has at the moment. By default nothing is kept of it: it is
    /// found again.
    ///
    /// # Errors
    /// Errors of temporary files. They end the pass.
    fn leave(&mut self, part: &Run) -> Result<(), PassError> {
        let _ = part;
        Ok(())
    }

    /// Returns whether a part of a run from file to file, whose sides lie apart, is to be compared. The engine asks
    /// before each call of the file system, so that a finder can give up in the middle of a run.
    fn compares(&mut self, part: &Run) -> bool {
        let _ = part;
        true
    }

    /// Takes note of what came of a part of a run from file to file. Parts of one run have its key, and come in any
    /// order.
    fn note(&mut self, part: &Run, outcome: Outcome) {
        let _ = (part, outcome);
    }
}

/// What came of a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It shares since now.
    Shared,
    /// It shared already: both sides lie at one place.
    Before,
    /// By an earlier run of the batch it shares, with this source or another one. Whether the sides are equal was not
    /// looked at.
    Done,
    /// The two sides differ, or one is not that long any more.
    Differed,
    /// The target is a hole, or only set aside: nothing is gained.
    Empty,
    /// The source is a hole, or only set aside, and the target has data there: they are not compared.
    SourceEmpty,
    /// It is shorter than is wanted.
    TooShort,
    /// Its finder does not have it compared ([`RunBatch::compares`]).
    Declined,
    /// The file system would not, or could not at the moment.
    Refused,
    /// A file of the two is not one that this pass may read and change: it is gone, outside of the selection, opted
    /// out, or belongs to another sharing domain.
    Barred,
}
