//! Images as an analysis reads them, and whether somebody writes to them meanwhile.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use onefold_report::{Image, Source, SourceError};
use rustix::fs::{SeekFrom, seek};

use super::find::Found;
use crate::cli::values::ImageFormat;
use crate::disk::Disk;
use crate::failure::Failure;
use crate::image;
use crate::interrupt::Interrupt;
use crate::output::machine_name;
use crate::progress::Meter;

/// How images are opened.
#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) format: Option<ImageFormat>,
    pub(super) backing_from: Vec<PathBuf>,
    pub(super) interrupt: Interrupt,
}

/// Returns the image at `found.path`, which is opened when its turn comes.
pub(super) fn image(found: &Found, how: &How, group: Option<usize>) -> Image {
    let path = found.path.clone();
    let how = how.clone();
    let is_device = found.metadata.file_type().is_block_device();
    let about_bytes = if is_device { device_bytes(&path) } else { found.metadata.len() };
    // Of a format nothing can be told before the file is read; by its first bytes it is told again when it is opened.
    let format = how.format.or_else(|| image::format_of(&path));
    Image {
        name: machine_name(&path),
        about_bytes,
        allocated_bytes: if is_device { about_bytes } else { found.metadata.blocks().saturating_mul(512) },
        group,
        is_plain: !is_device && format == Some(ImageFormat::Raw),
        open: Box::new(move || match OpenDisk::open(&path, &how) {
            Ok(disk) => Ok(Box::new(disk)),
            Err(failure) => Err(told(&failure)),
        }),
    }
}

/// Returns the length of a block device, which its metadata does not tell; nothing where it cannot be opened.
fn device_bytes(path: &Path) -> u64 {
    let length = fs::File::open(path).ok().and_then(|file| seek(&file, SeekFrom::End(0)).ok());
    length.unwrap_or(0)
}

/// Returns a failure as one line; the name of the image stands before it.
fn told(failure: &Failure) -> SourceError {
    let mut text = failure.error.clone();
    failure.causes.iter().for_each(|cause| text.push_str(&format!(": {cause}")));
    if let Some(hint) = &failure.hint {
        text.push_str(&format!(" ({hint})"));
    }
    SourceError(text)
}

/// An open image.
struct OpenDisk {
    disk: Box<dyn Disk>,
    path: PathBuf,
    before: Option<State>,
}

/// What changes when somebody writes to a file.
#[derive(Debug, PartialEq, Eq)]
struct State {
    length: u64,
    inode: u64,
    modified: (i64, i64),
}

impl State {
    fn of(path: &Path) -> Option<State> {
        let metadata = fs::metadata(path).ok()?;
        Some(State {
            length: metadata.len(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

impl OpenDisk {
    fn open(path: &Path, how: &How) -> Result<OpenDisk, Failure> {
        let before = State::of(path);
        // A conversion shows no progress of its own: that of the analysis goes on.
        let meter = |doing: String| Meter::new(doing, true, how.interrupt.clone());
        let disk = image::open(path, how.format, &how.backing_from, &meter)?.disk;
        Ok(OpenDisk { disk, path: path.to_owned(), before })
    }
}

impl Source for OpenDisk {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, SourceError> {
        self.disk.next_data(offset).map_err(|failure| told(&failure))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), SourceError> {
        self.disk.read(offset, into).map_err(|failure| told(&failure))
    }

    fn has_changed(&self) -> bool {
        State::of(&self.path) != self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_that_is_written_cut_or_removed_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.raw");
        let how = How { format: None, backing_from: Vec::new(), interrupt: Interrupt::default() };
        let changes = |change: &dyn Fn(&fs::File)| {
            fs::write(&path, [1; 8192]).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            // The last write, and the file it makes, are of different times.
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
            let disk = OpenDisk::open(&path, &how).unwrap();
            change(&file);
            disk.has_changed()
        };
        assert!(!changes(&|_| {}));
        assert!(changes(&|file| file.write_all_at(&[2], 0).unwrap()));
        assert!(changes(&|file| file.set_len(4096).unwrap()));
        assert!(changes(&|_| fs::remove_file(&path).unwrap()));
    }
}
