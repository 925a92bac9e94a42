//! The verbs of `onefold image`.

mod capture;
mod export;
mod install;
mod keep;
mod list;
mod partitions;
mod rm;
mod show;
mod sign;
mod signed;
mod source;

use std::path::Path;

use onefold_block::Show;
use onefold_image::archive::{Archive, ImageRecord};
use onefold_image::format::manifest::Manifest;

use crate::cli::Talk;
use crate::cli::image::{ImageCommand, ImageRef};
use crate::failure::{Failure, Outcome};
use crate::output::Report;

/// Does what a `onefold image` command asks.
pub(crate) fn run(command: ImageCommand, talk: Talk) -> Outcome<Report> {
    match command {
        ImageCommand::Capture(arguments) => capture::run(&arguments, talk),
        ImageCommand::List(arguments) => list::run(&arguments),
        ImageCommand::Show(arguments) => show::run(&arguments),
        ImageCommand::Install(arguments) => install::run(&arguments, talk),
        ImageCommand::Export(arguments) => export::run(&arguments, talk),
        ImageCommand::Rm(arguments) => rm::run(&arguments),
        ImageCommand::Sign(arguments) => sign::sign(&arguments),
        ImageCommand::Verify(arguments) => sign::verify(&arguments),
    }
}

/// Returns an image of an archive.
fn find(archive: &Archive, path: &Path, image: &ImageRef) -> Outcome<ImageRecord> {
    archive.find(&image.name, image.version).ok_or_else(|| {
        let failure = Failure::new(format!("there is no image `{image}` in the archive `{}`", path.shown()));
        match archive.find(&image.name, None) {
            Some(newest) => failure.because_of(format!("the newest version of that name is {}", newest.image)),
            None => failure.because_of("it has no image of that name"),
        }
        .hint("`onefold image list` shows what is there")
    })
}

/// Returns an image of an archive with its manifest.
fn find_manifest(archive: &Archive, path: &Path, image: &ImageRef) -> Outcome<(ImageRecord, Manifest)> {
    let record = find(archive, path, image)?;
    match archive.manifest(&record) {
        Ok(manifest) => Ok((record, manifest)),
        Err(error) => Err(Failure::of_archive(format!("cannot read the image `{}`", record.image), &error)),
    }
}

/// Number of threads that wait for a store or a target while others decompress.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |count| count.get() + 2)
}
