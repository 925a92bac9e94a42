//! `onefold image rm`

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use serde_json::json;

use super::find;
use crate::cli::image::RmArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Report;
use crate::verbs::archive;

pub(super) fn run(arguments: &RmArgs) -> Outcome<Report> {
    // A name alone could mean all its versions or the newest one: removal does not guess.
    if let Some(image) = arguments.images.iter().find(|image| image.version.is_none()) {
        return Err(Failure::usage(format!("cannot remove `{image}`"))
            .because_of("it does not say which version")
            .hint(format!("give the version, as in `{image}@1`; `onefold image list` shows all versions")));
    }
    let archive = archive::open(&arguments.archive)?;
    // All are looked up before the first is removed.
    let mut records = Vec::new();
    for image in &arguments.images {
        records.push(find(&archive, &arguments.archive, image)?);
    }
    let mut removed = Vec::new();
    for record in records {
        archive
            .remove(&record.image, &SystemClock, &SystemRandom)
            .map_err(|error| Failure::of_archive(format!("cannot remove the image `{}`", record.image), &error))?;
        removed.push(record.image.to_string());
    }
    Ok(Report::done(format!("removed {}", removed.join(", ")), json!({ "removed": removed })))
}
