//! The front door: a run opens the state folder, fills the holes that dead hosts have left, reads what changed, and
//! has the file system share what is equal.
//!
//! Equal files of guests may be shared before that, so that less is read.
//!
//! `share run` and `pool dedup` are one run each. The watch does the same steps again and again on one state folder.

use std::path::PathBuf;
use std::time::Duration;

use onefold_block::{Clock, Random};
use onefold_substrate::Substrate;

use crate::domain::settings::Settings;
use crate::files::{FilesOptions, FilesReport, share_files};
use crate::mend::{Doubtful, Mended, Patience, mend_patiently};
use crate::pass::{PassError, PassOptions, Passed, pass};
use crate::scan::{ScanOptions, Scanned, TICK, scan};
use crate::state::files::Marks;
use crate::state::{Notice, State, StateError};

/// All that sharing reaches the world through, but for the machine that a watch looks at.
pub struct Seams<'a, S: Substrate> {
    /// The file system.
    pub substrate: &'a S,
    /// The time that passes.
    pub clock: &'a dyn Clock,
    /// For names and keys.
    pub random: &'a dyn Random,
    /// Called with what a user may want to know.
    pub notices: &'a dyn Fn(Notice),
}

impl<'a, S: Substrate> Seams<'a, S> {
    /// Opens the state folder of the substrate's user, and makes it where there is none.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn open(&self) -> Result<State<'a, S>, StateError> {
        State::open(self.substrate, self.clock, self.random, self.notices)
    }
}

/// What a run does, and how.
pub struct RunOptions<'a> {
    /// What is found by the records of guests and shared first, if anything is; of the same files as the pass, as a
    /// rule.
    pub files: Option<&'a FilesOptions<'a>>,
    /// What is read, and how.
    pub scan: ScanOptions<'a>,
    /// What is shared, and how. A dry run fills no holes either.
    pub pass: PassOptions<'a>,
    /// How long the run waits for other hosts that work on images with holes, for all of them together.
    pub mend_wait: Duration,
    /// Called as each step begins.
    pub step: &'a dyn Fn(RunStep),
}

/// A step of a run that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStep {
    /// Equal files of guests are found. Holes are filled by now.
    Files,
    /// What changed is read. Holes are filled by now.
    Scan,
    /// What is equal is shared.
    Pass,
}

/// What a run did.
#[derive(Debug)]
pub struct RunReport {
    /// Images that dead hosts may have left with holes, wherever they are: no selection leaves any of them out.
    pub mended: Mended,
    /// What was found by the records of guests, if that was asked for.
    pub files: Option<FilesReport>,
    /// What was read.
    pub scanned: Scanned,
    /// How long that took.
    pub scan_time: Duration,
    /// What was shared.
    pub passed: Passed,
    /// Where the settings of domains are, or would be, below the root of the file system.
    pub settings: PathBuf,
}

/// Does a run.
///
/// # Errors
/// See [`PassError`]: those of the state folder at any step, the others while blocks are shared.
pub fn run<S: Substrate>(seams: &Seams<'_, S>, options: &RunOptions<'_>) -> Result<RunReport, PassError> {
    let state = seams.open()?;
    // What is read of an image that was not mended is not what it holds.
    let mended = if options.pass.is_dry_run { Mended::default() } else { mend(&state, seams.clock, options)? };
    // What files share by now lies at one place, and is read once.
    let by_files = options.files.map(|files| {
        (options.step)(RunStep::Files);
        share_files(&state, files)
    });
    let by_files = by_files.transpose()?;
    if by_files.is_some() {
        // Sharing has set times of files a moment ago. The scan trusts files that are older than itself.
        seams.clock.sleep(2 * TICK);
    }
    (options.step)(RunStep::Scan);
    // Limits are on the scan and the pass.
    options.scan.pace.begin();
    options.pass.pace.begin();
    let mut files = Marks::load(&state)?;
    let began = seams.clock.monotonic();
    let scanned = scan(&state, &mut files, &options.scan)?;
    let scan_time = seams.clock.monotonic().saturating_sub(began);
    (options.step)(RunStep::Pass);
    let passed = pass(&state, &mut files, &options.pass)?;
    Ok(RunReport { mended, files: by_files, scanned, scan_time, passed, settings: Settings::path(&state) })
}

fn mend<S: Substrate>(state: &State<'_, S>, clock: &dyn Clock, options: &RunOptions<'_>) -> Result<Mended, StateError> {
    let is_stopped = || options.scan.pace.is_stopped();
    mend_patiently(state, Doubtful::Keep, &Patience { clock, most: options.mend_wait, is_stopped: &is_stopped })
}
