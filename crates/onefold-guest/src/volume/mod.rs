//! Volumes: parts of a disk with one content each, as lists of ranges of the disk.

mod reader;

pub use reader::VolumeReader;

/// A part of a disk with one content. Its bytes are those of its consecutive ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its role on the disk.
    pub origin: VolumeOrigin,
    /// The places of its bytes, in its own order. No range is empty, and all are on the disk.
    pub ranges: Vec<DiskRange>,
}

/// Role of a volume on its disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VolumeOrigin {
    /// The whole disk, which has no partition table, or one that is not its own.
    WholeDisk,
    /// A partition.
    Partition {
        /// The number that Linux gives it, from 1.
        number: u32,
    },
    /// A logical volume of LVM2.
    Logical {
        /// The name of its group.
        group: String,
        /// Its own name.
        name: String,
    },
}

/// A range of a disk. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskRange {
    /// Its first byte on the disk.
    pub start_bytes: u64,
    /// Its length in bytes.
    pub length_bytes: u64,
}

impl DiskRange {
    /// Returns the byte of the disk after the last one.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.start_bytes + self.length_bytes
    }
}

impl Volume {
    /// Returns the volume of a whole disk of `disk_bytes`; `None` for an empty disk.
    #[must_use]
    pub fn whole_disk(disk_bytes: u64) -> Option<Volume> {
        let ranges = vec![DiskRange { start_bytes: 0, length_bytes: disk_bytes }];
        (disk_bytes > 0).then_some(Volume { origin: VolumeOrigin::WholeDisk, ranges })
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.length_bytes).sum()
    }
}
