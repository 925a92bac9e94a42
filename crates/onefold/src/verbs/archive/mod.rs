//! The verbs of `onefold archive`, and opening an archive for those of `onefold image`.

mod check;
mod create;
mod gc;
mod hits;
pub(super) mod manifests;
pub(crate) mod place;
mod probe;
mod repair;
pub(super) mod room;
mod stat;
pub(super) mod watched;

use std::sync::Arc;

use onefold_block::Show;
use onefold_image::archive::Archive;
use onefold_image::store::Store;

use self::place::ArchivePlace;
use crate::cli::Talk;
use crate::cli::archive::ArchiveCommand;
use crate::failure::{Failure, Outcome};
use crate::output::Report;

/// Does what a `onefold archive` command asks.
pub(crate) fn run(command: &ArchiveCommand, talk: Talk) -> Outcome<Report> {
    match command {
        ArchiveCommand::Create(arguments) => create::run(arguments),
        ArchiveCommand::Check(arguments) => check::run(arguments, talk),
        ArchiveCommand::Repair(arguments) => repair::run(arguments, talk),
        ArchiveCommand::Stat(arguments) => stat::run(arguments),
        ArchiveCommand::Gc(arguments) => gc::run(arguments, talk),
        ArchiveCommand::Probe(arguments) => probe::run(arguments),
    }
}

/// Opens an archive: a folder, or a part of a bucket.
pub(super) fn open<'a>(place: impl Into<ArchivePlace<'a>>) -> Outcome<Arc<Archive>> {
    let place = place.into();
    open_in(place.open()?, place)
}

/// Opens the archive in a store.
fn open_in(store: Arc<dyn Store>, place: ArchivePlace<'_>) -> Outcome<Arc<Archive>> {
    match Archive::open(store) {
        Ok(archive) => {
            archive.set_index_room(room::usual());
            Ok(Arc::new(archive))
        }
        Err(error) => Err(Failure::of_archive(format!("cannot open the archive `{}`", place.path.shown()), &error)),
    }
}
