//! Conclusions of a complete run. As long as no image has changed, the next run would conclude the same. It then
//! repeats the report, and neither joins anything nor asks for a map.
//!
//! A run is complete if it left nothing for another run to finish, and shared nothing: blocks that one run shares may
//! let the next one share more. All of its images still have the stamps that they had when the run began, except for
//! times that the run itself has set. A change that a stamp does not show, as when a tool copies shared blocks to other
//! places, costs only savings. For such changes, a run looks at everything from time to time.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use onefold_substrate::Substrate;

use super::kept::KeepOptions;
use super::report::{FilesReport, SUMS};
use super::trust::GivenUpClaims;
use super::{FilesOptions, Tier, given_up_images};
use crate::domain::Domain;
use crate::format::FileNo;
use crate::format::files_run::{FilesRun, GivenUpTier, RunImage};
use crate::format::stamp::Stamp;
use crate::pass::PassReport;
use crate::scan::{Age, ListedFile};
use crate::state::{State, StateError};

/// Version of the conclusions that this program draws from the same images, and of the order of the sums. Raise it with
/// each change that finds or shares more, or counts differently.
const CONCLUSION_VERSION: u32 = 2;
/// Maximum age of a conclusion; after this time, a run looks at everything again.
const FULL_LOOK_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An image that could not be examined, or not completely.
#[derive(Debug)]
pub(super) struct UnexaminedImage {
    pub(super) number: FileNo,
    pub(super) path: PathBuf,
    /// The reason.
    pub(super) why: String,
    /// Whether another run may examine it, though it has not changed.
    pub(super) may_pass: bool,
}

/// Conclusions of earlier runs, and how this run keeps its own.
pub(super) struct Conclusions<'k> {
    keeping: &'k KeepOptions,
    /// Number that stands for everything except the images that decides what this run finds.
    search: u64,
    /// Whether the run looks at everything, whatever earlier runs concluded.
    is_full: bool,
}

