//! Seeds of `onefold image install`: disks that may have units of the image.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_block::Show;
use onefold_block::shown::ShownText;
use onefold_disk::{Disk, OnProgress, temporary_folder};
use onefold_image::capture::{CaptureError, SeedOptions};
use onefold_image::format::manifest::Manifest;
use onefold_image::install::InstallOptions;
use onefold_image::{ImageSource, SeededImages};

use crate::failure::{Failure, Outcome};
use crate::verbs::images::{self, FoundImage};

/// Divisor of the memory: this share is for the places of units on seeds.
const PLACES_SHARE: u64 = 8;
/// Divisor of the memory: this share is for what an archived image keeps of what it has read.
const ARCHIVED_SHARE: u64 = 16;

/// A seed that is open.
struct Seed {
    path: PathBuf,
    disk: Box<dyn Disk>,
}

/// Returns a source with seeds before it, and the options of an installation in the memory that they leave.
///
/// # Errors
/// When there is no such seed, a header of the image cannot be read, or the user has interrupted the work. A seed that
/// cannot be read is told, and costs no more than its time.
pub(super) fn add(
    source: &Arc<dyn ImageSource>,
    manifest: &Manifest,
    paths: &[PathBuf],
    options: &InstallOptions,
    progress: OnProgress<'_>,
) -> Outcome<(SeededImages, InstallOptions)> {
    let seeds = open_all(paths, options.memory_bytes, progress)?;
    let places_bytes = options.memory_bytes / PLACES_SHARE;
    let left_bytes = options.memory_bytes - places_bytes - options.memory_bytes / ARCHIVED_SHARE;
    let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    let seeded = SeededImages::new(Arc::clone(source), manifest, size(places_bytes));
    let mut seeded =
        seeded.map_err(|error| Failure::of_archive(format!("cannot read the image `{}`", manifest.image), &error))?;
    let folder = temporary_folder();
    let seed_options = SeedOptions { threads: options.threads, memory_bytes: size(left_bytes), folder: &folder };
    for Seed { path, disk } in seeds {
        match seeded.add(disk, manifest, &seed_options, progress) {
            Ok(()) => {}
            Err(error @ CaptureError::Stopped) => {
                return Err(Failure::of_capture(cannot(&path), &error).hint("run the command again"));
            }
            Err(error) => {
                let failure = Failure::of_capture(cannot(&path), &error);
                eprintln!("{}", ShownText::lines(&format!("{}: {}", failure.error, failure.causes.join(": "))));
            }
        }
    }
    Ok((seeded, InstallOptions { memory_bytes: left_bytes, ..*options }))
}

/// Fails if a seed cannot be opened.
pub(super) fn check(paths: &[PathBuf], options: &InstallOptions, progress: OnProgress<'_>) -> Outcome<()> {
    open_all(paths, options.memory_bytes, progress).map(|_| ())
}

fn open_all(paths: &[PathBuf], memory_bytes: u64, progress: OnProgress<'_>) -> Outcome<Vec<Seed>> {
    let mut seeds = Vec::new();
    paths.iter().try_for_each(|path| open(path, memory_bytes, progress, &mut seeds))?;
    Ok(seeds)
}

fn cannot(path: &Path) -> String {
    format!("cannot read all of the seed `{}`", path.shown())
}

/// Opens the seeds that a path names: a disk, an image, or the newest images of an archive.
fn open(path: &Path, memory_bytes: u64, progress: OnProgress<'_>, seeds: &mut Vec<Seed>) -> Outcome<()> {
    let cannot = || format!("cannot open the seed `{}`", path.shown());
    let found = images::find(&[path.to_owned()]);
    if let Some(unfit) = found.unfit.into_iter().next() {
        return Err(unfit.why.wrap(cannot()));
    }
    for found in found.images {
        let path = found.path().to_owned();
        let disk: Box<dyn Disk> = match found {
            FoundImage::Archived(image) => Box::new(image.disk(memory_bytes / ARCHIVED_SHARE)),
            FoundImage::File(found) => {
                let file = found.open().map_err(|error| Failure::of_io(cannot(), &error))?;
                let opened = onefold_disk::open(file, None, &[], progress);
                opened.map_err(|error| Failure::of_disk(&error).wrap(cannot()))?.disk
            }
        };
        seeds.push(Seed { path, disk });
    }
    Ok(())
}
