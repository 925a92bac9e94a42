//! `onefold image rm`

use std::collections::BTreeMap;
use std::path::Path;

use onefold_block::Show;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_image::ImageName;
use onefold_image::archive::{Archive, ImageRecord};
use serde_json::json;

use super::{find, keep};
use crate::cli::image::{ImageRef, RemovalTarget, RmArgs};
use crate::failure::{Failure, Outcome};
use crate::output::Report;
use crate::verbs::archive;

/// The versions that a command removes, and those of the same names that it leaves because of a rule.
#[derive(Debug, Default)]
struct Choice {
    removed: Vec<ImageRecord>,
    kept: Vec<ImageRecord>,
}

pub(super) fn run(arguments: &RmArgs) -> Outcome<Report> {
    let archive = archive::open(&arguments.archive)?;
    // All are looked up before the first is removed.
    let choice = match arguments.keep.is_some() {
        true => by_rule(&archive, arguments)?,
        false => by_version(&archive, arguments)?,
    };
    if !arguments.dry_run {
        for record in &choice.removed {
            archive
                .remove(&record.image, &SystemClock, &SystemRandom)
                .map_err(|error| Failure::of_archive(format!("cannot remove the image `{}`", record.image), &error))?;
        }
    }
    let names =
        |records: &[ImageRecord]| records.iter().map(|record| record.image.to_string()).collect::<Vec<String>>();
    let (removed, kept) = (names(&choice.removed), names(&choice.kept));
    let mut text = match (removed.is_empty(), arguments.dry_run) {
        (true, _) => "nothing to remove".to_owned(),
        (false, false) => format!("removed {}", removed.join(", ")),
        (false, true) => format!("would remove {}", removed.join(", ")),
    };
    if !kept.is_empty() {
        text.push_str(&format!("\nkept {}", kept.join(", ")));
    }
    Ok(Report::done(text, json!({ "removed": removed, "kept": kept, "dry_run": arguments.dry_run })))
}

/// Chooses the versions that are named.
fn by_version(archive: &Archive, arguments: &RmArgs) -> Outcome<Choice> {
    let mut choice = Choice::default();
    for target in &arguments.images {
        match target {
            RemovalTarget::Image(image) if image.version.is_some() => {
                choice.removed.push(find(archive, &arguments.archive, image)?);
            }
            // A name alone could mean all its versions or the newest one: removal does not guess.
            other => {
                return Err(Failure::usage(format!("cannot remove `{other}`"))
                    .because_of("it does not say which version")
                    .hint("give the version, as in `web@1`, or which versions to keep, as with --keep-last 3"));
            }
        }
    }
    Ok(choice)
}

/// Chooses those versions of the names that the rules do not keep.
fn by_rule(archive: &Archive, arguments: &RmArgs) -> Outcome<Choice> {
    let mut versions: BTreeMap<ImageName, Vec<ImageRecord>> = BTreeMap::new();
    for record in archive.images() {
        versions.entry(record.image.name.clone()).or_default().push(record);
    }
    let mut chosen: BTreeMap<ImageName, Vec<ImageRecord>> = BTreeMap::new();
    for target in &arguments.images {
        let names = names_of(target, &versions, &arguments.archive)?;
        chosen.extend(
            names
                .into_iter()
                .filter_map(|name| versions.get_key_value(name))
                .map(|(name, records)| (name.clone(), records.clone())),
        );
    }
    let mut choice = Choice::default();
    for mut records in chosen.into_values() {
        // The newest version comes first.
        records.reverse();
        let times: Vec<i64> = records.iter().map(|record| record.added.seconds).collect();
        let kept = keep::kept(&arguments.keep, &times);
        for (record, is_kept) in records.into_iter().zip(kept) {
            if is_kept { choice.kept.push(record) } else { choice.removed.push(record) }
        }
    }
    Ok(choice)
}

/// Returns the names that a target means.
fn names_of<'v>(
    target: &RemovalTarget,
    versions: &'v BTreeMap<ImageName, Vec<ImageRecord>>,
    archive: &Path,
) -> Outcome<Vec<&'v ImageName>> {
    let names: Vec<&ImageName> = match target {
        RemovalTarget::Image(ImageRef { version: Some(_), .. }) => {
            return Err(Failure::usage(format!("cannot choose among the versions of `{target}`"))
                .because_of("it is one version")
                .hint("give a name without a version, or leave the --keep options out"));
        }
        RemovalTarget::Image(ImageRef { name, .. }) => {
            versions.get_key_value(name).map(|(name, _)| name).into_iter().collect()
        }
        RemovalTarget::Pattern(pattern) => versions.keys().filter(|name| pattern.matches(name.as_str())).collect(),
    };
    if names.is_empty() {
        return Err(Failure::new(format!("there is no image `{target}` in the archive `{}`", archive.shown()))
            .hint("`onefold image list` shows what is there"));
    }
    Ok(names)
}
