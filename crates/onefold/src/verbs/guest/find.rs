//! `onefold guest find`

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use glob::Pattern;
use onefold_block::Show;
use onefold_guest::filesystem::FileStat;
use onefold_guest::packages::Owners;
use onefold_guest::tree::{Crossing, Links, Visitor, WalkEntry, WalkError, WalkStep};
use serde_json::Value;

use super::describe::file_members;
use super::ending::Ending;
use super::many;
use super::open::GuestImage;
use super::packages;
use super::scene::Scene;
use super::streaming::{self, PrintResult, PrintStop};
use crate::cli::Talk;
use crate::cli::guest::GuestFindArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, RowForm, StdoutListing};

pub(super) fn run(arguments: &GuestFindArgs, talk: Talk) -> Outcome<Report> {
    if talk.json && arguments.null {
        return Err(Failure::usage("cannot find files").because_of("--json and --null exclude each other"));
    }
    let mut listing = StdoutListing::new(RowForm::of(talk, arguments.null), "files");
    let names_image = many::are_several(&arguments.images.paths);
    let mut ending = Ending::new(names_image);
    let mut outcome: PrintResult<()> = Ok(());
    let mut has_named = false;
    many::each(&arguments.images, talk, &mut ending, |image, guest, ending| {
        let scene = Scene::open(image, guest, &arguments.images.open)?;
        let from = match scene.find(arguments.below.as_bytes(), Links::Follow) {
            Ok(from) => from,
            Err(failure) => {
                ending.failed(failure);
                scene.look_at(ending);
                return Ok(ControlFlow::Continue(()));
            }
        };
        let owners = if arguments.unowned { Some(owners(&scene, ending)?) } else { None };
        let mut finder = MatchPrinter {
            scene: &scene,
            ending,
            listing: &mut listing,
            wanted: FindFilter::of(arguments, owners),
            image: names_image.then_some(image),
            has_named: &mut has_named,
            outcome: Ok(()),
        };
        let walked = scene.tree.walk(&from, Crossing::Enter, &mut finder);
        outcome = finder.outcome;
        if let Err(error) = walked {
            ending.failed_path(&from.path, &error);
        }
        scene.look_at(ending);
        Ok(if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    if let (Some(pattern), false, Ok(())) = (&arguments.name, has_named, &outcome) {
        ending.unmatched("file", pattern);
    }
    streaming::finish(outcome, listing, &mut ending)
}

/// Returns the files that belong to packages, and reports unreadable parts of the packages.
fn owners(scene: &Scene<'_, '_>, ending: &mut Ending) -> Outcome<Owners> {
    let database = packages::database(scene)?.ok_or_else(|| {
        let cannot = format!("cannot tell which files of `{}` belong to packages", scene.image.path().shown());
        Failure::new(cannot).because_of("it has no package database")
    })?;
    let owners = Owners::read(&scene.tree, database.as_ref());
    ending.problems(database.problems());
    Ok(owners)
}

/// The files to find.
struct FindFilter<'a> {
    name: Option<&'a Pattern>,
    newer: Option<i64>,
    larger: Option<u64>,
    /// The files of packages, if only other files are wanted.
    owners: Option<Owners>,
}

impl<'a> FindFilter<'a> {
    fn of(arguments: &'a GuestFindArgs, owners: Option<Owners>) -> FindFilter<'a> {
        let larger = arguments.larger.map(|size| size.0);
        FindFilter { name: arguments.name.as_ref(), newer: arguments.newer, larger, owners }
    }

    /// Returns whether a file matches by its owner.
    fn takes_owner(&self, entry: &WalkEntry<'_>) -> bool {
        self.owners.as_ref().is_none_or(|owners| owners.package(entry.file).is_none())
    }

    /// Returns whether a file matches by its name. A pattern with a slash is compared with its path.
    fn takes_name(&self, entry: &WalkEntry<'_>) -> bool {
        let Some(pattern) = self.name else { return true };
        let compared = if pattern.as_str().contains('/') { entry.path } else { entry.name };
        pattern.matches(&String::from_utf8_lossy(compared))
    }

    fn takes(&self, stat: &FileStat) -> bool {
        self.newer.is_none_or(|newer| stat.modified.seconds >= newer || stat.changed.seconds >= newer)
            && self.larger.is_none_or(|larger| stat.size_bytes > larger)
    }

    /// Returns whether more than the name of a file is needed.
    fn needs_stat(&self) -> bool {
        self.newer.is_some() || self.larger.is_some()
    }
}

/// Prints the files that match.
struct MatchPrinter<'f, 'g, 'a> {
    scene: &'f Scene<'g, 'a>,
    ending: &'f mut Ending,
    listing: &'f mut StdoutListing,
    wanted: FindFilter<'f>,
    /// The image, if several are searched.
    image: Option<&'f GuestImage>,
    /// Set once a file matches by its name.
    has_named: &'f mut bool,
    outcome: PrintResult<()>,
}

impl MatchPrinter<'_, '_, '_> {
    fn file(&mut self, entry: &WalkEntry<'_>) -> PrintResult<()> {
        if !self.wanted.takes_name(entry) {
            return Ok(());
        }
        *self.has_named = true;
        if !self.wanted.takes_owner(entry) {
            return Ok(());
        }
        let form = self.listing.form();
        if !self.wanted.needs_stat() && form != RowForm::Json {
            return self.print(entry, None);
        }
        match self.scene.tree.stat(entry.file) {
            Ok(stat) if self.wanted.takes(&stat) => self.print(entry, Some(&stat)),
            Ok(_) => Ok(()),
            Err(error) => {
                self.ending.failed_path(entry.path, &error);
                Ok(())
            }
        }
    }

    fn print(&mut self, entry: &WalkEntry<'_>, stat: Option<&FileStat>) -> PrintResult<()> {
        let image = self.image.map(GuestImage::path);
        match (self.listing.form(), stat) {
            (RowForm::Json, Some(stat)) => {
                let mut members = file_members(entry.path, stat, None);
                members.insert("image".to_owned(), self.scene.image.name().into());
                self.listing.json(&Value::Object(members))?;
            }
            (RowForm::Raw, _) => match image {
                Some(image) => self.listing.raw(&[image.as_os_str().as_bytes(), b":", entry.path].concat())?,
                None => self.listing.raw(entry.path)?,
            },
            _ => match image {
                Some(image) => self.listing.line(&format!("{}:{}", image.shown(), entry.path.shown()))?,
                None => self.listing.line(&entry.path.shown().to_string())?,
            },
        }
        Ok(())
    }
}

impl Visitor for MatchPrinter<'_, '_, '_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        self.outcome = match self.scene.image.is_interrupted() {
            true => Err(Failure::interrupted("looking for files").into()),
            false => self.file(entry),
        };
        match self.outcome {
            Ok(()) => WalkStep::Enter,
            Err(PrintStop::Closed | PrintStop::Failed(_)) => WalkStep::Stop,
        }
    }

    fn failed(&mut self, path: &[u8], error: WalkError) {
        self.ending.failed_walk(path, &error);
    }
}
