//! Guest files (FBS): equal files of guests share their blocks, and no block is hashed for it.
//!
//! The package databases of guests say which files are equal, and the maps of their file systems give their places.
//! The steps are those of the paper:
//!
//! | step | module | is |
//! |---|---|---|
//! | 1, identify | `identify/`, `finding` | reads package databases and maps of each image, which make rows of candidates |
//! | 3, coalesce | `join/` | sorts the rows, so that equal files come together, and cuts them into runs of whole blocks |
//! | 2, compare | `finder` | hands the runs to the engine of `pass`, which has the file system compare and share |
//!
//! `kept` keeps the claims of guests between runs, and `concluded` the conclusion of a run. `trust` gives up claims
//! that are mostly wrong. `second` tries another source for ranges that the first one does not hold. Files are counted
//! by `tier` and by `packages`. Nothing of a guest is trusted: a wrong claim costs a comparison.
//! docs/decisions/0018-guest-files.md has the reasons.

mod changes;
pub mod common;
mod concluded;
mod failed;
mod finder;
mod finding;
mod identify;
mod join;
mod kept;
mod package_bytes;
mod packages;
mod report;
mod retry;
mod second;
mod tier;
mod trust;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use onefold_block::random::Random;
use onefold_substrate::{FileHandle, Substrate};

pub use self::changes::DatabaseLook;
pub use self::identify::{Baseline, Template, TemplateError};
pub use self::package_bytes::PackageBytes;
pub use self::report::{ExaminationReport, FilesReport, GivenUpImages, TierCounts};
pub(crate) use self::retry::RetryPause;
pub use self::tier::Tier;

use self::common::Contents;
use self::concluded::{Conclusions, report_of};
use self::finder::FoundRuns;
use self::finding::{EqualFiles, find};
use self::kept::KeepOptions;
use self::second::Failures;
use self::trust::{GivenUpClaims, Trust};
use crate::format::FileNo;
use crate::pass::{PassError, PassOptions, PassProgress, share_found};
use crate::scan::{ListedFile, is_stable, list};
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// Options of a run over guest files.
pub struct FilesOptions<'a> {
    /// Which images, and how their blocks are shared.
    pub pass: PassOptions<'a>,
    /// The tiers by which files are believed equal.
    pub tiers: &'a [Tier],
    /// Parts of candidates that are read before the file system compares them.
    pub reading: ReadScope,
    /// Source of the key for the claims of this run.
    pub random: &'a dyn Random,
    /// Packages and files that came earlier are left out, if this is given.
    pub since: Option<&'a Baseline>,
    /// The common volume that is the source of all contents it holds. Without it, no common volume takes part.
    pub common: Option<CommonSource<'a>>,
    /// Images whose content changed more recently than this are left to a later run.
    pub stable_for: Duration,
    /// Whether the run looks at all images and their maps, even if none has changed since an earlier run that did so.
    pub is_full: bool,
    /// Called with the bytes of images examined so far, and their total; `Break` ends the work.
    pub examining: &'a dyn Fn(u64, u64) -> ControlFlow<()>,
}

/// Parts of files that are read before the file system compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadScope {
    /// At most three blocks of each file that belongs to no package.
    #[default]
    Probes,
    /// Each file as a whole: its MD5 is computed, as the paper's Storage Agent does. For experiments; the run shares
    /// the same blocks.
    Files,
    /// Each file as a whole, and files with different digests share nothing: one different block excludes a file.
    WholeFiles,
}

/// A common volume as a source.
#[derive(Clone, Copy, Debug)]
pub struct CommonSource<'a> {
    /// Handle of its file, which has to be in the selection.
    pub handle: &'a FileHandle,
    /// The contents of the volume.
    pub contents: &'a Contents,
}