impl<'k> Conclusions<'k> {
    /// Returns how a run uses the conclusions of other runs; `None` if it does not.
    pub(super) fn of(options: &FilesOptions<'_>, keeping: Option<&'k KeepOptions>) -> Option<Conclusions<'k>> {
        let keeping = keeping.filter(|_| !options.pass.is_dry_run)?;
        Some(Conclusions { keeping, search: search_of(options, keeping), is_full: options.is_full })
    }

    /// Returns the conclusion of an earlier run over the same images, if none of them has changed since. Otherwise
    /// drops the kept conclusion; the state folder has none until this run is complete.
    ///
    /// # Errors
    /// Errors of the state folder.
    pub(super) fn take<S: Substrate>(
        &self,
        state: &State<'_, S>,
        listed: &[ListedFile],
    ) -> Result<Option<FilesRun>, StateError> {
        let run = if self.is_full { None } else { state.kept_run(self.keeping.bytes_max())? };
        if let Some(run) = run
            && self.holds(state, &run, listed)?
        {
            return Ok(Some(run));
        }
        state.forget_run()?;
        Ok(None)
    }

    /// Returns whether this run would conclude the same. `listed` is in order of the numbers.
    fn holds<S: Substrate>(
        &self,
        state: &State<'_, S>,
        run: &FilesRun,
        listed: &[ListedFile],
    ) -> Result<bool, StateError> {
        let age = self.keeping.now().as_nanoseconds() - run.looked_at.as_nanoseconds();
        let is_late = !(0..i128::try_from(FULL_LOOK_AFTER.as_nanos()).unwrap_or(i128::MAX)).contains(&age);
        if is_late || run.search != self.search || run.sums.len() != SUMS || run.images.len() != listed.len() {
            return Ok(false);
        }
        for (image, file) in run.images.iter().zip(listed) {
            let stamp = Stamp::of(&file.stat);
            let found = (file.number, stamp, number_of(&file.domain));
            if found != (image.number, image.stamp, image.domain)
                || image.is_examined && !self.keeping.has_record(state, file.number, &stamp)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps the conclusion of this run, if the run is complete. `others` are images that it did not try to examine.
    ///
    /// # Errors
    /// Errors of the state folder.
    pub(super) fn keep<S: Substrate>(
        &self,
        state: &State<'_, S>,
        listed: &[ListedFile],
        others: &BTreeSet<FileNo>,
        unexamined: &[UnexaminedImage],
        given_up: &BTreeSet<(Tier, GivenUpClaims)>,
        report: &FilesReport,
    ) -> Result<(), StateError> {
        if !report.passed.is_complete() || unexamined.iter().any(|image| image.may_pass) {
            return Ok(());
        }
        let failed: BTreeSet<FileNo> = unexamined.iter().map(|image| image.number).collect();
        let mut images = Vec::with_capacity(listed.len());
        for file in listed {
            let is_examined = !others.contains(&file.number) && !failed.contains(&file.number);
            let Some(stamp) = self.stamp_of(state, file, &report.passed, is_examined)? else { return Ok(()) };
            images.push(RunImage { number: file.number, stamp, domain: number_of(&file.domain), is_examined });
        }
        let of_given_up = |(tier, who): &(Tier, GivenUpClaims)| {
            let (one, other) = match *who {
                GivenUpClaims::Image(image) => (image, None),
                GivenUpClaims::Pair { one, other } => (one, Some(other)),
            };
            GivenUpTier { tier: tier.number(), one, other }
        };
        let run = FilesRun {
            search: self.search,
            looked_at: self.keeping.now(),
            sums: report.sums().to_vec(),
            images,
            failures: unexamined.iter().map(|image| (image.number, image.why.clone())).collect(),
            given_up: given_up.iter().map(of_given_up).collect(),
            packages: report.packages.iter().map(|(name, bytes)| (name.clone(), bytes.believed)).collect(),
        };
        state.keep_run(&run, self.keeping.bytes_max())
    }

    /// Returns the stamp that an image has after this run if no other process has changed it since the run began.
    /// Returns `None` if a change would not show, or if no record of the image's guest is kept.
    fn stamp_of<S: Substrate>(
        &self,
        state: &State<'_, S>,
        file: &ListedFile,
        passed: &PassReport,
        is_examined: bool,
    ) -> Result<Option<Stamp>, StateError> {
        let before = Stamp::of(&file.stat);
        let stamp = passed.restamped(file.number, before);
        let shows = if is_examined {
            self.keeping.has_record(state, file.number, &stamp)?
        } else {
            Age::of(&before, self.keeping.now()) == Age::Settled
        };
        Ok(shows.then_some(stamp))
    }
}

/// Returns the report of a run that would conclude the same; `None` if the kept conclusion was written by another
/// version of the program.
pub(super) fn report_of(run: &FilesRun, listed: &[ListedFile]) -> Option<FilesReport> {
    let paths: BTreeMap<FileNo, &PathBuf> = listed.iter().map(|file| (file.number, &file.path)).collect();
    let given_up = run.given_up.iter().filter_map(|given_up| {
        let who = match given_up.other {
            None => GivenUpClaims::Image(given_up.one),
            Some(other) => GivenUpClaims::Pair { one: given_up.one, other },
        };
        Some((Tier::of_number(given_up.tier)?, given_up_images(&paths, who)?))
    });
    let failed = run.failures.iter().filter_map(|(number, why)| Some(((*paths.get(number)?).clone(), why.clone())));
    let unchanged = run.images.iter().filter(|image| image.is_examined).count() as u64;
    let mut report = FilesReport::of_sums(run.sums.as_slice().try_into().ok()?, unchanged);
    report.packages = run.packages.iter().map(|(name, believed)| (name.clone(), (*believed).into())).collect();
    (report.given_up, report.failed) = (given_up.collect(), failed.collect());
    Some(report)
}

/// Returns a number that stands for everything except the images that decides what a run finds and shares. The effort
/// that a run may spend is not part of it.
fn search_of(options: &FilesOptions<'_>, keeping: &KeepOptions) -> u64 {
    let pass = &options.pass;
    let common = options.common.map(|source| source.handle.as_bytes());
    let mut hasher = DefaultHasher::new();
    (CONCLUSION_VERSION, keeping.search(), pass.memory_bytes, pass.min_run_bytes, pass.joins_runs).hash(&mut hasher);
    (pass.space.rewrite_percent, pass.space.keeps_copies_small, common).hash(&mut hasher);
    hasher.finish()
}

fn number_of(domain: &Domain) -> u64 {
    let mut hasher = DefaultHasher::new();
    domain.encode().hash(&mut hasher);
    hasher.finish()
}
