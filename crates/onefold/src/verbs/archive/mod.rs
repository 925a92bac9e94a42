//! The verbs of `onefold archive`, and opening an archive for those of `onefold image`.

mod check;
mod create;
mod gc;
mod stat;

use std::path::Path;
use std::sync::Arc;

use onefold_block::Show;
use onefold_image::archive::Archive;
use onefold_image::store::FolderStore;

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
    }
}

/// Opens the archive in a folder.
pub(super) fn open(path: &Path) -> Outcome<Arc<Archive>> {
    let cannot = || format!("cannot open the archive `{}`", path.shown());
    let store = FolderStore::open(path).map_err(|error| Failure::of_archive(cannot(), &error.into()))?;
    match Archive::open(Arc::new(store)) {
        Ok(archive) => Ok(Arc::new(archive)),
        Err(error) => Err(Failure::of_archive(cannot(), &error)),
    }
}