/// Finds equal files of the guests of a selection, and shares their blocks. A dry run only finds them.
///
/// # Errors
/// See [`PassError`]; `Undeclared` if shares have to be declared.
pub fn share_files<S: Substrate>(state: &State<'_, S>, options: &FilesOptions<'_>) -> Result<FilesReport, PassError> {
    if state.policy().is_declared() {
        return Err(PassError::Undeclared);
    }
    let pass = &options.pass;
    pass.pace.begin();
    let began = pass.clock.monotonic();
    let mut marks = Marks::load(state)?;
    // Before the images are looked at: a change after this moment shows in their times.
    let keeping = KeepOptions::of(state, options)?;
    let mut listed = list(state, &mut marks, &pass.selection)?;
    // All hosts choose the same source: that of the lowest number.
    listed.sort_by_key(|file| file.number);
    if let Some(keeping) = &keeping {
        keeping.sweep(state, &marks, &pass.selection, &listed)?;
    }
    let mut unstable = Vec::new();
    if !options.stable_for.is_zero() {
        let now = state.now()?;
        unstable.extend(listed.extract_if(.., |file| !is_stable(&file.stat, now, options.stable_for)));
    }
    let conclusions = Conclusions::of(options, keeping.as_ref());
    let known = conclusions.as_ref().map_or(Ok(None), |conclusions| conclusions.take(state, &listed))?;
    let mut report = match known.and_then(|run| report_of(&run, &listed)) {
        Some(report) => FilesReport { find_time: pass.clock.monotonic().saturating_sub(began), ..report },
        None => {
            let found = find(state, &listed, options, keeping.as_ref())?;
            let find_time = pass.clock.monotonic().saturating_sub(began);
            let kept = conclusions.as_ref();
            FilesReport { find_time, ..share(state, &mut marks, &listed, options, found, kept)? }
        }
    };
    report.unstable = unstable.into_iter().map(|file| file.number).collect();
    Ok(report)
}

/// Shares the files found, and keeps the result for later runs.
fn share<S: Substrate>(
    state: &State<'_, S>,
    marks: &mut Marks,
    listed: &[ListedFile],
    options: &FilesOptions<'_>,
    found: EqualFiles,
    conclusions: Option<&Conclusions<'_>>,
) -> Result<FilesReport, PassError> {
    let pass = &options.pass;
    let began = pass.clock.monotonic();
    let EqualFiles { runs, mut examined, packages, unexamined, others, strangers, believed } = found;
    let targets = believed.believed.into_iter().fold(0, u64::saturating_add);
    if (pass.progress)(PassProgress::Planned { targets }).is_break() {
        return Err(StateError::Interrupted.into());
    }
    let volume = options.common.and_then(|source| listed.iter().find(|file| file.stat.handle == *source.handle));
    let trust = Trust::vouching_for(volume.map(|file| file.number));
    let mut finder = FoundRuns::new(runs, Failures::new(pass.temporary_folder, pass.memory_bytes / 8), trust);
    let passed = share_found(state, marks, &mut finder, pass)?;
    let paths: BTreeMap<FileNo, &PathBuf> = listed.iter().map(|file| (file.number, &file.path)).collect();
    let given_up = finder.given_up();
    examined.misaligned_bytes = examined.misaligned_bytes.saturating_add(believed.misaligned);
    for (counts, bytes) in finder.tiers.iter_mut().zip(believed.believed) {
        counts.believed = bytes;
    }
    let named = given_up.iter().filter_map(|(tier, who)| Some((*tier, given_up_images(&paths, *who)?)));
    let report = FilesReport {
        is_unchanged: false,
        examined,
        tiers: Tier::ALL.into_iter().zip(finder.tiers).collect(),
        packages: finder.packages.iter().map(|(number, bytes)| (packages.name(*number).to_owned(), *bytes)).collect(),
        given_up: named.collect(),
        failed: unexamined.iter().map(|image| (image.path.clone(), image.why.clone())).collect(),
        strangers,
        unstable: Vec::new(),
        passed,
        find_time: Duration::ZERO,
        share_time: pass.clock.monotonic().saturating_sub(began),
    };
    if let Some(conclusions) = conclusions {
        conclusions.keep(state, listed, &others, &unexamined, &given_up, &report)?;
    }
    Ok(report)
}

fn given_up_images(paths: &BTreeMap<FileNo, &PathBuf>, given_up: GivenUpClaims) -> Option<GivenUpImages> {
    let path = |image: FileNo| paths.get(&image).map(|path| (*path).clone());
    Some(match given_up {
        GivenUpClaims::Image(image) => GivenUpImages::One(path(image)?),
        GivenUpClaims::Pair { one, other } => GivenUpImages::Pair { one: path(one)?, other: path(other)? },
    })
}
