//! The options and the result of a pass over a common volume, and its visits to images.

use std::path::{Path, PathBuf};

use onefold_block::random::Random;
use onefold_substrate::Substrate;

use super::plan::ChangeCounts;
use crate::files::identify::{IdentifyError, PackageFile, PackagedVisit, each_packaged};
use crate::pace::Pace;
use crate::scan::ListedFile;
use crate::selection::Selection;

/// Options for the maintenance of a common volume by a pass.
pub struct GrowOptions<'a> {
    /// The volume, below the root of the file system.
    pub volume: &'a Path,
    /// The images that may give content. The volume has to be among them.
    pub selection: Selection<'a>,
    /// For sorting, and for the caches of images.
    pub memory_bytes: usize,
    /// Where temporary files go.
    pub temporary_folder: &'a Path,
    /// For the names of drafts.
    pub random: &'a dyn Random,
    /// Asked before each file, and at each read of an image or of the volume.
    pub pace: &'a Pace<'a>,
}

/// Result of the maintenance of a common volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowReport {
    /// Number of contents that two images hold and the volume did not.
    pub candidates: u64,
    /// Changes of the volume.
    pub changed: ChangeCounts,
    /// Images that could not be examined, and why.
    pub failed: Vec<(PathBuf, String)>,
}

/// Visits the packaged files of an image.
///
/// # Errors
/// See [`IdentifyError`].
pub(super) fn visit<S: Substrate>(
    substrate: &S,
    growing: &GrowOptions<'_>,
    listed: &ListedFile,
    wants: &mut dyn FnMut([u8; 16], u64) -> bool,
    take: &mut dyn FnMut(&PackageFile<'_>),
) -> Result<(), IdentifyError> {
    let mut visit = PackagedVisit {
        cache_bytes: growing.memory_bytes / 8,
        pace: growing.pace,
        wants_package: &|_| true,
        wants,
        take,
    };
    each_packaged(substrate, listed, &mut visit)
}
