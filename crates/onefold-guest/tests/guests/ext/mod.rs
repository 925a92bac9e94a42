//! ext2, ext3 and ext4 against the kernel that mounts them, `debugfs`, `dumpe2fs` and `e2fsck`.

mod allocation;
mod dirty;
mod features;
mod hostile;
mod inline_flag;
mod large;
mod leftover;
mod listing;
mod lookup;
mod matrix;
mod named;
mod options;
mod unused;
mod verity;

use std::fs::File;
use std::path::Path;

use onefold_disk::{CachedDisk, Disk, FileDisk};
use onefold_guest::error::GuestError;
use onefold_guest::ext::{self, Ext};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

/// A recipe of files, run in the folder that is to hold them. `$1` is `mounted` where all kinds of files can be made.
const RECIPE: &str = include_str!("recipe.sh");

/// Opens the file system that an image is, and hands it to `use_it`.
pub(crate) fn with_ext<T>(image: &Path, use_it: impl FnOnce(&Ext<'_>) -> T) -> T {
    try_with_ext(image, use_it).unwrap().expect("an ext file system")
}

/// As [`with_ext`], and returns why it cannot be opened.
fn try_with_ext<T>(image: &Path, use_it: impl FnOnce(&Ext<'_>) -> T) -> Result<Option<T>, GuestError> {
    let disk = FileDisk::new(File::open(image).unwrap(), image).unwrap();
    let disk = CachedDisk::new(&disk, 16 << 20);
    let whole = DiskRange { start_bytes: 0, length_bytes: disk.size_bytes() };
    let ranges = if whole.length_bytes == 0 { Vec::new() } else { vec![whole] };
    let volume = Volume { origin: VolumeOrigin::WholeDisk, ranges };
    Ok(ext::open(VolumeReader::new(&disk, &volume))?.map(|fs| use_it(&fs)))
}
