//! Disk images outside the pool: telling their format, and reading and writing them as disks.
//!
//! qcow2 goes through the library `imago`, which streams in both directions; all other formats go through QEMU's own
//! `qemu-img`. Images are hostile input: the files that they name are opened here, by [`folders`]' rules and to a bounded
//! depth, and both get them as open files. Neither opens a name out of a header.

mod chain;
mod child;
mod detect;
mod file;
mod folders;
mod qcow2;
mod qemu;
mod room;
#[cfg(test)]
mod tests;
mod vmdk;

use std::path::PathBuf;

use onefold_block::Show;

pub(crate) use file::{Identity, ImageFile};
pub(crate) use qcow2::Qcow2Sink;

use crate::cli::values::ImageFormat;
use crate::disk::{Disk, FileDisk};
use crate::failure::{Failure, Outcome};
use crate::progress::Meter;

/// An image that is open for reading.
pub(crate) struct OpenImage {
    /// Its bytes.
    pub(crate) disk: Box<dyn Disk>,
    /// Its format, as it was given or recognised.
    pub(crate) format: ImageFormat,
}

/// Reads an open file as an image, whose format is recognised by its first bytes where it is not given.
///
/// `further` are folders that the image may refer to besides its own. A conversion that has to come first shows its progress
/// on the meter that `meter` makes.
pub(crate) fn open(
    file: ImageFile,
    format: Option<ImageFormat>,
    further: &[PathBuf],
    meter: &dyn Fn(String) -> Meter,
) -> Outcome<OpenImage> {
    let format = match format {
        Some(format) => format,
        None => detect::detect(&file.file)
            .map_err(|error| Failure::of_io(format!("cannot open the image `{}`", file.path.shown()), &error))?,
    };
    let disk: Box<dyn Disk> = match format {
        ImageFormat::Raw => Box::new(FileDisk::new(file.file, &file.path)?),
        ImageFormat::Qcow2 => Box::new(qcow2::Qcow2Disk::open(file, further)?),
        ImageFormat::Vmdk | ImageFormat::Vdi | ImageFormat::Vhdx | ImageFormat::Vpc => {
            let meter = meter(format!("converting {}", file.path.shown()));
            Box::new(qemu::convert(file, format, further, &meter)?)
        }
    };
    Ok(OpenImage { disk, format })
}

/// Returns the format that the first bytes of a file show; nothing where they cannot be read.
pub(crate) fn format_of(file: &ImageFile) -> Option<ImageFormat> {
    detect::detect(&file.file).ok()
}
