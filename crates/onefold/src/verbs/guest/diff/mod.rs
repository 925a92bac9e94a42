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
            let mut ending = Ending::default();
            let mut listing = StdoutListing::new(RowForm::of(talk, false), "differences");
            let outcome = compare(arguments, &one, &two, &mut listing, &mut ending);
            for scene in [&one, &two] {
                scene.look_at(&mut ending);
            }
            streaming::finish(outcome, listing, &mut ending)
        })
    })
}

fn compare(
    arguments: &GuestDiffArgs,
    one: &Scene<'_, '_>,
    two: &Scene<'_, '_>,
    listing: &mut StdoutListing,
    ending: &mut Ending,
) -> PrintResult<()> {
    let databases = [database(one, ending), database(two, ending)];
    if let [Some(first), Some(second)] = &databases {
        packages::print(first.as_ref(), second.as_ref(), listing)?;
    }
    let digests = |scene: &Scene<'_, '_>, database: &Option<Box<dyn PackageDatabase + '_>>| {
        database
            .as_ref()
            .map_or_else(PackagedDigests::default, |database| PackagedDigests::of(&scene.tree, database.as_ref()))
    };
    let [first, second] = &databases;
    let sides = [(one, digests(one, first)), (two, digests(two, second))];
    databases.iter().flatten().for_each(|database| ending.problems(database.problems()));
    let below = arguments.below.as_bytes();
    let roots = [one.find(below, Links::Follow)?, two.find(below, Links::Follow)?];
    TreeComparison::new(&sides, arguments.content, listing, ending).compare(roots)
}

/// Returns the package database of an image. Without a readable one, files are compared all the same.
fn database<'s>(scene: &'s Scene<'_, '_>, ending: &mut Ending) -> Option<Box<dyn PackageDatabase + 's>> {
    let image = scene.image.path().shown();
    match onefold_guest::packages::open(&scene.tree) {
        Ok(Some(database)) => return Some(database),
        Ok(None) => ending.warn(format!("`{image}` has no package database")),
        // The records of another package manager are not damaged.
        Err(error @ GuestError::Unsupported(_)) => {
            ending.warn(format!("cannot read the packages of `{image}`: {error}"))
        }
        Err(error) => ending.failed(Failure::of_guest(format!("cannot read the packages of `{image}`"), &error)),
    }
    None
}
