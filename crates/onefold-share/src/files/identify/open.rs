//! An image of the list, opened as a disk.

use onefold_disk::{Disk, ImageFormat, open_alone};
use onefold_substrate::{Access, FileStat, Substrate};

use super::IdentifyError;
use super::disk::SubstrateDisk;
use crate::scan::ListedFile;

/// Bytes at the start of an image that show its format.
const HEAD_BYTES: usize = 512;

/// Opens the file of an image for reading.
///
/// # Errors
/// `Replaced` if its name leads to another file by now, which may be outside the selection, opted out, or of another
/// domain.
pub(in crate::files) fn open_listed<S: Substrate>(
    substrate: &S,
    listed: &ListedFile,
) -> Result<(S::File, FileStat), IdentifyError> {
    let file = substrate.open(&listed.path, Access::Read).map_err(IdentifyError::File)?;
    let stat = substrate.stat(&file).map_err(IdentifyError::File)?;
    if stat.handle == listed.stat.handle { Ok((file, stat)) } else { Err(IdentifyError::Replaced) }
}

/// Returns the disk in an open image of `size_bytes`. No other file is opened for it.
///
/// # Errors
/// `Format` if guests in images of its format are not read, and errors of the file.
pub(in crate::files) fn disk_of<'f, S: Substrate>(
    substrate: &'f S,
    listed: &ListedFile,
    file: &'f S::File,
    size_bytes: u64,
) -> Result<Box<dyn Disk + 'f>, IdentifyError> {
    let reader = substrate.borrowed_reader(file).ok_or(IdentifyError::Unreadable)?;
    let mut head = [0; HEAD_BYTES];
    let count = reader.read_at(0, &mut head).map_err(IdentifyError::File)?;
    match ImageFormat::of_head(head.get(..count).unwrap_or_default()) {
        ImageFormat::Raw => Ok(Box::new(SubstrateDisk::new(reader, size_bytes))),
        ImageFormat::Qcow2 => {
            let file = substrate.as_system_file(file).map_err(IdentifyError::File)?;
            Ok(open_alone(file.ok_or(IdentifyError::Format(ImageFormat::Qcow2))?, &listed.path)?)
        }
        other => Err(IdentifyError::Format(other)),
    }
}
