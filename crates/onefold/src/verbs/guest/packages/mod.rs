//! `onefold guest packages`

mod list;
mod verification;

use std::cell::Cell;
use std::ops::ControlFlow;

use onefold_block::Show;
use onefold_guest::packages::{self, PackageDatabase};

use super::ending::Ending;
use super::many;
use super::open::GuestImage;
use super::scene::Scene;
use super::streaming::{self, PrintResult};
use crate::cli::Talk;
use crate::cli::guest::GuestPackagesArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{Report, RowForm, StdoutListing};

use list::PackageList;
use verification::VerificationResult;

pub(super) fn run(arguments: &GuestPackagesArgs, talk: Talk) -> Outcome<Report> {
    let list_name = if arguments.verify { "differences" } else { "packages" };
    let mut listing = StdoutListing::new(RowForm::of(talk, false), list_name);
    let names_image = many::are_several(&arguments.images.paths);
    let mut ending = Ending::new(names_image);
    let mut outcome: PrintResult<()> = Ok(());
    let has_named = Cell::new(false);
    let interrupt = if arguments.verify { Interrupt::watch() } else { Interrupt::default() };
    many::each(&arguments.images, talk, &mut ending, |image, guest, ending| {
        let scene = Scene::open(image, guest, &arguments.images.open)?;
        let Some(database) = database(&scene)? else {
            ending.warn_by_name(format!("`{}` has no package database", image.path().shown()));
            scene.look_at(ending);
            return Ok(ControlFlow::Continue(()));
        };
        let of_image =
            ImagePackages { image, names_image, database: database.as_ref(), arguments, has_named: &has_named };
        outcome = match arguments.verify {
            true => VerificationResult::of(&scene, &of_image, talk, &interrupt).print(&of_image, &mut listing, ending),
            false => PackageList::of(&of_image).print(&of_image, &mut listing),
        };
        ending.problems(database.problems());
        scene.look_at(ending);
        Ok(if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    // Of a verification, only packages with differences count, and none of these is good news.
    let is_listed = !arguments.verify && outcome.is_ok();
    if let Some(pattern) = arguments.name.as_ref().filter(|_| is_listed && !has_named.get()) {
        ending.unmatched("package", pattern);
    }
    streaming::finish(outcome, listing, &mut ending)
}

/// Opens the package database of the system in a scene; `None` if there is none.
pub(super) fn database<'s>(scene: &'s Scene<'_, '_>) -> Outcome<Option<Box<dyn PackageDatabase + 's>>> {
    let cannot = || format!("cannot read the packages of `{}`", scene.image.path().shown());
    packages::open(&scene.tree).map_err(|error| Failure::of_guest(cannot(), &error))
}

/// The packages of one image.
struct ImagePackages<'i> {
    image: &'i GuestImage,
    /// Whether lines name the image, because there are several.
    names_image: bool,
    database: &'i dyn PackageDatabase,
    arguments: &'i GuestPackagesArgs,
    /// Set once a package is requested.
    has_named: &'i Cell<bool>,
}

impl ImagePackages<'_> {
    /// Returns whether a package is requested.
    fn takes(&self, name: &str) -> bool {
        let takes = self.arguments.name.as_ref().is_none_or(|pattern| pattern.matches(name));
        self.has_named.set(self.has_named.get() || takes);
        takes
    }

    /// Returns the prefix of a line.
    fn prefix(&self) -> String {
        if self.names_image { format!("{}: ", self.image.path().shown()) } else { String::new() }
    }
}
