//! The verbs of `onefold image`.

mod capture;
mod comparison;
mod damaged;
mod export;
mod exported_file;
mod failed_place;
mod figures;
mod group;
mod install;
mod installable;
mod keep;
mod list;
mod partitions;
mod rate;
mod remote;
mod rm;
mod seeds;
mod serve;
mod server_log;
mod show;
mod sign;
pub(super) mod signed;
mod source;
mod status;

use std::path::Path;

use onefold_block::Show;
use onefold_image::ImageName;
use onefold_image::archive::{Archive, ImageRecord, LedgerHole};
use onefold_image::format::manifest::Manifest;

use crate::cli::Talk;
use crate::cli::image::{ImageCommand, ImageRef};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Report;

/// Does what a `onefold image` command asks.
pub(crate) fn run(command: ImageCommand, talk: Talk) -> Outcome<Report> {
    match command {
        ImageCommand::Capture(arguments) => capture::run(&arguments, talk),
        ImageCommand::List(arguments) => list::run(&arguments),
        ImageCommand::Show(arguments) => show::run(&arguments),
        ImageCommand::Install(arguments) => install::run(&arguments, talk),
        ImageCommand::Export(arguments) => export::run(&arguments, talk),
        ImageCommand::Serve(arguments) => serve::run(&arguments, talk),
        ImageCommand::Rm(arguments) => rm::run(&arguments, talk),
        ImageCommand::Sign(arguments) => sign::sign(&arguments),
        ImageCommand::Verify(arguments) => sign::verify(&arguments),
    }
}

/// Returns an image of an archive. Where entries of the ledger are hidden, nobody knows which version of a name is the
/// newest, so the version has to be named.
fn find(archive: &Archive, path: &Path, image: &ImageRef) -> Outcome<ImageRecord> {
    if let (None, Some(LedgerHole { position, what })) = (image.version, archive.hole()) {
        let failure = Failure::new(format!("cannot tell which version of `{image}` is the newest"))
            .because_of(format!("images behind entry {position} of the ledger are hidden: {what}"))
            .hint("name a version, as in `web@1`; `onefold archive check` tells more");
        return Err(Failure { exit: Exit::Damage, ..failure });
    }
    choose(&archive.images(), image, &format!("in the archive `{}`", path.shown()))
}

/// Returns one of the images `records`, which are sorted, that are at a place.
fn choose(records: &[ImageRecord], image: &ImageRef, place: &str) -> Outcome<ImageRecord> {
    let versions = || records.iter().filter(|record| record.image.name == image.name);
    let chosen = versions().rfind(|record| image.version.is_none_or(|version| version == record.image.version));
    chosen.cloned().ok_or_else(|| {
        let failure = Failure::new(format!("there is no image `{image}` {place}"));
        match versions().next_back() {
            Some(newest) => failure.because_of(format!("the newest version of that name is {}", newest.image)),
            None => failure.because_of("it has no image of that name"),
        }
        .hint(match similar(records, &image.name) {
            names if names.is_empty() => "`onefold image list` shows what is there".to_owned(),
            names => format!("there is {}; `onefold image list` shows all", names.join(", ")),
        })
    })
}

/// Maximum number of similar names in a message.
const SIMILAR_MAX: usize = 3;

/// Returns names of images that `name` may have been meant to be, quoted.
fn similar(records: &[ImageRecord], name: &ImageName) -> Vec<String> {
    let mut names: Vec<(usize, String)> = Vec::new();
    for record in records {
        let other = record.image.name.as_str();
        let distance = distance(name.as_str(), other);
        let is_similar = distance <= 2 + name.as_str().len() / 5 || other.starts_with(name.as_str());
        if distance > 0 && is_similar && names.iter().all(|(_, known)| known != other) {
            names.push((distance, other.to_owned()));
        }
    }
    names.sort();
    names.into_iter().take(SIMILAR_MAX).map(|(_, name)| format!("`{name}`")).collect()
}

/// Returns the number of bytes to insert, remove or replace to turn one name into the other. Names have at most 200
/// bytes.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, byte) in one.bytes().enumerate() {
        let mut diagonal = at;
        row[0] = at + 1;
        for (column, with) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(byte != with);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// Returns an image of an archive with its manifest.
pub(super) fn find_manifest(archive: &Archive, path: &Path, image: &ImageRef) -> Outcome<(ImageRecord, Manifest)> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onefold_image::store::{ByteRange, FolderStore, ObjectName, Store};

    use super::*;

    /// An older version would pass for the newest.
    #[test]
    fn a_hole_in_the_ledger_lets_nobody_take_the_newest_version() {
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../onefold-image/samples/archive-1");
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::open(folder.path()).unwrap();
        let kept = FolderStore::open(Path::new(sample)).unwrap();
        let mut last = None;
        for object in kept.list("", None).unwrap() {
            store.put(&object.name, &[&kept.get(&object.name, ByteRange::Whole).unwrap()]).unwrap();
            last = last.max(Some(object.name).filter(|name| name.as_str().starts_with("ledger/")));
        }
        let newest: ImageRef = "debian/12".parse().unwrap();
        let found = |store| find(&Archive::open(store).unwrap(), folder.path(), &newest);
        let store: Arc<dyn Store> = Arc::new(store);
        assert!(found(Arc::clone(&store)).is_ok());
        let last: ObjectName = last.unwrap();
        store.put(&last, &[b"damaged"]).unwrap();
        let failure = found(store).unwrap_err();
        assert_eq!(failure.exit, Exit::Damage);
        assert!(failure.error.contains("cannot tell which version"), "{}", failure.error);
    }

    #[test]
    fn the_distance_of_names_counts_single_changes() {
        for (one, other, expected) in
            [("web", "web", 0), ("web", "wbe", 2), ("web", "webs", 1), ("", "ab", 2), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{one} {other}");
        }
    }
}
