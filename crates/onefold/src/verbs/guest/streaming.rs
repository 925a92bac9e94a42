//! Verbs that print what they find while they look for it.

use std::io;

use super::ending::Ending;
use super::open;
use super::scene::Scene;
use crate::cli::Talk;
use crate::cli::guest::GuestImageArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, StdoutListing};
use serde_json::Value;

/// Why a verb that prints stops.
#[derive(Debug)]
pub(super) enum PrintStop {
    /// The reader of the output has stopped reading, as `head` does.
    Closed,
    /// A failure.
    Failed(Failure),
}

/// Result of printing.
pub(super) type PrintResult<T> = Result<T, PrintStop>;

impl From<io::Error> for PrintStop {
    fn from(error: io::Error) -> PrintStop {
        match error.kind() {
            io::ErrorKind::BrokenPipe => PrintStop::Closed,
            _ => PrintStop::Failed(Failure::of_io("cannot print the result", &error)),
        }
    }
}

impl From<Failure> for PrintStop {
    fn from(failure: Failure) -> PrintStop {
        PrintStop::Failed(failure)
    }
}

/// Opens an image and calls `work` with the tree of its files.
pub(super) fn with_scene(
    arguments: &GuestImageArgs,
    talk: Talk,
    work: impl FnOnce(&Scene<'_, '_>, &mut Ending) -> Outcome<Report>,
) -> Outcome<Report> {
    let image = open::one(arguments, talk)?;
    image.with_guest(&arguments.open, |guest| {
        let scene = Scene::open(&image, guest, &arguments.open)?;
        work(&scene, &mut Ending::of_one(&image))
    })
}

/// Opens an image, lets `work` print rows from the tree of its files, and ends the listing.
pub(super) fn list(
    arguments: &GuestImageArgs,
    talk: Talk,
    mut listing: StdoutListing,
    work: impl FnOnce(&Scene<'_, '_>, &mut Ending, &mut StdoutListing) -> PrintResult<()>,
) -> Outcome<Report> {
    with_scene(arguments, talk, |scene, ending| {
        let outcome = work(scene, ending, &mut listing);
        scene.look_at(ending);
        finish(outcome, listing, ending)
    })
}

/// Ends a listing after any outcome of its work. A document that has begun is completed.
pub(super) fn finish(outcome: PrintResult<()>, listing: StdoutListing, ending: &mut Ending) -> Outcome<Report> {
    match outcome {
        Ok(()) => {}
        Err(PrintStop::Closed) => return Ok(ended(ending)),
        Err(PrintStop::Failed(failure)) if listing.is_empty() => {
            ending.tell();
            return Err(failure);
        }
        Err(PrintStop::Failed(failure)) => ending.failed(failure),
    }
    match listing.finish(&ending.tell()).map_err(PrintStop::from) {
        Ok(()) | Err(PrintStop::Closed) => Ok(ended(ending)),
        Err(PrintStop::Failed(failure)) => Err(failure),
    }
}

/// Reports damage and doubts of a tree before a failure that they may explain: a path can be missing because of damage.
///
/// # Errors
/// The failure, always.
pub(super) fn failed<T>(scene: &Scene<'_, '_>, ending: &mut Ending, failure: Failure) -> Outcome<T> {
    scene.look_at(ending);
    ending.tell();
    Err(failure)
}

/// Returns the report of a verb that has printed all its results.
pub(super) fn ended(ending: &Ending) -> Report {
    Report { text: String::new(), json: Value::Null, exit: ending.exit() }
}
