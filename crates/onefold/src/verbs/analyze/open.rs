//! Images as an analysis reads them, and whether somebody writes to them meanwhile.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use onefold_block::Show;
use onefold_disk::{DiskError, ImageFormat};
use onefold_report::{Image, WatchedDisk};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::machine_name;
use crate::progress::Meter;
use crate::verbs::images::archived::{ArchivedImage, STREAM_BYTES};
use crate::verbs::images::{FileState, FoundFile, FoundImage};
use crate::verbs::in_use;

/// How images are opened.
#[derive(Clone, Debug)]
pub(super) struct OpeningOptions {
    pub(super) format: Option<ImageFormat>,
    pub(super) backing_from: Vec<PathBuf>,
    pub(super) interrupt: Interrupt,
}

/// Returns an image that is opened when its turn comes.
pub(super) fn image(found: &FoundImage, how: &OpeningOptions, group: Option<usize>) -> Image {
    match found {
        FoundImage::File(found) => image_of_file(found, how, group),
        FoundImage::Archived(image) => archived_image(image, group),
    }
}

fn archived_image(image: &ArchivedImage, group: Option<usize>) -> Image {
    let (name, image) = (machine_name(image.path()), image.clone());
    Image {
        name,
        about_bytes: image.size_bytes(),
        allocated_bytes: image.stored_bytes(),
        group,
        is_plain: false,
        is_copied: false,
        open: Box::new(move || {
            let disk = Box::new(image.disk(STREAM_BYTES));
            Ok(WatchedDisk { disk, has_changed: Box::new(|| false), has_writer: false })
        }),
    }
}

fn image_of_file(found: &FoundFile, how: &OpeningOptions, group: Option<usize>) -> Image {
    let is_device = found.metadata.file_type().is_block_device();
    let peeked = found.open().ok();
    let about_bytes = match &peeked {
        Some(file) if is_device => file.length(),
        _ if is_device => 0,
        _ => found.metadata.len(),
    };
    // The first bytes are read again when the image's turn comes.
    let format = how.format.or_else(|| peeked.as_ref().and_then(onefold_disk::format_of));
    let found = found.clone();
    let how = how.clone();
    Image {
        name: machine_name(&found.path),
        about_bytes,
        allocated_bytes: if is_device { about_bytes } else { found.metadata.blocks().saturating_mul(512) },
        group,
        is_plain: !is_device && format == Some(ImageFormat::Raw),
        is_copied: format.is_some_and(ImageFormat::is_converted),
        open: Box::new(move || open(&found, &how)),
    }
}

/// Returns why an image cannot be read, on one line; the name of the image stands before it.
pub(super) fn explain(error: &DiskError) -> String {
    explain_failure(&Failure::of_disk(error))
}

/// As [`explain`].
pub(super) fn explain_failure(failure: &Failure) -> String {
    let mut text = failure.error.clone();
    failure.causes.iter().for_each(|cause| text.push_str(&format!(": {cause}")));
    if let Some(hint) = &failure.hint {
        text.push_str(&format!(" ({hint})"));
    }
    text
}

/// Opens the image when its turn comes.
fn open(found: &FoundFile, how: &OpeningOptions) -> Result<WatchedDisk, DiskError> {
    let file = found
        .open()
        .map_err(|error| Failure::of_io(format!("cannot open the image `{}`", found.path.shown()), &error))?;
    let before = FileState::of(file.metadata());
    let has_writer = in_use::is_in_use(&file);
    // A conversion shows no progress of its own: that of the analysis goes on.
    let meter = Meter::new("converting", true, how.interrupt.clone());
    let disk = onefold_disk::open(file, how.format, &how.backing_from, &meter.on_progress())?.disk;
    let path = found.path.clone();
    let has_changed = move || fs::metadata(&path).map_or(true, |metadata| FileState::of(&metadata) != before);
    Ok(WatchedDisk { disk, has_changed: Box::new(has_changed), has_writer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::images::find;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_that_is_written_cut_or_removed_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.raw");
        let how = OpeningOptions { format: None, backing_from: Vec::new(), interrupt: Interrupt::default() };
        let changes = |change: &dyn Fn(&fs::File)| {
            fs::write(&path, [1; 8192]).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            // The last write, and the file it makes, are of different times.
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
            let FoundImage::File(found) = find(std::slice::from_ref(&path)).images.remove(0) else { panic!("no file") };
            let disk = open(&found, &how).unwrap();
            change(&file);
            (disk.has_changed)()
        };
        assert!(!changes(&|_| {}));
        assert!(changes(&|file| file.write_all_at(&[2], 0).unwrap()));
        assert!(changes(&|file| file.set_len(4096).unwrap()));
        assert!(changes(&|_| fs::remove_file(&path).unwrap()));
    }
}
