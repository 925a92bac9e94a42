//! All other formats: QEMU's own `qemu-img` converts them into a temporary raw file, and such a file into VMDK.
//!
//! `qemu-img` is given the whole tree of nodes: for every layer its driver, its open file (`/proc/self/fd/N`,
//! inherited) and the layer below it, if any. So it detects no format and follows no name. Three drivers know no names.
//! The VMDK driver obeys descriptors, which [`crate::vmdk`] prevents: a stand-in replaces a descriptor, and a file with
//! a header that another user can change is copied first, so that `qemu-img` reads the bytes that were checked.

mod child;
mod info;
mod layers;
mod outgoing;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::process::ChildStdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::chain::ImageChain;
use crate::disk::{Disk, SIZE_BYTES_MAX};
use crate::error::{DiskError, ImageAction, ImageError, LongWork};
use crate::format::ImageFormat;
use crate::image_file::{ImageFile, descriptor_path};
use crate::progress::{OnProgress, Progress};
use crate::raw::FileDisk;
use crate::temporary::TemporaryFile;

use child::{POLL_INTERVAL, QemuProcess};
use layers::{open_layers, tree};

pub use outgoing::write_vmdk;

const SECTOR_BYTES: u64 = 512;

/// An action on an image, for errors.
#[derive(Clone, Copy, Debug)]
struct ImageLabel<'a> {
    action: ImageAction,
    format: ImageFormat,
    path: &'a Path,
}

impl ImageLabel<'_> {
    /// Returns the error for an image that cannot be read or written.
    fn cannot(self, why: impl Into<ImageError>) -> DiskError {
        let ImageLabel { action, format, path } = self;
        DiskError::Image { action, format, path: path.to_owned(), source: why.into() }
    }
}

/// A converted disk. Its offsets are those of the temporary file: it does not know where its bytes lie in the image's
/// file.
#[derive(Debug)]
pub(crate) struct ConvertedDisk(FileDisk);

impl Disk for ConvertedDisk {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.0.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.0.read(offset, into)
    }
}

/// Converts an image into a temporary sparse raw file, which has no name and is deleted when the disk is dropped.
/// `chain` opens the files that the image refers to.
///
/// The file has the disk's full length from the start, and the conversion can neither lengthen it nor fill the file
/// system.
pub(crate) fn convert(
    image: ImageFile,
    format: ImageFormat,
    chain: &mut ImageChain,
    progress: OnProgress<'_>,
) -> Result<ConvertedDisk, DiskError> {
    let path = image.path.clone();
    let subject = ImageLabel { action: ImageAction::Read, format, path: &path };
    tell(progress, 0, 0)?;
    let (layers, size_bytes) = open_layers(image, subject, chain, progress)?;
    if size_bytes > SIZE_BYTES_MAX {
        return Err(subject.cannot(ImageError::TooLarge));
    }
    let length = size_bytes.next_multiple_of(SECTOR_BYTES);
    let copy = TemporaryFile::create(length)?;
    let target = format!("driver=raw,size={length},file.driver=file,file.filename={}", descriptor_path(&copy.file));
    // The target exists, so `qemu-img` only checks its length.
    let arguments = ["convert", "-p", "-S", "4k", "-n", "--target-is-zero", "--target-image-opts"].map(str::to_owned);
    let arguments = [&arguments[..], &[format!("json:{}", tree(&layers)), target]].concat();
    let mut files: Vec<&File> = layers.iter().flat_map(|layer| &layer.files).collect();
    files.push(&copy.file);
    let running = QemuProcess::start(&arguments, &files).map_err(|error| subject.cannot(error))?;
    // `qemu-img` has no reason to lengthen the target; the limit holds even if an image takes control of the program.
    running.limit_file_length(length).map_err(|error| subject.cannot(error))?;
    follow(running, subject, length, Some(&copy), progress)?;
    FileDisk::new(copy.file, &path).map(ConvertedDisk)
}

