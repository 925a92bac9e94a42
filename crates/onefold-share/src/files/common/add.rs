//! Content that a user adds to a common volume, from an image.

use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_block::random::Random;
use onefold_guest::packages::Package;
use onefold_substrate::{Substrate, VolumeTools};

use super::CommonError;
use super::addition::{ADDITION_PIECES, addition_of, pieces_max};
use super::generation::{Change, lock};
use super::plan::ChangeCounts;
use super::sources::{ListedVolume, SourceImages, may_give};
use crate::files::identify::{IdentifyError, PackageFile, PackagedVisit, each_packaged};
use crate::pace::Pace;
use crate::scan::{ListedFile, list};
use crate::selection::Selection;
use crate::state::State;
use crate::state::files::Marks;

/// Memory of which additions may take a quarter, in bytes.
const ADDING_BYTES: usize = 1 << 30;

/// Content that a user adds, and how.
pub struct AddOptions<'a> {
    /// The volume, below the root of the file system.
    pub volume: &'a Path,
    /// The image that the content comes from, below the root of the file system.
    pub image: &'a Path,
    /// Returns whether a package is wanted.
    pub wants: &'a dyn Fn(&Package) -> bool,
    /// For the cache of the image.
    pub cache_bytes: usize,
    /// For the names of drafts.
    pub random: &'a dyn Random,
    /// Asked before each file, and at each read of the image or of the volume.
    pub pace: &'a Pace<'a>,
}

/// Result of adding content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddReport {
    /// Files of the packages.
    pub files: u64,
    /// Files whose content does not lie in whole blocks of the host.
    pub misaligned: u64,
    /// Changes of the volume.
    pub changed: ChangeCounts,
}

/// Adds the files of packages of an image to a volume, except configuration files.
///
/// # Errors
/// See [`CommonError`]; the volume is unchanged then.
pub fn add_packages<S: Substrate + VolumeTools>(
    state: &State<'_, S>,
    adding: &AddOptions<'_>,
) -> Result<AddReport, CommonError> {
    let substrate = state.substrate();
    let volume = lock(substrate, adding.volume)?;
    let mut marks = Marks::load(state)?;
    let (image, own) = listed(state, adding, &mut marks)?;
    if !may_give(image.stat.owner, volume.owner) {
        let why = "it belongs to another user than the volume".to_owned();
        return Err(CommonError::Image { path: image.path, why });
    }
    let mut report = AddReport::default();
    let (mut additions, mut pieces_left, mut is_surplus) = (Vec::new(), pieces_max(ADDING_BYTES), false);
    let mut take = |packaged: &PackageFile<'_>| {
        report.files += 1;
        if packaged.pieces.is_empty() {
            report.misaligned += 1;
            return;
        }
        match pieces_left.checked_sub(packaged.pieces.len() + ADDITION_PIECES) {
            Some(left) => {
                pieces_left = left;
                additions.push(addition_of(packaged, 0, true));
            }
            None => is_surplus = true,
        }
    };
    let mut visit = PackagedVisit {
        cache_bytes: adding.cache_bytes,
        pace: adding.pace,
        wants_package: adding.wants,
        wants: &mut |_, _| true,
        take: &mut take,
    };
    each_packaged(substrate, &image, &mut visit).map_err(|error| of_image(&image.path, error))?;
    if is_surplus {
        let why = "its files are too many, or lie in too many pieces: name fewer packages".to_owned();
        return Err(CommonError::Image { path: image.path, why });
    }
    let mut sources = SourceImages::new(state, &marks, vec![&image], volume.owner)?;
    let listed = ListedVolume { state, marks: &marks, listed: own };
    let (mut open, check) = (|image| sources.open(image), || listed.check());
    let change = Change { removed: &[], additions: &additions, open: &mut open, check: &check, pace: adding.pace };
    report.changed = change.make(substrate, adding.random, &volume)?;
    Ok(report)
}

/// Returns the image, if it may share with the volume, and the volume.
fn listed<S: Substrate>(
    state: &State<'_, S>,
    adding: &AddOptions<'_>,
    marks: &mut Marks,
) -> Result<(ListedFile, ListedFile), CommonError> {
    let paths: [PathBuf; 2] = [adding.volume.to_owned(), adding.image.to_owned()];
    let listed = list(state, marks, &Selection::new(&paths, &|_, _| true))?;
    let of = |path: &Path| listed.iter().find(|file| file.path == path);
    let failed = |why: String| CommonError::Image { path: adding.image.to_owned(), why };
    let image = of(adding.image).ok_or_else(|| failed("it is no image that may share, or is opted out".to_owned()))?;
    match of(adding.volume) {
        None => Err(CommonError::Replaced { path: adding.volume.to_owned() }),
        Some(volume) if volume.domain != image.domain => {
            let of_volume = volume.domain.to_string();
            let why = format!("its sharing domain is {}, and that of the volume {}", image.domain, of_volume.shown());
            Err(failed(why))
        }
        Some(volume) => Ok((image.clone(), volume.clone())),
    }
}

fn of_image(path: &Path, error: IdentifyError) -> CommonError {
    match error {
        IdentifyError::Stopped(error) => error.into(),
        other => CommonError::Image { path: path.to_owned(), why: other.to_string() },
    }
}
