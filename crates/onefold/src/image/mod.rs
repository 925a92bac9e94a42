//! Disk images outside the pool: telling their format, and reading and writing them as disks.
//!
//! No parser of ours: qcow2 goes through the library `imago`, which streams in both directions; all other formats go
//! through QEMU's own `qemu-img`. Images are hostile input: a chain of backing files is followed only within
//! directories that were named, and only to a bounded depth.

mod chain;
mod detect;
mod qcow2;
mod qemu;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

pub(crate) use chain::Allowed;
pub(crate) use qcow2::Qcow2Sink;

use onefold_block::Show;

use crate::cli::values::ImageFormat;
use crate::disk::{Disk, FileDisk};
use crate::failure::{Failure, Outcome};
use crate::progress::Meter;

/// An image that is open for reading.
pub(crate) struct OpenImage {
    /// Its bytes.
    pub(crate) disk: Box<dyn Disk>,
    /// Its format, as it was given or told.
    pub(crate) format: ImageFormat,
}

/// Opens the image at `path`, whose format is told from its first bytes where it is not given.
///
/// A conversion that has to come first shows its progress on the meter that `meter` makes.
pub(crate) fn open(
    path: &Path,
    format: Option<ImageFormat>,
    backing_from: &[PathBuf],
    meter: &dyn Fn(String) -> Meter,
) -> Outcome<OpenImage> {
    let cannot = || format!("cannot open the image `{}`", path.shown());
    let file = open_plain(path).map_err(|error| Failure::of_io(cannot(), &error))?;
    let format = match format {
        Some(format) => format,
        None => detect::detect(&file).map_err(|error| Failure::of_io(cannot(), &error))?,
    };
    let disk: Box<dyn Disk> = match format {
        ImageFormat::Raw => Box::new(FileDisk::new(file, path)?),
        ImageFormat::Qcow2 => Box::new(qcow2::Qcow2Disk::open(path, &Allowed::beside(path, backing_from)?)?),
        ImageFormat::Vmdk | ImageFormat::Vdi | ImageFormat::Vhdx | ImageFormat::Vpc => {
            let allowed = Allowed::beside(path, backing_from)?;
            Box::new(qemu::convert(path, format, &allowed, &meter(format!("converting {}", path.shown())))?)
        }
    };
    Ok(OpenImage { disk, format })
}

/// Returns the format that the first bytes of the file at `path` tell; nothing where they cannot be read.
pub(crate) fn format_of(path: &Path) -> Option<ImageFormat> {
    open_plain(path).and_then(|file| detect::detect(&file)).ok()
}

/// Opens a regular file or a block device for reading. Others are refused: opening a pipe could wait for ever.
fn open_plain(path: &Path) -> std::io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return File::open(path);
    }
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is neither a file nor a block device"))
}
