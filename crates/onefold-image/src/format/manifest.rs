//! Manifests: one version of one image.

use onefold_block::Timestamp;

use crate::format::descriptor::UnitKind;
use crate::{ArchiveId, ImageVersion, ObjectId, UnitName};

/// One version of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The archive that it belongs to.
    pub archive: ArchiveId,
    /// Its own name.
    pub id: ObjectId,
    /// The image.
    pub image: ImageVersion,
    /// When the capture began.
    pub captured: Timestamp,
    /// Length of the disk in bytes.
    pub size_bytes: u64,
    /// How its units were cut.
    pub units: UnitKind,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// What was found on the disk, and how it was captured, in the order of the disk.
    pub volumes: Vec<CapturedVolume>,
    /// Where its bytes went.
    pub totals: Totals,
    /// Names of the headers of all chunks, in the order of the disk.
    pub chunks: Vec<UnitName>,
    /// Where each region of the disk has its chunks, one for each region.
    pub regions: Vec<RegionChunks>,
}

/// The chunks of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionChunks {
    /// Index of the first chunk that begins in this region; that of the next region if none does. The chunks up to the
    /// first one of the next region begin here, too.
    pub first: u32,
    /// Further chunks that have sectors here, in order; `None` if they are more than [`OTHERS_MAX`].
    pub others: Option<Vec<u32>>,
}

/// Maximum number of further chunks that a region lists.
pub const OTHERS_MAX: usize = 1024;

/// How one volume of a disk was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedVolume {
    /// First byte on the disk.
    pub start_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
    /// What it holds, as "ext4"; of Onefold's own words, at most 64 bytes.
    pub content: String,
    /// How it was captured.
    pub way: CaptureWay,
    /// Its bytes that were taken and are not zero.
    pub taken_bytes: u64,
}

/// How a volume was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureWay {
    /// By its allocation map: everything except what is free with certainty.
    Map,
    /// Raw: every byte that is not zero, for a reason in Onefold's own words, at most 256 bytes.
    Raw(String),
}

/// Where the bytes of a disk went: `size = free + zero + data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Free with certainty, and not captured.
    pub free_bytes: u64,
    /// Taken, and zero.
    pub zero_bytes: u64,
    /// In units.
    pub data_bytes: u64,
    /// Number of units of the image.
    pub units: u64,
    /// Number of units that the archive did not have.
    pub new_units: u64,
    /// Plain bytes of the new units.
    pub new_bytes: u64,
    /// Bytes that the new units, headers of chunks among them, take in packs.
    pub stored_bytes: u64,
}
