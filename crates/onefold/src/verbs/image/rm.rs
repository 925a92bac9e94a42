//! `onefold image rm`

use std::collections::BTreeMap;
use std::path::Path;

use onefold_block::Show;
use onefold_block::random::SystemRandom;
use onefold_image::archive::{Archive, ArchiveError, ImageRecord, RemovalGain};
use onefold_image::format::pack::PACK_BYTES;
use onefold_image::{ImageName, ImageVersion};
use serde_json::{Value, json};

use super::{find, keep};
use crate::cli::Talk;
use crate::cli::image::{ImageRef, RemovalTarget, RmArgs};
use crate::failure::{Failure, Outcome};
use crate::interrupt::InterruptibleClock;
use crate::output::Report;
use crate::progress::Meter;
use crate::size::{counted, human};
use crate::verbs::archive::watched::WatchedArchive;

/// Memory in which a dry run sorts units; the rest goes into temporary files.
const MEMORY_BYTES: usize = 512 << 20;

/// The versions that a command removes, and those of the same names that it leaves because of a rule.
#[derive(Debug, Default)]
struct Choice {
    removed: Vec<ImageRecord>,
    kept: Vec<ImageRecord>,
}

pub(super) fn run(arguments: &RmArgs, talk: Talk) -> Outcome<Report> {
    let watched = WatchedArchive::open(&arguments.archive, None)?;
    let archive = &watched.archive;
    // All are looked up before the first is removed.
    let choice = match arguments.keep.is_some() {
        true => by_rule(archive, arguments)?,
        false => by_version(archive, arguments)?,
    };
    let images = |records: &[ImageRecord]| records.iter().map(|record| record.image.clone()).collect::<Vec<_>>();
    let (removed, kept) = (images(&choice.removed), images(&choice.kept));
    if !arguments.dry_run {
        let clock = InterruptibleClock(watched.interrupt.clone());
        let done = remove_all(&removed, |image| archive.remove(image, &clock, &SystemRandom));
        done.map_err(|unfinished| {
            watched.failure(unfinished.failure(), &unfinished.text(), "run the command again for those that are left")
        })?;
    }
    let gain = match arguments.dry_run && !removed.is_empty() {
        true => Some(ExpectedGain::of(&watched, &removed, talk)?),
        false => None,
    };
    let (removed, kept) = (names(&removed), names(&kept));
    let mut text = match (removed.is_empty(), arguments.dry_run) {
        (true, _) => "nothing to remove".to_owned(),
        (false, false) => format!("removed {}", removed.join(", ")),
        (false, true) => format!("would remove {}", removed.join(", ")),
    };
    if !kept.is_empty() {
        text.push_str(&format!("\nkept {}", kept.join(", ")));
    }
    let mut json = json!({ "removed": removed, "kept": kept, "dry_run": arguments.dry_run });
    if let Some(gain) = gain {
        text.push_str(&format!("\n{}", gain.text()));
        json["gain"] = gain.json();
    }
    Ok(Report::done(text, json))
}

/// The space that a removal would let `archive gc` free.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpectedGain {
    Known(RemovalGain),
    /// It could not be determined, for this reason.
    Unknown(String),
}

impl ExpectedGain {
    /// Determines it, and changes nothing.
    fn of(watched: &WatchedArchive, removed: &[ImageVersion], talk: Talk) -> Outcome<ExpectedGain> {
        let temporary = onefold_disk::temporary_folder();
        let meter = Meter::new("looking for what other images need", talk.quiet, watched.interrupt.clone());
        let gain = watched.archive.gain_of_removal(removed, &temporary, MEMORY_BYTES, &mut |done, total| {
            // Packs are most of the work, and have about this length.
            let _ = meter.show_bytes(done.saturating_mul(PACK_BYTES), total.saturating_mul(PACK_BYTES));
        });
        meter.finish();
        match gain {
            Ok(gain) => Ok(ExpectedGain::Known(gain)),
            // An interrupt can look like damage.
            Err(error) if !watched.is_cut_short() => Ok(ExpectedGain::Unknown(match error {
                ArchiveError::Unknown { .. } => "damage hides it; `onefold archive check` tells more".to_owned(),
                error => Failure::of_archive("cannot read what other images need", &error).line(),
            })),
            Err(error) => {
                let failure = Failure::of_archive("cannot tell what the removal would free", &error);
                Err(watched.failure(failure, "nothing was removed", "run the command again"))
            }
        }
    }

    fn text(&self) -> String {
        let RemovalGain { units, bytes, whole_pack_bytes } = match self {
            ExpectedGain::Known(gain) => *gain,
            ExpectedGain::Unknown(why) => return format!("what would come free is unknown: {why}"),
        };
        let freed = match whole_pack_bytes {
            _ if units == 0 => {
                return "other images need all of their units: `archive gc` would free nothing".to_owned();
            }
            all if all == bytes => "all of it".to_owned(),
            0 => "it when it rewrites packs that other images need in part".to_owned(),
            least => format!("at least {}, and the rest when it rewrites packs", human(least)),
        };
        format!("no other image needs {} in {}: `archive gc` would free {freed}", human(bytes), counted(units, "unit"))
    }

    fn json(&self) -> Value {
        match self {
            ExpectedGain::Known(RemovalGain { units, bytes, whole_pack_bytes }) => {
                json!({ "units": units, "bytes": bytes, "least_bytes": whole_pack_bytes })
            }
            ExpectedGain::Unknown(_) => Value::Null,
        }
    }
}

