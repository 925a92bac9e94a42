//! Step 1 of the paper: finds the files of an image, by its package databases, and their places.
//!
//! Nothing is mounted. No content of a packaged file is read, and at most three blocks of any other. Every statement of
//! a guest is a claim: a wrong one costs a comparison or savings. The space that an image takes up bounds its claims.
//!
//! `examine` finds the files of an image, and `image_rows` makes rows of them. `ahead` has threads examine the next
//! images meanwhile.

mod ahead;
mod claims;
mod common_volume;
mod databases;
mod disk;
mod error;
mod examine;
mod extents;
mod image_rows;
mod kept;
mod known;
mod limits;
mod open;
mod owned;
mod packaged;
mod pieces;
mod search;
mod shared;
mod since;
mod systems;
#[cfg(test)]
mod tests;
mod unpackaged;
mod watched;
mod whole;

use std::collections::BTreeSet;

use onefold_disk::CacheMemory;
use onefold_substrate::Substrate;

pub(super) use self::ahead::{ExaminationJob, ExaminationQueue, ImageFindings, OpenedImage, THREADS_MAX};
use self::claims::ClaimKey;
pub(super) use self::common_volume::VolumeContent;
pub(super) use self::databases::databases_of;
pub(super) use self::disk::SubstrateDisk;
pub(super) use self::error::IdentifyError;
use self::examine::{ExaminationEnd, examine};
use self::image_rows::ImageRows;
pub(super) use self::kept::Examination;
use self::kept::{Recorder, kept_bytes_max};
pub(super) use self::open::{disk_of, open_listed};
pub(super) use self::packaged::{PackageFile, PackagedVisit, each_packaged};
pub(super) use self::search::Search;
use self::shared::SharedBlocks;
pub use self::since::{Baseline, Template, TemplateError};
use super::join::Candidates;
use super::packages::PackageNames;
use super::report::ExaminationReport;
use crate::format::guest::KeptGuest;
use crate::scan::ListedFile;
use crate::state::StateError;

/// Takes candidates of images, one image after the other.
pub(super) struct Identification<'a> {
    pub(super) candidates: Candidates,
    pub(super) packages: PackageNames,
    pub(super) examined: ExaminationReport,
    /// Options of the search in guests.
    pub(super) search: Search<'a>,
    /// Part of each content: without it, nobody outside this run can find two claims with one number.
    pub(super) key: ClaimKey,
    /// Images that were not made from the template, by their ranks.
    pub(super) strangers: BTreeSet<u32>,
    /// Maximum bytes of a guest's record for later runs; 0 for no record.
    pub(super) kept_bytes_max: usize,
    /// Asked at each path, file and extent, and ends the work with an error.
    pub(super) go_on: &'a dyn Fn() -> Result<(), StateError>,
    /// Told after a wait, so that `go_on` looks again.
    pub(super) waited: &'a dyn Fn(),
}

/// An image that a thread examines, and its findings.
pub(super) struct BegunImage<'b, 'l, S: Substrate> {
    pub(super) opened: &'b OpenedImage<'l, S>,
    pub(super) found: ImageFindings,
}

impl Identification<'_> {
    /// Adds the candidates of an image; `rank` is the place of its number among those of all images, and `kept` the
    /// record of an earlier run of this kind. Returns the result of the examination.
    ///
    /// # Errors
    /// See [`IdentifyError`]. All but the last two concern this image alone.
    pub(super) fn add_image<S: Substrate>(
        &mut self,
        substrate: &S,
        listed: &ListedFile,
        rank: u32,
        kept: Option<KeptGuest>,
    ) -> Result<Examination, IdentifyError> {
        let opened = OpenedImage::open(substrate, listed)?;
        let disk = disk_of(substrate, listed, &opened.file, opened.stat.length)?;
        let (search, go_on) = (self.search, self.go_on);
        self.add_opened(substrate, &opened, rank, |rows| {
            Ok(examine(&*disk, &opened.stat, kept, &search, &mut CacheMemory::default(), go_on, rows))
        })
    }

    /// Does the same as [`Identification::add_image`] for an image that a thread examines.
    ///
    /// # Errors
    /// See [`IdentifyError`].
    pub(super) fn add_begun<S: Substrate>(
        &mut self,
        substrate: &S,
        begun: &BegunImage<'_, '_, S>,
        rank: u32,
    ) -> Result<Examination, IdentifyError> {
        let (go_on, waited) = (self.go_on, self.waited);
        let go_on = || go_on().map_err(IdentifyError::Stopped);
        self.add_opened(substrate, begun.opened, rank, |rows| begun.found.take(rows, &go_on, waited))
    }

    /// Adds the candidates that `examine` finds in an open image.
    fn add_opened<S: Substrate>(
        &mut self,
        substrate: &S,
        opened: &OpenedImage<'_, S>,
        rank: u32,
        examine: impl FnOnce(&mut ImageRows<'_, '_>) -> Result<ExaminationEnd, IdentifyError>,
    ) -> Result<Examination, IdentifyError> {
        let OpenedImage { file, stat, circle } = opened;
        let go_on = || (self.go_on)().map_err(IdentifyError::Stopped);
        let shared = SharedBlocks::load(substrate, file, self.search.read_pace, &go_on)?;
        let (before, refused_before) = (self.examined, self.packages.refused());
        let recorder = Recorder::new(kept_bytes_max(stat, self.kept_bytes_max));
        let mut rows = ImageRows { identifying: self, rank, circle: *circle, shared, recorder, packages: Vec::new() };
        let ExaminationEnd { sums, is_stranger, facts } = examine(&mut rows)?;
        let recorder = rows.recorder;
        self.examined.add(&sums);
        if is_stranger {
            self.strangers.insert(rank);
        }
        let facts = facts?;
        let recorder = if facts.has_unread { Recorder::new(0) } else { recorder };
        let (has_packages, databases) = (facts.has_packages, facts.databases);
        Ok(Examination { stat: stat.clone(), before, refused_before, has_packages, databases, recorder })
    }
}
