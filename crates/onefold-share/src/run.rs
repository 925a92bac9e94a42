//! The entry point: a run opens the state folder, fills the holes that dead hosts have left, reads changes, and has the
//! file system share equal blocks.
//!
//! Equal files of guests may be shared before that, so that less is read.
//!
//! `share run` and `pool dedup` are one run each. The watch repeats the same steps on one state folder.

use std::path::PathBuf;
use std::time::Duration;

use onefold_block::{Clock, Random};
use onefold_substrate::Substrate;

use crate::domain::settings::Settings;
use crate::files::{FilesOptions, FilesReport, share_files};
use crate::mend::{DoubtfulImagePolicy, MendReport, Patience, mend_patiently};
use crate::pass::{PassError, PassOptions, PassReport, pass};
use crate::scan::{ScanOptions, ScanReport, TICK, scan};
use crate::state::files::Marks;
use crate::state::{Notice, State, StateError};

/// The connections of sharing to the world, except the machine that a watch looks at.
pub struct Seams<'a, S: Substrate> {
    /// The file system.
    pub substrate: &'a S,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Source of names and keys.
    pub random: &'a dyn Random,
    /// Called with notices for the user.
    pub notices: &'a dyn Fn(Notice),
}

impl<'a, S: Substrate> Seams<'a, S> {
    /// Opens the state folder of the substrate's user, and makes it if there is none.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn open(&self) -> Result<State<'a, S>, StateError> {
        State::open(self.substrate, self.clock, self.random, self.notices)
    }
}

/// Options of a run.
pub struct RunOptions<'a> {
    /// Options for files that are found by the records of guests and shared first, if that is wanted; usually for the
    /// same files as the pass.
    pub files: Option<&'a FilesOptions<'a>>,
    /// Options of the scan.
    pub scan: ScanOptions<'a>,
    /// Options of the pass. A dry run fills no holes either.
    pub pass: PassOptions<'a>,
    /// How long the run waits for other hosts that work on images with holes, for all images together.
    pub mend_wait: Duration,
    /// Called as each step begins.
    pub step: &'a dyn Fn(RunStep),
}

/// A long step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStep {
    /// Equal files of guests are being found. Holes are filled by now.
    Files,
    /// Changes are being read. Holes are filled by now.
    Scan,
    /// Equal blocks are being shared.
    Pass,
}

/// Report of a run.
#[derive(Debug)]
pub struct RunReport {
    /// Images that dead hosts may have left with holes, wherever they are: no selection leaves any of them out.
    pub mended: MendReport,
    /// Files that were found by the records of guests, if that was asked for.
    pub files: Option<FilesReport>,
    /// Results of the scan.
    pub scanned: ScanReport,
    /// Duration of the scan.
    pub scan_time: Duration,
    /// Results of the pass.
    pub passed: PassReport,
    /// Path of the settings of domains, whether they exist or not, below the root of the file system.
    pub settings: PathBuf,
}

impl RunReport {
    /// Adds an earlier run that ended because the file system was full: what it shared, and the files that failed.
    pub fn add_earlier(&mut self, earlier: RunReport) {
        self.passed.add_earlier(earlier.passed);
        if let (Some(files), Some(before)) = (&mut self.files, earlier.files) {
            files.passed.add_earlier(before.passed);
        }
    }
}

/// Does a run.
///
/// # Errors
/// See [`PassError`]: those of the state folder at any step, the others while blocks are shared.
pub fn run<S: Substrate>(seams: &Seams<'_, S>, options: &RunOptions<'_>) -> Result<RunReport, PassError> {
    let state = seams.open()?;
    // An image that was not mended does not read as its real content.
    let mended = if options.pass.is_dry_run { MendReport::default() } else { mend(&state, seams.clock, options)? };
    // Files that share by now are at one place, and are read once.
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
    // The limits are for the scan and the pass.
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

fn mend<S: Substrate>(
    state: &State<'_, S>,
    clock: &dyn Clock,
    options: &RunOptions<'_>,
) -> Result<MendReport, StateError> {
    let is_stopped = || options.scan.pace.is_stopped();
    mend_patiently(
        state,
        DoubtfulImagePolicy::Keep,
        &Patience { clock, most: options.mend_wait, is_stopped: &is_stopped },
    )
}
