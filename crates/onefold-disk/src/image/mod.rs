//! Opens the disk in an image, whatever its format.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::chain::ImageChain;
use crate::disk::Disk;
use crate::error::{DiskError, FileAction};
use crate::format::{ImageFormat, detect, head};
use crate::image_file::{ImageFile, NamedFile};
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
    /// Its given or recognised format.
    pub format: ImageFormat,
    /// Whether the disk lies in the image's file alone: without a backing file, a data file or conversion. Otherwise
    /// [`Disk::in_file`] returns no offsets.
    pub is_one_file: bool,
    /// The other files that the disk lies in: backing files, data files, extents.
    pub others: Vec<NamedFile>,
}

impl std::fmt::Debug for OpenImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenImage").field("format", &self.format).finish_non_exhaustive()
    }
}

/// Opens an open file as an image. If no format is given, it is recognised by the file's first bytes.
///
/// `further` are folders that the image may refer to besides its own. `progress` is called only if the image has to be
/// converted first.
///
/// # Errors
/// When the file is no image of the format, refers to a forbidden file, or cannot be converted; also when `progress`
/// stops the conversion.
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
    let (disk, is_one_file, others): (Box<dyn Disk>, bool, Vec<NamedFile>) = match format {
        ImageFormat::Raw => (Box::new(FileDisk::new(file.file, &file.path)?), true, Vec::new()),
        ImageFormat::Qcow2 => {
            let mut chain = ImageChain::start(&file, further)?;
            let disk = Qcow2Disk::open(file, &mut chain)?;
            let is_one_file = disk.is_one_file();
            (Box::new(disk), is_one_file, chain.into_named())
        }
        ImageFormat::Vmdk | ImageFormat::Vdi | ImageFormat::Vhdx | ImageFormat::Vpc => {
            let mut chain = ImageChain::start(&file, further)?;
            (Box::new(convert(file, format, &mut chain, progress)?), false, chain.into_named())
        }
    };
    Ok(OpenImage { disk, format, is_one_file, others })
}

/// Opens a qcow2 image that consists of this one file, which is open for reading. Follows no name to another file.
/// `path` is for messages.
///
/// # Errors
/// When the image is damaged, or consists of several files.
pub fn open_alone(file: File, path: &Path) -> Result<Box<dyn Disk>, DiskError> {
    Ok(Box::new(Qcow2Disk::open_alone(file, path)?))
}

/// Returns the first 512 bytes of a file, fewer if it is shorter.
///
/// # Errors
/// Those of reading it.
pub fn head_of(file: &ImageFile) -> io::Result<Vec<u8>> {
    head(&file.file)
}

/// Returns the format indicated by the first bytes of a file; `None` if they cannot be read.
#[must_use]
pub fn format_of(file: &ImageFile) -> Option<ImageFormat> {
    detect(&file.file).ok()
}
