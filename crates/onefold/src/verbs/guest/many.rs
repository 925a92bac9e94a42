//! Verbs that read many images: a failing image is reported, and the others continue.

use std::ops::ControlFlow;
use std::path::PathBuf;

use onefold_block::Show;
use onefold_guest::guest::{Guest, GuestVolume};

use super::ending::Ending;
use super::open::{self, Conversions, GuestImage};
use super::scene;
use crate::cli::Talk;
use crate::cli::guest::{GuestImagesArgs, GuestOpenArgs};
use crate::failure::{Failure, Outcome};
use crate::verbs::images::{self, UnfitFile};

/// The result of the work on an image: whether further images are read.
pub(super) type WorkOutcome = Outcome<ControlFlow<()>>;

/// Opens each image and calls `work` with it until `work` breaks. Failures are noted, including an interrupt, so that
/// the caller can finish what it has begun. A failure of `work` names the image. Returns an error only for wrong usage.
pub(super) fn each(
    arguments: &GuestImagesArgs,
    talk: Talk,
    ending: &mut Ending,
    mut work: impl FnMut(&GuestImage, &Guest<'_>, &mut Ending) -> WorkOutcome,
) -> Outcome<()> {
    open::check(&arguments.open)?;
    let mut conversions = Conversions::default();
    let finding = images::find(&arguments.paths);
    let cannot = |path: &PathBuf| format!("cannot open the image `{}`", path.shown());
    for UnfitFile { path, why } in finding.unfit {
        ending.begin(&path);
        ending.failed_by_name(why.wrap(cannot(&path)));
    }
    ending.leave();
    if finding.images.is_empty() && !ending.has_failed() {
        ending.failed(Failure::new("cannot find any image").because_of("the folders hold no file of 1 MiB or more"));
    }
    for found in finding.images {
        ending.begin(found.path());
        let opened = GuestImage::open(found, &arguments.open, talk, &mut conversions);
        let done = opened.and_then(|image| image.with_guest(&arguments.open, |guest| work(&image, guest, ending)));
        match done {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => {
                ending.leave();
                break;
            }
            Err(failure) => ending.failed_by_name(failure),
        }
        ending.leave();
        if conversions.is_interrupted() {
            ending.failed(Failure::interrupted("looking into images"));
            break;
        }
    }
    Ok(())
}

/// Returns whether lines must name their image, because the user named several images or a folder.
pub(super) fn are_several(paths: &[PathBuf]) -> bool {
    paths.len() > 1 || paths.iter().any(|path| path.is_dir())
}

/// Returns the selected volume, or all volumes, with their indices.
pub(super) fn volumes<'g, 'a>(
    image: &GuestImage,
    guest: &'g Guest<'a>,
    arguments: &GuestOpenArgs,
) -> Outcome<Vec<(usize, &'g GuestVolume<'a>)>> {
    let cannot = || format!("cannot find the volume in `{}`", image.path().shown());
    let chosen = scene::chosen(guest, arguments).map_err(|why| Failure::new(cannot()).because_of(why))?;
    let all = guest.volumes().iter().enumerate();
    Ok(all.filter(|(at, _)| chosen.is_none_or(|chosen| chosen == *at)).collect())
}
