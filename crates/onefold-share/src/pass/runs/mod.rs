//! Runs: pairs of ranges of equal length that are believed to hold the same. Finders yield them, `share` shares them.

mod joined;
mod run;

use std::io;

pub(super) use self::joined::Joined;
pub use self::run::{Run, Source};
use super::PassError;

/// The runs of one batch of places, as a finder yields them.
pub trait RunBatch {
    /// Returns the next run; none at the end of the batch. Runs come in order of their targets. Out of order they are
    /// shared all the same, only slower.
    ///
    /// # Errors
    /// Those of temporary files. They end the pass.
    fn next_run(&mut self) -> io::Result<Option<Run>>;

    /// Takes back a part of a run whose target another host has at the moment. By default nothing is kept of it: it is
    /// found again.
    ///
    /// # Errors
    /// Those of temporary files. They end the pass.
    fn leave(&mut self, part: &Run) -> Result<(), PassError> {
        let _ = part;
        Ok(())
    }
}
