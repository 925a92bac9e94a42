//! `onefold guest diff`
//!
//! | module | is |
//! |---|---|
//! | `packages` | packages of one image only, and in two versions |
//! | `files` | both trees side by side |
//! | `content` | whether two files have the same content, read only where nothing else says so |

mod content;
mod files;
mod packages;

use std::os::unix::ffi::OsStrExt;

use onefold_block::Show;
use onefold_guest::error::GuestError;
use onefold_guest::packages::PackageDatabase;
use onefold_guest::tree::Links;

use super::ending::Ending;
use super::messages::ImageIndex;
use super::open;
use super::scene::Scene;
use super::streaming::{self, PrintResult};
use crate::cli::Talk;
use crate::cli::guest::{GuestDiffArgs, GuestImageArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Report, RowForm, StdoutListing};

use content::PackagedDigests;
use files::TreeComparison;

pub(super) fn run(arguments: &GuestDiffArgs, talk: Talk) -> Outcome<Report> {
    let image = |path: &std::path::Path| {
        let image = GuestImageArgs { image: path.to_owned(), open: arguments.open.clone() };
        open::one(&image, talk)
    };
    let (one, two) = (image(&arguments.one)?, image(&arguments.two)?);
    one.with_guest(&arguments.open, |first| {
        two.with_guest(&arguments.open, |second| {
            let one = Scene::open(&one, first, &arguments.open)?;
            let two = Scene::open(&two, second, &arguments.open)?;
            let mut ending = Ending::new(true);
            let scenes = [&one, &two].map(|scene| (scene, ending.begin(scene.image.path())));
            let mut listing = StdoutListing::new(RowForm::of(talk, false), "differences");
            let outcome = compare(arguments, scenes, &mut listing, &mut ending);
            for (scene, image) in scenes {
                ending.turn_to(image);
                scene.look_at(&mut ending);
            }
            ending.leave();
            streaming::finish(outcome, listing, &mut ending)
        })
    })
}

fn compare<'s, 'g, 'a>(
    arguments: &GuestDiffArgs,
    scenes: [(&'s Scene<'g, 'a>, ImageIndex); 2],
    listing: &mut StdoutListing,
    ending: &mut Ending,
) -> PrintResult<()> {
    let databases = scenes.map(|(scene, image)| {
        ending.turn_to(image);
        database(scene, ending)
    });
    if let [Some(first), Some(second)] = &databases {
        packages::print(first.as_ref(), second.as_ref(), listing)?;
    }
    let mut side = |at: usize| {
        let ((scene, image), database) = (scenes[at], databases[at].as_deref());
        DiffSide::of(scene, image, database, ending)
    };
    let sides = [side(0), side(1)];
    let root = |side: &DiffSide<'s, 'g, 'a>, ending: &mut Ending| {
        ending.turn_to(side.image);
        side.scene.find(arguments.below.as_bytes(), Links::Follow).map_err(|failure| ending.named(failure))
    };
    let roots = [root(&sides[0], ending)?, root(&sides[1], ending)?];
    TreeComparison::new(&sides, arguments.content, listing, ending).compare(roots)
}

/// One of the two images.
struct DiffSide<'s, 'g, 'a> {
    scene: &'s Scene<'g, 'a>,
    /// The image in messages.
    image: ImageIndex,
    digests: PackagedDigests,
}

impl<'s, 'g, 'a> DiffSide<'s, 'g, 'a> {
    /// Returns a side with the digests of its packages, and reports unreadable parts of the packages.
    fn of(
        scene: &'s Scene<'g, 'a>,
        image: ImageIndex,
        database: Option<&dyn PackageDatabase>,
        ending: &mut Ending,
    ) -> DiffSide<'s, 'g, 'a> {
        ending.turn_to(image);
        let mut digests = PackagedDigests::default();
        if let Some(database) = database {
            digests = PackagedDigests::of(&scene.tree, database);
            ending.problems(database.problems());
        }
        DiffSide { scene, image, digests }
    }
}

/// Returns the package database of an image. Without a readable one, files are compared all the same.
fn database<'s>(scene: &'s Scene<'_, '_>, ending: &mut Ending) -> Option<Box<dyn PackageDatabase + 's>> {
    let image = scene.image.path().shown();
    match onefold_guest::packages::open(&scene.tree) {
        Ok(Some(database)) => return Some(database),
        Ok(None) => ending.warn_by_name(format!("`{image}` has no package database")),
        // The records of another package manager are not damaged.
        Err(error @ GuestError::Unsupported(_)) => {
            ending.warn_by_name(format!("cannot read the packages of `{image}`: {error}"))
        }
        Err(error) => {
            ending.failed_by_name(Failure::of_guest(format!("cannot read the packages of `{image}`"), &error));
        }
    }
    None
}