/// Follows a conversion to its end. Stops it if `progress` says so, or the room for the temporary file that it fills
/// runs out.
fn follow(
    mut running: QemuProcess,
    subject: ImageLabel<'_>,
    length: u64,
    filled: Option<&TemporaryFile>,
    progress: OnProgress<'_>,
) -> Result<(), DiskError> {
    let percent = Arc::new(AtomicU64::new(0));
    if let Some(output) = running.output() {
        let percent = Arc::clone(&percent);
        thread::spawn(move || read_progress(output, &percent));
    }
    let status = loop {
        if let Some(status) = running.poll().map_err(|error| subject.cannot(error))? {
            break status;
        }
        tell(progress, length / 100 * percent.load(Ordering::Relaxed), length)?;
        filled.map_or(Ok(()), TemporaryFile::check_room)?;
        thread::sleep(POLL_INTERVAL);
    };
    if status.success() {
        return Ok(());
    }
    // A conversion that has filled the folder between two looks complains about the image, and names no folder.
    filled.map_or(Ok(()), TemporaryFile::check_room)?;
    Err(subject.cannot(running.complaint()))
}

/// Reports the progress of the conversion.
fn tell(progress: OnProgress<'_>, done_bytes: u64, total_bytes: u64) -> Result<(), DiskError> {
    match progress(Progress { done_bytes, total_bytes }).is_break() {
        true => Err(DiskError::Stopped(LongWork::Converting)),
        false => Ok(()),
    }
}

/// Stores the percentage that is done: `qemu-img -p` prints "    (12.34/100%)" repeatedly.
fn read_progress(output: ChildStdout, done: &AtomicU64) {
    let mut text = Vec::new();
    for byte in io::BufReader::new(output).bytes() {
        let Ok(byte) = byte else { break };
        text.push(byte);
        if byte != b')' && text.len() < 64 {
            continue;
        }
        if let Some(percent) = percent(&text) {
            done.store(percent, Ordering::Relaxed);
        }
        text.clear();
    }
}

fn percent(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (_, number) = text.rsplit_once('(')?;
    number.split(['.', '/']).next()?.trim().parse().ok().filter(|percent| *percent <= 100)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    /// Regression: a conversion that filled the folder for temporary files faster than the room was looked at failed
    /// with a hint to `qemu-img check`.
    #[test]
    fn a_failed_conversion_without_room_names_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let subject = ImageLabel { action: ImageAction::Read, format: ImageFormat::Vmdk, path: Path::new("a.vmdk") };
        let failed = |kept_bytes| {
            let arguments = ["convert", "/nonexistent/image", "/nonexistent/raw"].map(str::to_owned);
            let mut running = match QemuProcess::start(&arguments, &[]) {
                Ok(running) => running,
                Err(error) => {
                    eprintln!("SKIPPED: {error}");
                    return None;
                }
            };
            while running.poll().unwrap().is_none() {
                thread::sleep(POLL_INTERVAL);
            }
            let copy = TemporaryFile::filling(folder.path(), kept_bytes);
            Some(follow(running, subject, 0, Some(&copy), &|_| ControlFlow::Continue(())).unwrap_err())
        };
        let (Some(full), Some(roomy)) = (failed(u64::MAX), failed(0)) else { return };
        assert!(matches!(&full, DiskError::TemporaryCopy { folder: named, .. } if named == folder.path()), "{full}");
        assert!(matches!(roomy, DiskError::Image { source: ImageError::Complaint(_), .. }), "{roomy}");
    }

    #[test]
    fn progress_is_read_from_what_qemu_img_prints() {
        assert_eq!(percent(b"    (0.00/100%)"), Some(0));
        assert_eq!(percent(b"\r    (57.31/100%)"), Some(57));
        assert_eq!(percent(b"(100.00/100%)"), Some(100));
        assert_eq!(percent(b"(101.00/100%)"), None);
        assert_eq!(percent(b"warning)"), None);
        assert_eq!(percent(&[0xff, b')']), None);
    }
}
