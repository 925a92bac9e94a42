//! The verbs of `onefold archive`, and opening an archive for those of `onefold image`.

mod check;
mod create;
mod gc;
pub(crate) mod place;
mod probe;
mod stat;

use std::sync::Arc;

use onefold_block::Show;
use onefold_image::archive::Archive;

use self::place::Place;
use crate::cli::Talk;
use crate::cli::archive::ArchiveCommand;
use crate::failure::{Failure, Outcome};
use crate::output::Report;

/// Does what a `onefold archive` command asks.
pub(crate) fn run(command: &ArchiveCommand, talk: Talk) -> Outcome<Report> {
    match command {
        ArchiveCommand::Create(arguments) => create::run(arguments),
        ArchiveCommand::Check(arguments) => check::run(arguments, talk),
        ArchiveCommand::Stat(arguments) => stat::run(arguments),
        ArchiveCommand::Gc(arguments) => gc::run(arguments, talk),
        ArchiveCommand::Probe(arguments) => probe::run(arguments),
    }
}

/// Opens an archive: a folder, or a part of a bucket.
pub(super) fn open<'a>(place: impl Into<Place<'a>>) -> Outcome<Arc<Archive>> {
    let place = place.into();
    match Archive::open(place.open()?) {
        Ok(archive) => Ok(Arc::new(archive)),
        Err(error) => Err(Failure::of_archive(format!("cannot open the archive `{}`", place.path.shown()), &error)),
    }
}