/// A removal of several images that ended before the last one.
#[derive(Debug)]
struct UnfinishedRemoval {
    removed: Vec<ImageVersion>,
    /// The image that was not removed.
    failed: ImageVersion,
    error: ArchiveError,
    /// Images after that one.
    left: Vec<ImageVersion>,
}

impl UnfinishedRemoval {
    /// Returns what became of all images.
    fn text(&self) -> String {
        let removed = if self.removed.is_empty() { "nothing".to_owned() } else { names(&self.removed).join(", ") };
        let mut text = format!("removed: {removed}");
        let mut left = names(&self.left);
        match self.error {
            ArchiveError::Doubtful(_) => text.push_str(&format!("; in doubt: {}", self.failed)),
            _ => left.insert(0, self.failed.to_string()),
        }
        if !left.is_empty() {
            text.push_str(&format!("; not removed: {}", left.join(", ")));
        }
        text
    }

    /// Returns the failure of the command.
    fn failure(&self) -> Failure {
        let failure = Failure::of_archive(format!("cannot remove the image `{}`", self.failed), &self.error);
        match self.removed.is_empty() {
            true => failure,
            false => failure.because_of(format!("these were removed before: {}", names(&self.removed).join(", "))),
        }
    }
}

fn names(images: &[ImageVersion]) -> Vec<String> {
    images.iter().map(ToString::to_string).collect()
}

/// Removes images one after the other.
fn remove_all(
    images: &[ImageVersion],
    mut remove: impl FnMut(&ImageVersion) -> Result<(), ArchiveError>,
) -> Result<(), Box<UnfinishedRemoval>> {
    for (at, image) in images.iter().enumerate() {
        remove(image).map_err(|error| {
            let (removed, left) = (images[..at].to_vec(), images[at + 1..].to_vec());
            Box::new(UnfinishedRemoval { removed, failed: image.clone(), error, left })
        })?;
    }
    Ok(())
}

/// Chooses the versions that are named.
fn by_version(archive: &Archive, arguments: &RmArgs) -> Outcome<Choice> {
    let mut choice = Choice::default();
    for target in &arguments.images {
        match target {
            RemovalTarget::Image(image) if image.version.is_some() => {
                let record = find(archive, &arguments.archive, image)?;
                // An image that is named twice is removed once.
                if !choice.removed.contains(&record) {
                    choice.removed.push(record);
                }
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use onefold_image::store::FolderStore;

    use super::*;
    use crate::cli::image::KeepArgs;
    use crate::cli::place::{ArchiveArg, StoreOptions};

    #[test]
    fn an_image_that_is_named_twice_is_removed_once() {
        let sample = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../onefold-image/samples/archive-1"));
        let archive = Archive::open(Arc::new(FolderStore::open(&sample).unwrap())).unwrap();
        let images = ["debian/12@2", "debian/12@1", "debian/12@2"].map(|image| image.parse().unwrap()).to_vec();
        let place = ArchiveArg { archive: sample, store: StoreOptions::default() };
        let arguments = RmArgs { archive: place, images, keep: KeepArgs::default(), dry_run: false };
        let chosen = by_version(&archive, &arguments).unwrap().removed;
        let names: Vec<String> = chosen.iter().map(|record| record.image.to_string()).collect();
        assert_eq!(names, ["debian/12@2", "debian/12@1"]);
    }

    #[test]
    fn a_dry_run_says_what_a_collection_would_free_and_how_sure_that_is() {
        let text =
            |units, bytes, whole_pack_bytes| ExpectedGain::Known(RemovalGain { units, bytes, whole_pack_bytes }).text();
        assert!(text(0, 0, 0).ends_with("would free nothing"));
        let all = "no other image needs 2.00 MiB in 1 unit: `archive gc` would free all of it";
        assert_eq!(text(1, 2 << 20, 2 << 20), all);
        let some = text(1500, 2 << 20, 1 << 20);
        assert_eq!(
            some,
            "no other image needs 2.00 MiB in 1,500 units: `archive gc` would free at least 1.00 MiB, and the rest when \
             it rewrites packs"
        );
        assert!(text(2, 2 << 20, 0).ends_with("would free it when it rewrites packs that other images need in part"));
        assert!(ExpectedGain::Unknown("x".to_owned()).text().contains("unknown: x"));
        assert_eq!(ExpectedGain::Unknown(String::new()).json(), Value::Null);
    }

    #[test]
    fn a_failure_says_what_was_removed_before() {
        let images = [1, 2, 3].map(|version| ImageVersion { name: ImageName::new("web").unwrap(), version });
        let fails_at = |failing: u32| {
            let mut tried = 0;
            let removed = remove_all(&images, |image| {
                tried += 1;
                let gone = || Err(ArchiveError::NoImage { image: image.clone() });
                if image.version == failing { gone() } else { Ok(()) }
            });
            (removed.map_err(|unfinished| (unfinished.failure().line(), unfinished.text())), tried)
        };
        let (removed, tried) = fails_at(3);
        let (line, text) = removed.unwrap_err();
        assert_eq!(text, "removed: web@1, web@2; not removed: web@3");
        assert!(line.contains("`web@3`") && line.contains("these were removed before: web@1, web@2"), "{line}");
        assert_eq!(tried, 3);
        let (removed, tried) = fails_at(1);
        let (line, text) = removed.unwrap_err();
        assert!(!line.contains("removed before"), "{line}");
        assert_eq!(text, "removed: nothing; not removed: web@1, web@2, web@3");
        assert_eq!((tried, fails_at(9).1), (1, 3));
    }
}
