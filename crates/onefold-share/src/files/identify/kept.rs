//! Records of images for later runs, and the rows that are made from a record instead of the image.

use std::collections::HashMap;

use onefold_substrate::{FileStat, Substrate};

use super::claims::{Circle, Claims};
use super::open::open_listed;
use super::shared::SharedBlocks;
use super::{Identification, IdentifyError};
use crate::files::packages::PackageNames;
use crate::files::report::ExaminationReport;
use crate::format::guest::{GUEST_BYTES_MAX, KeptFile, KeptFiles, KeptGuest, PACKAGES_MAX, PhasedPieces};
use crate::format::stamp::Stamp;
use crate::scan::ListedFile;

/// Fraction of the space that an image takes up, for the maximum length of its record, and some more.
const PART_OF_IMAGE: u64 = 64;
const BYTES_MIN: u64 = 1 << 20;

/// Returns the maximum length of an image's record, in bytes: a guest may claim a million files of a few blocks. The
/// run keeps at most `of_run` of any image.
pub(super) fn kept_bytes_max(stat: &FileStat, of_run: usize) -> usize {
    let most = (stat.length.min(stat.allocated) / PART_OF_IMAGE).saturating_add(BYTES_MIN);
    usize::try_from(most).unwrap_or(usize::MAX).min(of_run).min(GUEST_BYTES_MAX)
}

/// Collects the files of an image.
#[derive(Debug)]
pub(super) struct Recorder {
    files: KeptFiles,
    /// The packages of these files, by the numbers of this run, and the index of each.
    packages: Vec<u32>,
    places: HashMap<u32, u32>,
    /// Maximum length of the text of packages and files.
    bytes_max: usize,
}

impl Recorder {
    /// Returns a recorder for this many bytes. An image with more gets no record.
    pub(super) fn new(bytes_max: usize) -> Recorder {
        Recorder { files: KeptFiles::default(), packages: Vec::new(), places: HashMap::new(), bytes_max }
    }

    /// Adds a file and its pieces, with the number of its package.
    pub(super) fn push(&mut self, mut file: KeptFile, package: u32, pieces: &PhasedPieces) {
        if self.bytes_max == 0 {
            return;
        }
        if package != PackageNames::OTHERS {
            let next = u32::try_from(self.packages.len()).unwrap_or(u32::MAX);
            let place = *self.places.entry(package).or_insert(next);
            if place == next {
                self.packages.push(package);
            }
            file.package = Some(place);
        }
        self.files.push(&file, pieces);
        if self.files.bytes() > self.bytes_max || self.packages.len() > PACKAGES_MAX {
            *self = Recorder::new(0);
        }
    }

    /// Returns the packages and the files; `None` if they are too long.
    fn finish(self, names: &PackageNames) -> Option<KeptGuest> {
        let packages: Vec<String> = self.packages.iter().map(|number| names.name(*number).to_owned()).collect();
        let guest = KeptGuest { packages, files: self.files, ..KeptGuest::default() };
        (guest.bytes() < self.bytes_max).then_some(guest)
    }
}

/// Result of the examination of an image.
#[derive(Debug)]
pub(in crate::files) struct Examination {
    /// The state of the image before.
    pub(in crate::files) stat: FileStat,
    /// Sums over the images before it.
    pub(super) before: ExaminationReport,
    /// How many packages of these images had no room for their names.
    pub(super) refused_before: u64,
    /// A number for its volumes and the stamps of their package databases.
    pub(super) databases: u64,
    pub(super) has_packages: bool,
    pub(super) recorder: Recorder,
}

impl Examination {
    /// Returns the record of the image, without the fields of its head that the caller knows. Returns `None` if it
    /// would be too long, or if `names` had no room for all packages of the image: its files would have no package.
    /// `examined` are the sums with this image.
    pub(in crate::files) fn kept(self, examined: &ExaminationReport, names: &PackageNames) -> Option<KeptGuest> {
        if names.refused() > self.refused_before {
            return None;
        }
        let mut guest = self.recorder.finish(names)?;
        guest.head.has_packages = self.has_packages;
        guest.head.databases = self.databases;
        guest.head.counts = examined.counts_since(&self.before);
        Some(guest)
    }
}

impl Identification<'_> {
    /// Adds the candidates of an image that has not changed since its record `guest` was kept: nothing of it is read.
    /// Which of its blocks share on the host is asked anew, because sharing changes no time of a file. Returns false if
    /// the image has changed after all.
    ///
    /// # Errors
    /// See [`IdentifyError`].
    pub(in crate::files) fn add_kept<S: Substrate>(
        &mut self,
        substrate: &S,
        listed: &ListedFile,
        rank: u32,
        guest: &KeptGuest,
    ) -> Result<bool, IdentifyError> {
        let (file, stat) = open_listed(substrate, listed)?;
        if guest.head.stamp != Some(Stamp::of(&stat)) {
            return Ok(false);
        }
        let circle = Circle::of(&listed.domain, substrate.refusal(&file).map_err(IdentifyError::File)?)?;
        let go_on = || (self.go_on)().map_err(IdentifyError::Stopped);
        let shared = SharedBlocks::load(substrate, &file, self.search.read_pace, &go_on)?;
        let packages: Vec<u32> = guest.packages.iter().map(|name| self.packages.number_of(name)).collect();
        let before = self.examined;
        let (key, tiers) = (self.key, self.search.tiers);
        let claims = Claims { key: &key, circle, tiers, whole: None };
        guest.files.each(&mut |file, pieces| {
            (self.go_on)().map_err(IdentifyError::Stopped)?;
            let place = file.package.and_then(|place| usize::try_from(place).ok());
            let package = place.and_then(|place| packages.get(place)).copied().unwrap_or(PackageNames::OTHERS);
            self.add_rows(rank, &claims, package, (file, pieces), &shared)
        })?;
        self.examined = before;
        self.examined.add_counts(&guest.head.counts);
        self.examined.images_with_packages += u64::from(guest.head.has_packages);
        self.examined.unchanged_images += 1;
        Ok(true)
    }
}
