//! Seeds of `onefold image install`: disks that may have units of the image.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_block::Show;
use onefold_disk::{Disk, OnProgress, temporary_folder};
use onefold_image::capture::{CaptureError, SeedOptions};
use onefold_image::format::manifest::Manifest;
use onefold_image::install::InstallOptions;
use onefold_image::{ImageSource, SeededImages};

use crate::failure::{Failure, Outcome};
use crate::output::print_note;
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
                let failure = Failure::of_capture(cannot(&path), &error);
                return Err(failure.because_of("nothing was written to the target").hint("run the command again"));
            }
            Err(error) => {
                let failure = Failure::of_capture(cannot(&path), &error);
                print_note(&format!("{}: {}", failure.error, failure.causes.join(": ")));
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
    let found = paths.iter().map(|path| find(path)).collect::<Outcome<Vec<_>>>()?;
    let archived = found.iter().flatten().filter(|image| matches!(image, FoundImage::Archived(_))).count();
    // All archived images together have the share.
    let each_bytes = memory_bytes / ARCHIVED_SHARE / u64::try_from(archived).unwrap_or(u64::MAX).max(1);
    for (path, images) in paths.iter().zip(found) {
        for image in images {
            seeds.push(open(path, image, each_bytes, progress)?);
        }
    }
    Ok(seeds)
}

fn cannot(path: &Path) -> String {
    format!("cannot read all of the seed `{}`", path.shown())
}

fn cannot_open(path: &Path) -> String {
    format!("cannot open the seed `{}`", path.shown())
}

/// Finds the seeds that a path names: a disk, an image, or the newest images of an archive.
fn find(path: &Path) -> Outcome<Vec<FoundImage>> {
    let found = images::find(&[path.to_owned()]);
    match found.unfit.into_iter().next() {
        Some(unfit) => Err(unfit.why.wrap(cannot_open(path))),
        None => Ok(found.images),
    }
}

/// Opens a seed that `given` names. An archived image keeps `archived_bytes` of what it has read.
fn open(given: &Path, found: FoundImage, archived_bytes: u64, progress: OnProgress<'_>) -> Outcome<Seed> {
    let path = found.path().to_owned();
    let disk: Box<dyn Disk> = match found {
        FoundImage::Archived(image) => Box::new(image.disk(archived_bytes)),
        FoundImage::File(found) => {
            let file = found.open().map_err(|error| Failure::of_io(cannot_open(given), &error))?;
            let opened = onefold_disk::open(file, None, &[], progress);
            opened.map_err(|error| Failure::of_disk(&error).wrap(cannot_open(given)))?.disk
        }
    };
    Ok(Seed { path, disk })
}
