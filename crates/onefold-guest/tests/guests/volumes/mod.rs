//! Partition tables, LVM2, FAT, swap, and what is named without being read.

mod content;
mod fat;
mod lvm;
mod over_disk;
mod partition;
mod swap;

use std::fs::File;
use std::path::Path;

use onefold_disk::{Disk, FileDisk};
use onefold_guest::volume::{Volume, VolumeReader};
use onefold_guest::volumes_of;

/// Opens a raw image.
fn disk(path: &Path) -> FileDisk {
    FileDisk::new(File::open(path).unwrap(), path).unwrap()
}

/// Returns a reader of a disk that has no partition table.
fn whole(disk: &FileDisk) -> VolumeReader<'_> {
    VolumeReader::new(disk, &whole_volume(disk))
}

fn whole_volume(disk: &FileDisk) -> Volume {
    volumes_of(None, disk.size_bytes()).remove(0)
}

/// Returns the words of each line that a script printed.
fn words(printed: &str) -> Vec<Vec<&str>> {
    printed.lines().map(|line| line.split_whitespace().collect()).collect()
}
