//! Verbs that look into many images: one that fails is told, and the rest goes on.

use std::ops::ControlFlow;
use std::path::PathBuf;

use onefold_block::Show;
use onefold_guest::guest::{Guest, GuestVolume};

use super::ending::Ending;
use super::open::{self, Conversions, OpenImage};
use super::scene;
use crate::cli::Talk;
use crate::cli::guest::{GuestImagesArgs, GuestOpenArgs};
use crate::failure::{Failure, Outcome};
use crate::verbs::images::{self, Unfit};

/// What the work on an image returns: whether further images are looked into.
pub(super) type Worked = Outcome<ControlFlow<()>>;

/// Opens each image and calls `work` with it until it breaks. What fails is noted, an interrupt too, so that the caller
/// ends what it has begun; only wrong usage is returned.
pub(super) fn each(
    arguments: &GuestImagesArgs,
    talk: Talk,
    ending: &mut Ending,
    mut work: impl FnMut(&OpenImage, &Guest<'_>, &mut Ending) -> Worked,
) -> Outcome<()> {
    open::check(&arguments.open)?;
    let mut conversions = Conversions::default();
    let finding = images::find(&arguments.paths);
    let cannot = |path: &PathBuf| format!("cannot open the image `{}`", path.shown());
    for Unfit { path, why } in finding.unfit {
        ending.failed(Failure::new(cannot(&path)).because_of(why));
    }
    if finding.images.is_empty() && !ending.has_failed() {
        ending.failed(Failure::new("cannot find any image").because_of("the folders hold no file of 1 MiB or more"));
    }
    for found in finding.images {
        let opened = OpenImage::open(found, &arguments.open, talk, &mut conversions);
        let done = opened.and_then(|image| image.with_guest(&arguments.open, |guest| work(&image, guest, ending)));
        match done {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break,
            Err(failure) => ending.failed(failure),
        }
        if conversions.is_interrupted() {
            ending.failed(Failure::interrupted("looking into images"));
            break;
        }
    }
    Ok(())
}

/// Returns whether lines have to name their image: several are named, or a folder.
pub(super) fn are_several(paths: &[PathBuf]) -> bool {
    paths.len() > 1 || paths.iter().any(|path| path.is_dir())
}

/// Returns the volumes that the user means: the chosen one, or all, with their places.
pub(super) fn volumes<'g, 'a>(
    guest: &'g Guest<'a>,
    arguments: &GuestOpenArgs,
) -> Outcome<Vec<(usize, &'g GuestVolume<'a>)>> {
    let chosen =
        scene::chosen(guest, arguments).map_err(|why| Failure::new("cannot find the volume").because_of(why))?;
    let all = guest.volumes().iter().enumerate();
    Ok(all.filter(|(at, _)| chosen.is_none_or(|chosen| chosen == *at)).collect())
}
