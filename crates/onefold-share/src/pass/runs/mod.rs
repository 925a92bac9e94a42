//! Runs: pairs of ranges of equal length that are believed to hold the same content. Finders yield them, `share` shares
//! them.

mod joined;
mod run;
mod sorted;

use std::io;

pub(super) use self::joined::RunJoiner;
pub use self::run::{ContentKey, FilePlace, FinderRun, Source};
pub use self::sorted::{RunSorter, SortedRuns};
use super::PassError;

/// The runs of one batch of places, as a finder yields them.
pub trait RunBatch {
    /// Returns the next run, and `None` at the end of the batch, however often it is called. Runs should come in order
    /// of their targets. Out of order they are shared all the same, only slower.
    ///
    /// # Errors
    /// Errors of temporary files. They end the pass.
    fn next_run(&mut self) -> io::Result<Option<FinderRun>>;

    /// Takes back a part of a run whose target another host has at the moment. By default nothing is kept of it: it is
    /// found again.
    ///
    /// # Errors
    /// Errors of temporary files. They end the pass.
    fn leave(&mut self, part: &FinderRun) -> Result<(), PassError> {
        let _ = part;
        Ok(())
    }

    /// Returns whether a part of a run from file to file, whose sides are at different places, is to be compared. The
    /// engine asks before each call of the file system, so that a finder can give up in the middle of a run.
    fn compares(&mut self, part: &FinderRun) -> bool {
        let _ = part;
        true
    }

    /// Notes the outcome of a part of a run from file to file. Parts of one run have its key, and come in any order.
    fn note(&mut self, part: &FinderRun, outcome: Outcome) {
        let _ = (part, outcome);
    }
}

/// Outcome of a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// This run has made it share.
    Shared,
    /// It shared already: both sides are at one place.
    Before,
    /// An earlier run of the batch has made it share, with this source or another one. It was not checked whether the
    /// sides are equal.
    Done,
    /// The two sides differ, or one of them has become too short.
    Differed,
    /// The target is a hole, or unwritten: sharing gains nothing.
    Empty,
    /// The source is a hole, or unwritten, and the target has data there: they are not compared.
    SourceEmpty,
    /// It is shorter than the wanted minimum.
    TooShort,
    /// Its finder does not want it compared ([`RunBatch::compares`]).
    Declined,
    /// The file system refused, or could not share at the moment.
    Refused,
    /// This pass may not read and change one of the two files: it is gone, outside the selection, opted out, or belongs
    /// to another sharing domain.
    Barred,
}
