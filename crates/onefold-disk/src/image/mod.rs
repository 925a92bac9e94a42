//! Opening an image as the disk in it, whatever its format.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::error::{DiskError, FileAction};
use crate::format::{ImageFormat, detect};
use crate::image_file::ImageFile;
use crate::progress::OnProgress;
use crate::qcow2::Qcow2Disk;
use crate::qemu::convert;
use crate::raw::FileDisk;

#[cfg(test)]
mod tests;

/// An image that is open for reading.
pub struct OpenImage {
    /// Its bytes.
    pub disk: Box<dyn Disk>,
    /// Its format, as it was given or recognised.
    pub format: ImageFormat,
    /// Whether the disk lies in the file of the image alone: that has no backing file and no data file, and was not
    /// converted. [`Disk::in_file`] tells no place otherwise.
    pub is_one_file: bool,
}

impl std::fmt::Debug for OpenImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenImage").field("format", &self.format).finish_non_exhaustive()
    }
}

/// Reads an open file as an image, whose format is recognised by its first bytes where it is not given.
///
/// `further` are folders that the image may refer to besides its own. `progress` is called only where the image has to
/// be converted first.
///
/// # Errors
/// When the image is no image of its format, refers to a file that it may not, or cannot be converted; also when
/// `progress` stops the conversion.
pub fn open(
    file: ImageFile,
    format: Option<ImageFormat>,
    further: &[PathBuf],
    progress: OnProgress<'_>,
) -> Result<OpenImage, DiskError> {
    let format = match format {
        Some(format) => format,
        None => match detect(&file.file) {
            Ok(format) => format,
            Err(source) => {
                return Err(DiskError::File { action: FileAction::OpenImage, path: file.path, source });
            }
        },
    };
    let (disk, is_one_file): (Box<dyn Disk>, bool) = match format {
        ImageFormat::Raw => (Box::new(FileDisk::new(file.file, &file.path)?), true),
        ImageFormat::Qcow2 => {
            let disk = Qcow2Disk::open(file, further)?;
            let is_one_file = disk.is_one_file();
            (Box::new(disk), is_one_file)
        }
        ImageFormat::Vmdk | ImageFormat::Vdi | ImageFormat::Vhdx | ImageFormat::Vpc => {
            (Box::new(convert(file, format, further, progress)?), false)
        }
    };
    Ok(OpenImage { disk, format, is_one_file })
}

/// Reads a qcow2 image that consists of this one file, which is open for reading. It names no other file that would be
/// opened; `path` is for messages.
///
/// # Errors
/// When the image is damaged, or consists of several files.
pub fn open_alone(file: File, path: &Path) -> Result<Box<dyn Disk>, DiskError> {
    Ok(Box::new(Qcow2Disk::open_alone(file, path)?))
}

/// Returns the format that the first bytes of a file show; nothing where they cannot be read.
#[must_use]
pub fn format_of(file: &ImageFile) -> Option<ImageFormat> {
    detect(&file.file).ok()
}
